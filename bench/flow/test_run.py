#!/usr/bin/env python3
"""Tests of run.py's judgement: `python3 bench/flow/test_run.py`."""

import copy
import pathlib
import subprocess
import sys
import tempfile
import unittest

import run

CASE = run.Case("constant", False, 1, 8)


def verdict(broken, worst_ns=0.0, explained=0):
    return {"edges": 24, "broken": broken, "explained": explained, "worst_ns": worst_ns, "violations": broken - explained}


# A run in which all is well.
GOOD = {
    "true": verdict(0), "recorded": verdict(7, 2e6), "through_run": verdict(0), "aligned": verdict(0),
    "events": 100, "times": 200, "left_out": 0, "outside": 0, "covered_95": 190, "stated_ns": 30.0,
    "worst_at": {"node": 2, "at_s": 3.5}, "error_ns": {"median": 5.0, "p99": 20.0, "worst": 40.0}, "first_s": 0.1, "last_s": 7.5,
    "picture": {
        "recorded": [{"name": "psum_invariant.7", "parts": [[0.0, 10e6], [12e6, 20e6]]}],
        "aligned": [{"name": "psum_invariant.7", "parts": [[0.0, 10e6], [2e6, 10e6]]}],
    },
}  # fmt: skip


def changed(*path_and_value):
    *path, last, value = path_and_value
    found = copy.deepcopy(GOOD)
    inner = found
    for key in path:
        inner = inner[key]
    inner[last] = value
    return found


class Judgement(unittest.TestCase):
    def test_every_promise_that_is_missed_is_named(self):
        self.assertEqual(run.problems(CASE, GOOD), [])
        for found, expected in [
            (changed("true", "broken", 1), "no sound job"),
            (changed("recorded", "broken", 0), "nothing to mend"),
            (changed("aligned", "broken", 2), "2 edges are broken after align"),
            (changed("through_run", "violations", 2), "2 edges are violated"),
            (changed("aligned", "edges", 23), "not have the same edges"),
            (changed("error_ns", "worst", 100.5), "above 100"),
            (changed("stated_ns", None), "unknown"),
            (changed("outside", 3), "3 times are outside"),
            (changed("last_s", 8.01), "outlived"),
        ]:
            with self.subTest(expected):
                missed = run.problems(CASE, found)
                self.assertEqual(len(missed), 1)
                self.assertIn(expected, missed[0])
                self.assertIn(f"MISSED          {missed[0]}", run.told(CASE, found, "x"))

    def test_clocks_that_step_may_break_edges_that_the_run_explains(self):
        steps = run.Case("steps", False, 1, 8)
        found = changed("aligned", verdict(2))
        found["through_run"] = verdict(2, explained=2)
        self.assertEqual(run.problems(steps, found), [])
        found["through_run"] = verdict(2, explained=1)
        self.assertEqual(len(run.problems(steps, found)), 1)

    def test_runs_of_one_kind_share_a_row_and_the_worst_counts(self):
        bad = changed("error_ns", "worst", 140.0)
        loaded = run.Case("constant", True, 1, 8)
        runs = [(case, found, [] if found is None else run.problems(case, found)) for case, found in [(CASE, GOOD), (CASE, bad), (loaded, GOOD)]]
        text = run.table([*runs, (loaded, None, ["job0 ended"])])
        rows = [line for line in text.splitlines() if line.startswith("|")]
        self.assertEqual(len(rows), 4)
        expected = "| constant | as it was | 7 of 24 by up to 2.0 ms | 0 | 0 | 400 | 5 / 20 / 140 ns | 100 ns | 30 ns | 0 | 1 of 2 |"
        self.assertEqual(rows[2], expected)
        self.assertTrue(rows[3].endswith("| 1 of 2 |"), rows[3])
        self.assertIn("Missed by constant clocks, all cores busy, seed 1: job0 ended.", text)
        self.assertIn("| 0 of 1 |", run.table([(loaded, None, ["late"])]))

    def test_an_end_before_a_start_is_a_broken_edge(self):
        # Rank 0 ends at 10 ms; as recorded rank 1 begins at 12 ms, after align at 2 ms.
        recorded, aligned = (GOOD["picture"][which][0]["parts"] for which in ("recorded", "aligned"))
        self.assertEqual(run.broken(recorded), [(10e6, 0, 12e6, 1)])
        self.assertEqual(run.broken(aligned), [])
        self.assertEqual([run.plain(name) for name in ("psum_invariant.7", "all-to-all")], ["psum", "all-to-all"])


class Programs(unittest.TestCase):
    def test_a_failed_program_is_named_with_its_output_and_the_others_end(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(run.Failed, "(?s)failing ended with status 3.*because"), run.Processes(pathlib.Path(folder)) as processes:
                processes.start("sleeper", "sleep", 600)
                processes.start("failing", "sh", "-c", "echo because; exit 3")
                sleeper = processes.running["sleeper"]
                processes.finish(30)
            self.assertIsNotNone(sleeper.poll())

    def test_waiting_is_bounded_and_says_for_what(self):
        with tempfile.TemporaryDirectory() as folder, run.Processes(pathlib.Path(folder)) as processes:
            with self.assertRaisesRegex(run.Failed, "no file within 0 s"):
                processes.wait_for("file", 0, lambda: None)

    def test_missed_promises_are_the_exit_status(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, run.__file__, "--program", "no-such-program", "--out", folder, "--seconds", "1"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 1)
            self.assertIn("1 of 1 runs miss what they must show", done.stderr)


if __name__ == "__main__":
    unittest.main()
