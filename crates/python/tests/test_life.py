"""How a rank may come to its end, and what the others see of it: they train on, and the one that is gone is named."""

import json
import pathlib
import subprocess
import sys
import unittest

from common import LIMIT_S, Folder, clean
from life import LEAVER, RANKS, STEPS

LIFE = pathlib.Path(__file__).with_name("life.py")


class Lives(Folder):
    def lives(self, how):
        """What each rank that came to the end says, by rank, and how rank 2 ended."""
        ranks = [
            subprocess.Popen(
                [sys.executable, str(LIFE), how, str(rank), str(self.folder)],
                env=clean(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(RANKS)
        ]
        errors = {}
        try:
            for number, rank in enumerate(ranks):
                # A child may hold the pipe of a rank that is gone.
                rank.wait(timeout=LIMIT_S)
                if number != LEAVER:
                    errors[number] = rank.stderr.read()
                    self.assertEqual(rank.returncode, 0, errors[number])
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
                rank.stderr.close()
        told = {rank: json.loads((self.folder / f"rank{rank}.json").read_text()) for rank in range(RANKS) if rank != LEAVER}
        for rank, text in errors.items():
            self.assertEqual(text, "", f"rank {rank}: a library prints nothing")
        for found in told.values():
            self.assertEqual((found["steps"], found["handled"]), (STEPS, ["SIGTERM"]), "signals are the launcher's")
        return told, ranks[LEAVER].returncode

    def gone(self, how, status):
        """Rank 2 is gone, and named; the others have measured on."""
        told, code = self.lives(how)
        self.assertEqual(code, status)
        for rank, found in told.items():
            self.assertEqual(found["reachable"], [node != LEAVER for node in range(RANKS)], f"rank {rank}")
        absences = told[0]["report"]["absences"]
        self.assertEqual([absence["rank"] for absence in absences], [LEAVER], absences)
        return absences[0]

    def test_killed_while_a_forked_child_lives(self):
        absence = self.gone("kill_with_child", -9)
        child = json.loads((self.folder / "child.json").read_text())
        self.assertEqual(child["inherited"], [], "it holds no socket of the session")
        self.assertIn("start a session in this process", child["session"])
        self.assertGreater(child["now_ns"], 0)
        self.assertIn("the connection was closed", absence["reason"], "though the child lives: no deadline had to pass")

    def test_an_exit_without_stop(self):
        self.gone("exit", 0)

    def test_an_error_of_the_loop(self):
        self.gone("raise", 1)

    def test_a_spawned_child_has_a_session_of_its_own(self):
        told, code = self.lives("spawn")
        self.assertEqual(code, 0)
        self.assertEqual(told[0]["report"]["absences"], [])
        self.assertGreaterEqual(json.loads((self.folder / "spawned.json").read_text())["rounds"], 0)


if __name__ == "__main__":
    unittest.main()
