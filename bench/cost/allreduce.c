/* A job for throughput.py: some work, then an allreduce, over and over. Rank 0 keeps the number of steps in a shared file.
 *
 *     mpicc -O2 -o allreduce bench/cost/allreduce.c && mpirun -n 2 ./allreduce COUNTER
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank;
    float values[4096], sums[4096];
    volatile uint64_t *counter = NULL;
    if (argc < 2 || MPI_Init(&argc, &argv) != MPI_SUCCESS)
        return 2;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        int file = open(argv[1], O_RDWR);
        void *page = file < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (page == MAP_FAILED)
            MPI_Abort(MPI_COMM_WORLD, 1);
        counter = page;
    }
    for (int i = 0; i < 4096; i++)
        values[i] = (float)i;
    for (;;) { /* throughput.py ends it */
        for (int pass = 0; pass < 40; pass++)
            for (int i = 0; i < 4096; i++)
                values[i] = values[i] * 0.999f + 0.5f;
        MPI_Allreduce(values, sums, 4096, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (counter)
            ++*counter;
    }
}
