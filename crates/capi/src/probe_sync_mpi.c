/*
 * probe_sync_mpi.c: sessions whose rounds go over the caller's MPI.
 *
 * Installed as a source and compiled by the caller's mpicc (the CMake target
 * probe_sync::probe_sync_mpi), because a communicator is not the same type in every MPI. It gives
 * libprobe_sync the functions of ps_messages: everything is started and asked for without waiting,
 * on a duplicate of the communicator that returns errors, so its messages never meet the caller's
 * and nothing here ends the job.
 *
 * MPI may be finalised while a session runs. MPI_Finalize first deletes what is attached to
 * MPI_COMM_SELF; that is how this learns of it, after which it calls MPI no more. The same in Rust
 * is crates/mpi/src/beside.rs.
 *
 * It does not initialise or finalise MPI, or wait for other ranks but in
 * ps_mpi_session_start_over().
 */
#define _POSIX_C_SOURCE 200809L

#include "probe_sync_mpi.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* A message on its way out; MPI reads the bytes until the request is complete. */
struct outgoing {
    struct outgoing *next;
    MPI_Request request;
    unsigned char bytes[];
};

struct ps_mpi {
    /* Held within every call of MPI, so that MPI_Finalize waits for the end of one. */
    pthread_mutex_t lock;
    MPI_Comm communicator;
    int key;
    bool finalised;
    /* The session, and the attribute of MPI_COMM_SELF. */
    int users;
    struct outgoing *outgoing;
    /* The message that comes in, or came last. */
    MPI_Request request;
    bool under_way;
    int from;
    size_t count;
    size_t room;
    unsigned char *bytes;
    char failed[MPI_MAX_ERROR_STRING + 64];
};

enum { TAG = 0x7073 };

/* Gives a user's part back; the last one takes all with it that MPI does not use. */
static void leave(struct ps_mpi *mpi)
{
    bool last;
    pthread_mutex_lock(&mpi->lock);
    last = --mpi->users == 0;
    pthread_mutex_unlock(&mpi->lock);
    if (!last) {
        return;
    }
    /* What is still under way is left to MPI: it may write there. */
    if (!mpi->under_way) {
        free(mpi->bytes);
    }
    pthread_mutex_destroy(&mpi->lock);
    free(mpi);
}

/* A duplicate of MPI_COMM_SELF does not get the attribute. */
static int not_copied(MPI_Comm communicator, int key, void *extra, void *attribute, void *copy, int *flag)
{
    (void)communicator, (void)key, (void)extra, (void)attribute, (void)copy;
    *flag = 0;
    return MPI_SUCCESS;
}

/* MPI is being finalised, or the session has ended before that. */
static int deleted(MPI_Comm communicator, int key, void *attribute, void *extra)
{
    struct ps_mpi *mpi = attribute;
    (void)communicator, (void)key, (void)extra;
    pthread_mutex_lock(&mpi->lock);
    mpi->finalised = true;
    pthread_mutex_unlock(&mpi->lock);
    leave(mpi);
    return MPI_SUCCESS;
}

/* Whether a call has succeeded; otherwise MPI's own words are kept. */
static bool succeeded(struct ps_mpi *mpi, int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS) {
        return true;
    }
    MPI_Error_string(code, text, &length);
    snprintf(mpi->failed, sizeof mpi->failed, "%s: %s", call, text);
    return false;
}

/* Whether MPI may be called; the lock is held then. */
static bool may_call(struct ps_mpi *mpi)
{
    pthread_mutex_lock(&mpi->lock);
    if (!mpi->finalised) {
        return true;
    }
    snprintf(mpi->failed, sizeof mpi->failed,
             "MPI_Finalize was called while the session was running; stop the session first");
    pthread_mutex_unlock(&mpi->lock);
    return false;
}

static int send_message(void *context, int to, const void *bytes, size_t count)
{
    struct ps_mpi *mpi = context;
    struct outgoing *message;
    bool sent;
    if (!may_call(mpi)) {
        return -1;
    }
    message = count > INT_MAX ? NULL : malloc(sizeof *message + count);
    if (message == NULL) {
        snprintf(mpi->failed, sizeof mpi->failed, "no memory, or no number in MPI, for a message of %zu bytes", count);
        pthread_mutex_unlock(&mpi->lock);
        return -1;
    }
    memcpy(message->bytes, bytes, count);
    sent = succeeded(mpi, MPI_Isend(message->bytes, (int)count, MPI_BYTE, to, TAG, mpi->communicator, &message->request),
                     "MPI_Isend");
    if (sent) {
        message->next = mpi->outgoing;
        mpi->outgoing = message;
    } else {
        free(message);
    }
    pthread_mutex_unlock(&mpi->lock);
    return sent ? 0 : -1;
}

/* Lets go of what has been sent. */
static bool test_outgoing(struct ps_mpi *mpi)
{
    struct outgoing **place = &mpi->outgoing;
    while (*place != NULL) {
        struct outgoing *message = *place;
        int done = 0;
        if (!succeeded(mpi, MPI_Test(&message->request, &done, MPI_STATUS_IGNORE), "MPI_Test")) {
            return false;
        }
        if (done) {
            *place = message->next;
            free(message);
        } else {
            place = &message->next;
        }
    }
    return true;
}

/* Begins to receive a message that waits, if there is one. */
static bool begin_to_receive(struct ps_mpi *mpi)
{
    MPI_Status status;
    int waits = 0;
    int count = 0;
    if (!succeeded(mpi, MPI_Iprobe(MPI_ANY_SOURCE, TAG, mpi->communicator, &waits, &status), "MPI_Iprobe")) {
        return false;
    }
    if (!waits) {
        return true;
    }
    if (!succeeded(mpi, MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count")) {
        return false;
    }
    if (mpi->bytes == NULL || (size_t)count > mpi->room) {
        unsigned char *larger = realloc(mpi->bytes, (size_t)count + 1);
        if (larger == NULL) {
            snprintf(mpi->failed, sizeof mpi->failed, "no memory for a message of %d bytes", count);
            return false;
        }
        mpi->bytes = larger;
        mpi->room = (size_t)count;
    }
    mpi->from = status.MPI_SOURCE;
    mpi->count = (size_t)count;
    mpi->under_way = true;
    return succeeded(mpi,
                     MPI_Irecv(mpi->bytes, count, MPI_BYTE, status.MPI_SOURCE, TAG, mpi->communicator, &mpi->request),
                     "MPI_Irecv");
}

static int receive_message(void *context, int *from, const void **bytes, size_t *count)
{
    struct ps_mpi *mpi = context;
    int done = 0;
    bool well;
    if (!may_call(mpi)) {
        return -1;
    }
    well = test_outgoing(mpi) && (mpi->under_way || begin_to_receive(mpi));
    if (well && mpi->under_way) {
        well = succeeded(mpi, MPI_Test(&mpi->request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    }
    if (done) {
        mpi->under_way = false;
        *from = mpi->from;
        *bytes = mpi->bytes;
        *count = mpi->count;
    }
    pthread_mutex_unlock(&mpi->lock);
    return well ? done != 0 : -1;
}

static int is_sending(void *context)
{
    struct ps_mpi *mpi = context;
    bool sending;
    pthread_mutex_lock(&mpi->lock);
    sending = mpi->outgoing != NULL;
    pthread_mutex_unlock(&mpi->lock);
    return sending;
}

static const char *describe(void *context)
{
    return ((struct ps_mpi *)context)->failed;
}

static void take_leave(void *context, int in_order)
{
    struct ps_mpi *mpi = context;
    if (in_order && may_call(mpi)) {
        MPI_Comm communicator = mpi->communicator;
        int key = mpi->key;
        /* The attribute's end takes the lock. */
        pthread_mutex_unlock(&mpi->lock);
        MPI_Comm_delete_attr(MPI_COMM_SELF, key);
        MPI_Comm_free_keyval(&key);
        MPI_Comm_free(&communicator);
    }
    leave(mpi);
}

/* Why this MPI, thread or communicator cannot be used; NULL where it can. */
static const char *refusal(MPI_Comm communicator, int *threads)
{
    int flag = 0;
    int level = MPI_THREAD_SINGLE;
    MPI_Finalized(&flag);
    if (flag) {
        return "MPI is already finalised; start the session before MPI_Finalize";
    }
    MPI_Initialized(&flag);
    if (!flag) {
        return "MPI is not initialised; start the session after MPI_Init or MPI_Init_thread";
    }
    if (communicator == MPI_COMM_NULL) {
        return "this is MPI_COMM_NULL; give a communicator that contains this rank";
    }
    MPI_Query_thread(&level);
    *threads = level == MPI_THREAD_MULTIPLE     ? PS_THREADS_ANY
               : level == MPI_THREAD_SERIALIZED ? PS_THREADS_ONE_AT_A_TIME
                                                : PS_THREADS_OWN;
    MPI_Is_thread_main(&flag);
    if (*threads == PS_THREADS_OWN && !flag) {
        return "only the thread that initialised MPI may call it; start the session there";
    }
    MPI_Comm_test_inter(communicator, &flag);
    return flag ? "this is an intercommunicator; give an intracommunicator, for example from MPI_Intercomm_merge" : NULL;
}

/* A duplicate of the communicator, attached to MPI's end; NULL, with a text, where MPI refuses. */
static struct ps_mpi *attached(MPI_Comm communicator)
{
    struct ps_mpi *mpi = calloc(1, sizeof *mpi);
    if (mpi == NULL || pthread_mutex_init(&mpi->lock, NULL) != 0) {
        ps_set_last_error("no memory for a session");
        free(mpi);
        return NULL;
    }
    mpi->users = 2;
    if (succeeded(mpi, MPI_Comm_dup(communicator, &mpi->communicator), "MPI_Comm_dup") &&
        succeeded(mpi, MPI_Comm_set_errhandler(mpi->communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler") &&
        succeeded(mpi, MPI_Comm_create_keyval(not_copied, deleted, &mpi->key, NULL), "MPI_Comm_create_keyval") &&
        succeeded(mpi, MPI_Comm_set_attr(MPI_COMM_SELF, mpi->key, mpi), "MPI_Comm_set_attr")) {
        return mpi;
    }
    ps_set_last_error(mpi->failed);
    pthread_mutex_destroy(&mpi->lock);
    free(mpi);
    return NULL;
}

ps_status ps_mpi_session_start_over(MPI_Comm communicator, const ps_options *options, ps_session **session)
{
    ps_messages messages;
    ps_session *started = NULL;
    struct ps_mpi *mpi;
    ps_status status;
    const char *refused;

    memset(&messages, 0, sizeof messages);
    refused = refusal(communicator, &messages.threads);
    if (refused != NULL) {
        ps_set_last_error(refused);
        return PS_ERROR_MPI;
    }
    mpi = attached(communicator);
    if (mpi == NULL) {
        return PS_ERROR_MPI;
    }
    MPI_Comm_rank(mpi->communicator, &messages.rank);
    MPI_Comm_size(mpi->communicator, &messages.size);
    messages.context = mpi;
    messages.send = send_message;
    messages.receive = receive_message;
    messages.sending = is_sending;
    messages.describe = describe;
    messages.release = take_leave;
    status = ps_session_start_over(options, &messages, session == NULL ? NULL : &started);
    status = ps_mpi_agreed(communicator, messages.rank, messages.size, status);
    if (status != PS_OK) {
        ps_session_free(started);
        started = NULL;
    }
    if (session != NULL) {
        *session = started;
    }
    return status;
}
