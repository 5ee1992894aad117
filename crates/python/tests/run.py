#!/usr/bin/env python3
"""Runs the tests of the installed package and prints their tally as `cargo xtask` counts it: run.py [--files PATTERN] [NAME ...]

Without --files these are all of `test_*.py`; several files run side by side, each in a process of its own and with a tally of its own, since they
mostly wait. `flows.py`, the examples with torch and JAX, needs what few have, so it is asked for by name.
"""

import argparse
import concurrent.futures
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
AT_ONCE = 3
# Less than the step of `cargo xtask test` may take.
LIMIT_S = 480


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", default="test_*.py")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    files = sorted(HERE.glob(arguments.files), key=lambda file: file.stat().st_size, reverse=True)
    if len(files) > 1:
        return side_by_side([file.name for file in files], arguments.names)
    # What a shell starts with `&` ignores Ctrl-C, and so would all that is started here: tests of
    # Ctrl-C would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path.insert(0, str(HERE))
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{name}*" for name in arguments.names] or None
    found = unittest.TextTestRunner(verbosity=2).run(loader.discover(str(HERE), pattern=arguments.files))
    for test, reason in found.skipped:
        print(f"skip {test.id()}: {reason}")
    failed = len(found.failures) + len(found.errors)
    print(f"{found.testsRun - failed - len(found.skipped)} passed, {failed} failed, {len(found.skipped)} skipped")
    return 0 if found.wasSuccessful() else 1


def side_by_side(files, names):
    """Runs each file by this program; what they print comes whole, also of one that does not end."""

    def run(file):
        command = [sys.executable, __file__, "--files", file, *names]
        with tempfile.TemporaryFile() as said:
            try:
                status = subprocess.run(command, stdout=said, stderr=subprocess.STDOUT, timeout=LIMIT_S).returncode
                end = ""
            except subprocess.TimeoutExpired:
                status, end = 1, f"ERROR: {file} was still running after {LIMIT_S} s, ended\n"
            said.seek(0)
            return status, said.read().decode(errors="replace") + end

    failed = False
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run, file) for file in files]):
            status, said = done.result()
            print(said, end="", flush=True)
            failed |= status != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
