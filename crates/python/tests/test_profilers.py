"""The examples with torch and JAX as their users run them, against known truth.

Four ranks on one machine: recorded times are the true ones. They are bent by the run's virtual clocks (bench/flow), aligned, and compared.
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

import probe_sync
from common import LIMIT_S, RANKS, ROOT, Folder, clean
from test_launch import free_port

FLOW = ROOT / "bench/flow"
EXAMPLES = ROOT / "examples"
# The package of this interpreter, for one that has torch or JAX.
PACKAGE = str(pathlib.Path(probe_sync.__file__).parents[1])


def python_with(variable, module, how):
    """An interpreter that has a module, or a skip."""
    python = os.environ.get(variable, "")
    if not pathlib.Path(python).is_file():
        raise unittest.SkipTest(f"no Python with {module} at {variable}={python!r}; {how}")
    return python


def run(*command, **environment):
    """Runs a program to its end; what it printed."""
    done = subprocess.run(
        [str(part) for part in command], env={**clean(), "PYTHONPATH": PACKAGE, **environment}, capture_output=True, text=True, timeout=LIMIT_S
    )
    if done.returncode != 0:
        raise AssertionError(f"{command[:3]}: {done.stderr[-3000:]}")
    return done.stdout


class Mended(Folder):
    def check(self, traces, run_dir, largest_ns, judge):
        """The bent traces break collectives, the aligned ones none, and their times are the true ones."""
        result = probe_sync.align(traces, run_dir=run_dir, output=self.folder / "aligned", validate=True)
        self.assertGreater(result.verdict.before.broken, 0)
        self.assertEqual((result.verdict.result.broken, result.verdict.outcome), (0, "holds"))
        for trace in result.traces:
            self.assertEqual((trace.stats.extrapolated_before, trace.stats.extrapolated_after), (0, 0), trace)
        found = json.loads(judge())
        print(f"{self.id()}: {result}; {found}")
        self.assertLess(found["worst_ns"], largest_ns)


class Jax(Mended):
    def setUp(self):
        super().setUp()
        self.python = python_with("JAX_PYTHON", "jax", "cargo xtask flow installs one")

    def recorded(self, **settings):
        port, folder = free_port(), self.folder / "traces"
        command = [self.python, EXAMPLES / "jax_distributed.py", port, folder, *(f"{key}={value}" for key, value in settings.items())]
        flags = "--xla_force_host_platform_device_count=1 --xla_cpu_multi_thread_eigen=false"
        ranks = [
            subprocess.Popen(
                [str(part) for part in command],
                env={**clean(), "PYTHONPATH": PACKAGE, "XLA_FLAGS": flags, "RANK": str(rank), "WORLD_SIZE": str(RANKS)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(RANKS)
        ]
        try:
            told = [rank.communicate(timeout=LIMIT_S)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        self.assertEqual([rank.returncode for rank in ranks], [0] * RANKS, told)
        traces = sorted((folder / "plugins/profile").rglob("*.xplane.pb"))
        self.assertEqual([path.name.rsplit("-", 1)[1] for path in traces], [f"{rank}.xplane.pb" for rank in range(RANKS)])
        self.assertEqual(len({path.parent for path in traces}), 1, "one session, so that xprof shows all hosts")
        return folder, traces, told

    def test_the_example_is_mended(self):
        for model, largest_ns in (("constant", 100), ("sinusoid", 300)):
            with self.subTest(model=model):
                if self.folder.joinpath("traces").exists():
                    self.doCleanups()
                    super().setUp()
                folder, traces, _ = self.recorded(inject_skew=5, skew_model=model, window="500ms")
                truth = folder / "probe_sync_run/truth.json"
                run(self.python, FLOW / "bend.py", truth, self.folder / "bent", *traces)
                bent = [self.folder / "bent" / path.name for path in traces]
                judge = [self.python, FLOW / "jax_truth.py", traces[0].parent, self.folder / "aligned"]
                self.check(bent, folder / "probe_sync_run", largest_ns, lambda judge=judge: run(*judge))

    def test_one_line_says_how_it_went(self):
        folder, _, told = self.recorded()
        self.assertIn("broken edges 0 → 0", told[0])
        self.assertEqual(len(list(folder.glob("*.merged.xplane.pb"))), 1)


class Torch(Mended):
    def setUp(self):
        super().setUp()
        how = "make one: python3 -m venv FOLDER && FOLDER/bin/pip install torch numpy (5.4 GB)"
        self.python = python_with("TORCH_PYTHON", "torch", how)

    def recorded(self, *settings):
        folder = self.folder / "traces"
        command = [self.python, "-m", "torch.distributed.run", "--nproc-per-node", RANKS, "--master-port", free_port()]
        told = subprocess.run(
            [str(part) for part in [*command, EXAMPLES / "torch_ddp.py", folder, *settings]],
            env={**clean(), "PYTHONPATH": PACKAGE},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        self.assertEqual(told.returncode, 0, told.stderr[-3000:])
        traces = [folder / f"rank{rank}.0.pt.trace.json.gz" for rank in range(RANKS)]
        self.assertTrue(all(path.is_file() for path in traces))
        return folder, traces, told.stderr

    def test_the_example_is_mended(self):
        folder, traces, _ = self.recorded("inject_skew=5", "window=500ms")
        run_dir = folder / "probe_sync_run"
        run(sys.executable, FLOW / "torch_truth.py", "bend", run_dir / "truth.json", self.folder / "bent", *traces)
        bent, names = [self.folder / "bent" / path.name for path in traces], [path.name for path in traces]
        judge = [sys.executable, FLOW / "torch_truth.py", "judge", folder, self.folder / "aligned", *names]
        # torch's own clock is a straight line through the system clock: what that is off by is in the recorded times too.
        self.check(bent, run_dir, 1_000, lambda: run(*judge))

    def test_one_line_says_how_it_went(self):
        folder, _, told = self.recorded()
        self.assertIn("broken edges 0 → 0", told)
        self.assertTrue((folder / "merged.0.json.gz").is_file())


if __name__ == "__main__":
    unittest.main()
