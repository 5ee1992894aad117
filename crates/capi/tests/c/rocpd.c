/*
 * Writes a database: `rocpd write PATH` flushes and waits for a line on standard input before it
 * closes the file; `rocpd endless PATH` is killed; `rocpd wrong PATH` uses the functions wrongly.
 */
#define _DEFAULT_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <probe_sync.h>

#define NEED(condition)                                                                              \
    do {                                                                                             \
        if (!(condition)) {                                                                          \
            fprintf(stderr, "line %d: %s; last error: %s\n", __LINE__, #condition, ps_last_error()); \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)

/* The status is the one expected, and the text says why. */
#define FAILS(status, expected, part)                  \
    do {                                               \
        NEED((status) == (expected));                  \
        NEED(strstr(ps_last_error(), (part)) != NULL); \
    } while (0)

static ps_rocpd_event event(uint32_t kind, const char *name, int64_t start_ns, int64_t end_ns)
{
    ps_rocpd_event made;

    memset(&made, 0, sizeof made);
    made.size = sizeof made;
    made.kind = kind;
    made.name = name;
    made.start_ns = start_ns;
    made.end_ns = end_ns;
    return made;
}

static void write_all(const char *path)
{
    ps_rocpd *rocpd = NULL;
    ps_rocpd_report report;
    ps_rocpd_event events[6];
    uint32_t gpus[2];

    NEED(ps_rocpd_open(path, 3600000, &rocpd) == PS_OK);
    NEED(ps_rocpd_agent(rocpd, "gfx942", 0, &gpus[0]) == PS_OK);
    NEED(ps_rocpd_agent(rocpd, "gfx942", 1, &gpus[1]) == PS_OK);
    events[0] = event(PS_ROCPD_REGION, "step", 1000, 9000);
    events[0].stack_id = 7;
    events[1] = event(PS_ROCPD_KERNEL, "gemm", 2000, 5000);
    events[1].agent = gpus[0];
    events[1].stack_id = 7;
    events[1].queue = "Queue 1";
    events[1].stream = "Stream 1";
    events[2] = event(PS_ROCPD_KERNEL, "gemm", 5000, 6000);
    events[2].agent = gpus[1];
    events[3] = event(PS_ROCPD_COPY, "MEMORY_COPY_DEVICE_TO_DEVICE", 6000, 8000);
    events[3].agent = gpus[0];
    events[3].destination = gpus[1];
    events[3].bytes = 4096;
    events[4] = event(PS_ROCPD_COUNTER, "power", 6500, 0);
    events[4].agent = gpus[0];
    events[4].value = 512.5;
    events[5] = event(PS_ROCPD_SAMPLE, "checkpoint", 8500, 0);
    NEED(ps_rocpd_write(rocpd, events, 6) == PS_OK);
    NEED(ps_rocpd_flush(rocpd, 30000) == PS_OK);
    printf("flushed\n");
    fflush(stdout);
    NEED(getchar() == '\n');
    events[0] = event(PS_ROCPD_REGION, "step", 10000, 19000);
    NEED(ps_rocpd_write(rocpd, events, 1) == PS_OK);
    report.size = sizeof report;
    NEED(ps_rocpd_close(rocpd, &report) == PS_OK);
    printf("%llu events, %llu dropped\n", (unsigned long long)report.events, (unsigned long long)report.dropped);
    FAILS(ps_rocpd_write(rocpd, events, 1), PS_ERROR_ENDED, "is closed");
    FAILS(ps_rocpd_flush(rocpd, 0), PS_ERROR_ENDED, "is closed");
    FAILS(ps_rocpd_close(rocpd, NULL), PS_ERROR_ENDED, "is closed");
    ps_rocpd_free(rocpd);
}

static void write_endlessly(const char *path)
{
    ps_rocpd *rocpd = NULL;
    int64_t at;

    NEED(ps_rocpd_open(path, 5, &rocpd) == PS_OK);
    for (at = 0;; at++) {
        ps_rocpd_event region = event(PS_ROCPD_REGION, "step", at, at + 1);
        NEED(ps_rocpd_write(rocpd, &region, 1) == PS_OK);
        if (at == 1000) {
            NEED(ps_rocpd_flush(rocpd, 30000) == PS_OK);
            printf("flushed\n");
            fflush(stdout);
        }
        if (at % 100 == 0)
            usleep(1000);
    }
}

static void wrong(const char *path)
{
    ps_rocpd *rocpd = NULL, *other = NULL;
    ps_rocpd_report report;
    ps_rocpd_event region = event(PS_ROCPD_REGION, "step", 1, 2);
    ps_rocpd_event bad = region;
    uint32_t agent = 0;
    int status;
    pid_t child;

    ps_rocpd_free(NULL);
    FAILS(ps_rocpd_open(NULL, 0, &rocpd), PS_ERROR_ARGUMENT, "path is NULL");
    FAILS(ps_rocpd_open(path, 0, NULL), PS_ERROR_ARGUMENT, "rocpd is NULL");
    FAILS(ps_rocpd_open("%nonsense%.db", 0, &rocpd), PS_ERROR_ARGUMENT, "%nonsense%");
    FAILS(ps_rocpd_open("/proc/none.db", 0, &rocpd), PS_ERROR_SYSTEM, "/proc/none.db");
    NEED(ps_rocpd_open(path, 0, &rocpd) == PS_OK);
    FAILS(ps_rocpd_open(path, 0, &other), PS_ERROR_SYSTEM, "already exists");
    FAILS(ps_rocpd_agent(rocpd, NULL, 0, &agent), PS_ERROR_ARGUMENT, "name is NULL");
    FAILS(ps_rocpd_write(NULL, &region, 1), PS_ERROR_ARGUMENT, "rocpd is NULL");
    FAILS(ps_rocpd_write(rocpd, NULL, 1), PS_ERROR_ARGUMENT, "events is NULL");
    NEED(ps_rocpd_write(rocpd, NULL, 0) == PS_OK);
    bad.size = 8;
    FAILS(ps_rocpd_write(rocpd, &bad, 1), PS_ERROR_ARGUMENT, "sizeof(ps_rocpd_event)");
    bad = region;
    bad.kind = 9;
    FAILS(ps_rocpd_write(rocpd, &bad, 1), PS_ERROR_ARGUMENT, "kind is 9");
    bad = region;
    bad.name = NULL;
    FAILS(ps_rocpd_write(rocpd, &bad, 1), PS_ERROR_ARGUMENT, "event->name is NULL");
    bad = region;
    bad.kind = PS_ROCPD_KERNEL;
    FAILS(ps_rocpd_write(rocpd, &bad, 1), PS_ERROR_ARGUMENT, "names no agent");
    bad.agent = 3;
    FAILS(ps_rocpd_write(rocpd, &bad, 1), PS_ERROR_ARGUMENT, "agent 3");
    report.size = 8;
    FAILS(ps_rocpd_close(rocpd, &report), PS_ERROR_ARGUMENT, "sizeof(ps_rocpd_report)");
    child = fork();
    if (child == 0) {
        FAILS(ps_rocpd_write(rocpd, &region, 1), PS_ERROR_FORKED, "forked");
        FAILS(ps_rocpd_close(rocpd, NULL), PS_ERROR_FORKED, "forked");
        ps_rocpd_free(rocpd);
        /* What its parent's threads held is not lost here, though valgrind would say so at an exit. */
        execlp("true", "true", (char *)NULL);
        _exit(1);
    }
    NEED(waitpid(child, &status, 0) == child && status == 0);
    NEED(ps_rocpd_write(rocpd, &region, 1) == PS_OK);
    ps_rocpd_free(rocpd); /* ends the file */
    printf("wrong: ok\n");
}

int main(int argc, char **argv)
{
    NEED(argc == 3);
    if (strcmp(argv[1], "write") == 0)
        write_all(argv[2]);
    else if (strcmp(argv[1], "endless") == 0)
        write_endlessly(argv[2]);
    else
        wrong(argv[2]);
    return 0;
}
