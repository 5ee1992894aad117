/*
 * Functions on traces: calls them as the arguments say, so that run.py can compare them with the
 * command, and uses them wrongly.
 *
 *     traces CALL PATH FORMATS [KEY=VALUE]... -- TRACE...
 *     traces wrong FOLDER GOOD_TRACE OTHER_TRACE
 *     traces threads - TRACE...
 */
#define _DEFAULT_SOURCE

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <probe_sync.h>

#define NEED(condition)                                                                                 \
    do {                                                                                                \
        if (!(condition)) {                                                                             \
            fprintf(stderr, "line %d: %s; last error: %s\n", __LINE__, #condition, ps_last_error()); \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)

/* The status is the one expected, and the text says why. */
#define FAILS(status, expected, part)                      \
    do {                                                   \
        NEED((status) == (expected));                      \
        NEED(strstr(ps_last_error(), (part)) != NULL);     \
    } while (0)

/* Prints the document, and the status on a line of its own. */
static int call(int argc, char **argv)
{
    const char *name = argv[1], *path = argv[2], *formats = argv[3];
    ps_trace_options *options = NULL;
    ps_trace_result result;
    ps_status status;
    int at = 4;
    const char *const *traces;
    size_t count;

    NEED(ps_trace_options_new(&options) == PS_OK);
    for (; at < argc && strcmp(argv[at], "--") != 0; at++) {
        char *value = strchr(argv[at], '=');
        NEED(value != NULL);
        *value = '\0';
        if (ps_trace_options_set(options, argv[at], value + 1) != PS_OK) {
            printf("%s\n", ps_last_error());
            ps_trace_options_free(options);
            return PS_ERROR_OPTION;
        }
    }
    NEED(at < argc);
    traces = (const char *const *)&argv[at + 1];
    count = (size_t)(argc - at - 1);
    result.size = sizeof result;
    if (strcmp(name, "align") == 0)
        status = ps_align(traces, count, options, path, &result);
    else if (strcmp(name, "merge") == 0)
        status = ps_merge(traces, count, options, path, &result);
    else if (strcmp(name, "convert") == 0)
        status = ps_convert(traces, count, options, path, formats, &result);
    else
        status = ps_check(traces, count, options, &result);
    if (status == PS_OK || status == PS_ERROR_VIOLATED) {
        printf("%s\n", result.json);
        fprintf(stderr, "%llu %llu %llu %llu %d\n%s\n", (unsigned long long)result.traces, (unsigned long long)result.skipped,
                (unsigned long long)result.edges, (unsigned long long)result.violations, (int)result.outcome, result.notes);
    } else {
        NEED(result.json == NULL && result.notes == NULL && result.traces == 0);
        printf("%s\n", ps_last_error());
    }
    ps_trace_result_free(&result);
    ps_trace_result_free(&result);
    ps_trace_options_free(options);
    return (int)status;
}

static ps_status with(const char *key, const char *value, const char *const *traces, size_t count)
{
    ps_trace_options *options = NULL;
    ps_status status;

    NEED(ps_trace_options_new(&options) == PS_OK);
    status = ps_trace_options_set(options, key, value);
    if (status == PS_OK)
        status = ps_check(traces, count, options, NULL);
    ps_trace_options_free(options);
    return status;
}

static void wrong(const char *folder, const char *good, const char *other)
{
    const char *traces[] = {good, other};
    const char *with_null[] = {good, NULL};
    const char *missing[] = {"/no/such/trace.json"};
    const char *damaged[] = {NULL};
    char path[4096], output[4096];
    ps_trace_options *options = NULL;
    ps_trace_result result;
    FILE *file;

    ps_trace_options_free(NULL);
    ps_trace_result_free(NULL);
    FAILS(ps_trace_options_new(NULL), PS_ERROR_ARGUMENT, "options is NULL");
    FAILS(ps_trace_options_set(NULL, "nodes", "0"), PS_ERROR_ARGUMENT, "options is NULL");
    FAILS(ps_check(NULL, 1, NULL, NULL), PS_ERROR_ARGUMENT, "traces is NULL");
    FAILS(ps_check(NULL, 0, NULL, NULL), PS_ERROR_ARGUMENT, "no traces");
    FAILS(ps_check(with_null, 2, NULL, NULL), PS_ERROR_ARGUMENT, "a path in traces is NULL");
    FAILS(ps_align(traces, 2, NULL, NULL, NULL), PS_ERROR_ARGUMENT, "output is NULL");
    FAILS(ps_merge(traces, 2, NULL, NULL, NULL), PS_ERROR_ARGUMENT, "output is NULL");
    FAILS(ps_convert(traces, 2, NULL, folder, NULL, NULL), PS_ERROR_ARGUMENT, "formats is NULL");
    FAILS(ps_convert(traces, 2, NULL, folder, "json,dvi", NULL), PS_ERROR_ARGUMENT, "\"dvi\" is unknown");
    result.size = 8;
    FAILS(ps_check(traces, 2, NULL, &result), PS_ERROR_ARGUMENT, "sizeof(ps_trace_result)");

    FAILS(with("knots", "1", traces, 2), PS_ERROR_OPTION, "unknown key");
    FAILS(with("nodes", "0-", traces, 2), PS_ERROR_OPTION, "is not a list of nodes");
    FAILS(with("timeline", "gpu", traces, 2), PS_ERROR_OPTION, "host or tracer");
    FAILS(with("skip_bad", "yes", traces, 2), PS_ERROR_OPTION, "true or false");
    FAILS(with("extrapolate", "1 parsec", traces, 2), PS_ERROR_OPTION, "extrapolate = 1 parsec");
    FAILS(with("ranks", "0-1", traces, 2), PS_ERROR_OPTION, "ranks does not apply to ps_check()");
    FAILS(with("max_rate_change", "10", traces, 2), PS_ERROR_OPTION, "needs from_collectives");
    FAILS(with("offsets", "/no/such/offsets.csv", traces, 2), PS_ERROR_SYSTEM, "/no/such/offsets.csv");
    NEED(with("skip_bad", "false", traces, 2) == PS_OK);

    NEED(ps_trace_options_new(&options) == PS_OK);
    NEED(ps_trace_options_set(options, "run_dir", folder) == PS_OK);
    NEED(ps_trace_options_set(options, "offsets", folder) == PS_OK);
    FAILS(ps_check(traces, 2, options, NULL), PS_ERROR_OPTION, "run_dir and offsets exclude each other");
    ps_trace_options_free(options);

    /* Errors name the file, and the position in it. */
    result.size = sizeof result;
    FAILS(ps_check(missing, 1, NULL, &result), PS_ERROR_SYSTEM, "/no/such/trace.json");
    NEED(result.json == NULL && result.outcome == PS_OUTCOME_UNCHECKED);
    snprintf(path, sizeof path, "%s/damaged.json", folder);
    file = fopen(path, "w");
    NEED(file != NULL && fputs("{\"traceEvents\": [{\"ph\": \"X\", \"ts\": 1, \"dur\"", file) >= 0 && fclose(file) == 0);
    damaged[0] = path;
    FAILS(ps_check(damaged, 1, NULL, &result), PS_ERROR_DAMAGED, "damaged.json: byte ");

    /* An input is not overwritten, and nothing is left of a merge that fails. */
    FAILS(ps_merge(traces, 2, NULL, good, NULL), PS_ERROR_OPTION, "would overwrite");
    snprintf(output, sizeof output, "%s/none.json", folder);
    damaged[0] = path;
    NEED(ps_merge(damaged, 1, NULL, output, NULL) == PS_ERROR_DAMAGED);
    NEED(fopen(output, "r") == NULL);
    printf("wrong: ok\n");
}

struct job {
    const char *const *traces;
    size_t count;
    char *json;
};

static void *checked(void *argument)
{
    struct job *job = (struct job *)argument;
    ps_trace_result result;

    result.size = sizeof result;
    if (ps_check(job->traces, job->count, NULL, &result) == PS_OK)
        job->json = strdup(result.json);
    ps_trace_result_free(&result);
    return NULL;
}

/* Calls on several threads do not affect each other. */
static void threads(const char *const *traces, size_t count)
{
    pthread_t ids[4];
    struct job jobs[4];
    int at;

    for (at = 0; at < 4; at++) {
        jobs[at].traces = traces;
        jobs[at].count = count;
        jobs[at].json = NULL;
        NEED(pthread_create(&ids[at], NULL, checked, &jobs[at]) == 0);
    }
    for (at = 0; at < 4; at++)
        NEED(pthread_join(ids[at], NULL) == 0);
    for (at = 0; at < 4; at++)
        NEED(jobs[at].json != NULL && strcmp(jobs[at].json, jobs[0].json) == 0);
    for (at = 0; at < 4; at++)
        free(jobs[at].json);
    printf("threads: ok\n");
}

int main(int argc, char **argv)
{
    NEED(argc >= 4);
    if (strcmp(argv[1], "wrong") == 0) {
        NEED(argc == 5);
        wrong(argv[2], argv[3], argv[4]);
        return 0;
    }
    if (strcmp(argv[1], "threads") == 0) {
        threads((const char *const *)&argv[3], (size_t)argc - 3);
        return 0;
    }
    return call(argc, argv);
}
