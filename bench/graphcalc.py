#!/usr/bin/env python3
"""Times scipy.sparse.linalg.spsolve on the systems that bench graphcalc wrote, beside our times from the same minute.

    cargo bench -p probe-sync-estimate --bench graphcalc -- --out FOLDER
    python3 bench/graphcalc.py FOLDER          (needs numpy and scipy)

It does not build the systems or judge the result; it prints one table.
"""

import pathlib
import statistics
import sys
import time

import numpy
import scipy.sparse
import scipy.sparse.linalg

LARGEST_UNKNOWNS = 5000  # spsolve fills in as any direct method does; 10240 nodes take minutes and gigabytes


def read(path):
    with path.open() as lines:
        size, solve_ms, round_ms = next(lines).split()
        size = int(size)
        right = numpy.array([float(next(lines)) for _ in range(size)])
        triplets = numpy.loadtxt(lines)
    rows, columns = triplets[:, 0].astype(int), triplets[:, 1].astype(int)
    matrix = scipy.sparse.csc_matrix((triplets[:, 2], (rows, columns)), shape=(size, size))
    return matrix, right, float(solve_ms), float(round_ms)


def median_ms(run, repeats):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def main():
    folder = pathlib.Path(sys.argv[1])
    print(f"{'nodes':>6} {'CG ms':>10} {'whole round ms':>15} {'spsolve ms':>11} {'spsolve / CG':>13}")
    paths = sorted(folder.glob("system_*.txt"), key=lambda path: int(path.stem.split("_")[1]))
    for path in paths:
        matrix, right, solve_ms, round_ms = read(path)
        nodes = matrix.shape[0] // 2 + 1
        if matrix.shape[0] > LARGEST_UNKNOWNS:
            print(f"{nodes:>6} {solve_ms:>10.3f} {round_ms:>15.3f} {'-':>11} {'-':>13}")
            continue
        spsolve_ms = median_ms(lambda: scipy.sparse.linalg.spsolve(matrix, right), 3 if nodes > 500 else 20)
        print(f"{nodes:>6} {solve_ms:>10.3f} {round_ms:>15.3f} {spsolve_ms:>11.3f} {spsolve_ms / solve_ms:>13.1f}")


if __name__ == "__main__":
    main()
