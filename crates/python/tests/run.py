#!/usr/bin/env python3
"""Runs the tests of the installed package and prints their tally as `cargo xtask` counts it: run.py [--files PATTERN] [NAME ...]

Without --files these are all of `test_*.py`. `flows.py`, the examples with torch and JAX, needs what few have, so it is asked for by name.
"""

import argparse
import pathlib
import signal
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", default="test_*.py")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    # What a shell starts with `&` ignores Ctrl-C, and so would all that is started here: tests of Ctrl-C would wait for ever.
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


if __name__ == "__main__":
    sys.exit(main())
