#!/usr/bin/env python3
"""Runs the tests of the installed package and prints their tally as `cargo xtask` counts it: run.py [NAME ...]"""

import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent


def main(patterns):
    sys.path.insert(0, str(HERE))
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{pattern}*" for pattern in patterns] or None
    found = unittest.TextTestRunner(verbosity=2).run(loader.discover(str(HERE)))
    for test, reason in found.skipped:
        print(f"skip {test.id()}: {reason}")
    failed = len(found.failures) + len(found.errors)
    print(f"{found.testsRun - failed - len(found.skipped)} passed, {failed} failed, {len(found.skipped)} skipped")
    return 0 if found.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
