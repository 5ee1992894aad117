"""Runs a command and writes what it took: python3 -I -S takes.py REPORT COMMAND ...

A child's `ru_maxrss` is at least the memory of the process that started it, so run.py, which holds whole traces, starts this small one (some 9 MiB) instead.
"""

import os
import sys
import time

begun = time.perf_counter()
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
wall = time.perf_counter() - begun
with open(sys.argv[1], "w") as report:
    report.write(f"{os.waitstatus_to_exitcode(status)} {wall} {usage.ru_utime + usage.ru_stime} {usage.ru_maxrss / 1024}")
