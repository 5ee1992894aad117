/*
 * probe_sync_pmpi.c: finds which rank of an MPI program is late, without changing or recompiling
 * the program.
 *
 *     mpicc -shared -fPIC probe_sync_pmpi.c -o libprobe_sync_pmpi.so $(pkg-config --cflags --libs probe_sync)
 *     mpirun -n 64 -x LD_PRELOAD=$PWD/libprobe_sync_pmpi.so -x PROBE_SYNC_OUT=run ./program
 *     probe_sync status run
 *
 * It uses the MPI profiling interface: MPI_Init starts a session, MPI_Finalize stops it, and each
 * blocking collective in which every member waits for every other says that this rank arrives
 * (ps_arrive), then calls the real function. Settings come from the environment (PROBE_SYNC_WINDOW
 * and so on). Nonblocking collectives, collectives with a root and calls from Fortran, which most
 * MPI libraries do not route through the C functions, are not seen.
 *
 * A session that cannot start is reported once, and the job runs without it. The first collective
 * of a communicator other than MPI_COMM_WORLD sends one small broadcast, so that all members use
 * the same name for it.
 */
#define _POSIX_C_SOURCE 200809L

#include "probe_sync_mpi.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { NAME_MAX_BYTES = 40, GROUP_MAX_BYTES = 64 };

/* What is known of a communicator, attached to it. */
struct known {
    char name[NAME_MAX_BYTES];
    uint64_t step;
};

static ps_session *session;
static int key = MPI_KEYVAL_INVALID;
static int world_rank;
/* Names that this rank has given to communicators whose first member it is. */
static int named;

static int deleted(MPI_Comm communicator, int keyval, void *attribute, void *extra)
{
    (void)communicator, (void)keyval, (void)extra;
    free(attribute);
    return MPI_SUCCESS;
}

static void start(void)
{
    ps_options *options = NULL;
    ps_status status;

    PMPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, deleted, &key, NULL) != MPI_SUCCESS) {
        key = MPI_KEYVAL_INVALID;
    }
    /* NULL options are defaults: whatever fails here, all ranks must call the next function. */
    (void)ps_options_new(&options);
    status = ps_mpi_session_start(MPI_COMM_WORLD, options, &session);
    ps_options_free(options);
    if (status != PS_OK && world_rank == 0) {
        fprintf(stderr, "probe_sync: no session, so late ranks are not found: %s\n", ps_last_error());
    }
}

/* The communicator's name, the same on all members; NULL where there is none. */
static struct known *known(MPI_Comm communicator)
{
    struct known *found = NULL;
    int there = 0;
    int between = 0;
    int rank = 0;

    if (PMPI_Comm_get_attr(communicator, key, &found, &there) != MPI_SUCCESS) {
        return NULL;
    }
    if (there) {
        return found;
    }
    if (PMPI_Comm_test_inter(communicator, &between) != MPI_SUCCESS || between || (found = calloc(1, sizeof *found)) == NULL) {
        return NULL;
    }
    if (communicator == MPI_COMM_WORLD) {
        strcpy(found->name, "world");
    } else {
        PMPI_Comm_rank(communicator, &rank);
        if (rank == 0) {
            snprintf(found->name, sizeof found->name, "communicator %d.%d", world_rank, named++);
        }
        PMPI_Bcast(found->name, (int)sizeof found->name, MPI_CHAR, 0, communicator);
    }
    if (PMPI_Comm_set_attr(communicator, key, found) != MPI_SUCCESS) {
        free(found);
        return NULL;
    }
    return found;
}

static void arrive(const char *operation, MPI_Comm communicator)
{
    char group[GROUP_MAX_BYTES];
    struct known *of;

    if (session == NULL || key == MPI_KEYVAL_INVALID || communicator == MPI_COMM_NULL || (of = known(communicator)) == NULL) {
        return;
    }
    snprintf(group, sizeof group, "%s (%s)", operation, of->name);
    /* It only fails for a NULL argument; arrivals that find no room are counted by the session. */
    (void)ps_arrive(session, group, of->step++);
}

int MPI_Init(int *argc, char ***argv)
{
    int code = PMPI_Init(argc, argv);
    if (code == MPI_SUCCESS) {
        start();
    }
    return code;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    int code = PMPI_Init_thread(argc, argv, required, provided);
    if (code == MPI_SUCCESS) {
        start();
    }
    return code;
}

int MPI_Finalize(void)
{
    if (session != NULL) {
        if (ps_session_stop(session, NULL) != PS_OK && world_rank == 0) {
            fprintf(stderr, "probe_sync: the session did not end well: %s\n", ps_last_error());
        }
        ps_session_free(session);
        session = NULL;
    }
    return PMPI_Finalize();
}

int MPI_Barrier(MPI_Comm comm)
{
    arrive("barrier", comm);
    return PMPI_Barrier(comm);
}

int MPI_Allreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    arrive("allreduce", comm);
    return PMPI_Allreduce(sendbuf, recvbuf, count, datatype, op, comm);
}

int MPI_Allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm)
{
    arrive("allgather", comm);
    return PMPI_Allgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
}

int MPI_Allgatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, const int recvcounts[], const int displs[],
                   MPI_Datatype recvtype, MPI_Comm comm)
{
    arrive("allgatherv", comm);
    return PMPI_Allgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm);
}

int MPI_Alltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm)
{
    arrive("alltoall", comm);
    return PMPI_Alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
}

int MPI_Alltoallv(const void *sendbuf, const int sendcounts[], const int sdispls[], MPI_Datatype sendtype, void *recvbuf, const int recvcounts[],
                  const int rdispls[], MPI_Datatype recvtype, MPI_Comm comm)
{
    arrive("alltoallv", comm);
    return PMPI_Alltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm);
}

int MPI_Alltoallw(const void *sendbuf, const int sendcounts[], const int sdispls[], const MPI_Datatype sendtypes[], void *recvbuf,
                  const int recvcounts[], const int rdispls[], const MPI_Datatype recvtypes[], MPI_Comm comm)
{
    arrive("alltoallw", comm);
    return PMPI_Alltoallw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm);
}

int MPI_Reduce_scatter(const void *sendbuf, void *recvbuf, const int recvcounts[], MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    arrive("reduce_scatter", comm);
    return PMPI_Reduce_scatter(sendbuf, recvbuf, recvcounts, datatype, op, comm);
}

int MPI_Reduce_scatter_block(const void *sendbuf, void *recvbuf, int recvcount, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    arrive("reduce_scatter_block", comm);
    return PMPI_Reduce_scatter_block(sendbuf, recvbuf, recvcount, datatype, op, comm);
}
