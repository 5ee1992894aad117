"""The programs of docs/guide/python.md, run as they stand there."""

import shutil
import subprocess
import sys
import unittest

from common import LIMIT_S, ROOT, Folder, clean, data
from test_launch import free_port


def blocks():
    """The guide's Python programs."""
    section = (ROOT / "docs/guide/python.md").read_text()
    return [rest.partition("```")[0] for rest in section.split("```python\n")[1:]]


class QuickStarts(Folder):
    def test_on_every_rank(self):
        both = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "PROBE_SYNC_INJECT_SKEW": "7"}
        command = [sys.executable, "-c", blocks()[0]]
        ranks = [
            subprocess.Popen(command, cwd=self.folder, env={**clean(), **both, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
            for rank in range(2)
        ]
        told = [rank.communicate(timeout=LIMIT_S)[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0])
        for rank, text in enumerate(told):
            self.assertRegex(text, rf"rank {rank}: [+-]\d+ ns against node 0")
        self.assertTrue((self.folder / "run/report.json").exists())

    def test_afterwards(self):
        for path in data("jax/b_4node_offset_drift").iterdir():
            shutil.copy(path, self.folder)
        done = subprocess.run(
            [sys.executable, "-c", blocks()[1]], cwd=self.folder, env=clean(), capture_output=True, text=True, timeout=LIMIT_S
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("broken edges 46 → 0 of 144: holds", done.stdout)
        self.assertTrue((self.folder / "aligned").is_dir())


if __name__ == "__main__":
    unittest.main()
