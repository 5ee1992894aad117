/*
 * Two processes of one machine measure how their clocks differ, and read the reference's time.
 *
 *     cc two_processes.c -o two_processes $(pkg-config --cflags --libs probe_sync) && ./two_processes
 *
 * The process forks before either half starts a session; rank 0's id goes to rank 1 by a pipe. Both
 * read the same clock in truth, so virtual clocks are laid over what is measured (inject_skew).
 * Node 0 has none: reference time is this machine's CLOCK_REALTIME, which the program compares
 * with.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <probe_sync.h>

static void need(ps_status status, const char *what)
{
    if (status != PS_OK) {
        fprintf(stderr, "%s: status %d: %s\n", what, (int)status, ps_last_error());
        exit(1);
    }
}

static void demand(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s does not hold\n", what);
        exit(1);
    }
}

static int64_t realtime_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static ps_options *settings(const char *out)
{
    ps_options *options = NULL;
    need(ps_options_new(&options), "settings");
    need(ps_options_set(options, "window", "250ms"), "window");
    need(ps_options_set(options, "inject_skew", "7"), "inject_skew");
    /* More than the 1 % of a core that a session takes by itself: the whole run lasts two seconds. */
    need(ps_options_set(options, "budget_cpu", "10%"), "budget_cpu");
    need(ps_options_set(options, "tracer_clock", "monotonic"), "tracer_clock");
    need(ps_options_set(options, "out", out), "out");
    return options;
}

/* The interval of every reading holds the machine's time. */
static void read_clock(const ps_clock *clock, int readings)
{
    int64_t last_ns = 0;
    for (int reading = 0; reading < readings; reading++) {
        ps_time now;
        int64_t before_ns = realtime_ns();
        need(ps_clock_now(clock, &now), "the clock");
        int64_t after_ns = realtime_ns();
        demand(now.earliest_ns <= after_ns && now.latest_ns >= before_ns, "the clock's interval");
        demand(now.time_ns >= last_ns && now.bound95_ns > 0, "the order of readings");
        last_ns = now.time_ns;
    }
    demand(ps_clock_after(clock, last_ns - 1000000000) && ps_clock_before(clock, last_ns + 60000000000), "after, before");
    ps_interval then;
    int64_t now_ns = realtime_ns();
    need(ps_clock_wait_until(clock, ps_clock_now_ns(clock) + 2000000, 1000), "a start at an agreed time");
    need(ps_clock_of_raw(clock, 0, &then), "the start of CLOCK_MONOTONIC_RAW");
    demand(then.time_ns < now_ns, "that it was before");
}

/* What a process that was forked off later may do. */
static void in_forked_child(ps_session *session, const ps_clock *clock)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        ps_state state;
        read_clock(clock, 100);
        demand(ps_session_state(session, &state) == PS_ERROR_FORKED, "a session's end at its process");
        demand(strstr(ps_last_error(), "start a session in this process") != NULL, "the text");
        demand(ps_session_stop(session, NULL) == PS_ERROR_FORKED, "that only its process stops it");
        ps_session_free(session);
        execlp("true", "true", (char *)NULL);
        _exit(1);
    }
    int status = 1;
    demand(waitpid(child, &status, 0) == child && status == 0, "the clock of a forked child");
}

static void run(int rank, const char *out, const ps_meeting *meeting, const ps_unique_id *id)
{
    ps_options *options = settings(out);
    ps_session *session = NULL;
    ps_clock *clock = NULL;
    need(ps_session_start(options, meeting, id, rank, 2, &session), "start");
    ps_options_free(options);
    need(ps_session_clock(session, &clock), "the session's clock");

    /* The program's work begins at once; whoever needs the clocks waits for them. */
    need(ps_session_wait_until_bound(session, 10000, 60000), "a bound of 10 us");
    need(ps_clock_wait_until_known(clock, 60000), "a known clock");
    need(ps_session_wait_rounds(session, 4, 60000), "four rounds");
    read_clock(clock, 2000);
    in_forked_child(session, clock);

    ps_round round;
    ps_node_estimate nodes[2];
    ps_state state;
    need(ps_session_round(session, nodes, 2, &round), "the round");
    need(ps_session_state(session, &state), "the state");
    demand(state.phase == PS_PHASE_MEASURING && state.rank == (uint32_t)rank && state.nodes == 2, "the state");
    demand(round.nodes == 2 && round.reference == 0 && nodes[1].node == 1 && nodes[1].reachable, "the round");
    for (int node = 0; rank == 1 && node < 2; node++) {
        /* node, middle of the window, offset, 95 %, hard interval: all in ns */
        printf("offset %" PRIu32 " %" PRId64 " %.1f %.1f %.1f %.1f\n", nodes[node].node,
               round.window_start_ns + (round.window_end_ns - round.window_start_ns) / 2, nodes[node].offset_ns,
               nodes[node].bound95_ns, nodes[node].hard_low_ns, nodes[node].hard_high_ns);
    }

    const char *report = NULL;
    need(ps_session_pause(session), "pause");
    need(ps_session_resume(session), "resume");
    need(ps_session_stop(session, &report), "stop");
    demand((report != NULL) == (rank == 0), "that rank 0 alone has the report");
    demand(report == NULL || strstr(report, "\"outside_hard_interval\":0") != NULL, "the truth inside of every hard interval");
    ps_session_free(session);
    read_clock(clock, 100);
    ps_clock_free(clock);
}

int main(int count, char **arguments)
{
    const char *out = count > 1 ? arguments[1] : "probe_sync_out";
    int channel[2];
    if (pipe(channel) != 0) {
        return 1;
    }
    pid_t child = fork();
    if (child == 0) {
        ps_unique_id id;
        demand(read(channel[0], &id, sizeof id) == sizeof id, "that the id arrives");
        run(1, out, NULL, &id);
        return 0;
    }
    ps_meeting *meeting = NULL;
    ps_unique_id id;
    need(ps_meeting_open("127.0.0.1", &meeting), "a meeting");
    need(ps_meeting_id(meeting, &id), "its id");
    demand(write(channel[1], &id, sizeof id) == sizeof id, "that the id leaves");
    run(0, out, meeting, NULL);
    ps_meeting_free(meeting);
    int status = 1;
    demand(waitpid(child, &status, 0) == child && status == 0, "rank 1");
    puts("two processes: ok");
    return 0;
}
