/*
 * What C and C++ see of the interface: sizes, offsets and numbers, compared with layouts.txt. A
 * change there breaks programs that are built already.
 */
#include <stddef.h>
#include <stdio.h>

#include <probe_sync.h>

#define STRUCT(type) printf("%s %zu\n", #type, sizeof(type))
#define FIELD(type, field) printf("  %s %zu\n", #field, offsetof(type, field))
#define NUMBER(name) printf("%s %d\n", #name, (int)(name))

int main(void)
{
    STRUCT(ps_unique_id);
    FIELD(ps_unique_id, bytes);
    STRUCT(ps_time);
    FIELD(ps_time, earliest_ns);
    FIELD(ps_time, latest_ns);
    FIELD(ps_time, time_ns);
    FIELD(ps_time, bound95_ns);
    FIELD(ps_time, epoch);
    FIELD(ps_time, status);
    STRUCT(ps_interval);
    FIELD(ps_interval, earliest_ns);
    FIELD(ps_interval, latest_ns);
    FIELD(ps_interval, time_ns);
    FIELD(ps_interval, bound95_ns);
    STRUCT(ps_state);
    FIELD(ps_state, rounds);
    FIELD(ps_state, phase);
    FIELD(ps_state, rank);
    FIELD(ps_state, node);
    FIELD(ps_state, reference);
    FIELD(ps_state, nodes);
    STRUCT(ps_round);
    FIELD(ps_round, round_id);
    FIELD(ps_round, window_start_ns);
    FIELD(ps_round, window_end_ns);
    FIELD(ps_round, reference);
    FIELD(ps_round, nodes);
    STRUCT(ps_node_estimate);
    FIELD(ps_node_estimate, offset_ns);
    FIELD(ps_node_estimate, bound95_ns);
    FIELD(ps_node_estimate, hard_low_ns);
    FIELD(ps_node_estimate, hard_high_ns);
    FIELD(ps_node_estimate, drift_ppm);
    FIELD(ps_node_estimate, drift_sigma_ppm);
    FIELD(ps_node_estimate, node);
    FIELD(ps_node_estimate, edges);
    FIELD(ps_node_estimate, reachable);
    FIELD(ps_node_estimate, disturbed);
    STRUCT(ps_trace_result);
    FIELD(ps_trace_result, size);
    FIELD(ps_trace_result, json);
    FIELD(ps_trace_result, notes);
    FIELD(ps_trace_result, traces);
    FIELD(ps_trace_result, skipped);
    FIELD(ps_trace_result, edges);
    FIELD(ps_trace_result, violations);
    FIELD(ps_trace_result, outcome);
    STRUCT(ps_outcome);
    NUMBER(PS_OUTCOME_UNCHECKED);
    NUMBER(PS_OUTCOME_HOLDS);
    NUMBER(PS_OUTCOME_VIOLATED);
    NUMBER(PS_OUTCOME_INCOMPLETE);
    NUMBER(PS_OUTCOME_NOTHING);
    STRUCT(ps_messages);
    FIELD(ps_messages, context);
    FIELD(ps_messages, rank);
    FIELD(ps_messages, size);
    FIELD(ps_messages, threads);
    FIELD(ps_messages, send);
    FIELD(ps_messages, receive);
    FIELD(ps_messages, sending);
    FIELD(ps_messages, describe);
    FIELD(ps_messages, release);
    STRUCT(ps_threads);
    NUMBER(PS_THREADS_OWN);
    NUMBER(PS_THREADS_ONE_AT_A_TIME);
    NUMBER(PS_THREADS_ANY);
    STRUCT(ps_status);
    NUMBER(PS_OK);
    NUMBER(PS_ERROR_ARGUMENT);
    NUMBER(PS_ERROR_OPTION);
    NUMBER(PS_ERROR_MEETING);
    NUMBER(PS_ERROR_STARTED);
    NUMBER(PS_ERROR_FAILED);
    NUMBER(PS_ERROR_ENDED);
    NUMBER(PS_ERROR_FORKED);
    NUMBER(PS_ERROR_TIMEOUT);
    NUMBER(PS_ERROR_UNKNOWN);
    NUMBER(PS_ERROR_CLOCK);
    NUMBER(PS_ERROR_SYSTEM);
    NUMBER(PS_ERROR_MPI);
    NUMBER(PS_ERROR_PANIC);
    NUMBER(PS_ERROR_UNREACHABLE);
    NUMBER(PS_ERROR_DAMAGED);
    NUMBER(PS_ERROR_REFUSED);
    NUMBER(PS_ERROR_VIOLATED);
    STRUCT(ps_phase);
    NUMBER(PS_PHASE_MEETING);
    NUMBER(PS_PHASE_MEASURING);
    NUMBER(PS_PHASE_ENDED);
    NUMBER(PS_PHASE_FAILED);
    STRUCT(ps_clock_status);
    NUMBER(PS_CLOCK_UNSYNCHRONISED);
    NUMBER(PS_CLOCK_SYNCHRONISED);
    NUMBER(PS_CLOCK_HOLDOVER);
    NUMBER(PS_CLOCK_FAILED);
    STRUCT(ps_record_scope);
    FIELD(ps_record_scope, site);
    FIELD(ps_record_scope, place);
    FIELD(ps_record_scope, start);
    FIELD(ps_record_scope, id);
    FIELD(ps_record_scope, gate);
    FIELD(ps_record_scope, reserved);
    STRUCT(ps_record_argument);
    FIELD(ps_record_argument, key);
    FIELD(ps_record_argument, type);
    FIELD(ps_record_argument, value);
    STRUCT(ps_record_collective);
    FIELD(ps_record_collective, name);
    FIELD(ps_record_collective, group);
    FIELD(ps_record_collective, dtype);
    FIELD(ps_record_collective, sequence);
    FIELD(ps_record_collective, elements_in);
    FIELD(ps_record_collective, elements_out);
    FIELD(ps_record_collective, group_size);
    FIELD(ps_record_collective, rank);
    STRUCT(ps_record_memory);
    FIELD(ps_record_memory, address);
    FIELD(ps_record_memory, bytes);
    FIELD(ps_record_memory, device);
    FIELD(ps_record_memory, allocated);
    FIELD(ps_record_memory, reserved);
    STRUCT(ps_record_value);
    STRUCT(ps_record_kind);
    NUMBER(PS_RECORD_FUNCTION);
    NUMBER(PS_RECORD_BACKWARD);
    NUMBER(PS_RECORD_USER);
    NUMBER(PS_RECORD_COLLECTIVE);
    NUMBER(PS_RECORD_RUNTIME);
    NUMBER(PS_RECORD_IO);
    NUMBER(PS_RECORD_MEMORY);
    NUMBER(PS_RECORD_CUSTOM);
    STRUCT(ps_record_type);
    NUMBER(PS_RECORD_INTEGER);
    NUMBER(PS_RECORD_UNSIGNED);
    NUMBER(PS_RECORD_NUMBER);
    NUMBER(PS_RECORD_BOOLEAN);
    NUMBER(PS_RECORD_TEXT);
    STRUCT(ps_record_flow_place);
    NUMBER(PS_RECORD_FLOW_OUT);
    NUMBER(PS_RECORD_FLOW_STEP);
    NUMBER(PS_RECORD_FLOW_IN);
    return 0;
}
