/*
 * Merges the traces of a job onto one clock, and checks before and after whether causality holds:
 *
 *     ./traces examples/traces/torch/offsets.csv merged.json.gz examples/traces/torch/node*.json.gz
 *
 * The traces are one per node, in the order of the nodes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <probe_sync.h>

static void need(ps_status status)
{
    if (status != PS_OK) {
        fprintf(stderr, "%s\n", ps_last_error());
        exit(1);
    }
}

static void check(const char *when, const char *const *traces, size_t count, const ps_trace_options *options)
{
    ps_trace_result result;

    result.size = sizeof result; /* the rest is written by the call */
    need(ps_check(traces, count, options, &result));
    printf("%s: %" PRIu64 " of %" PRIu64 " edges are broken\n", when, result.violations, result.edges);
    ps_trace_result_free(&result);
}

int main(int argc, char **argv)
{
    ps_trace_options *options = NULL;
    ps_trace_result result;
    const char *const *traces;
    size_t count;

    if (argc < 4) {
        fprintf(stderr, "usage: %s OFFSETS OUTPUT TRACE...\n", argv[0]);
        return 2;
    }
    traces = (const char *const *)&argv[3];
    count = (size_t)argc - 3;

    check("as recorded", traces, count, NULL);

    need(ps_trace_options_new(&options));
    need(ps_trace_options_set(options, "offsets", argv[1])); /* or run_dir, or from_collectives */
    need(ps_trace_options_set(options, "assume_order", "true"));
    check("on one clock", traces, count, options);

    result.size = sizeof result;
    need(ps_merge(traces, count, options, argv[2], &result));
    printf("merged %" PRIu64 " traces into %s\n", result.traces, argv[2]);
    ps_trace_result_free(&result);
    ps_trace_options_free(options);
    return 0;
}
