/*
 * probe_sync_mpi.h: sessions of an MPI job's ranks.
 *
 * Compiled by the caller's mpicc: libprobe_sync itself links no MPI, so one library serves Open MPI and MPICH. There are two kinds of sessions:
 *
 * ps_mpi_session_start(): all of it is here. MPI carries 128 bytes and a status, within that call; rounds run over TCP on the session's own thread, which
 * never calls MPI. MPI_THREAD_SINGLE is enough.
 *
 * ps_mpi_session_start_over(): rounds go over MPI too, and no port is opened but those of the probes. It is in probe_sync_mpi.c, which is installed as a
 * source: link the CMake target probe_sync::probe_sync_mpi, or compile it beside your own. At MPI_THREAD_MULTIPLE the session's thread calls MPI;
 * at all other levels your thread does, within ps_session_step().
 */
#ifndef PROBE_SYNC_MPI_H
#define PROBE_SYNC_MPI_H

#include <mpi.h>
#include <string.h>

#include "probe_sync.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All ranks get the status and the text of the first rank that has failed. */
static inline ps_status ps_mpi_agreed(MPI_Comm communicator, int rank, int size, ps_status own)
{
    struct {
        int status;
        char text[1024];
    } told;
    int candidate = own == PS_OK ? size : rank;
    int first = size;

    if (MPI_Allreduce(&candidate, &first, 1, MPI_INT, MPI_MIN, communicator) != MPI_SUCCESS) {
        ps_set_last_error("MPI_Allreduce failed; look at MPI's own message");
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
        ps_set_last_error("MPI_Bcast failed; look at MPI's own message");
        return PS_ERROR_MPI;
    }
    ps_set_last_error(told.text);
    return (ps_status)told.status;
}

/*
 * Starts a session on all ranks of the communicator, which all call it: as ps_session_start(), with rank and size of the communicator and a meeting
 * that rank 0 opens. It waits for no other clock, only for the other ranks to call it too. All ranks return the same status; where it is not PS_OK no
 * rank has a session. options may be NULL. What goes wrong later is a phase of the session.
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
        ps_set_last_error("MPI does not know this communicator; give one that holds this rank, after MPI_Init");
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
        ps_set_last_error("MPI_Bcast failed; look at MPI's own message");
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
 * As ps_mpi_session_start(), and the rounds go over MPI, on a duplicate of the communicator. Where ps_session_needs_step() says so, call
 * ps_session_step() between your own calls of MPI, on the thread that may make them: a round takes some three steps of every rank, and a rank that does
 * not step for longer than round_timeout and a window and a half ends the session of all, by its name: steps are to come three times as often. ps_session_stop(), and on the thread that started
 * the waits and ps_session_free(), then call MPI too. Stop the session before MPI_Finalize: one that still runs then fails, and calls MPI no more. The job is never ended.
 * PS_ERROR_MPI, on this rank alone, where MPI is not running, this thread may not call it, or the communicator is none of a single group.
 */
ps_status ps_mpi_session_start_over(MPI_Comm communicator, const ps_options *options, ps_session **session);

#ifdef __cplusplus
}
#endif

#endif
