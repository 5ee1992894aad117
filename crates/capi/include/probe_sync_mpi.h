/*
 * probe_sync_mpi.h: sessions of an MPI job's ranks.
 *
 * Compiled by the caller's mpicc: libprobe_sync itself does not link MPI, so that one library
 * serves Open MPI and MPICH. There are two kinds of sessions:
 *
 * ps_mpi_session_start() is defined entirely in this header. It uses MPI only during the call, to
 * send 128 bytes and a status; rounds run over TCP on the session's own thread, which never calls
 * MPI. MPI_THREAD_SINGLE is enough.
 *
 * ps_mpi_session_start_over() also sends its rounds over MPI, and opens no ports except for probes.
 * It is defined in probe_sync_mpi.c, which is installed as a source file: link the CMake target
 * probe_sync::probe_sync_mpi, or compile it with your own code. At MPI_THREAD_MULTIPLE the
 * session's thread calls MPI; at all other levels your thread does, within ps_session_step().
 */
#ifndef PROBE_SYNC_MPI_H
#define PROBE_SYNC_MPI_H

#include <mpi.h>
#include <string.h>

#include "probe_sync.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Gives all ranks the status and the error text of the first rank that failed. */
static inline ps_status ps_mpi_agreed(MPI_Comm communicator, int rank, int size, ps_status own)
{
    struct {
        int status;
        char text[1024];
    } told;
    int candidate = own == PS_OK ? size : rank;
    int first = size;

    if (MPI_Allreduce(&candidate, &first, 1, MPI_INT, MPI_MIN, communicator) != MPI_SUCCESS) {
        ps_set_last_error("MPI_Allreduce failed; see MPI's own message");
        return PS_ERROR_MPI;
    }
    if (first == size) {
        return PS_OK;
    }
    memset(&told, 0, sizeof told);
    if (rank == first) {
        told.status = (int)own;
        strncpy(told.text, ps_last_error(), sizeof told.text - 1);
    }
    if (MPI_Bcast(&told, (int)sizeof told, MPI_BYTE, first, communicator) != MPI_SUCCESS) {
        ps_set_last_error("MPI_Bcast failed; see MPI's own message");
        return PS_ERROR_MPI;
    }
    ps_set_last_error(told.text);
    return (ps_status)told.status;
}

/*
 * Starts a session on all ranks of the communicator, like ps_session_start() with the
 * communicator's rank and size and a meeting that rank 0 opens. All ranks must call it; it waits
 * for the other ranks to do so, but not for any clock. All ranks return the same status; unless it
 * is PS_OK, no rank has a session. options may be NULL. ps_session_state() reports later failures.
 */
static inline ps_status ps_mpi_session_start(MPI_Comm communicator, const ps_options *options, ps_session **session)
{
    ps_unique_id id;
    ps_meeting *meeting = NULL;
    ps_session *started = NULL;
    ps_status status = PS_OK;
    int rank = 0;
    int size = 0;

    if (MPI_Comm_rank(communicator, &rank) != MPI_SUCCESS || MPI_Comm_size(communicator, &size) != MPI_SUCCESS) {
        ps_set_last_error("invalid communicator; give one that contains this rank, after MPI_Init");
        return PS_ERROR_MPI;
    }
    memset(&id, 0, sizeof id);
    if (rank == 0) {
        status = ps_meeting_open(NULL, &meeting);
        if (status == PS_OK) {
            status = ps_meeting_id(meeting, &id);
        }
    }
    if (MPI_Bcast(&id, (int)sizeof id, MPI_BYTE, 0, communicator) != MPI_SUCCESS) {
        ps_set_last_error("MPI_Bcast failed; see MPI's own message");
        ps_meeting_free(meeting);
        return PS_ERROR_MPI;
    }
    if (status == PS_OK) {
        status = ps_session_start(options, meeting, &id, rank, size, session == NULL ? NULL : &started);
    }
    status = ps_mpi_agreed(communicator, rank, size, status);
    ps_meeting_free(meeting);
    if (status != PS_OK) {
        ps_session_free(started);
        started = NULL;
    }
    if (session != NULL) {
        *session = started;
    }
    return status;
}

/*
 * Starts a session like ps_mpi_session_start(), but with the rounds over MPI, on a duplicate of the
 * communicator. If ps_session_needs_step() says so, call ps_session_step() between your own MPI
 * calls, on the thread that may make them. A round takes about three steps of every rank. If a rank
 * does not step for longer than round_timeout plus one and a half windows, the session ends on all
 * ranks with an error that names it, so step at least three times as often. ps_session_stop() and,
 * on the thread that started the session, the waits and ps_session_free() then also call MPI. Stop
 * the session before MPI_Finalize; a session that is still running then fails and makes no further
 * MPI calls. It never ends the job. Returns PS_ERROR_MPI, on this rank alone, if MPI is not
 * running, if this thread may not call it, or if the communicator is not an intracommunicator.
 */
ps_status ps_mpi_session_start_over(MPI_Comm communicator, const ps_options *options, ps_session **session);

#ifdef __cplusplus
}
#endif

#endif
