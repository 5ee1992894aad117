/*
 * probe_sync: how the clocks of a job's nodes differ, and the reference's time on all of them.
 *
 * A session measures on a thread of its own beside the caller's work, with all signals blocked there; it never prints, ends the process or the job, and
 * calls no MPI but through the functions of ps_messages, where it is given some.
 * Functions return PS_OK or what kind of failure it was, and ps_last_error() then says on the same thread what to do about it. All may be called from any
 * thread; a handle is freed when nobody uses it any more. A process that forks before ps_session_start() may start sessions in parent and child; in
 * one that is forked off later only clocks go on.
 *
 * What the process does is recorded by ps_record_start() and the events between ps_record_enter() and ps_record_flow(), for the price of two readings of a
 * clock. Those return no status: they never fail, wait, print or take memory, and while nothing records they do nothing.
 *
 * Written by `cargo xtask codegen` from crates/capi/src: @generated, do not edit.
 */


#ifndef PROBE_SYNC_H
#define PROBE_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What a call returns: PS_OK, or what kind of failure it was. ps_last_error() says what to do about it.
typedef enum ps_status {
    // Done.
    PS_OK = 0,
    // An argument is NULL or out of its range.
    PS_ERROR_ARGUMENT = 1,
    // A key or a value of the settings is unusable.
    PS_ERROR_OPTION = 2,
    // The ranks cannot meet: no address, no port, or bytes that are no id.
    PS_ERROR_MEETING = 3,
    // Something was started that runs already.
    PS_ERROR_STARTED = 4,
    // The session has failed.
    PS_ERROR_FAILED = 5,
    // The session has ended or was stopped.
    PS_ERROR_ENDED = 6,
    // The session belongs to the process that this one was forked from. Its clock can be read here.
    PS_ERROR_FORKED = 7,
    // What was waited for did not come in time.
    PS_ERROR_TIMEOUT = 8,
    // Nothing is known yet, or not of that time.
    PS_ERROR_UNKNOWN = 9,
    // The file is no clock of this host.
    PS_ERROR_CLOCK = 10,
    // The system refused.
    PS_ERROR_SYSTEM = 11,
    // MPI refused.
    PS_ERROR_MPI = 12,
    // A defect of probe_sync; the message is on standard error.
    PS_ERROR_PANIC = 13,
    // What was asked for cannot be reached over these links, however long one waits.
    PS_ERROR_UNREACHABLE = 14,
} ps_status;

// What a clock is worth.
typedef enum ps_clock_status {
    // Nothing is known yet.
    PS_CLOCK_UNSYNCHRONISED = 0,
    // New estimates arrive.
    PS_CLOCK_SYNCHRONISED = 1,
    // None has arrived when one was due, or the run has ended: the bounds grow.
    PS_CLOCK_HOLDOVER = 2,
    // The measurement has failed: the bounds grow.
    PS_CLOCK_FAILED = 3,
} ps_clock_status;

// Where a session stands.
typedef enum ps_phase {
    // The ranks meet.
    PS_PHASE_MEETING = 0,
    // It measures.
    PS_PHASE_MEASURING = 1,
    // It has ended in order.
    PS_PHASE_ENDED = 2,
    // It has failed; ps_last_error() says why after the call of ps_session_state() that told so.
    PS_PHASE_FAILED = 3,
} ps_phase;

// Which threads may call the functions of ps_messages.
typedef enum ps_threads {
    // The one that calls ps_session_start_over() (MPI: SINGLE and FUNNELED).
    PS_THREADS_OWN = 0,
    // Any, never two at a time; the caller sees to that (MPI: SERIALIZED).
    PS_THREADS_ONE_AT_A_TIME = 1,
    // Any, at any time (MPI: MULTIPLE): the session moves its messages itself, and needs no steps.
    PS_THREADS_ANY = 2,
} ps_threads;

// What sort of thing an event is.
typedef enum ps_record_kind {
    // A function or an operator of a framework.
    PS_RECORD_FUNCTION = 0,
    // The backward pass of one.
    PS_RECORD_BACKWARD = 1,
    // What the user named: a step, a phase.
    PS_RECORD_USER = 2,
    // A collective operation or a message.
    PS_RECORD_COLLECTIVE = 3,
    // A call of a runtime, as a launch of a kernel.
    PS_RECORD_RUNTIME = 4,
    // Reading and writing.
    PS_RECORD_IO = 5,
    // Memory that is allocated or freed.
    PS_RECORD_MEMORY = 6,
    // Anything else.
    PS_RECORD_CUSTOM = 7,
} ps_record_kind;

// What an argument holds.
typedef enum ps_record_type {
    // value.integer.
    PS_RECORD_INTEGER = 1,
    // value.unsigned_integer.
    PS_RECORD_UNSIGNED = 2,
    // value.number.
    PS_RECORD_NUMBER = 3,
    // value.boolean.
    PS_RECORD_BOOLEAN = 4,
    // value.text, in UTF-8; beyond 1024 bytes it is cut, and says so.
    PS_RECORD_TEXT = 5,
} ps_record_type;

// Where an event of a flow stands.
typedef enum ps_record_flow_place {
    // It begins here.
    PS_RECORD_FLOW_OUT = 0,
    // It passes.
    PS_RECORD_FLOW_STEP = 1,
    // It ends here.
    PS_RECORD_FLOW_IN = 2,
} ps_record_flow_place;

// A clock that shows the reference's time.
typedef struct ps_clock ps_clock;

// Rank 0 of a group that is about to meet: it listens.
typedef struct ps_meeting ps_meeting;

// Settings of a session.
typedef struct ps_options ps_options;

// A recording under way.
typedef struct ps_record ps_record;

// A thread that takes part in a recording of another thread.
typedef struct ps_record_adopted ps_record_adopted;

// Settings of a recording.
typedef struct ps_record_options ps_record_options;

// Name and kind of events, kept as long as the process.
typedef struct ps_record_site ps_record_site;

// One rank of a run.
typedef struct ps_session ps_session;

// Reads a profiler's own clock: writes nanoseconds through ns and returns 0, or returns another number when it cannot.
typedef int (*ps_read_clock)(void *user_data, int64_t *ns);

// By which the other ranks find rank 0 and are known to it. Whoever has it can take a rank's place: it is as secret as the job.
typedef struct ps_unique_id {
    // To be carried as they are.
    uint8_t bytes[128];
} ps_unique_id;

// Reference time with its bounds, ns since the Unix epoch.
typedef struct ps_time {
    // Earliest possible reference time.
    int64_t earliest_ns;
    // Latest possible reference time.
    int64_t latest_ns;
    // What is shown: it never goes back within an epoch.
    int64_t time_ns;
    // Half of the 95 % interval about time_ns.
    int64_t bound95_ns;
    // How often the clock was stepped; with clock_adjust = slew, as it is unless set, never.
    uint64_t epoch;
    // What it is worth.
    enum ps_clock_status status;
} ps_time;

// A time of another clock as reference time, ns since the Unix epoch.
typedef struct ps_interval {
    // Earliest possible reference time.
    int64_t earliest_ns;
    // Latest possible reference time.
    int64_t latest_ns;
    // As it is estimated now.
    int64_t time_ns;
    // Half of the 95 % interval about time_ns.
    int64_t bound95_ns;
} ps_interval;

// Starts to send count bytes to rank to; they are copied before it returns. 0, or another number when it cannot.
typedef int (*ps_send)(void *context, int to, const void *bytes, size_t count);

// Lets messages move. 1 and the next message that has come whole, which stays until the next call; 0 where there is none; a negative number when it cannot.
typedef int (*ps_receive)(void *context, int *from, const void **bytes, size_t *count);

// Whether something was still being sent at the last call of receive.
typedef int (*ps_sending)(void *context);

// What the last call could not do, as text that stays until the next call.
typedef const char *(*ps_describe)(void *context);

// Nothing is called any more. in_order is 1 where all ranks have ended in order, on a thread that may call the launcher's library; where it is 0 the library
// may be gone, and the thread is any.
typedef void (*ps_release)(void *context, int in_order);

// A launcher's own way to send messages between its ranks. No function waits for another rank; what one rank sends to another arrives in order.
typedef struct ps_messages {
    // Given to every function.
    void *context;
    // This rank.
    int rank;
    // How many there are.
    int size;
    // Which threads may call the functions: one of ps_threads.
    int threads;
    // Starts to send.
    ps_send send;
    // Takes what has come.
    ps_receive receive;
    // Whether something is being sent.
    ps_sending sending;
    // Says what has failed.
    ps_describe describe;
    // Takes leave, once.
    ps_release release;
} ps_messages;

// Where a session stands. Ranks that share a clock are one node.
typedef struct ps_state {
    // Rounds solved so far.
    uint64_t rounds;
    // Where it stands.
    enum ps_phase phase;
    // This rank.
    uint32_t rank;
    // The node that this rank is, or follows; UINT32_MAX until it is known.
    uint32_t node;
    // The node whose clock is the reference; UINT32_MAX until it is known.
    uint32_t reference;
    // Number of nodes; 0 until the first round.
    uint32_t nodes;
} ps_state;

// A node's clock in one round.
typedef struct ps_node_estimate {
    // This node's clock minus the reference clock, ns. Subtract it from a time on this node to get reference time.
    double offset_ns;
    // Half of the 95 % interval about offset_ns; infinite where nothing is known.
    double bound95_ns;
    // No offset below this can have produced the packets that were seen; may be infinite.
    double hard_low_ns;
    // Nor one above this.
    double hard_high_ns;
    // Rate of this clock against the reference's, ppm.
    double drift_ppm;
    // Standard deviation of drift_ppm.
    double drift_sigma_ppm;
    // The node's number.
    uint32_t node;
    // Edges of this node that took part.
    uint32_t edges;
    // Some chain of edges joins it to the reference; without, the other fields say nothing.
    bool reachable;
    // The clock of this node or of the reference was disturbed during the window: do not trust this line.
    bool disturbed;
} ps_node_estimate;

// One solved round.
typedef struct ps_round {
    // Its number, from 0.
    uint64_t round_id;
    // The window's start, reference time in ns since the Unix epoch.
    int64_t window_start_ns;
    // The window's end. Offsets hold in the middle.
    int64_t window_end_ns;
    // The node whose clock is the reference.
    uint32_t reference;
    // Number of nodes.
    uint32_t nodes;
} ps_round;

// A scope that is open, in the caller's memory; all zero: none.
typedef struct ps_record_scope {
    // Its site.
    const struct ps_record_site *site;
    // Where it lies.
    uint64_t place;
    // When it began, ticks.
    uint64_t start;
    // Its id.
    uint64_t id;
    // When it began, as a number of the recorder's own.
    uint32_t gate;
    // Nothing.
    uint32_t reserved;
} ps_record_scope;

// The value of an argument.
typedef union ps_record_value {
    // A whole number.
    int64_t integer;
    // A whole number that is not negative.
    uint64_t unsigned_integer;
    // Another number.
    double number;
    // Yes or no.
    bool boolean;
    // A text.
    const char *text;
} ps_record_value;

// An argument of an event.
typedef struct ps_record_argument {
    // From ps_record_key().
    uint32_t key;
    // One of ps_record_type.
    uint32_t type;
    // Its value.
    union ps_record_value value;
} ps_record_argument;

// A collective operation. What is NULL or negative is not known, and left out.
typedef struct ps_record_collective {
    // As "allreduce".
    const char *name;
    // The group's name.
    const char *group;
    // Type of the elements, as "Float".
    const char *dtype;
    // The operation's number in its group.
    int64_t sequence;
    // Elements that this rank gives.
    int64_t elements_in;
    // Elements that it gets.
    int64_t elements_out;
    // Ranks of the group.
    int64_t group_size;
    // This rank in the job.
    int64_t rank;
} ps_record_collective;

// Memory that is allocated (bytes > 0) or freed (bytes < 0). What is negative, but for bytes, is not known, and left out.
typedef struct ps_record_memory {
    // Where.
    uint64_t address;
    // How much.
    int64_t bytes;
    // Number of the device; -1: the host.
    int64_t device;
    // Bytes in use there afterwards.
    int64_t allocated;
    // Bytes taken from the device there afterwards.
    int64_t reserved;
} ps_record_memory;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The text of the last failure of this thread, never NULL; valid until its next one.
const char *ps_last_error(void);

// Replaces the text of ps_last_error() on this thread; for layers above this library, as probe_sync_mpi.h. NULL is no text.
void ps_set_last_error(const char *text);

// The version of the library, as "0.1.0".
const char *ps_version(void);

// Settings with their defaults. ps_options_free() gives them back.
enum ps_status ps_options_new(struct ps_options **options);

// Sets one key from its text, as ("window", "250ms"): the keys and values of `probe_sync run --help`, with underscores. What is set here wins
// over the environment (PROBE_SYNC_WINDOW), and that over ps_options_file().
enum ps_status ps_options_set(struct ps_options *options,
                              const char *key,
                              const char *value);

// Reads settings from a TOML file, or JSON where its name ends so, when the session starts.
enum ps_status ps_options_file(struct ps_options *options, const char *path);

// Takes snapshot pairs of the caller's own clock, under a name of the caller's choice, in place of the key tracer_clock. It is read once now, and
// then from the session's threads, also from several at once, until the session has ended: ps_session_stop() waits for that, ps_session_free()
// does not.
enum ps_status ps_options_tracer_clock(struct ps_options *options,
                                       const char *name,
                                       ps_read_clock read,
                                       void *user_data);

// Frees the settings (NULL is a no-op). Sessions started with them continue.
void ps_options_free(struct ps_options *options);

// Opens a meeting at rank 0, before the id is carried to the others. addresses are those of this machine at which they may reach it, as
// "10.0.0.1,fd00::1"; NULL stands for all that it has. ps_meeting_free() gives it back.
enum ps_status ps_meeting_open(const char *addresses,
                               struct ps_meeting **meeting);

// The id of a meeting, to be carried to the other ranks.
enum ps_status ps_meeting_id(const struct ps_meeting *meeting, struct ps_unique_id *id);

// Frees the meeting (NULL is a no-op). A session started with it continues.
void ps_meeting_free(struct ps_meeting *meeting);

// The clock that a run on this host keeps in a file (key clock_page, flag --clock-page). ps_clock_free() gives it back.
enum ps_status ps_clock_open(const char *path, struct ps_clock **clock);

// Reference time now with its bounds. PS_ERROR_UNKNOWN until the first round is solved.
enum ps_status ps_clock_now(const struct ps_clock *clock, struct ps_time *now);

// Reference time now, ns since the Unix epoch, the cheapest question; 0 until the first round is solved, and for NULL.
int64_t ps_clock_now_ns(const struct ps_clock *clock);

// Whether this reference time has certainly passed; no for NULL, and while nothing is known.
bool ps_clock_after(const struct ps_clock *clock, int64_t time_ns);

// Whether this reference time has certainly not come; no for NULL, and while nothing is known.
bool ps_clock_before(const struct ps_clock *clock, int64_t time_ns);

// Waits until something is known.
enum ps_status ps_clock_wait_until_known(const struct ps_clock *clock, uint32_t timeout_ms);

// Returns when the clock shows time_ns: for a start that several nodes have agreed on. Where that is further off than limit_ms it does not wait
// and returns PS_ERROR_TIMEOUT; PS_ERROR_UNKNOWN while nothing is known.
enum ps_status ps_clock_wait_until(const struct ps_clock *clock,
                                   int64_t time_ns,
                                   uint32_t limit_ms);

// A time of this host's CLOCK_REALTIME, past or to come, as reference time. PS_ERROR_UNKNOWN while nothing is known, and where that clock
// was stepped since.
enum ps_status ps_clock_of_realtime(const struct ps_clock *clock,
                                    int64_t realtime_ns,
                                    struct ps_interval *found);

// The same for CLOCK_MONOTONIC_RAW.
enum ps_status ps_clock_of_raw(const struct ps_clock *clock, int64_t raw_ns, struct ps_interval *found);

// The same for CLOCK_BOOTTIME.
enum ps_status ps_clock_of_boottime(const struct ps_clock *clock, int64_t boottime_ns, struct ps_interval *found);

// Frees the clock (NULL is a no-op).
void ps_clock_free(struct ps_clock *clock);

// Starts a session of rank `rank` of `size` on a thread of its own, and returns at once: what goes wrong later is a phase of the session
// (ps_session_state). Rank 0 gives the meeting that it has opened, the others its id; what is not one's own may be NULL, and both where size is 1.
// options may be NULL. A process has one session at a time. ps_session_free() gives it back.
enum ps_status ps_session_start(const struct ps_options *options,
                                const struct ps_meeting *meeting,
                                const struct ps_unique_id *id,
                                int rank,
                                int size,
                                struct ps_session **session);

// Says that this rank arrives now at operation `step` of `group`, right before an operation that all members of the group wait in; every member calls it. Rank 0 finds who is
// late from it (`probe_sync status`). It takes some tens of nanoseconds and no lock, from any thread. group has at most 64 bytes of UTF-8; an arrival that finds no room is dropped
// and counted.
enum ps_status ps_arrive(const struct ps_session *session,
                         const char *group,
                         uint64_t step);

// From the next round on this rank starts no exchanges. It answers those of the others, and rounds go on.
enum ps_status ps_session_pause(const struct ps_session *session);

// From the next round on this rank measures again.
enum ps_status ps_session_resume(const struct ps_session *session);

// The session's clock, which goes on after its end, in forked children too. ps_clock_free() gives it back, before or after the session.
enum ps_status ps_session_clock(const struct ps_session *session,
                                struct ps_clock **clock);

// Ends the run on all ranks with the window under way and a short one after it; every rank is to call it. At rank 0 *report_json becomes the
// content of report.json, valid until the session is freed, elsewhere NULL; report_json itself may be NULL. PS_ERROR_FAILED where the session had
// failed, PS_ERROR_ENDED where it was stopped before.
enum ps_status ps_session_stop(const struct ps_session *session,
                               const char **report_json);

// Frees the session (NULL is a no-op). A running session is asked to stop; this call does not wait for it. In a forked child the parent's session continues.
void ps_session_free(struct ps_session *session);

// As ps_session_start(), where the ranks talk by the caller's own messages and need no meeting. A function that is NULL, or a rank or size that is wrong, is
// PS_ERROR_ARGUMENT, and nothing is called; otherwise messages->release is called once, whatever is returned. messages itself is copied. Where threads is not
// PS_THREADS_ANY the caller moves the messages by ps_session_step(); ps_session_stop(), the waits and ps_session_free() move them too, on the same thread.
enum ps_status ps_session_start_over(const struct ps_options *options,
                                     const struct ps_messages *messages,
                                     struct ps_session **session);

// Moves the session's messages: what can be moved now, for at most budget_us microseconds and one message more. It waits for no other rank. Call it between your own
// calls of MPI, on the thread that may make them, every few hundred milliseconds at least. PS_ERROR_FAILED when the session has failed, PS_ERROR_ARGUMENT
// where it needs no steps (ps_session_needs_step), PS_ERROR_MPI on another thread than it may be, PS_ERROR_ENDED after ps_session_stop().
enum ps_status ps_session_step(const struct ps_session *session,
                               uint32_t budget_us);

// Whether ps_session_step() must be called.
enum ps_status ps_session_needs_step(const struct ps_session *session, bool *needs);

// Where the session stands, also after ps_session_stop(). Where it has failed the call itself is PS_OK, and ps_last_error() gives the reason.
enum ps_status ps_session_state(const struct ps_session *session,
                                struct ps_state *state);

// The last solved round, and of its nodes the first `capacity` in order of their numbers; round and nodes may be NULL. PS_ERROR_UNKNOWN until
// there is one.
enum ps_status ps_session_round(const struct ps_session *session,
                                struct ps_node_estimate *nodes,
                                size_t capacity,
                                struct ps_round *round);

// Waits until this node's offset is known to within ± half_width_ns in 95 %. PS_ERROR_UNREACHABLE after some rounds where path
// and host asymmetry alone exceed it; otherwise PS_ERROR_TIMEOUT, PS_ERROR_FAILED or PS_ERROR_ENDED.
enum ps_status ps_session_wait_until_bound(const struct ps_session *session,
                                           uint32_t half_width_ns,
                                           uint32_t timeout_ms);

// Waits until `rounds` rounds are solved; otherwise as ps_session_wait_until_bound().
enum ps_status ps_session_wait_rounds(const struct ps_session *session, uint64_t rounds, uint32_t timeout_ms);

// Settings with their defaults: all threads, all kinds, 64 MiB in memory, of which the newest events are dropped when it is full.
// ps_record_options_free() gives them back.
enum ps_status ps_record_options_new(struct ps_record_options **options);

// Sets one setting from its text: reach (process, thread), policy (drop_newest, flight, stream), bytes (64MiB), every (200ms: how often a stream
// appends; after policy), spill (a file that outlives a kill), kinds (user,collective), one_in, longer_than (20us), clock (best, tsc, monotonic_raw),
// pair_period (1s), threads, keep (5s), details, rank, paused (true, false).
enum ps_status ps_record_options_set(struct ps_record_options *options,
                                     const char *key,
                                     const char *value);

// Frees the settings (NULL is a no-op). Recordings started with them continue.
void ps_record_options_free(struct ps_record_options *options);

// Begins to record. options may be NULL. A process has one recording of reach process at a time, and with those of threads at most 8; a forked child may
// start its own. ps_record_free() gives it back.
enum ps_status ps_record_start(const struct ps_record_options *options,
                               struct ps_record **record);

// Stops recording until ps_record_resume(). Scopes that are open end as they do.
enum ps_status ps_record_pause(const struct ps_record *record);

// Goes on.
enum ps_status ps_record_resume(const struct ps_record *record);

// Writes what has been recorded until now into a file, which replaces one of that name; the recording goes on.
enum ps_status ps_record_snapshot(const struct ps_record *record, const char *path);

// Ends it: what its threads have recorded is whole when this returns, and its file is `probe_sync record`'s. path names a file for a copy, as one
// without the setting spill needs it; NULL: none. Where only the copy fails, it has ended all the same.
enum ps_status ps_record_finish(const struct ps_record *record,
                                const char *path);

// Frees the recording (NULL is a no-op) and ends it if it is running. In a forked child the parent's recording continues.
void ps_record_free(struct ps_record *record);

// The calling thread takes part in a recording of reach thread that another one has started, until ps_record_adopted_free().
enum ps_status ps_record_adopt(const struct ps_record *record,
                               struct ps_record_adopted **adopted);

// Removes the thread from the recording (NULL is a no-op).
void ps_record_adopted_free(struct ps_record_adopted *adopted);

// Name and kind (one of ps_record_kind) of events, to be kept in a static variable: the same for the same name and kind. A process has at most 2^20 of a
// kind, and none is given back.
enum ps_status ps_record_site_new(uint32_t kind,
                                  const char *name,
                                  const struct ps_record_site **site);

// Whether an event of this site would be recorded now; no for NULL.
bool ps_record_wanted(const struct ps_record_site *site);

// A scope begins; ps_record_leave() ends it on the same thread, those within before. Whether anybody records it.
bool ps_record_enter(const struct ps_record_site *site, struct ps_record_scope *scope);

// As ps_record_enter(), with count arguments.
bool ps_record_enter_with(const struct ps_record_site *site,
                          const struct ps_record_argument *arguments,
                          size_t count,
                          struct ps_record_scope *scope);

// States arguments of the innermost open scope. Those of another one are counted as lost.
void ps_record_state(const struct ps_record_scope *scope, const struct ps_record_argument *arguments, size_t count);

// Ends a scope and any scope within it that is still open. A zeroed scope, as after this call, and NULL are ignored.
void ps_record_leave(struct ps_record_scope *scope);

// Something happens now, with count arguments.
void ps_record_instant(const struct ps_record_site *site, const struct ps_record_argument *arguments, size_t count);

// The value of something from now on.
void ps_record_counter(const struct ps_record_site *site, double value);

// Adds the open scope to a flow; all scopes with one id are joined, across threads. place is one of ps_record_flow_place; other values are ignored.
void ps_record_flow(const struct ps_record_site *site,
                    uint32_t place,
                    uint64_t id);

// A span begins that may end on another thread. Its id, for ps_record_span_end(); 0 where nobody records it.
uint64_t ps_record_span_begin(const struct ps_record_site *site);

// Ends it on this thread; 0 is ignored.
void ps_record_span_end(const struct ps_record_site *site, uint64_t id);

// Events of this thread that begin from now on have this id, as the number by which a device's events know their launch. What was before, for
// ps_record_correlate_pop().
uint64_t ps_record_correlate_push(uint64_t id);

// Sets back what ps_record_correlate_push() gave.
void ps_record_correlate_pop(uint64_t before);

// A scope of a collective begins; ps_record_leave() ends it. collective may be NULL: nothing is known of it. Whether anybody records it.
bool ps_record_collective_enter(const struct ps_record_site *site,
                                const struct ps_record_collective *collective,
                                struct ps_record_scope *scope);

// Records that memory was allocated or freed now; NULL is ignored.
void ps_record_memory_event(const struct ps_record_site *site, const struct ps_record_memory *memory);

// The key of a name, for arguments: the same for the same name, in every recording of the process and its children. A process has at most 2^20.
enum ps_status ps_record_key(const char *name,
                             uint32_t *key);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PROBE_SYNC_H */
