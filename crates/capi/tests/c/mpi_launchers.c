/*
 * Launchers that do not behave, with sessions over their MPI: the others' sessions say who it was,
 * and the launcher's own allreduces go on.
 *
 *     mpirun -n 4 ./mpi_launchers CASE OUT
 *
 * In every case it is the last rank: "silent" stops to call step, "lets_go" frees its session
 * without stop, "finalises" and "finalises_steps" call MPI_Finalize while it runs. "wrong_uses" is
 * what all ranks are refused. The same in Rust is mpi-tests/src/launcher.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <probe_sync_mpi.h>

static int rank = 0;
static int size = 0;
static MPI_Comm world = MPI_COMM_NULL;

/* What is wrong ends the job: the others would wait. */
static void demand(bool holds, const char *what)
{
    int running = 0;
    int finalised = 0;
    if (holds) {
        return;
    }
    fprintf(stderr, "rank %d: %s does not hold; the last text is: %s\n", rank, what, ps_last_error());
    MPI_Initialized(&running);
    MPI_Finalized(&finalised);
    if (running && !finalised) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    exit(1);
}

static void expect(ps_status status, ps_status expected, const char *part, const char *what)
{
    demand(status == expected && (expected == PS_OK || strstr(ps_last_error(), part) != NULL), what);
}

/* The launcher's own allreduce: whether it holds on all ranks. */
static bool all(bool holds)
{
    struct timespec computing = {0, 2000000};
    int own[2] = {rank + 1, !holds};
    int sums[2] = {0, 0};
    int ranks = 0;
    nanosleep(&computing, NULL);
    MPI_Comm_size(world, &ranks);
    MPI_Allreduce(own, sums, 2, MPI_INT, MPI_SUM, world);
    demand(sums[0] == ranks * (ranks + 1) / 2, "an allreduce of the launcher's");
    return sums[1] == 0;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void in_time(double since_s, const char *what)
{
    demand(now_s() - since_s < 40, what);
}

/* A step where it needs one; its failure where it has failed. */
static ps_status step(const ps_session *session)
{
    ps_state state;
    bool needs = false;
    expect(ps_session_needs_step(session, &needs), PS_OK, "", "needs_step");
    if (needs) {
        return ps_session_step(session, 500);
    }
    expect(ps_session_state(session, &state), PS_OK, "", "state");
    return state.phase == PS_PHASE_FAILED ? PS_ERROR_FAILED : PS_OK;
}

static ps_session *start(const char *out)
{
    ps_options *options = NULL;
    ps_session *session = NULL;
    expect(ps_options_new(&options), PS_OK, "", "settings");
    expect(ps_options_set(options, "window", "250ms"), PS_OK, "", "window");
    expect(ps_options_set(options, "inject_skew", "7"), PS_OK, "", "inject_skew");
    expect(ps_options_set(options, "round_timeout", "2s"), PS_OK, "", "round_timeout");
    expect(ps_options_set(options, "out", out), PS_OK, "", "out");
    expect(ps_mpi_session_start_over(MPI_COMM_WORLD, options, &session), PS_OK, "", "a start");
    ps_options_free(options);
    return session;
}

static void until_measuring(const ps_session *session)
{
    double since_s = now_s();
    ps_state state;
    do {
        expect(step(session), PS_OK, "", "a step");
        expect(ps_session_state(session, &state), PS_OK, "", "state");
        in_time(since_s, "the first round");
    } while (!all(state.rounds > 0));
}

/* Until the sessions of all ranks of the world have failed. Who does not step counts as one that has, and learns it afterwards. */
static void until_failed(const ps_session *session, bool steps, const char *part)
{
    double since_s = now_s();
    ps_status status = PS_OK;
    do {
        if (steps && status == PS_OK) {
            status = step(session);
        }
        in_time(since_s, "that sessions fail");
    } while (!all(!steps || status != PS_OK));
    while (status == PS_OK) {
        status = step(session);
        in_time(since_s, "that this session fails");
    }
    expect(status, PS_ERROR_FAILED, part, "why it has failed");
}

static void wrong_uses(const char *out)
{
    ps_options *options = NULL;
    ps_session *session = NULL;
    MPI_Comm half;
    MPI_Comm between;
    expect(ps_mpi_session_start_over(MPI_COMM_NULL, NULL, &session), PS_ERROR_MPI, "MPI_COMM_NULL", "COMM_NULL");
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, (rank + 1) % 2, 1, &between);
    expect(ps_mpi_session_start_over(between, NULL, &session), PS_ERROR_MPI, "intercommunicator", "two groups");
    /* Every rank hears of what one of them could not do. */
    expect(ps_options_new(&options), PS_OK, "", "settings");
    if (rank == 1) {
        expect(ps_options_set(options, "skew_model", "sinusoid"), PS_OK, "", "skew_model");
    }
    expect(ps_mpi_session_start_over(MPI_COMM_WORLD, options, &session), PS_ERROR_OPTION, "--inject-skew", "alike");
    demand(session == NULL, "that nobody has a session");
    expect(ps_mpi_session_start_over(MPI_COMM_WORLD, NULL, NULL), PS_ERROR_ARGUMENT, "session is NULL", "no place");
    ps_options_free(options);
    session = start(out);
    until_measuring(session);
    expect(ps_session_stop(session, NULL), PS_OK, "", "stop");
    expect(ps_session_step(session, 500), PS_ERROR_ENDED, "was stopped", "a step after stop");
    ps_session_free(session);
    MPI_Comm_free(&half);
    MPI_Comm_free(&between);
}

/* MPI_Finalize with a session that runs: the others name this rank, and it calls MPI no more. */
static void finalises(const char *out, const char *late)
{
    ps_session *session = start(out);
    double since_s;
    bool last = rank == size - 1;
    until_measuring(session);
    MPI_Comm_split(MPI_COMM_WORLD, last, rank, &world);
    if (!last) {
        until_failed(session, true, late);
        ps_session_free(session);
    }
    MPI_Finalize();
    if (!last) {
        return;
    }
    since_s = now_s();
    while (step(session) == PS_OK) {
        in_time(since_s, "that this session fails");
    }
    demand(strstr(ps_last_error(), "MPI_Finalize was called while the session was running") != NULL, "that it speaks of MPI_Finalize");
    ps_session_free(session);
    expect(ps_mpi_session_start_over(MPI_COMM_WORLD, NULL, &session), PS_ERROR_MPI, "already finalised", "too late");
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "";
    const char *out = count > 2 ? arguments[2] : "probe_sync_out";
    ps_session *session = NULL;
    char late[64];
    int level = 0;
    bool last;

    expect(ps_mpi_session_start_over(MPI_COMM_WORLD, NULL, &session), PS_ERROR_MPI, "not initialised", "too early");
    MPI_Init_thread(&count, &arguments, strcmp(name, "finalises") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &level);
    world = MPI_COMM_WORLD;
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    last = rank == size - 1;
    snprintf(late, sizeof late, "no data from rank(s) %d ", size - 1);
    if (strcmp(name, "finalises") == 0 || strcmp(name, "finalises_steps") == 0) {
        finalises(out, late);
    } else if (strcmp(name, "silent") == 0) {
        session = start(out);
        until_measuring(session);
        until_failed(session, !last, late);
        expect(ps_session_stop(session, NULL), PS_ERROR_FAILED, late, "stop");
        ps_session_free(session);
        MPI_Finalize();
    } else if (strcmp(name, "lets_go") == 0) {
        session = start(out);
        until_measuring(session);
        if (last) {
            ps_session_free(session);
            while (!all(true)) {
            }
        } else {
            snprintf(late, sizeof late, "rank %d ended the run: its launcher dropped", size - 1);
            until_failed(session, true, late);
            ps_session_free(session);
        }
        MPI_Finalize();
    } else {
        demand(strcmp(name, "wrong_uses") == 0, "that it is a known case");
        wrong_uses(out);
        MPI_Finalize();
    }
    if (rank == 0) {
        printf("%s, %d ranks at thread level %d: ok\n", name, size, level - MPI_THREAD_SINGLE);
    }
    return 0;
}
