#!/usr/bin/env python3
"""Tests of the judgement: `python3 bench/truth/test_run.py`."""

import json
import pathlib
import unittest

import judge
import parallel
import tables

# Two hosts, two operations: rank 1 is 100 µs late to the first; both come together to the second, but for half a microsecond.
TRUE = {0: [(0.0, 400_000.0), (500_000.0, 600_000.0), None], 1: [(100_000.0, 400_500.0), (500_500.0, 600_200.0), None]}
HOSTS = [0, 1]
OPERATIONS = [{"id": "first", "members": {0: 0, 1: 0}}, {"id": "second", "members": {0: 1, 1: 1}}]


def shown(*shifts):
    return {rank: {place: (at[0] + shift, at[1] + shift) for place, at in enumerate(TRUE[rank]) if at} for rank, shift in enumerate(shifts)}


class Judgement(unittest.TestCase):
    def test_the_truth_scores_everything(self):
        self.assertEqual(judge.times(TRUE, shown(0, 0), HOSTS), (2, 2, 0))
        self.assertEqual(judge.edges(OPERATIONS, shown(0, 0)), (0, 4))
        last = judge.last_ranks(OPERATIONS, TRUE)
        self.assertEqual(last, {"first": (1, 100_000.0), "second": (1, 500.0)})
        self.assertEqual(judge.blame(last, {"first": 1, "second": 1}), (1, 0, 1))

    def test_a_shifted_rank_scores_nothing_and_breaks_edges(self):
        self.assertEqual(judge.times(TRUE, shown(0, 1_001), HOSTS), (0, 2, 1_001))
        self.assertEqual(judge.times(TRUE, shown(0, -1_001), HOSTS), (0, 2, 1_001))
        # Rank 1 seems to begin both after rank 0 has ended them.
        self.assertEqual(judge.edges(OPERATIONS, shown(0, 310_000)), (2, 4))

    def test_an_origin_of_its_own_costs_a_tool_nothing(self):
        self.assertEqual(judge.times(TRUE, shown(7e12, 7e12), HOSTS), (2, 2, 0))
        self.assertEqual(judge.times(TRUE, {1: shown(0, 0)[1]}, HOSTS), None)

    def test_both_ends_of_an_event_count_and_missing_events_do_not(self):
        stretched = shown(0, 0)
        stretched[1][0] = (100_000.0, 410_000.0)
        self.assertEqual(judge.times(TRUE, stretched, HOSTS), (1, 2, 0))
        del stretched[1][0]
        self.assertEqual(judge.times(TRUE, stretched, HOSTS), (1, 1, 0))
        self.assertEqual(judge.edges(OPERATIONS, stretched), (0, 2))

    def test_a_wrong_rank_is_false_blame_and_a_tie_is_neither(self):
        last = judge.last_ranks(OPERATIONS, TRUE)
        self.assertEqual(judge.blame(last, {"first": 0, "second": 0}), (0, 1, 1))
        self.assertEqual(judge.blame(last, {}), (0, 0, 1))


class Parallel(unittest.TestCase):
    def test_no_rank_ends_an_operation_before_its_last_rank_begins_it_and_the_late_rank_is_last(self):
        job = parallel.Job(0, 5)
        true = {rank.number: [at for _, at in rank.events] for rank in job.ranks}
        shown = {rank: dict(enumerate(events)) for rank, events in true.items()}
        self.assertEqual(judge.edges(job.operations, shown)[0], 0)
        last = judge.last_ranks(job.operations, true)
        of_all = [last[operation["id"]] for operation in job.operations if len(operation["members"]) == parallel.RANKS]
        self.assertEqual([step for step, (_, lead) in enumerate(of_all) if lead >= judge.LATE_NS], [0, 4])
        self.assertEqual({of_all[step][0] for step in job.late_steps}, {parallel.LATE_TO_ALL})


class Tables(unittest.TestCase):
    def test_what_a_tool_does_not_do_is_a_dash_with_its_reason(self):
        row = {"within": None, "edges": None, "blame": None, "steps": None, "error": "KeyError: 'x'", "errors": None, "blame_error": None, "step_error": None, "job": None, "parts": []}
        notes = []
        [line] = tables.of_job({"about": "a job", "ranks": 2, "tools": {"hta": row}}, notes)
        self.assertEqual(line, "|  | HTA[^1] | – | – | – | – | – | – |")
        self.assertEqual(notes, ["KeyError: 'x'"])

    def test_the_results_that_are_kept_can_be_shown(self):
        kept = pathlib.Path(tables.__file__).with_name("results.json")
        self.assertIn("| job | tool |", tables.all_of(json.loads(kept.read_text())))


if __name__ == "__main__":
    unittest.main()
