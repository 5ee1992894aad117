/*
 * The ranks of an MPI job measure how their clocks differ beside their own work.
 *
 *     mpicc mpi_session.c -o mpi_session $(pkg-config --cflags --libs probe_sync) && mpirun -n 4 ./mpi_session
 *
 * MPI is started with MPI_THREAD_SINGLE: the session's thread never calls it. The program's own
 * allreduces go on while the session measures. All ranks of this machine share one clock in truth,
 * so virtual clocks are laid over what is measured; reference time is then CLOCK_REALTIME.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <probe_sync_mpi.h>

static void need(ps_status status, const char *what)
{
    if (status != PS_OK) {
        fprintf(stderr, "%s: status %d: %s\n", what, (int)status, ps_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void demand(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s does not hold\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static int64_t realtime_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Every rank hears of what one of them could not do. */
static void refused_alike(int rank)
{
    ps_options *options = NULL;
    ps_session *session = NULL;
    need(ps_options_new(&options), "settings");
    if (rank == 1) {
        /* Makes no sense without virtual clocks. */
        need(ps_options_set(options, "skew_model", "sinusoid"), "skew_model");
    }
    demand(ps_mpi_session_start(MPI_COMM_WORLD, options, &session) == PS_ERROR_OPTION, "that all ranks are refused");
    demand(session == NULL && strstr(ps_last_error(), "--inject-skew") != NULL, "that all ranks know why");
    ps_options_free(options);
}

static void work(int64_t until_ns, int size)
{
    int running = 1;
    while (running) {
        int own = realtime_ns() < until_ns;
        int sum = 0;
        struct timespec pause = {0, 2000000};
        MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        running = sum == size;
        nanosleep(&pause, NULL);
    }
}

static void read_clock(const ps_clock *clock, int readings)
{
    for (int reading = 0; reading < readings; reading++) {
        ps_time now;
        int64_t before_ns = realtime_ns();
        need(ps_clock_now(clock, &now), "the clock");
        demand(now.earliest_ns <= realtime_ns() && now.latest_ns >= before_ns, "the clock's interval");
    }
}

int main(int count, char **arguments)
{
    int level = -1;
    int rank = 0;
    int size = 0;
    MPI_Init_thread(&count, &arguments, MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    refused_alike(rank);

    char budget[16];
    ps_options *options = NULL;
    ps_session *session = NULL;
    ps_clock *clock = NULL;
    need(ps_options_new(&options), "settings");
    need(ps_options_set(options, "window", "500ms"), "window");
    need(ps_options_set(options, "inject_skew", "7"), "inject_skew");
    /* 1 % of a core of each host is the budget; here every rank stands for a host. */
    snprintf(budget, sizeof budget, "%d%%", size);
    need(ps_options_set(options, "budget_cpu", budget), "budget_cpu");
    need(ps_options_set(options, "out", count > 1 ? arguments[1] : "probe_sync_out"), "out");
    need(ps_mpi_session_start(MPI_COMM_WORLD, options, &session), "start");
    ps_options_free(options);
    need(ps_session_clock(session, &clock), "the session's clock");

    work(realtime_ns() + 2000000000, size);
    need(ps_session_wait_until_bound(session, 10000, 60000), "a bound of 10 us");
    need(ps_clock_wait_until_known(clock, 60000), "a known clock");
    work(realtime_ns() + 1000000000, size);
    read_clock(clock, 2000);

    ps_round round;
    ps_node_estimate nodes[64];
    need(ps_session_round(session, nodes, 64, &round), "the round");
    for (uint32_t node = 0; rank == size - 1 && node < round.nodes && node < 64; node++) {
        printf("offset %" PRIu32 " %" PRId64 " %.1f %.1f %.1f %.1f\n", nodes[node].node,
               round.window_start_ns + (round.window_end_ns - round.window_start_ns) / 2, nodes[node].offset_ns,
               nodes[node].bound95_ns, nodes[node].hard_low_ns, nodes[node].hard_high_ns);
    }

    const char *report = NULL;
    need(ps_session_stop(session, &report), "stop");
    demand(report == NULL || strstr(report, "\"outside_hard_interval\":0") != NULL, "the truth inside of every hard interval");
    ps_session_free(session);
    ps_clock_free(clock);
    if (rank == 0) {
        printf("%d ranks at thread level %d: ok\n", size, level);
    }
    MPI_Finalize();
    return 0;
}
