/*
 * Every wrong use gets its status and a text that says what to do; none ends the process or hangs.
 */
#define _DEFAULT_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <probe_sync.h>

static int wrong = 0;

static void expect(const char *what, ps_status status, ps_status expected, const char *part)
{
    if (status != expected || (expected != PS_OK && strstr(ps_last_error(), part) == NULL)) {
        printf("%s: status %d, expected %d; the text lacks \"%s\": %s\n", what, (int)status, (int)expected, part, ps_last_error());
        wrong++;
    } else if (expected != PS_OK) {
        printf("%-28s %2d  %s\n", what, (int)status, ps_last_error());
    }
}

static void demand(bool holds, const char *what)
{
    if (!holds) {
        printf("%s does not hold\n", what);
        wrong++;
    }
}

/* Ends a forked child. What its parent's threads held is not lost there, though valgrind would say so at an exit. */
static void leave(void)
{
    fflush(stdout);
    if (wrong == 0) {
        execlp("true", "true", (char *)NULL);
    }
    _exit(1);
}

static int steady(void *user_data, int64_t *ns)
{
    *ns = ++*(int64_t *)user_data;
    return 0;
}

static int broken(void *user_data, int64_t *ns)
{
    (void)user_data;
    (void)ns;
    return 7;
}

static void null_and_options(void)
{
    ps_options *options = NULL;
    ps_unique_id id;
    ps_time now;
    int64_t count = 0;
    expect("options NULL", ps_options_new(NULL), PS_ERROR_ARGUMENT, "options is NULL");
    expect("options", ps_options_new(&options), PS_OK, "");
    expect("key NULL", ps_options_set(options, NULL, "1"), PS_ERROR_ARGUMENT, "key is NULL");
    expect("not UTF-8", ps_options_set(options, "out", "\xff"), PS_ERROR_ARGUMENT, "not valid UTF-8");
    expect("unknown key", ps_options_set(options, "windwo", "1s"), PS_ERROR_OPTION, "did you mean window?");
    expect("bad value", ps_options_set(options, "window", "3"), PS_ERROR_OPTION, "window");
    expect("no such file", ps_options_file(options, "no_such.toml"), PS_ERROR_OPTION, "no_such.toml");
    expect("clock's function NULL", ps_options_tracer_clock(options, "mine", NULL, NULL), PS_ERROR_ARGUMENT, "read is NULL");
    expect("clock's name", ps_options_tracer_clock(options, "my clock", steady, &count), PS_ERROR_OPTION, "name");
    expect("clock that fails", ps_options_tracer_clock(options, "mine", broken, NULL), PS_ERROR_OPTION, "7");
    expect("clock", ps_options_tracer_clock(options, "mine", steady, &count), PS_OK, "");
    expect("id of NULL", ps_meeting_id(NULL, &id), PS_ERROR_ARGUMENT, "meeting is NULL");
    expect("clock NULL", ps_clock_now(NULL, &now), PS_ERROR_ARGUMENT, "clock is NULL");
    expect("no clock there", ps_clock_open("/no/such/clock", &(ps_clock *){NULL}), PS_ERROR_SYSTEM, "/no/such/clock");
    expect("no clock in it", ps_clock_open("/proc/self/exe", &(ps_clock *){NULL}), PS_ERROR_CLOCK, "clock_page");
    demand(ps_clock_now_ns(NULL) == 0 && !ps_clock_after(NULL, 0) && !ps_clock_before(NULL, 0), "that NULL knows no time");
    ps_options_free(options);
    ps_options_free(NULL);
    ps_meeting_free(NULL);
    ps_session_free(NULL);
    ps_clock_free(NULL);
}

static ps_options *settings(const char *out)
{
    ps_options *options = NULL;
    expect("options", ps_options_new(&options), PS_OK, "");
    expect("window", ps_options_set(options, "window", "250ms"), PS_OK, "");
    expect("out", ps_options_set(options, "out", out), PS_OK, "");
    return options;
}

static void starts(const ps_options *options)
{
    ps_meeting *meeting = NULL;
    ps_session *session = NULL;
    ps_unique_id id;
    memset(&id, 0, sizeof id);
    expect("meeting at no address", ps_meeting_open("10.0.0.1,here", &meeting), PS_ERROR_MEETING, "\"here\" is not an address");
    expect("rank = size", ps_session_start(options, NULL, &id, 4, 4, &session), PS_ERROR_ARGUMENT, "rank 4 of 4");
    expect("rank < 0", ps_session_start(options, NULL, &id, -1, 4, &session), PS_ERROR_ARGUMENT, "rank -1 of 4");
    expect("size 0", ps_session_start(options, NULL, NULL, 0, 0, &session), PS_ERROR_ARGUMENT, "rank 0 of 0");
    expect("session NULL", ps_session_start(options, NULL, NULL, 0, 1, NULL), PS_ERROR_ARGUMENT, "session is NULL");
    expect("rank 0, no meeting", ps_session_start(options, NULL, &id, 0, 2, &session), PS_ERROR_ARGUMENT, "ps_meeting_open()");
    expect("rank 1, no id", ps_session_start(options, NULL, NULL, 1, 2, &session), PS_ERROR_ARGUMENT, "give the id");
    expect("rank 1, no such id", ps_session_start(options, NULL, &id, 1, 2, &session), PS_ERROR_MEETING, "ps_meeting_id()");
    demand(session == NULL, "that nothing was started");
    ps_options *both = NULL;
    expect("options", ps_options_new(&both), PS_OK, "");
    expect("skew_model", ps_options_set(both, "skew_model", "steps"), PS_OK, "");
    expect("keys that clash", ps_session_start(both, NULL, NULL, 0, 1, &session), PS_ERROR_OPTION, "--inject-skew");
    ps_options_free(both);
}

/* A session alone: what runs, and what is over. */
static void lifetime(const ps_options *options)
{
    ps_session *session = NULL;
    ps_session *second = NULL;
    ps_clock *clock = NULL;
    ps_state state;
    ps_round round;
    ps_time now;
    ps_interval then;
    const char *report = NULL;
    expect("start", ps_session_start(options, NULL, NULL, 0, 1, &session), PS_OK, "");
    expect("started twice", ps_session_start(options, NULL, NULL, 0, 1, &second), PS_ERROR_STARTED, "ps_session_stop()");
    expect("clock", ps_session_clock(session, &clock), PS_OK, "");
    expect("too many rounds", ps_session_wait_rounds(session, 1000000, 0), PS_ERROR_TIMEOUT, "after 0 ms");
    expect("a round", ps_session_wait_rounds(session, 1, 30000), PS_OK, "");
    expect("a round, no nodes", ps_session_round(session, NULL, 0, &round), PS_OK, "");
    expect("a known clock", ps_clock_wait_until_known(clock, 30000), PS_OK, "");
    expect("too far off", ps_clock_wait_until(clock, ps_clock_now_ns(clock) + 9000000000, 10), PS_ERROR_TIMEOUT, "ahead");
    expect("boot time", ps_clock_of_boottime(clock, 1, &then), PS_OK, "");
    expect("real time", ps_clock_of_realtime(clock, ps_clock_now_ns(clock), &then), PS_OK, "");
    expect("stop", ps_session_stop(session, &report), PS_OK, "");
    demand(report != NULL && strstr(report, "\"rounds\":") != NULL, "the report");
    expect("stopped twice", ps_session_stop(session, NULL), PS_ERROR_ENDED, "start another");
    expect("observed after stop", ps_session_observe_collectives(session), PS_ERROR_ENDED, "start another");
    expect("paused after stop", ps_session_pause(session), PS_ERROR_ENDED, "start another");
    expect("round after stop", ps_session_round(session, NULL, 0, &round), PS_ERROR_ENDED, "start another");
    expect("waited after stop", ps_session_wait_until_bound(session, 1, 1), PS_ERROR_ENDED, "start another");
    expect("state after stop", ps_session_state(session, &state), PS_OK, "");
    demand(state.phase == PS_PHASE_ENDED, "that it has ended");
    expect("clock after stop", ps_clock_now(clock, &now), PS_OK, "");
    demand(now.status == PS_CLOCK_HOLDOVER, "that its clock goes on");
    expect("start again", ps_session_start(options, NULL, NULL, 0, 1, &second), PS_OK, "");
    ps_session_free(second);
    ps_session_free(session);
    ps_clock_free(clock);
}

/* A clock by the time-stamp counter is read as any other, or refused with what to do. */
static void counter(const char *out)
{
    /* A directory of its own: the last session was let go, and ends by itself. */
    char path[4096];
    snprintf(path, sizeof path, "%s_counter", out);
    ps_options *options = settings(path);
    ps_session *session = NULL;
    ps_clock *clock = NULL;
    ps_time now;
    ps_interval then;
    expect("counter unknown", ps_options_set(options, "clock_counter", "hpet"), PS_ERROR_OPTION, "raw, tsc");
    expect("counter", ps_options_set(options, "clock_counter", "tsc"), PS_OK, "");
    expect("start", ps_session_start(options, NULL, NULL, 0, 1, &session), PS_OK, "");
    expect("clock", ps_session_clock(session, &clock), PS_OK, "");
    if (ps_session_wait_rounds(session, 2, 30000) != PS_OK) {
        demand(strstr(ps_last_error(), "set clock_counter=raw") != NULL, "that a refusal says what to do");
    } else {
        struct timespec raw;
        expect("a known clock", ps_clock_wait_until_known(clock, 30000), PS_OK, "");
        int64_t first = ps_clock_now_ns(clock);
        expect("now", ps_clock_now(clock, &now), PS_OK, "");
        demand(first <= now.time_ns && now.earliest_ns <= now.time_ns && now.time_ns <= now.latest_ns, "that time goes on");
        clock_gettime(CLOCK_MONOTONIC_RAW, &raw);
        expect("raw time", ps_clock_of_raw(clock, (int64_t)raw.tv_sec * 1000000000 + raw.tv_nsec, &then), PS_OK, "");
        demand(then.latest_ns >= now.earliest_ns, "that both are of one time");
        expect("stop", ps_session_stop(session, NULL), PS_OK, "");
    }
    ps_session_free(session);
    ps_clock_free(clock);
    ps_options_free(options);
}

/* A peer that never comes, two ranks alike, sizes that differ: states of a session, which is stopped at once. */
static void peers(const ps_options *options)
{
    ps_meeting *meeting = NULL;
    ps_session *session = NULL;
    ps_clock *clock = NULL;
    ps_unique_id id;
    ps_time now;
    ps_state state;
    expect("meeting", ps_meeting_open("127.0.0.1", &meeting), PS_OK, "");
    expect("its id", ps_meeting_id(meeting, &id), PS_OK, "");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        /* Says that the job is larger than rank 0 does. */
        wrong = 0;
        expect("another size", ps_session_start(options, NULL, &id, 1, 4, &session), PS_OK, "");
        expect("another size", ps_session_wait_until_bound(session, 1000, 20000), PS_ERROR_FAILED, "");
        ps_session_free(session);
        leave();
    }
    expect("a job of 3", ps_session_start(options, meeting, NULL, 0, 3, &session), PS_OK, "");
    expect("unknown clock", ps_session_clock(session, &clock), PS_OK, "");
    expect("time of an unknown clock", ps_clock_now(clock, &now), PS_ERROR_UNKNOWN, "ps_clock_wait_until_known()");
    expect("clock that stays unknown", ps_clock_wait_until_known(clock, 20), PS_ERROR_TIMEOUT, "is a session running?");
    expect("no round yet", ps_session_round(session, NULL, 0, NULL), PS_ERROR_UNKNOWN, "ps_session_wait_rounds()");
    int status = 1;
    demand(waitpid(child, &status, 0) == child && status == 0, "the rank of another size");
    expect("peer missing", ps_session_wait_rounds(session, 1, 200), PS_ERROR_TIMEOUT, "0 rounds were solved");
    expect("stop without peers", ps_session_stop(session, NULL), PS_ERROR_FAILED, "rank(s) 1, 2");
    expect("state of a failed one", ps_session_state(session, &state), PS_OK, "");
    demand(state.phase == PS_PHASE_FAILED && strstr(ps_last_error(), "rank(s) 1, 2") != NULL, "that its state says why");
    ps_session_free(session);
    expect("meeting used twice", ps_session_start(options, meeting, NULL, 0, 2, &session), PS_ERROR_STARTED, "ps_meeting_open()");
    ps_meeting_free(meeting);
    ps_clock_free(clock);
}

/* A bound that no link can reach is refused within some rounds, and the session goes on. */
static void out_of_reach(const ps_options *options)
{
    ps_meeting *meeting = NULL;
    ps_session *session = NULL;
    ps_unique_id id;
    expect("meeting", ps_meeting_open("127.0.0.1", &meeting), PS_OK, "");
    expect("its id", ps_meeting_id(meeting, &id), PS_OK, "");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        wrong = 0;
        expect("rank 1", ps_session_start(options, NULL, &id, 1, 2, &session), PS_OK, "");
        expect("a bound of 0", ps_session_wait_until_bound(session, 0, 120000), PS_ERROR_UNREACHABLE, "cannot be reached");
        expect("a bound of 1 ms", ps_session_wait_until_bound(session, 1000000, 60000), PS_OK, "");
        expect("stop", ps_session_stop(session, NULL), PS_OK, "");
        ps_session_free(session);
        leave();
    }
    expect("rank 0", ps_session_start(options, meeting, NULL, 0, 2, &session), PS_OK, "");
    expect("the reference's bound", ps_session_wait_until_bound(session, 0, 60000), PS_OK, "");
    /* The stop of rank 1 ends the run of both. */
    int status = 1;
    demand(waitpid(child, &status, 0) == child && status == 0, "a rank that asks too much");
    expect("stop", ps_session_stop(session, NULL), PS_OK, "");
    ps_session_free(session);
    ps_meeting_free(meeting);
}

/* Two ranks of one number: the later one is refused, and waits for nothing. */
static void ranks_alike(const ps_options *options)
{
    ps_meeting *meeting = NULL;
    ps_session *session = NULL;
    ps_unique_id id;
    pid_t children[2];
    expect("meeting", ps_meeting_open("127.0.0.1", &meeting), PS_OK, "");
    expect("its id", ps_meeting_id(meeting, &id), PS_OK, "");
    expect("a job of 3", ps_session_start(options, meeting, NULL, 0, 3, &session), PS_OK, "");
    fflush(stdout);
    for (int later = 0; later < 2; later++) {
        children[later] = fork();
        if (children[later] == 0) {
            wrong = 0;
            usleep(later * 1000000);
            expect("rank 1", ps_session_start(options, NULL, &id, 1, 3, &session), PS_OK, "");
            if (later == 1) {
                expect("two ranks alike", ps_session_wait_rounds(session, 1, 20000), PS_ERROR_FAILED, "rank 1");
            } else {
                expect("the first of them", ps_session_wait_rounds(session, 1, 3000), PS_ERROR_TIMEOUT, "0 rounds");
            }
            leave();
        }
    }
    for (int later = 0; later < 2; later++) {
        int status = 1;
        demand(waitpid(children[later], &status, 0) == children[later] && status == 0, "ranks alike");
    }
    ps_session_free(session);
    ps_meeting_free(meeting);
}

/* Messages between the ranks of a job of one, of which there are none. */
static int released[2];
static const char *broken_because = NULL;

static int no_send(void *context, int to, const void *bytes, size_t count)
{
    (void)context, (void)to, (void)bytes, (void)count;
    return broken_because == NULL ? 0 : -1;
}

static int no_receive(void *context, int *from, const void **bytes, size_t *count)
{
    (void)context, (void)from, (void)bytes, (void)count;
    return broken_because == NULL ? 0 : -1;
}

static int not_sending(void *context)
{
    (void)context;
    return 0;
}

static const char *why(void *context)
{
    (void)context;
    return broken_because;
}

static void take_leave(void *context, int in_order)
{
    (void)context;
    released[in_order]++;
}

static void own_messages(const ps_options *options)
{
    ps_session *session = NULL;
    ps_state state;
    bool needs = false;
    ps_messages messages = {NULL, 0, 1, PS_THREADS_OWN, no_send, no_receive, not_sending, why, take_leave};
    expect("no messages", ps_session_start_over(options, NULL, &session), PS_ERROR_ARGUMENT, "messages is NULL");
    ps_messages lacking = messages;
    lacking.receive = NULL;
    expect("a function that lacks", ps_session_start_over(options, &lacking, &session), PS_ERROR_ARGUMENT, "receive of ps_messages");
    lacking = messages;
    lacking.threads = 7;
    expect("no such threads", ps_session_start_over(options, &lacking, &session), PS_ERROR_ARGUMENT, "one of ps_threads");
    lacking = messages;
    lacking.rank = 1;
    expect("no such rank", ps_session_start_over(options, &lacking, &session), PS_ERROR_ARGUMENT, "rank 1 of 1");
    demand(released[0] == 0 && released[1] == 0, "that messages without use are not released");
    expect("no place", ps_session_start_over(options, &messages, NULL), PS_ERROR_ARGUMENT, "session is NULL");
    demand(released[0] == 1, "that what was taken is released");

    expect("own messages", ps_session_start_over(options, &messages, &session), PS_OK, "");
    expect("whether it needs steps", ps_session_needs_step(session, &needs), PS_OK, "");
    expect("no place for it", ps_session_needs_step(session, NULL), PS_ERROR_ARGUMENT, "needs is NULL");
    demand(needs, "that it needs steps");
    expect("no session to step", ps_session_step(NULL, 100), PS_ERROR_ARGUMENT, "session is NULL");
    expect("a step", ps_session_step(session, 100), PS_OK, "");
    expect("a round", ps_session_wait_rounds(session, 1, 20000), PS_OK, "");
    expect("its end", ps_session_stop(session, NULL), PS_OK, "");
    demand(released[0] == 1 && released[1] == 1, "that it is released in order");
    expect("a step after stop", ps_session_step(session, 100), PS_ERROR_ENDED, "was stopped");
    ps_session_free(session);

    messages.threads = PS_THREADS_ANY;
    expect("messages of any thread", ps_session_start_over(options, &messages, &session), PS_OK, "");
    expect("a step too many", ps_session_step(session, 100), PS_ERROR_ARGUMENT, "needs_step()");
    expect("its end too", ps_session_stop(session, NULL), PS_OK, "");
    demand(released[1] == 2, "that its own thread releases it");
    ps_session_free(session);

    messages.size = 2;
    broken_because = "the cable is cut";
    expect("broken messages", ps_session_start_over(options, &messages, &session), PS_OK, "");
    expect("wait for nothing", ps_session_wait_rounds(session, 1, 20000), PS_ERROR_FAILED, "the cable is cut");
    expect("state of them", ps_session_state(session, &state), PS_OK, "");
    demand(state.phase == PS_PHASE_FAILED, "that this is a state");
    expect("stop of them", ps_session_stop(session, NULL), PS_ERROR_FAILED, "the cable is cut");
    demand(released[0] == 2 && released[1] == 2, "that it is released once, out of order");
    ps_session_free(session);
}

int main(int count, char **arguments)
{
    ps_options *options = settings(count > 1 ? arguments[1] : "probe_sync_out");
    demand(strlen(ps_last_error()) == 0, "that nothing has failed yet");
    demand(strcmp(ps_version(), PS_VERSION) == 0, "that header and library are of one version");
    null_and_options();
    starts(options);
    lifetime(options);
    counter(count > 1 ? arguments[1] : "probe_sync_out");
    peers(options);
    out_of_reach(options);
    ranks_alike(options);
    own_messages(options);
    ps_options_free(options);
    printf("%d wrong\n", wrong);
    return wrong == 0 ? 0 : 1;
}
