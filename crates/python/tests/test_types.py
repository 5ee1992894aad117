"""Type checkers see the types of the package, including its modules for torch and JAX, whether or not those are installed."""

import importlib.util
import subprocess
import sys
import unittest

from common import LIMIT_S, Folder

WELL = """
import probe_sync

result = probe_sync.align(["a.xplane.pb"], clocks=probe_sync.Offsets("offsets.csv"), output="aligned", validate=True)
corrections: list[float] = [trace.stats.uncertainty_ns for trace in result.traces]
group: probe_sync.Group = probe_sync.launch.from_torch()
handler: probe_sync.torch.TraceHandler = probe_sync.torch.trace_handler("traces", group=group, window="250ms")
with probe_sync.torch.profile(on_trace_ready=handler) as profiler:
    profiler.step()
merged: probe_sync.MergeResult | None = handler.wait(60)
with probe_sync.jax.trace("traces", merge=False) as trace:
    rank: int = trace.rank
earliest: int = probe_sync.clock().now().earliest
"""

# Wrong lines, each with the name that mypy has for the fault.
ILL = [
    ("probe_sync.algn", "attr-defined"),
    ("probe_sync.torch.trace_handlr('traces')", "attr-defined"),
    ("probe_sync.torch.trace_handler('traces', merge='yes')", "arg-type"),
    ("probe_sync.torch.profile(on_trace_ready=print)", "arg-type"),
    ("probe_sync.jax.trace(7)", "arg-type"),
    ("rank: str = probe_sync.from_env().rank", "assignment"),
]


class Types(Folder):
    def mypy(self, *arguments):
        if importlib.util.find_spec("mypy") is None:
            self.skipTest("mypy is not installed")
        command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(self.folder / "cache"), *map(str, arguments)]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_S)
        return done.returncode, done.stdout + done.stderr

    def test_mypy_reads_the_package(self):
        status, text = self.mypy("-p", "probe_sync")
        self.assertEqual(status, 0, text)

    def test_mypy_accepts_right_use_and_finds_each_wrong_one(self):
        script = self.folder / "script.py"
        script.write_text(WELL)
        status, text = self.mypy(script)
        self.assertEqual(status, 0, text)
        script.write_text("\n".join(["import probe_sync", *(line for line, _ in ILL)]))
        status, text = self.mypy(script)
        self.assertEqual(status, 1, text)
        for number, (line, kind) in enumerate(ILL, start=2):
            self.assertRegex(text, rf"script\.py:{number}: error: .*\[{kind}\]", line)

    def test_pyright_agrees(self):
        if importlib.util.find_spec("pyright") is None:
            self.skipTest("pyright is not installed")
        script = self.folder / "script.py"
        script.write_text(WELL)
        command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(script)]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
