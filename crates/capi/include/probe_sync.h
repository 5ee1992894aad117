/*
 * probe_sync: measures the clock offsets between a job's nodes, and provides the reference time on
 * all of them.
 *
 * A session measures on its own thread alongside the caller's work, with all signals blocked on
 * that thread. It never prints, never ends the process or the job, and calls MPI only through the
 * functions of ps_messages, if given. Functions return PS_OK or the kind of failure;
 * ps_last_error() on the same thread then says what to do about it. All functions may be called
 * from any thread; free a handle only when nothing uses it any more. A process that forks before
 * ps_session_start() may start sessions in the parent and in the child; after a later fork, only
 * clocks keep working in the child.
 *
 * ps_record_start() and the event functions from ps_record_enter() to ps_record_flow() record what
 * the process does, at a cost of two clock reads per event. The event functions return no status:
 * they never fail, wait, print or allocate memory, and they do nothing while there is no recording.
 *
 * ps_align(), ps_merge(), ps_convert() and ps_check() put the traces of a job's profilers onto one
 * clock, as the commands of the same names do. They return when the files are complete.
 *
 * ps_rocpd_open(), ps_rocpd_write(), ps_rocpd_flush() and ps_rocpd_close() write a database as
 * rocprofv3 does, which others can read while the program runs.
 *
 * Written by `cargo xtask codegen` from crates/capi/src: @generated, do not edit.
 */


#ifndef PROBE_SYNC_H
#define PROBE_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Version of this header; ps_version() is the library's.
#define PS_VERSION "0.1.0"
#define PS_VERSION_MAJOR 0
#define PS_VERSION_MINOR 1
#define PS_VERSION_PATCH 0

#ifndef PS_API
#define PS_API __attribute__((visibility("default")))
#endif

// Result of a call: PS_OK, or the kind of failure. ps_last_error() says what to do about it.
typedef enum ps_status {
    // Success.
    PS_OK = 0,
    // An argument is NULL or out of range.
    PS_ERROR_ARGUMENT = 1,
    // A setting's key or value is invalid.
    PS_ERROR_OPTION = 2,
    // The ranks cannot meet: no address, no port, or an invalid id.
    PS_ERROR_MEETING = 3,
    // The session, recording or meeting is already in use.
    PS_ERROR_STARTED = 4,
    // The session failed.
    PS_ERROR_FAILED = 5,
    // The session has ended or was stopped.
    PS_ERROR_ENDED = 6,
    // The session belongs to the process that this one was forked from. Its clock can be read
    // here.
    PS_ERROR_FORKED = 7,
    // The wait timed out.
    PS_ERROR_TIMEOUT = 8,
    // The value is not known yet, or not known for the requested time.
    PS_ERROR_UNKNOWN = 9,
    // The file is not a clock of this host.
    PS_ERROR_CLOCK = 10,
    // A system call failed.
    PS_ERROR_SYSTEM = 11,
    // An MPI call failed.
    PS_ERROR_MPI = 12,
    // A bug in probe_sync; the message is on standard error.
    PS_ERROR_PANIC = 13,
    // The requested bound cannot be reached over these links, however long the caller waits.
    PS_ERROR_UNREACHABLE = 14,
    // A trace or file of offsets violates its format; ps_last_error() names the file and position.
    PS_ERROR_DAMAGED = 15,
    // The traces do not match each other or the clocks.
    PS_ERROR_REFUSED = 16,
    // Causality is violated on the aligned times, so nothing was written.
    PS_ERROR_VIOLATED = 17,
} ps_status;

// How far a clock can be trusted.
typedef enum ps_clock_status {
    // Nothing is known yet.
    PS_CLOCK_UNSYNCHRONISED = 0,
    // New estimates arrive.
    PS_CLOCK_SYNCHRONISED = 1,
    // An estimate is overdue or the run has ended; the bounds grow.
    PS_CLOCK_HOLDOVER = 2,
    // The measurement failed; the bounds grow.
    PS_CLOCK_FAILED = 3,
} ps_clock_status;

// Phase of a session.
typedef enum ps_phase {
    // Waiting for all ranks to join.
    PS_PHASE_MEETING = 0,
    // Measuring.
    PS_PHASE_MEASURING = 1,
    // Ended normally.
    PS_PHASE_ENDED = 2,
    // Failed; ps_last_error() gives the reason after the call to ps_session_state() that reported
    // this phase.
    PS_PHASE_FAILED = 3,
} ps_phase;

// Outcome of a check of causality.
typedef enum ps_outcome {
    // No check was requested.
    PS_OUTCOME_UNCHECKED = 0,
    // No collective ends before every rank has entered it, within the clocks' uncertainty.
    PS_OUTCOME_HOLDS = 1,
    // Collectives end before every rank has entered them, by more than the uncertainty explains.
    PS_OUTCOME_VIOLATED = 2,
    // Everything that was checked holds, but not everything could be checked.
    PS_OUTCOME_INCOMPLETE = 3,
    // The traces share no collective that could be checked.
    PS_OUTCOME_NOTHING = 4,
} ps_outcome;

// Which threads may call the functions of ps_messages.
typedef enum ps_threads {
    // Only the thread that calls ps_session_start_over() (MPI: SINGLE and FUNNELED).
    PS_THREADS_OWN = 0,
    // Any thread, but only one at a time, which the caller ensures (MPI: SERIALIZED).
    PS_THREADS_ONE_AT_A_TIME = 1,
    // Any thread, at any time (MPI: MULTIPLE). The session moves its messages itself and needs no
    // calls of ps_session_step().
    PS_THREADS_ANY = 2,
} ps_threads;

// Kind of an event.
typedef enum ps_record_kind {
    // A function or an operator of a framework.
    PS_RECORD_FUNCTION = 0,
    // The backward pass of a function or operator.
    PS_RECORD_BACKWARD = 1,
    // A user-defined event, such as a step or a phase.
    PS_RECORD_USER = 2,
    // A collective operation or a message.
    PS_RECORD_COLLECTIVE = 3,
    // A runtime call, such as a kernel launch.
    PS_RECORD_RUNTIME = 4,
    // Reading or writing.
    PS_RECORD_IO = 5,
    // Allocating or freeing memory.
    PS_RECORD_MEMORY = 6,
    // Anything else.
    PS_RECORD_CUSTOM = 7,
} ps_record_kind;

// Type of an argument's value.
typedef enum ps_record_type {
    // value.integer.
    PS_RECORD_INTEGER = 1,
    // value.unsigned_integer.
    PS_RECORD_UNSIGNED = 2,
    // value.number.
    PS_RECORD_NUMBER = 3,
    // value.boolean.
    PS_RECORD_BOOLEAN = 4,
    // value.text, in UTF-8; longer than 1024 bytes it is truncated and marked as such.
    PS_RECORD_TEXT = 5,
} ps_record_type;

// Position of an event in its flow.
typedef enum ps_record_flow_place {
    // The flow begins here.
    PS_RECORD_FLOW_OUT = 0,
    // The flow passes through here.
    PS_RECORD_FLOW_STEP = 1,
    // The flow ends here.
    PS_RECORD_FLOW_IN = 2,
} ps_record_flow_place;

// Kind of an event in a database.
typedef enum ps_rocpd_kind {
    // Something that a CPU thread did.
    PS_ROCPD_REGION = 0,
    // A kernel that ran on an agent.
    PS_ROCPD_KERNEL = 1,
    // A copy from one agent to another.
    PS_ROCPD_COPY = 2,
    // The value of a counter at start_ns.
    PS_ROCPD_COUNTER = 3,
    // An instant event at start_ns.
    PS_ROCPD_SAMPLE = 4,
} ps_rocpd_kind;

// A clock that shows the reference time.
typedef struct ps_clock ps_clock;

// The place where a group's ranks meet; rank 0 listens there.
typedef struct ps_meeting ps_meeting;

// Settings of a session.
typedef struct ps_options ps_options;

// A recording in progress.
typedef struct ps_record ps_record;

// A thread that takes part in a recording of another thread.
typedef struct ps_record_adopted ps_record_adopted;

// Settings of a recording.
typedef struct ps_record_options ps_record_options;

// Name and kind of events; lives as long as the process.
typedef struct ps_record_site ps_record_site;

// A database being written.
typedef struct ps_rocpd ps_rocpd;

// One rank of a run.
typedef struct ps_session ps_session;

// Settings of ps_align(), ps_merge(), ps_convert() and ps_check().
typedef struct ps_trace_options ps_trace_options;

// Reads a profiler's own clock: stores nanoseconds in *ns and returns 0, or returns another number
// on failure.
typedef int (*ps_read_clock)(void *user_data, int64_t *ns);

// Identifies a meeting: lets the other ranks find rank 0 and authenticates them. Anyone who has it
// can impersonate a rank, so keep it secret.
typedef struct ps_unique_id {
    // Opaque; send them to the other ranks unchanged.
    uint8_t bytes[128];
} ps_unique_id;

// Reference time with its bounds, ns since the Unix epoch.
typedef struct ps_time {
    // Earliest possible reference time.
    int64_t earliest_ns;
    // Latest possible reference time.
    int64_t latest_ns;
    // Current reference time; never goes back within an epoch.
    int64_t time_ns;
    // Half-width of the 95 % interval around time_ns.
    int64_t bound95_ns;
    // Number of times the clock was stepped; always 0 with clock_adjust = slew (the default).
    uint64_t epoch;
    // Status of the clock.
    enum ps_clock_status status;
} ps_time;

// A time of another clock, converted to reference time, ns since the Unix epoch.
typedef struct ps_interval {
    // Earliest possible reference time.
    int64_t earliest_ns;
    // Latest possible reference time.
    int64_t latest_ns;
    // Current estimate.
    int64_t time_ns;
    // Half-width of the 95 % interval around time_ns.
    int64_t bound95_ns;
} ps_interval;

// Starts to send count bytes to rank `to`, and copies them before it returns. Returns 0, or
// another number on failure.
typedef int (*ps_send)(void *context, int to, const void *bytes, size_t count);

// Makes progress on messages. Returns 1 and the next complete message, which stays valid until the
// next call; 0 if there is none; or a negative number on failure.
typedef int (*ps_receive)(void *context, int *from, const void **bytes, size_t *count);

// Returns nonzero if messages were still being sent at the last call of receive.
typedef int (*ps_sending)(void *context);

// Describes why the last call failed, as text that stays valid until the next call.
typedef const char *(*ps_describe)(void *context);

// Called last. in_order is 1 if all ranks ended normally; the call then comes from a thread that
// may use the launcher's library. If it is 0, the library may already be finalised, and the call
// may come from any thread.
typedef void (*ps_release)(void *context, int in_order);

// A launcher's own transport for messages between its ranks. None of the functions may wait for
// another rank, and messages from one rank to another must arrive in order.
typedef struct ps_messages {
    // Passed to every function.
    void *context;
    // This rank.
    int rank;
    // Number of ranks.
    int size;
    // Which threads may call the functions: one of ps_threads.
    int threads;
    // Starts to send a message.
    ps_send send;
    // Receives a message.
    ps_receive receive;
    // Tells whether messages are still being sent.
    ps_sending sending;
    // Describes a failure.
    ps_describe describe;
    // Called once, last.
    ps_release release;
} ps_messages;

// State of a session. Ranks that share a clock are one node.
typedef struct ps_state {
    // Rounds solved so far.
    uint64_t rounds;
    // Phase of the session.
    enum ps_phase phase;
    // This rank.
    uint32_t rank;
    // The node of this rank; UINT32_MAX until it is known.
    uint32_t node;
    // The node whose clock is the reference; UINT32_MAX until it is known.
    uint32_t reference;
    // Number of nodes; 0 until the first round.
    uint32_t nodes;
} ps_state;

// A node's clock in one round.
typedef struct ps_node_estimate {
    // This node's clock minus the reference clock, ns. Subtract it from a time on this node to get
    // reference time.
    double offset_ns;
    // Half-width of the 95 % interval around offset_ns; infinite if nothing is known.
    double bound95_ns;
    // Lower hard bound: no smaller offset can have produced the observed packets. May be infinite.
    double hard_low_ns;
    // Upper hard bound: no larger offset can have produced the observed packets. May be infinite.
    double hard_high_ns;
    // Rate of this clock relative to the reference, ppm.
    double drift_ppm;
    // Standard deviation of drift_ppm.
    double drift_sigma_ppm;
    // The node's number.
    uint32_t node;
    // Number of this node's edges used in the round.
    uint32_t edges;
    // True if a chain of edges connects the node to the reference; otherwise the other fields are
    // meaningless.
    bool reachable;
    // The clock of this node or of the reference was disturbed during the window: do not trust
    // this estimate.
    bool disturbed;
} ps_node_estimate;

// One solved round.
typedef struct ps_round {
    // Number of the round, from 0.
    uint64_t round_id;
    // The window's start, reference time in ns since the Unix epoch.
    int64_t window_start_ns;
    // The window's end. Offsets apply to its midpoint.
    int64_t window_end_ns;
    // The node whose clock is the reference.
    uint32_t reference;
    // Number of nodes.
    uint32_t nodes;
} ps_round;

// An open scope, in the caller's memory; all zero means none.
typedef struct ps_record_scope {
    // Site of the scope.
    const struct ps_record_site *site;
    // Position in the recording.
    uint64_t place;
    // Start, in ticks.
    uint64_t start;
    // Id of the scope.
    uint64_t id;
    // Internal.
    uint32_t gate;
    // Unused.
    uint32_t reserved;
} ps_record_scope;

// The value of an argument.
typedef union ps_record_value {
    // A signed integer.
    int64_t integer;
    // An unsigned integer.
    uint64_t unsigned_integer;
    // A floating-point number.
    double number;
    // True or false.
    bool boolean;
    // A UTF-8 string.
    const char *text;
} ps_record_value;

// An argument of an event.
typedef struct ps_record_argument {
    // The key, from ps_record_key().
    uint32_t key;
    // One of ps_record_type.
    uint32_t type;
    // The value.
    union ps_record_value value;
} ps_record_argument;

// A collective operation. NULL and negative values mean unknown and are omitted.
typedef struct ps_record_collective {
    // Name of the operation, for example "allreduce".
    const char *name;
    // The group's name.
    const char *group;
    // Type of the elements, for example "Float".
    const char *dtype;
    // The operation's number in its group.
    int64_t sequence;
    // Number of elements that this rank sends.
    int64_t elements_in;
    // Number of elements that this rank receives.
    int64_t elements_out;
    // Number of ranks in the group.
    int64_t group_size;
    // This rank in the job.
    int64_t rank;
} ps_record_collective;

// Memory that is allocated (bytes > 0) or freed (bytes < 0). Negative values (except in `bytes`
// and `device`) mean unknown and are omitted.
typedef struct ps_record_memory {
    // Address of the memory.
    uint64_t address;
    // Size in bytes; negative if the memory is freed.
    int64_t bytes;
    // Device number, or -1 for the host.
    int64_t device;
    // Bytes in use on the device afterwards.
    int64_t allocated;
    // Bytes reserved from the device afterwards.
    int64_t reserved;
} ps_record_memory;

// Result of a function on traces.
typedef struct ps_trace_result {
    // Set by the caller before the call: sizeof(ps_trace_result). Nothing beyond it is written.
    size_t size;
    // The document that the command prints with --json; docs/schemas describes it. NULL if the
    // call failed, except with PS_ERROR_VIOLATED, which has results, too.
    char *json;
    // What the caller should know, one line each; lines of problems begin with "warning: ". NULL
    // like json.
    char *notes;
    // Number of traces used.
    uint64_t traces;
    // Number of traces skipped because they could not be read (skip_bad).
    uint64_t skipped;
    // Number of happens-before edges checked.
    uint64_t edges;
    // Number of edges that are broken by more than the clocks' uncertainty explains.
    uint64_t violations;
    // Outcome of the check.
    enum ps_outcome outcome;
} ps_trace_result;

// An event of a database. Zero all fields first; those that do not apply to its kind are ignored.
typedef struct ps_rocpd_event {
    // sizeof(ps_rocpd_event).
    size_t size;
    // One of ps_rocpd_kind.
    uint32_t kind;
    // Agent of a kernel or counter, and source of a copy, from ps_rocpd_agent(); 0 means none.
    uint32_t agent;
    // Destination of a copy.
    uint32_t destination;
    // Unused.
    uint32_t reserved;
    // Thread ID (gettid) of the thread that did, launched or requested it; 0 means the calling
    // thread.
    int64_t thread;
    // Start, ns of CLOCK_BOOTTIME.
    int64_t start_ns;
    // End.
    int64_t end_ns;
    // Name of the region, kernel, copy, counter or sample.
    const char *name;
    // Category; NULL means the usual one of the kind, such as KERNEL_DISPATCH.
    const char *category;
    // Queue of a kernel; NULL means the default queue.
    const char *queue;
    // Stream of a kernel or copy; NULL means the default stream.
    const char *stream;
    // Number of the call within the process; a kernel has that of the call that launched it.
    int64_t stack_id;
    // Number of the enclosing call.
    int64_t parent_stack_id;
    // A number assigned by the program.
    int64_t correlation_id;
    // Size of a copy, bytes.
    int64_t bytes;
    // Value of a counter.
    double value;
} ps_rocpd_event;

// What happened to all events of a database.
typedef struct ps_rocpd_report {
    // Set by the caller before the call: sizeof(ps_rocpd_report). Nothing beyond it is written.
    size_t size;
    // Events in the file.
    uint64_t events;
    // Events missing because the disk was full, too slow, or did not respond.
    uint64_t dropped;
    // Rows of the events.
    uint64_t rows;
    // Committed transactions.
    uint64_t commits;
} ps_rocpd_report;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the message of this thread's last failure, never NULL. It is valid until the thread's
// next failure.
PS_API const char *ps_last_error(void);

// Replaces the text of ps_last_error() on this thread; for layers on top of this library, such as
// probe_sync_mpi.h. NULL clears the text.
PS_API void ps_set_last_error(const char *text);

// Returns the version of the library, for example "0.1.0".
PS_API const char *ps_version(void);

// Creates settings with default values. Free them with ps_options_free().
PS_API enum ps_status ps_options_new(struct ps_options **options);

// Sets one key from its text, for example ("window", "250ms"). Keys and values are those of
// `probe_sync run --help`, with underscores. A key set here takes precedence over the environment
// (PROBE_SYNC_WINDOW), and that over ps_options_file().
PS_API enum ps_status ps_options_set(struct ps_options *options, const char *key, const char *value);

// Makes the session read settings from a TOML file (or JSON, if its name ends in .json) when it
// starts.
PS_API enum ps_status ps_options_file(struct ps_options *options, const char *path);

// Takes snapshot pairs of the caller's own clock, under a name of the caller's choice, instead of
// the key tracer_clock. The function is called once now, and then from the session's threads,
// possibly from several at once, until the session has ended. ps_session_stop() waits for that;
// ps_session_free() does not.
PS_API
enum ps_status ps_options_tracer_clock(struct ps_options *options,
                                       const char *name,
                                       ps_read_clock read,
                                       void *user_data);

// Frees the settings (NULL is a no-op). Sessions started with them continue.
PS_API void ps_options_free(struct ps_options *options);

// Opens a meeting at rank 0; call it before sending the id to the other ranks. addresses lists the
// addresses of this machine at which they can reach it, for example "10.0.0.1,fd00::1"; NULL means
// all addresses. Free the meeting with ps_meeting_free().
PS_API enum ps_status ps_meeting_open(const char *addresses, struct ps_meeting **meeting);

// Gets the id of a meeting, to be sent to the other ranks.
PS_API enum ps_status ps_meeting_id(const struct ps_meeting *meeting, struct ps_unique_id *id);

// Frees the meeting (NULL is a no-op). A session started with it continues.
PS_API void ps_meeting_free(struct ps_meeting *meeting);

// Opens the clock that a run on this host maintains in a file (key clock_page, flag --clock-page).
// Free it with ps_clock_free().
PS_API enum ps_status ps_clock_open(const char *path, struct ps_clock **clock);

// Gets the current reference time with its bounds. Returns PS_ERROR_UNKNOWN until the first round
// is solved.
PS_API enum ps_status ps_clock_now(const struct ps_clock *clock, struct ps_time *now);

// Returns the current reference time, ns since the Unix epoch, without bounds; the fastest way to
// read the clock. Returns 0 until the first round is solved, and for NULL.
PS_API int64_t ps_clock_now_ns(const struct ps_clock *clock);

// Returns true if this reference time has certainly passed. Returns false for NULL, and until the
// reference time is known.
PS_API bool ps_clock_after(const struct ps_clock *clock, int64_t time_ns);

// Returns true if this reference time is certainly still in the future. Returns false for NULL,
// and until the reference time is known.
PS_API bool ps_clock_before(const struct ps_clock *clock, int64_t time_ns);

// Waits until the reference time is known.
PS_API enum ps_status ps_clock_wait_until_known(const struct ps_clock *clock, uint32_t timeout_ms);

// Waits until the clock shows time_ns, for example to start on several nodes at once. Returns
// PS_ERROR_TIMEOUT immediately if that is more than limit_ms in the future, and PS_ERROR_UNKNOWN
// if the reference time is not known yet.
PS_API enum ps_status ps_clock_wait_until(const struct ps_clock *clock, int64_t time_ns, uint32_t limit_ms);

// Converts a time of this host's CLOCK_REALTIME, past or future, to reference time. Returns
// PS_ERROR_UNKNOWN if the reference time is not known yet, or if that clock was stepped since
// then.
PS_API
enum ps_status ps_clock_of_realtime(const struct ps_clock *clock,
                                    int64_t realtime_ns,
                                    struct ps_interval *found);

// Converts a time of this host's CLOCK_MONOTONIC_RAW to reference time, like
// ps_clock_of_realtime().
PS_API enum ps_status ps_clock_of_raw(const struct ps_clock *clock, int64_t raw_ns, struct ps_interval *found);

// Converts a time of this host's CLOCK_BOOTTIME to reference time, like ps_clock_of_realtime().
PS_API
enum ps_status ps_clock_of_boottime(const struct ps_clock *clock,
                                    int64_t boottime_ns,
                                    struct ps_interval *found);

// Frees the clock (NULL is a no-op).
PS_API void ps_clock_free(struct ps_clock *clock);

// Starts a session as rank `rank` of `size` on its own thread, and returns immediately;
// ps_session_state() reports later failures. Rank 0 passes the meeting that it opened, the other
// ranks pass its id; the other argument may be NULL, and both may be NULL if size is 1. options
// may be NULL. A process can have one session at a time. Free it with ps_session_free().
PS_API
enum ps_status ps_session_start(const struct ps_options *options,
                                const struct ps_meeting *meeting,
                                const struct ps_unique_id *id,
                                int rank,
                                int size,
                                struct ps_session **session);

// Records that this rank arrives now at operation `step` of `group`. Call it on every member right
// before an operation in which the members wait for each other; rank 0 uses it to detect late
// ranks (`probe_sync status`). The call takes some tens of nanoseconds, takes no lock, and may be
// made from any thread. `group` has at most 64 bytes of UTF-8. If the buffer is full, the arrival
// is dropped and counted.
PS_API enum ps_status ps_arrive(const struct ps_session *session, const char *group, uint64_t step);

// Records an arrival, as ps_arrive() does, whenever a scope of ps_record_collective_enter() begins
// in which all members wait: all-reduce, all-gather, reduce-scatter, all-to-all, barrier. Group and
// step are the scope's group and sequence number; scopes without them are ignored.
// No recording is needed. Ends with the session.
PS_API enum ps_status ps_session_observe_collectives(const struct ps_session *session);

// Stops starting exchanges on this rank from the next round on. The rank still answers the others'
// exchanges, and rounds continue.
PS_API enum ps_status ps_session_pause(const struct ps_session *session);

// Resumes measuring on this rank from the next round on.
PS_API enum ps_status ps_session_resume(const struct ps_session *session);

// Gets the session's clock, which remains valid after the session's end and in forked children.
// Free it with ps_clock_free(), before or after the session.
PS_API enum ps_status ps_session_clock(const struct ps_session *session, struct ps_clock **clock);

// Ends the run on all ranks after the current window and a short final one; every rank must call
// this. At rank 0, *report_json is set to the content of report.json, valid until the session is
// freed; elsewhere to NULL. report_json itself may be NULL. Returns PS_ERROR_FAILED if the session
// had failed, and PS_ERROR_ENDED if it was already stopped.
PS_API enum ps_status ps_session_stop(const struct ps_session *session, const char **report_json);

// Frees the session (NULL is a no-op). A running session is asked to stop; this call does not wait
// for it. In a forked child the parent's session continues.
PS_API void ps_session_free(struct ps_session *session);

// Starts a session like ps_session_start(), but the ranks communicate over the caller's own
// messages and need no meeting. A NULL function or an invalid rank or size is PS_ERROR_ARGUMENT,
// and no function is called; otherwise messages->release is called exactly once, whatever this
// function returns. The structure itself is copied. Unless threads is PS_THREADS_ANY, the caller
// moves the messages with ps_session_step(); ps_session_stop(), the waits and ps_session_free()
// also move them, on the same thread.
PS_API
enum ps_status ps_session_start_over(const struct ps_options *options,
                                     const struct ps_messages *messages,
                                     struct ps_session **session);

// Moves as many of the session's messages as possible within budget_us microseconds, plus at most
// one more. It never waits for another rank. Call it between your own MPI calls, on the thread
// that may make them, at least every few hundred milliseconds. Returns PS_ERROR_FAILED if the
// session failed, PS_ERROR_ARGUMENT if it needs no steps (ps_session_needs_step), PS_ERROR_MPI on
// the wrong thread, and PS_ERROR_ENDED after ps_session_stop().
PS_API enum ps_status ps_session_step(const struct ps_session *session, uint32_t budget_us);

// Tells whether the caller must call ps_session_step().
PS_API enum ps_status ps_session_needs_step(const struct ps_session *session, bool *needs);

// Gets the state of the session, also after ps_session_stop(). If the session failed, the call
// still returns PS_OK, and ps_last_error() gives the reason.
PS_API enum ps_status ps_session_state(const struct ps_session *session, struct ps_state *state);

// Gets the last solved round and its first `capacity` nodes, in numerical order; round and nodes
// may be NULL. Returns PS_ERROR_UNKNOWN until there is one.
PS_API
enum ps_status ps_session_round(const struct ps_session *session,
                                struct ps_node_estimate *nodes,
                                size_t capacity,
                                struct ps_round *round);

// Waits until the half-width of the 95 % interval of this node's offset is at most half_width_ns.
// Returns PS_ERROR_UNREACHABLE after a few rounds if path and host asymmetry alone exceed it;
// otherwise PS_ERROR_TIMEOUT, PS_ERROR_FAILED or PS_ERROR_ENDED.
PS_API
enum ps_status ps_session_wait_until_bound(const struct ps_session *session,
                                           uint32_t half_width_ns,
                                           uint32_t timeout_ms);

// Waits until `rounds` rounds are solved. Fails like ps_session_wait_until_bound().
PS_API enum ps_status ps_session_wait_rounds(const struct ps_session *session, uint64_t rounds, uint32_t timeout_ms);

// Creates recording settings with default values: all threads, all kinds, and 64 MiB in memory;
// when that is full, new events are dropped. Free them with ps_record_options_free().
PS_API enum ps_status ps_record_options_new(struct ps_record_options **options);

// Sets one key from its text: reach (process, thread), policy (drop_newest, flight, stream), bytes
// (64MiB), every (200ms: how often a stream appends; set policy first), spill (a file that
// survives a kill), kinds (user,collective), one_in, longer_than (20us), clock (best, tsc,
// monotonic_raw), pair_period (1s), threads, keep (5s), rank, devices (cupti: NVIDIA GPUs), control
// (a folder for a socket, for `probe_sync record start`), and with true or false details, shapes,
// stacks, modules, flops, memory (events of that kind), count_omitted, paused, on_demand (paused
// until it is started from outside).
PS_API enum ps_status ps_record_options_set(struct ps_record_options *options, const char *key, const char *value);

// Frees the settings (NULL is a no-op). Recordings started with them continue.
PS_API void ps_record_options_free(struct ps_record_options *options);

// Starts recording. options may be NULL. A process can have one recording with reach process at a
// time, and at most 8 including those with reach thread; a forked child may start its own. Free it
// with ps_record_free().
PS_API enum ps_status ps_record_start(const struct ps_record_options *options, struct ps_record **record);

// Pauses recording until ps_record_resume(). Open scopes are still recorded when they end.
PS_API enum ps_status ps_record_pause(const struct ps_record *record);

// Resumes recording.
PS_API enum ps_status ps_record_resume(const struct ps_record *record);

// Writes everything recorded so far to a file, replacing an existing one. Recording continues.
PS_API enum ps_status ps_record_snapshot(const struct ps_record *record, const char *path);

// Ends the recording. When this returns, all threads' events are complete, and `probe_sync record`
// can read the file. path is a file for a copy, which a recording without the setting spill needs;
// NULL means no copy. The recording ends even if the copy fails.
PS_API enum ps_status ps_record_finish(const struct ps_record *record, const char *path);

// Frees the recording (NULL is a no-op) and ends it if it is running. In a forked child the
// parent's recording continues.
PS_API void ps_record_free(struct ps_record *record);

// Adds the calling thread to a recording with reach thread that another thread started, until
// ps_record_adopted_free().
PS_API enum ps_status ps_record_adopt(const struct ps_record *record, struct ps_record_adopted **adopted);

// Removes the thread from the recording (NULL is a no-op).
PS_API void ps_record_adopted_free(struct ps_record_adopted *adopted);

// Gets the site for a name and kind (one of ps_record_kind) of events; the same name and kind give
// the same site. Keep it in a static variable. A process can have at most 2^20 sites per kind;
// they are never freed.
PS_API enum ps_status ps_record_site_new(uint32_t kind, const char *name, const struct ps_record_site **site);

// Returns true if an event of this site would be recorded now. Returns false for NULL.
PS_API bool ps_record_wanted(const struct ps_record_site *site);

// Begins a scope, which ps_record_leave() ends on the same thread, after the scopes within it.
// Returns true if the scope is being recorded.
PS_API bool ps_record_enter(const struct ps_record_site *site, struct ps_record_scope *scope);

// Begins a scope like ps_record_enter(), with count arguments.
PS_API
bool ps_record_enter_with(const struct ps_record_site *site,
                          const struct ps_record_argument *arguments,
                          size_t count,
                          struct ps_record_scope *scope);

// Adds arguments to the innermost open scope. Arguments for any other scope are counted as lost.
PS_API
void ps_record_state(const struct ps_record_scope *scope,
                     const struct ps_record_argument *arguments,
                     size_t count);

// Ends a scope and any scope within it that is still open. A zeroed scope, as after this call, and
// NULL are ignored.
PS_API void ps_record_leave(struct ps_record_scope *scope);

// Records an instant event with count arguments.
PS_API
void ps_record_instant(const struct ps_record_site *site,
                       const struct ps_record_argument *arguments,
                       size_t count);

// Records the new value of a counter.
PS_API void ps_record_counter(const struct ps_record_site *site, double value);

// Adds the open scope to a flow; all scopes with one id are joined, across threads. place is one
// of ps_record_flow_place; other values are ignored.
PS_API void ps_record_flow(const struct ps_record_site *site, uint32_t place, uint64_t id);

// Begins a span, which may end on another thread. Returns its id for ps_record_span_end(), or 0 if
// it is not being recorded.
PS_API uint64_t ps_record_span_begin(const struct ps_record_site *site);

// Ends a span on this thread; 0 is ignored.
PS_API void ps_record_span_end(const struct ps_record_site *site, uint64_t id);

// Assigns this correlation id to events that begin on this thread from now on; device events use
// it to refer to their launch. Returns the previous id for ps_record_correlate_pop().
PS_API uint64_t ps_record_correlate_push(uint64_t id);

// Restores the id that ps_record_correlate_push() returned.
PS_API void ps_record_correlate_pop(uint64_t before);

// Begins the scope of a collective, which ps_record_leave() ends. collective may be NULL if
// nothing is known about it. Returns true if the scope is being recorded.
PS_API
bool ps_record_collective_enter(const struct ps_record_site *site,
                                const struct ps_record_collective *collective,
                                struct ps_record_scope *scope);

// Records that memory was allocated or freed now; NULL is ignored.
PS_API void ps_record_memory_event(const struct ps_record_site *site, const struct ps_record_memory *memory);

// Gets the key for an argument's name; the same name gives the same key in every recording of the
// process and its children. A process can have at most 2^20 keys.
PS_API enum ps_status ps_record_key(const char *name, uint32_t *key);

// Rewrites traces onto the reference clock, each in its own format: a single trace to the file
// output, several to the directory output. options may be NULL, and traces too if run_dir is set:
// the traces in that directory are used then. With validate, nothing is written if causality is
// violated, and the call returns PS_ERROR_VIOLATED. result may be NULL; otherwise set its size
// first, and free it with ps_trace_result_free(). After an error, traces already written remain.
PS_API
enum ps_status ps_align(const char *const *traces,
                        size_t count,
                        const struct ps_trace_options *options,
                        const char *output,
                        struct ps_trace_result *result);

// Merges traces into the file output, whose ending decides its format. Everything else is as in
// ps_align().
PS_API
enum ps_status ps_merge(const char *const *traces,
                        size_t count,
                        const struct ps_trace_options *options,
                        const char *output,
                        struct ps_trace_result *result);

// Writes traces in other formats to a folder, which is created. formats lists them, separated by
// commas: pftrace, json, json.gz, kineto, kineto.gz, xspace and csv. Names of the files begin with
// the key output_file ("out"). Everything else is as in ps_align().
PS_API
enum ps_status ps_convert(const char *const *traces,
                          size_t count,
                          const struct ps_trace_options *options,
                          const char *folder,
                          const char *formats,
                          struct ps_trace_result *result);

// Checks that no collective ends before every rank has entered it: on the times as recorded, or
// on the corrected ones if the options name a source of clocks. Returns PS_OK whatever it finds;
// result->outcome is the verdict. Everything else is as in ps_align().
PS_API
enum ps_status ps_check(const char *const *traces,
                        size_t count,
                        const struct ps_trace_options *options,
                        struct ps_trace_result *result);

// Frees the texts of a result and sets them to NULL; the numbers stay. Call it whatever the function
// returned. NULL, and a result whose size is not sizeof(ps_trace_result), are ignored.
PS_API void ps_trace_result_free(struct ps_trace_result *result);

// Creates settings with default values. Free them with ps_trace_options_free().
PS_API enum ps_status ps_trace_options_new(struct ps_trace_options **options);

// Sets one key from its text, for example ("run_dir", "run") or ("nodes", "0-3"). Keys and values
// are those of `probe_sync align --help`, and of merge, convert and check, with underscores;
// options without a value take "true" or "false". Each call of nodes, snapshots, only and
// suspended adds to the list. Clocks come from run_dir, offsets or from_collectives; with none of
// them, times are used as they are.
PS_API enum ps_status ps_trace_options_set(struct ps_trace_options *options, const char *key, const char *value);

// Frees the settings (NULL is a no-op).
PS_API void ps_trace_options_free(struct ps_trace_options *options);

// Creates a database as rocprofv3 writes it, one per process. path may contain rocprofv3's keys,
// as in "%hostname%/%pid%_results.db"; folders are created, and an existing file is never
// replaced. Events are committed every flush_ms milliseconds (0 means 1000): a process that is
// killed loses at most this much, and leaves a whole file. Free it with ps_rocpd_free().
PS_API enum ps_status ps_rocpd_open(const char *path, uint32_t flush_ms, struct ps_rocpd **rocpd);

// Adds a GPU with this index on the node, and gets its number for events. name is for example
// "gfx942".
PS_API enum ps_status ps_rocpd_agent(const struct ps_rocpd *rocpd, const char *name, uint32_t index, uint32_t *agent);

// Records count events; the call copies them and never waits for the file system. An event that
// does not fit in the buffer is dropped and counted. Returns PS_ERROR_ARGUMENT at the first invalid
// event; the events before it are recorded.
PS_API enum ps_status ps_rocpd_write(const struct ps_rocpd *rocpd, const struct ps_rocpd_event *events, size_t count);

// Commits everything recorded so far, and waits at most timeout_ms until it is in the file, where
// other processes can read it.
PS_API enum ps_status ps_rocpd_flush(const struct ps_rocpd *rocpd, uint32_t timeout_ms);

// Commits the remaining events, ends the file, and reports what happened to all events. report may
// be NULL; otherwise set its size first. Returns PS_ERROR_TIMEOUT if the file system does not respond.
PS_API enum ps_status ps_rocpd_close(const struct ps_rocpd *rocpd, struct ps_rocpd_report *report);

// Frees the writer (NULL is a no-op), and ends the file if it is open. In a forked child the
// parent's writer continues.
PS_API void ps_rocpd_free(struct ps_rocpd *rocpd);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PROBE_SYNC_H */
