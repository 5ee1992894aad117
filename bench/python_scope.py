#!/usr/bin/env python3
"""What a scope costs a Python program, ns: while nothing is recorded, and while a flight recorder is.

    python bench/python_scope.py [--rounds 15]

Needs the package. Every loop is run in turn with the empty `with` of contextlib.nullcontext, whose cost is
subtracted nowhere but shown; with torch installed, torch.profiler.record_function is measured as well.
Prints medians of the rounds, and the range.
"""

import argparse
import contextlib
import statistics
import time

from probe_sync import record

LOOPS = 200_000


def kept(scope):
    for _ in range(LOOPS):
        with scope:
            pass


def named():
    for _ in range(LOOPS):
        with record.scope("load"):
            pass


def argued():
    for _ in range(LOOPS):
        with record.scope("load", step=3):
            pass


def called(function):
    for _ in range(LOOPS):
        function()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    load = record.scope("load")
    plain, within = (lambda: None), record.scope("call")(lambda: None)
    loops = {
        "with nullcontext": lambda: kept(null),
        "with scope, kept": lambda: kept(load),
        'with record.scope("load")': named,
        'with record.scope("load", step=3)': argued,
        "call": lambda: called(plain),
        "call of a decorated function": lambda: called(within),
    }
    null = contextlib.nullcontext()
    with contextlib.suppress(ImportError):
        from torch.profiler import record_function

        def torch_function():
            for _ in range(LOOPS):
                with record_function("load"):
                    pass

        loops["with torch.profiler.record_function"] = torch_function
    seen = {(name, on): [] for on in (False, True) for name in loops}
    for _ in range(arguments.rounds):
        for on in (False, True):
            with record.start(policy="flight", bytes="16MiB") if on else contextlib.nullcontext():
                for name, loop in loops.items():
                    begun = time.perf_counter_ns()
                    loop()
                    seen[name, on].append((time.perf_counter_ns() - begun) / LOOPS)
    for (name, on), times in seen.items():
        print(f"{'on ' if on else 'off'} {name:38} {statistics.median(times):6.0f} ns  ({min(times):.0f} to {max(times):.0f})")


if __name__ == "__main__":
    main()
