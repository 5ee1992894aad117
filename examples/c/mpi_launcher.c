/*
 * A launcher with its own MPI, and a session beside it: rounds between the launcher's allreduces.
 *
 *     mpicc mpi_launcher.c $(pkg-config --variable=mpi_source probe_sync) $(pkg-config --cflags --libs probe_sync) -o mpi_launcher
 *     mpirun -n 8 ./mpi_launcher funneled /tmp/out
 *
 * The first argument is the thread level that MPI is initialised with: single, funneled, serialized
 * or multiple. At multiple the session's own thread sends its messages; else the launcher gives it
 * BUDGET_US after every allreduce. All ranks of this machine share one clock in truth, so virtual
 * clocks are laid over what is measured. examples/mpi_launcher is the same in Rust.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <probe_sync_mpi.h>

enum { GRADIENTS = 4096, BUDGET_US = 500, WANTED_BOUND_NS = 10000, NODES = 64 };

static const double TRAINING_S = 5.0;
static const double LONGEST_S = 30.0;

static void need(ps_status status, const char *what)
{
    if (status != PS_OK) {
        /* A session that fails is no reason to end training; here there is nothing else to do. */
        fprintf(stderr, "%s: status %d: %s\n", what, (int)status, ps_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int level_of(const char *name)
{
    if (strcmp(name, "single") == 0) {
        return MPI_THREAD_SINGLE;
    }
    if (strcmp(name, "serialized") == 0) {
        return MPI_THREAD_SERIALIZED;
    }
    return strcmp(name, "multiple") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
}

/* One step of training: the launcher's own messages. */
static void allreduce(int size)
{
    static double gradients[GRADIENTS];
    static double sums[GRADIENTS];
    struct timespec computing = {0, 5000000};
    for (int place = 0; place < GRADIENTS; place++) {
        gradients[place] = 1.0;
    }
    MPI_Allreduce(gradients, sums, GRADIENTS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int place = 0; place < GRADIENTS; place++) {
        if (sums[place] != (double)size) {
            fprintf(stderr, "gradient %d is %g, not %d\n", place, sums[place], size);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    nanosleep(&computing, NULL);
}

/* The longest step in seconds: by the clock, and what it ran of that. Where more ranks run than there are cores it is interrupted. */
static void train(const ps_session *session, int size, bool steps, double longest[2])
{
    double started = seconds(CLOCK_MONOTONIC);
    int all = 0;
    while (!all) {
        int own;
        allreduce(size);
        if (steps) {
            double wall = seconds(CLOCK_MONOTONIC);
            double ran = seconds(CLOCK_THREAD_CPUTIME_ID);
            need(ps_session_step(session, BUDGET_US), "step");
            wall = seconds(CLOCK_MONOTONIC) - wall;
            ran = seconds(CLOCK_THREAD_CPUTIME_ID) - ran;
            longest[0] = wall > longest[0] ? wall : longest[0];
            longest[1] = ran > longest[1] ? ran : longest[1];
        }
        /* All ranks leave the loop together, and each knows its clock by then: the first that stops ends the run. */
        own = seconds(CLOCK_MONOTONIC) - started > TRAINING_S &&
              (ps_session_wait_until_bound(session, WANTED_BOUND_NS, 0) == PS_OK || seconds(CLOCK_MONOTONIC) - started > LONGEST_S);
        MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
}

/* What each node's clock was in the last round, from one rank. */
static void print_offsets(const ps_round *round, const ps_node_estimate *nodes)
{
    for (uint32_t node = 0; node < round->nodes && node < NODES; node++) {
        printf("offset %" PRIu32 " %" PRId64 " %.1f %.1f %.1f %.1f\n", nodes[node].node,
               round->window_start_ns + (round->window_end_ns - round->window_start_ns) / 2, nodes[node].offset_ns,
               nodes[node].bound95_ns, nodes[node].hard_low_ns, nodes[node].hard_high_ns);
    }
}

int main(int count, char **arguments)
{
    int level = -1;
    int rank = 0;
    int size = 0;
    bool steps = false;
    double own[3] = {0, 0, 0};
    double worst[3];
    const char *report = NULL;
    char budget[16];
    ps_options *options = NULL;
    ps_session *session = NULL;
    ps_state state;
    ps_round round;
    ps_node_estimate nodes[NODES];

    MPI_Init_thread(&count, &arguments, level_of(count > 1 ? arguments[1] : ""), &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    need(ps_options_new(&options), "settings");
    need(ps_options_set(options, "window", "500ms"), "window");
    need(ps_options_set(options, "inject_skew", "7"), "inject_skew");
    /* 1 % of a core of each host is the budget; here every rank stands for a host. */
    snprintf(budget, sizeof budget, "%d%%", size);
    need(ps_options_set(options, "budget_cpu", budget), "budget_cpu");
    need(ps_options_set(options, "out", count > 2 ? arguments[2] : "probe_sync_out"), "out");
    need(ps_mpi_session_start_over(MPI_COMM_WORLD, options, &session), "start");
    ps_options_free(options);
    need(ps_session_needs_step(session, &steps), "needs_step");

    train(session, size, steps, own);
    need(ps_session_wait_until_bound(session, WANTED_BOUND_NS, 0), "a bound of 10 us");
    need(ps_session_state(session, &state), "state");
    need(ps_session_round(session, nodes, NODES, &round), "the round");
    own[2] = state.node < NODES ? nodes[state.node].bound95_ns : 0;
    if (rank == size - 1) {
        print_offsets(&round, nodes);
    }
    need(ps_session_stop(session, &report), "stop");
    MPI_Reduce(own, worst, 3, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%d ranks at thread level %d: %" PRIu64 " rounds, worst bound %.0f ns, ", size, level - MPI_THREAD_SINGLE,
               state.rounds, worst[2]);
        if (steps) {
            printf("longest step of at most %d us: %.3f ms, of which it ran %.3f ms\n", BUDGET_US, worst[0] * 1e3,
                   worst[1] * 1e3);
        } else {
            printf("no steps\n");
        }
        if (strstr(report, "\"outside_hard_interval\":0") == NULL) {
            fprintf(stderr, "the truth is outside of a hard interval\n");
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    ps_session_free(session);
    MPI_Finalize();
    return 0;
}
