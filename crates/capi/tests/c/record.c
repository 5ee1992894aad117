/*
 * A recording by the C functions: everything there is to record, and wrong uses of each. What is in
 * recordings is a unit test of crates/capi.
 */
#define _DEFAULT_SOURCE

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <probe_sync.h>

static int wrong = 0;
static const char *folder = NULL;

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

static const char *file(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const ps_record_site *site(ps_record_kind kind, const char *name)
{
    const ps_record_site *found = NULL;
    expect(name, ps_record_site_new(kind, name, &found), PS_OK, "");
    return found;
}

static uint32_t key(const char *name)
{
    uint32_t found = 0;
    expect(name, ps_record_key(name, &found), PS_OK, "");
    return found;
}

static void wrong_uses(void)
{
    ps_record_options *options = NULL;
    const ps_record_site *nowhere = NULL;
    ps_record *record = NULL;
    ps_record_scope scope = {0};
    uint32_t number = 0;
    expect("options NULL", ps_record_options_new(NULL), PS_ERROR_ARGUMENT, "options is NULL");
    expect("options", ps_record_options_new(&options), PS_OK, "");
    expect("key NULL", ps_record_options_set(options, NULL, "1"), PS_ERROR_ARGUMENT, "key is NULL");
    expect("no such setting", ps_record_options_set(options, "windwo", "1"), PS_ERROR_OPTION, "`windwo` is not a setting; the settings are reach");
    expect("no such policy", ps_record_options_set(options, "policy", "ring"), PS_ERROR_OPTION, "drop_newest, flight, stream");
    expect("too few bytes", ps_record_options_set(options, "bytes", "1kB"), PS_OK, "");
    expect("start with them", ps_record_start(options, &record), PS_ERROR_OPTION, "1000 bytes is not a valid size");
    expect("bytes", ps_record_options_set(options, "bytes", "1MiB"), PS_OK, "");
    expect("no event kinds", ps_record_options_set(options, "kinds", ""), PS_OK, "");
    expect("start without", ps_record_start(options, &record), PS_ERROR_OPTION, "select at least one");
    expect("a kind", ps_record_options_set(options, "kinds", "user"), PS_OK, "");
    expect("no folder", ps_record_options_set(options, "spill", "/proc/no/such.rec"), PS_OK, "");
    expect("start there", ps_record_start(options, &record), PS_ERROR_SYSTEM, "/proc/no/such.rec");
    expect("record NULL", ps_record_start(NULL, NULL), PS_ERROR_ARGUMENT, "record is NULL");
    expect("nothing to pause", ps_record_pause(NULL), PS_ERROR_ARGUMENT, "record is NULL");
    expect("nothing to finish", ps_record_finish(NULL, NULL), PS_ERROR_ARGUMENT, "record is NULL");
    expect("nothing to adopt", ps_record_adopt(NULL, NULL), PS_ERROR_ARGUMENT, "record is NULL");
    expect("no such kind", ps_record_site_new(8, "eighth", &nowhere), PS_ERROR_ARGUMENT, "ps_record_kind");
    expect("site NULL", ps_record_site_new(PS_RECORD_USER, "a", NULL), PS_ERROR_ARGUMENT, "site is NULL");
    expect("not UTF-8", ps_record_key("\xff", &number), PS_ERROR_ARGUMENT, "not valid UTF-8");
    demand(record == NULL && nowhere == NULL, "that nothing came of it");
    demand(!ps_record_wanted(NULL) && !ps_record_enter(NULL, &scope) && !ps_record_enter(site(PS_RECORD_USER, "off"), NULL), "that NULL is nothing");
    demand(!ps_record_wanted(site(PS_RECORD_USER, "off")) && !ps_record_enter(site(PS_RECORD_USER, "off"), &scope), "that nothing records");
    demand(ps_record_span_begin(site(PS_RECORD_USER, "off")) == 0, "that no span begins");
    ps_record_leave(&scope);
    ps_record_leave(NULL);
    ps_record_state(NULL, NULL, 3);
    ps_record_instant(NULL, NULL, 3);
    ps_record_counter(NULL, 1.0);
    ps_record_flow(NULL, PS_RECORD_FLOW_OUT, 1);
    ps_record_span_end(NULL, 1);
    ps_record_memory_event(NULL, NULL);
    demand(!ps_record_collective_enter(NULL, NULL, &scope), "that no collective begins");
    ps_record_options_free(options);
    ps_record_options_free(NULL);
    ps_record_free(NULL);
    ps_record_adopted_free(NULL);
}

/* Leaves a scope that is not this thread's, and ends a span that is anybody's. */
struct elsewhere {
    ps_record_scope scope;
    uint64_t span;
};

static void *elsewhere(void *handed)
{
    struct elsewhere *others = handed;
    ps_record_scope own;
    ps_record_enter(site(PS_RECORD_USER, "on another thread"), &own);
    ps_record_leave(&others->scope);
    ps_record_span_end(site(PS_RECORD_USER, "span"), others->span);
    ps_record_flow(site(PS_RECORD_USER, "flow"), PS_RECORD_FLOW_IN, 42);
    ps_record_leave(&own);
    return NULL;
}

static void events(void)
{
    ps_record_scope step, inner, late;
    const ps_record_argument arguments[] = {
        {key("steps"), PS_RECORD_INTEGER, {.integer = -17}},
        {key("bytes"), PS_RECORD_UNSIGNED, {.unsigned_integer = UINT64_MAX}},
        {key("loss"), PS_RECORD_NUMBER, {.number = 0.5}},
        {key("warm"), PS_RECORD_BOOLEAN, {.boolean = true}},
        {key("phase"), PS_RECORD_TEXT, {.text = "f\xc3\xbcnf"}},
        {key("broken"), PS_RECORD_TEXT, {.text = "cut\xff" "here"}},
        {key("missing"), PS_RECORD_TEXT, {.text = NULL}},
        {key("untyped"), 99, {.integer = 1}},
    };
    demand(ps_record_enter_with(site(PS_RECORD_USER, "step"), arguments, 8, &step), "that a step is recorded");
    uint64_t before = ps_record_correlate_push(4711);
    demand(before == 0, "that no id was there before");
    demand(ps_record_enter(site(PS_RECORD_IO, "read"), &inner), "that reading is recorded");
    ps_record_correlate_pop(before);
    demand(inner.id == 4711 && step.id != 4711, "that the id is the correlation's");
    ps_record_state(&inner, arguments, 2);
    ps_record_instant(site(PS_RECORD_USER, "moment"), arguments, 1);
    ps_record_instant(site(PS_RECORD_USER, "moment"), NULL, 1);
    ps_record_counter(site(PS_RECORD_USER, "depth"), 2.5);
    ps_record_flow(site(PS_RECORD_USER, "flow"), PS_RECORD_FLOW_OUT, 42);
    ps_record_flow(site(PS_RECORD_USER, "flow"), 3, 42);
    ps_record_leave(&inner);
    ps_record_leave(&inner);

    ps_record_collective collective = {"allreduce", "dp", "Float", 9, 1024, 1024, 8, 3};
    demand(ps_record_collective_enter(site(PS_RECORD_COLLECTIVE, "nccl:all_reduce"), &collective, &inner), "that it is recorded");
    ps_record_leave(&inner);
    ps_record_memory memory = {4096, -100, -1, 900, -1};
    ps_record_memory_event(site(PS_RECORD_MEMORY, "[memory]"), &memory);

    struct elsewhere handed = {step, ps_record_span_begin(site(PS_RECORD_USER, "span"))};
    demand(handed.span != 0, "that a span begins");
    pthread_t thread;
    demand(pthread_create(&thread, NULL, elsewhere, &handed) == 0 && pthread_join(thread, NULL) == 0, "a thread");

    /* The inner one is closed with the outer one; leaving it then ends nothing, whatever lies there meanwhile. */
    ps_record_enter(site(PS_RECORD_USER, "too late"), &late);
    ps_record_leave(&step);
    ps_record_enter(site(PS_RECORD_USER, "next"), &step);
    ps_record_enter(site(PS_RECORD_USER, "within"), &inner);
    ps_record_leave(&late);
    ps_record_leave(&inner);
    ps_record_leave(&step);
}

static void forked(ps_record *record)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        ps_record *own = NULL;
        ps_record_scope scope;
        wrong = 0;
        demand(!ps_record_enter(site(PS_RECORD_USER, "in a child"), &scope), "that a child records nothing");
        expect("parent's", ps_record_finish(record, NULL), PS_ERROR_FORKED, "start one in this process");
        expect("parent's", ps_record_snapshot(record, file("child.rec")), PS_ERROR_FORKED, "belongs to the parent");
        ps_record_free(record);
        expect("its own", ps_record_start(NULL, &own), PS_OK, "");
        demand(ps_record_enter(site(PS_RECORD_USER, "in a child"), &scope), "that it records then");
        ps_record_leave(&scope);
        expect("its end", ps_record_finish(own, file("child.rec")), PS_OK, "");
        ps_record_free(own);
        fflush(stdout);
        _exit(wrong);
    }
    int status = 1;
    demand(waitpid(child, &status, 0) == child && status == 0, "the child");
}

static void *adopted(void *record)
{
    ps_record_adopted *part = NULL;
    ps_record_scope scope;
    demand(!ps_record_enter(site(PS_RECORD_USER, "not yet"), &scope), "that other threads are not recorded");
    expect("adopt", ps_record_adopt(record, &part), PS_OK, "");
    demand(ps_record_enter(site(PS_RECORD_USER, "adopted"), &scope), "that an adopted one is");
    ps_record_leave(&scope);
    ps_record_adopted_free(part);
    demand(!ps_record_enter(site(PS_RECORD_USER, "no more"), &scope), "that it is not any more");
    return NULL;
}

static void of_a_thread(void)
{
    ps_record_options *options = NULL;
    ps_record *record = NULL;
    pthread_t thread;
    expect("options", ps_record_options_new(&options), PS_OK, "");
    expect("reach", ps_record_options_set(options, "reach", "thread"), PS_OK, "");
    expect("start", ps_record_start(options, &record), PS_OK, "");
    ps_record_options_free(options);
    demand(pthread_create(&thread, NULL, adopted, record) == 0 && pthread_join(thread, NULL) == 0, "a thread");
    expect("finish", ps_record_finish(record, file("thread.rec")), PS_OK, "");
    ps_record_free(record);
}

int main(int count, char **arguments)
{
    ps_record_options *options = NULL;
    ps_record *record = NULL;
    ps_record *second = NULL;
    ps_record_scope scope;
    folder = count > 1 ? arguments[1] : ".";
    wrong_uses();
    expect("options", ps_record_options_new(&options), PS_OK, "");
    expect("policy", ps_record_options_set(options, "policy", "flight"), PS_OK, "");
    expect("bytes", ps_record_options_set(options, "bytes", "4MiB"), PS_OK, "");
    expect("spill", ps_record_options_set(options, "spill", file("spill.rec")), PS_OK, "");
    expect("start", ps_record_start(options, &record), PS_OK, "");
    expect("twice", ps_record_start(NULL, &second), PS_ERROR_STARTED, "already recording");
    events();
    forked(record);
    expect("snapshot", ps_record_snapshot(record, file("snapshot.rec")), PS_OK, "");
    expect("no folder", ps_record_snapshot(record, "/proc/no/such.rec"), PS_ERROR_SYSTEM, "/proc/no");
    expect("pause", ps_record_pause(record), PS_OK, "");
    demand(!ps_record_enter(site(PS_RECORD_USER, "paused"), &scope), "that a pause records nothing");
    expect("resume", ps_record_resume(record), PS_OK, "");
    demand(ps_record_wanted(site(PS_RECORD_USER, "after")) && ps_record_enter(site(PS_RECORD_USER, "after"), &scope), "that it goes on");
    ps_record_leave(&scope);
    expect("finish", ps_record_finish(record, file("copy.rec")), PS_OK, "");
    expect("finish twice", ps_record_finish(record, NULL), PS_ERROR_ENDED, "start another");
    expect("pause after", ps_record_pause(record), PS_ERROR_ENDED, "start another");
    ps_record_free(record);
    expect("a file that is there", ps_record_start(options, &record), PS_ERROR_SYSTEM, "never overwritten");
    ps_record_options_free(options);
    of_a_thread();
    printf("%d wrong\n", wrong);
    return wrong == 0 ? 0 : 1;
}
