/*
 * What C and C++ see of the interface: sizes, offsets and numbers, compared with layouts.txt. A change there breaks programs that are built already.
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
    return 0;
}
