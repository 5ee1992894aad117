/*
 * What a reading of the global clock costs a C program, through libprobe_sync.so, beside
 * clock_gettime().
 *
 *     cc -O2 bench/clock.c -o clock_bench $(pkg-config --cflags --libs probe_sync) && ./clock_bench
 *
 * Medians of blocks of readings in turn, in one process and minute. Argument: the number of blocks.
 */
#define _GNU_SOURCE

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <probe_sync.h>

enum { READINGS = 20000, BLOCKS_MAX = 2001, WAYS = 4 };

static const char *const NAMES[WAYS] = {"CLOCK_MONOTONIC_RAW", "CLOCK_REALTIME", "ps_clock_now_ns", "ps_clock_now"};

static void need(ps_status status)
{
    if (status != PS_OK) {
        fprintf(stderr, "%s\n", ps_last_error());
        exit(1);
    }
}

static int64_t system_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t read_once(int way, const ps_clock *clock)
{
    ps_time now;
    switch (way) {
    case 0:
        return system_ns(CLOCK_MONOTONIC_RAW);
    case 1:
        return system_ns(CLOCK_REALTIME);
    case 2:
        return ps_clock_now_ns(clock);
    default:
        return ps_clock_now(clock, &now) == PS_OK ? now.time_ns : 0;
    }
}

static int ascending(const void *left, const void *right)
{
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

int main(int count, char **arguments)
{
    static double took[WAYS][BLOCKS_MAX];
    int blocks = count > 1 ? atoi(arguments[1]) : 201;
    ps_options *options = NULL;
    ps_session *session = NULL;
    ps_clock *clock = NULL;
    int64_t sum = 0;
    blocks = blocks < 1 ? 1 : blocks > BLOCKS_MAX ? BLOCKS_MAX : blocks;
    need(ps_options_new(&options));
    need(ps_options_set(options, "out", count > 2 ? arguments[2] : "probe_sync_out"));
    need(ps_session_start(options, NULL, NULL, 0, 1, &session));
    need(ps_session_clock(session, &clock));
    need(ps_clock_wait_until_known(clock, 60000));
    for (int block = 0; block < blocks; block++) {
        for (int way = 0; way < WAYS; way++) {
            int64_t begun = system_ns(CLOCK_MONOTONIC_RAW);
            for (int reading = 0; reading < READINGS; reading++) {
                sum += read_once(way, clock);
            }
            took[way][block] = (double)(system_ns(CLOCK_MONOTONIC_RAW) - begun) / READINGS;
        }
    }
    for (int way = 0; way < WAYS; way++) {
        qsort(took[way], (size_t)blocks, sizeof(double), ascending);
    }
    for (int way = 0; way < WAYS; way++) {
        double median = took[way][blocks / 2];
        printf("%-20s %6.1f ns  %5.2f x raw\n", NAMES[way], median, median / took[0][blocks / 2]);
    }
    need(ps_session_stop(session, NULL));
    ps_session_free(session);
    ps_clock_free(clock);
    ps_options_free(options);
    return sum == 0;
}
