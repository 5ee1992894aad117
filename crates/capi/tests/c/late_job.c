/*
 * late_job.c: a plain MPI program that knows nothing of probe_sync. Rank 2 is 10 ms late in every
 * third step.
 *
 *     late_job SECONDS [FROM UNTIL]
 *
 * Seconds since the start; without FROM and UNTIL it is late all the time. Rank 0 prints when the
 * first step began, ns since 1970.
 *
 * Beside the all-reduce of every step, even and odd ranks meet in barriers of communicators of
 * their own.
 */
#define _POSIX_C_SOURCE 200809L

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void rest(long ms)
{
    struct timespec time = {0, ms * 1000000};
    nanosleep(&time, NULL);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 1.0;
    double from = argc > 3 ? atof(argv[2]) : 0.0;
    double until = argc > 3 ? atof(argv[3]) : seconds;
    double begun;
    struct timespec now;
    double sum = 0.0;
    int rank = 0;
    int more = 1;
    long step;
    MPI_Comm half;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Barrier(MPI_COMM_WORLD);
    clock_gettime(CLOCK_REALTIME, &now);
    begun = MPI_Wtime();
    for (step = 0; more; step++) {
        double own = 1.0;
        double since = MPI_Wtime() - begun;
        rest(20);
        if (rank == 2 && step % 3 == 0 && from <= since && since < until) {
            rest(10);
        }
        MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (step % 10 == 0) {
            MPI_Barrier(half);
        }
        more = MPI_Wtime() - begun < seconds;
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    MPI_Comm_free(&half);
    if (rank == 0) {
        printf("%ld steps from %lld, sum %.0f\n", step, (long long)now.tv_sec * 1000000000 + now.tv_nsec, sum);
    }
    MPI_Finalize();
    return 0;
}
