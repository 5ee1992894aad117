"""The examples with torch and JAX as their users run them, against known truth, and in the readers that people open them with.

Four ranks on one machine: recorded times are the true ones. They are bent by the run's virtual clocks (bench/flow), aligned, and compared.
`cargo xtask flow --jax` and `--torch` install what this needs and run it.
"""

import gzip
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

import probe_sync
from common import CLI, HERE, LIMIT_S, RANKS, ROOT, Folder, clean
from test_launch import free_port

FLOW = ROOT / "bench/flow"
READERS = ROOT / "bench/readers/examples.py"
READERS_PYTHON = ROOT / "target/readers/venv/bin/python"
EXAMPLES = ROOT / "examples"
# A session's budget is 1 % of a core of every host; here all ranks are on one, each in the place of
# a host.
BUDGET = f"{RANKS}%"
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
    def uses(self, library):
        """What wrong uses are answered, by name."""
        told = run(self.python, HERE / "uses.py", library, self.folder / "uses", JAX_PLATFORMS="cpu")
        return json.loads(told.splitlines()[-1])

    def read(self, *arguments):
        """Other people's readers see what they must; what is not installed is a skip with its reason."""
        if not READERS_PYTHON.exists():
            self.skipTest(f"no readers at {READERS_PYTHON.parents[1]}; cargo xtask flow installs them")
        command = [str(part) for part in (READERS_PYTHON, READERS, *arguments)]
        done = subprocess.run(command, env=clean(), capture_output=True, text=True, timeout=LIMIT_S)
        print(f"{self.id()}: {done.stdout.strip()}")
        if done.returncode == 77:
            self.skipTest(done.stdout.strip().rpartition("\n")[2])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr[-2000:])

    def again(self):
        """A new folder for another run."""
        self.doCleanups()
        super().setUp()

    def check(self, traces, run_dir, largest_ns, judge):
        """The bent traces break collectives, the aligned ones none, and their times are the true ones."""
        result = probe_sync.align(traces, clocks=probe_sync.Run(run_dir), output=self.folder / "aligned", validate=True)
        self.assertGreater(result.verdict.before.broken, 0)
        self.assertEqual((result.verdict.result.broken, result.verdict.outcome), (0, "holds"))
        for trace in result.traces:
            # The bent traces are no other clock's: R = S, or S and a constant.
            self.assertEqual((trace.stats.extrapolated_before, trace.stats.extrapolated_after), (0, 0), trace)
        steady = [trace for trace in result.traces if any("a constant fits" in note for note in trace.stats.notes)]
        print(f"{self.id()}: {len(steady)} of {len(result.traces)} traces are a constant away from the system clock")
        found = json.loads(judge())
        print(f"{self.id()}: {result}; {found}")
        # Where torch's own clock is not the system clock, what it is off by is in the recorded
        # times, which are taken for the truth.
        self.assertLess(found["worst_ns"], 1_000 if steady else largest_ns)

    def stragglers(self, traces, *clocks):
        """What the command says, and in which operations it names rank 2 with a lead that a sleep makes."""
        said = json.loads(run(CLI, "stragglers", "--traces", *traces, "--nodes", *range(RANKS), *clocks, "--json"))
        slept = {one["instance"]: one["lead_ns"] for one in said["instances"] if one["last_rank"] == 2 and one["lead_ns"] > 5_000_000}
        return said, slept

    def check_late(self, job, steps):
        """Of a job that leaves traces as recorded, bent ones and its run's directory: rank 2 is named in the same operations, and as late, as on the true clocks; and nobody where nobody sleeps."""
        # What else the machine does may make chance explain what is late; not five times.
        for attempt in range(5):
            traces, bent, run_dir = job(f"late{attempt}", "1")
            # Recorded times are the true ones here: on one clock, and so without any correction.
            exact = self.folder / "exact.csv"
            exact.write_text("node,node_realtime_ns,offset_vs_node0_ns\n" + "".join(f"{node},{at},0\n" for node in range(RANKS) for at in (0, 4 * 10**18)))
            _, truth = self.stragglers(traces, "--offsets", exact)
            said, slept = self.stragglers(bent, "--run-dir", run_dir)
            print(f"{self.id()}: rank 2 slept in {len(truth)} of {steps} steps; named in {len(slept)}, {sum(slept.values()) / 1e6:.2f} ms of {sum(truth.values()) / 1e6:.2f} ms")
            self.assertEqual(set(slept), set(truth))
            # Now and then another rank is later still.
            self.assertGreaterEqual(len(slept), steps // 5)
            self.assertAlmostEqual(sum(slept.values()) / sum(truth.values()), 1, delta=0.05)
            named = [one["rank"] for one in said["stragglers"]]
            self.assertIn(named, ([], [2]))
            if named:
                break
        self.assertEqual(named, [2], said["chances"] if "chances" in said else said)
        _, bent, run_dir = job("even", "0")
        self.assertEqual(self.stragglers(bent, "--run-dir", run_dir)[0]["stragglers"], [])

    def check_merged(self, root, own, told):
        """Ranks with folders of their own: rank 0 has their files, as they are there, and the run says whose they are."""
        self.assertIn("broken edges 0 → 0", told)
        self.assertNotIn("Warning", told)
        self.assertFalse([path for path in root.rglob("*") if path.name.endswith(".partial")])
        self.assertEqual(len(list((root / "probe_sync_run/marks").iterdir())), RANKS)
        for rank, folder in enumerate(own):
            if folder == root:
                continue
            self.assertFalse((folder / "probe_sync_run/run.json").exists(), "only rank 0's folder holds the run")
            for marks in (folder / "probe_sync_run/marks").iterdir():
                self.assertEqual((root / "probe_sync_run/marks" / marks.name).read_bytes(), marks.read_bytes())
            traces = [path for path in folder.rglob("*") if path.name.endswith((".xplane.pb", ".pt.trace.json.gz"))]
            self.assertEqual(len(traces), 1, (rank, traces))
            self.assertEqual((root / traces[0].relative_to(folder)).read_bytes(), traces[0].read_bytes())

    def meet(self, adapter, environments):
        """Runs `worker.py` as ranks in a folder of their own."""
        folder, self.folder = self.folder, self.folder / adapter
        self.folder.mkdir()
        self.judge(self.ranks(adapter, [{**environment, "PYTHONPATH": PACKAGE} for environment in environments], python=self.python))
        self.folder = folder


class Jax(Mended):
    def setUp(self):
        super().setUp()
        self.python = python_with("JAX_PYTHON", "jax", "cargo xtask flow --jax installs one")

    def test_ranks_meet_by_an_id_in_the_store_and_run_their_rounds_through_it(self):
        for adapter in ("jax", "over_jax"):
            with self.subTest(adapter):
                port = str(free_port())
                self.meet(adapter, [{"WORKER": str(rank), "WORKERS": str(RANKS), "PORT": port} for rank in range(RANKS)])

    def recorded(self, folders=None, job=EXAMPLES / "jax_distributed.py", late="0", **settings):
        folders = folders or [self.folder / "traces"] * RANKS
        folder, told = folders[0], self.told([self.python, job, free_port()], late, folders, settings)
        traces = sorted((folder / "plugins/profile").rglob("*.xplane.pb"))
        self.assertEqual([path.name.rsplit("-", 1)[1] for path in traces], [f"{rank}.xplane.pb" for rank in range(RANKS)])
        self.assertEqual(len({path.parent for path in traces}), 1, "one session, so that xprof shows all hosts")
        return folder, traces, told

    def told(self, command, late, folders, settings):
        """What the ranks print."""
        settings = [f"{key}={value}" for key, value in settings.items()]
        flags = "--xla_force_host_platform_device_count=1 --xla_cpu_multi_thread_eigen=false"
        ranks = [
            subprocess.Popen(
                [str(part) for part in (*command, folders[rank], *settings)],
                env={**clean(), "PYTHONPATH": PACKAGE, "XLA_FLAGS": flags, "RANK": str(rank), "WORLD_SIZE": str(RANKS), "LATE": late},
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
        return told

    def test_the_example_is_mended(self):
        for model, largest_ns, folders in (("constant", 100, ["traces"] * RANKS), ("sinusoid", 300, ["root", "one", "two", "three"])):
            with self.subTest(model=model):
                self.again()
                folders = [self.folder / folder for folder in folders]
                folder, traces, _ = self.recorded(folders, inject_skew=5, skew_model=model, window="500ms", budget_cpu=BUDGET)
                truth = folder / "probe_sync_run/truth.json"
                run(self.python, FLOW / "bend.py", truth, self.folder / "bent", *traces)
                bent = [self.folder / "bent" / path.name for path in traces]
                judge = [self.python, FLOW / "jax_truth.py", traces[0].parent, self.folder / "aligned"]
                self.check(bent, folder / "probe_sync_run", largest_ns, lambda judge=judge: run(*judge))

    def test_one_line_says_how_it_went_and_xprof_shows_all_hosts(self):
        folder, traces, told = self.recorded()
        self.assertIn("broken edges 0 → 0", told[0])
        self.assertEqual(len(list(folder.glob("*.merged.xplane.pb"))), 1)
        self.read("xprof", *traces)

    def test_what_cannot_work_says_what_to_do(self):
        told = self.uses("jax")
        self.assertRegex(told["stop_without_start"], r"^ConfigError: .*call start_trace\(log_dir\) first")
        self.assertRegex(told["stop_twice"], r"^ConfigError: .*call start_trace\(log_dir\) first")
        self.assertRegex(told["start_twice"], r"^ConfigError: .*call stop_trace\(\) first")
        self.assertRegex(told["beside_a_session"], r"^AlreadyStarted: .*call stop\(\) on that session first")

    def late_job(self, name, late):
        """The same of JAX as of gloo below."""
        settings = {"inject_skew": 5, "skew_model": "sinusoid", "window": "500ms", "budget_cpu": BUDGET}
        folder, traces, _ = self.recorded([self.folder / name] * RANKS, job=ROOT / "bench/jax_late.py", late=late, **settings)
        bent = self.folder / f"{name}_bent"
        run(self.python, FLOW / "bend.py", folder / "probe_sync_run/truth.json", bent, *traces)
        return traces, [bent / path.name for path in traces], folder / "probe_sync_run"

    def test_a_rank_that_sleeps_is_named_under_bent_clocks(self):
        self.check_late(self.late_job, 90)

    def test_ranks_with_folders_of_their_own_are_merged_at_rank_0(self):
        # Ranks 0 and 2 share one.
        folders = [self.folder / name for name in ("root", "one", "root", "three")]
        root, traces, told = self.recorded(folders)
        self.check_merged(root, folders, told[0])
        self.assertFalse([line for line in told[1:] if "probe_sync" in line])
        merged = next(root.glob("*.merged.xplane.pb")).read_bytes()
        for trace in traces:
            self.assertIn(trace.name.rsplit("-", 1)[0].encode(), merged)


class Torch(Mended):
    def setUp(self):
        super().setUp()
        self.python = python_with("TORCH_PYTHON", "torch", "cargo xtask flow --torch installs one (5.4 GB)")

    def test_ranks_meet_through_the_group_and_run_their_rounds_through_its_store(self):
        for adapter in ("torch", "over_torch"):
            with self.subTest(adapter):
                both = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(RANKS)}
                self.meet(adapter, [{"RANK": str(rank), **both} for rank in range(RANKS)])

    def recorded(self, *settings, folder="traces", job=EXAMPLES / "torch_ddp.py", cycles=1):
        """`$RANK` in `folder` is the rank: folders of their own."""
        told = self.run_job(self.folder / folder, job, settings)
        self.assertEqual(told.returncode, 0, told.stderr[-3000:])
        root = self.folder / folder.replace("$RANK", "0")
        traces = [root / f"rank{rank}.{cycle}.pt.trace.json.gz" for cycle in range(cycles) for rank in range(RANKS)]
        self.assertTrue(all(path.is_file() for path in traces))
        return root, traces, told.stderr

    def run_job(self, folder, job, settings, **environment):
        """What torchrun and the ranks tell."""
        started = self.start_job(folder, job, settings, **environment)
        try:
            stdout, stderr = started.communicate(timeout=LIMIT_S)
        finally:
            started.kill()
        return subprocess.CompletedProcess(started.args, started.returncode, stdout, stderr)

    def start_job(self, folder, job, settings, **environment):
        job = f'exec "$0" {job} {folder} "$@"'
        command = [self.python, "-m", "torch.distributed.run", "--nproc-per-node", RANKS, "--master-port", free_port()]
        return subprocess.Popen(
            [str(part) for part in [*command, "--no-python", "sh", "-c", job, self.python, *settings]],
            env={**clean(), "PYTHONPATH": PACKAGE, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def test_watch_names_the_rank_that_is_late_while_the_job_runs(self):
        """Rank 2 is late in every third step from 6 to 16 s; a minute."""
        self.check_named([])

    def test_watch_names_it_from_the_flight_recorder_where_torch_has_no_hooks(self):
        """The same job without hooks; a minute."""
        self.check_named(["hookless"], TORCH_FR_BUFFER_SIZE="128", TORCH_NCCL_TRACE_BUFFER_SIZE="128")
        done = self.run_job(self.folder / "large", HERE / "torch_late.py", ["hookless"])
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "torch 2.* has no hooks .* unless it is small; export TORCH_FR_BUFFER_SIZE=64 and ")

    def check_named(self, arguments, **environment):
        done = self.run_job(self.folder, HERE / "torch_late.py", arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        ranks = [json.loads((self.folder / f"rank{rank}.json").read_text()) for rank in range(RANKS)]
        for rank in ranks:
            named = [at for at, _, late in rank["told"] if late == [2]]
            cleared = [at for at, text, _ in rank["told"] if not text and named and at > named[0]]
            self.assertTrue(named and cleared, rank["told"])
            self.assertTrue(6 < named[0] < 16 < cleared[0] < 46, rank["told"])
            self.assertEqual({one for _, _, late in rank["told"] for one in late}, {2})
            self.assertEqual(rank["after"], "")
            # A ring forgets what is not read in time, on a busy machine.
            self.assertLessEqual(rank["missed"], 200 if environment else 0)
        first = ranks[0]["told"][0]
        print(f"{self.id()}: {first[0] - 6:.1f} s after the onset: {first[1]}")

    def test_scalars_show_the_rank_that_is_late(self):
        """The curves as TensorBoard and Weights & Biases read them; some 30 s."""
        done = self.run_job(self.folder, EXAMPLES / "late_scalars.py", ["slow=2", "inject_skew=7", "window=1s"], WANDB_SILENT="true", WANDB_ERROR_REPORTING="false")
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        curves = json.loads(run(self.python, HERE / "scalars.py", self.folder).splitlines()[-1])
        self.assertEqual(set(curves), {"tensorboard", "wandb"})
        for reader, read in curves.items():
            names = {"loss", "late/share", "waiting/seconds", *(f"late/rank{rank}_ms" for rank in range(RANKS))}
            self.assertLessEqual(names, set(read), reader)
            last = {name: values[-1] for name, values in read.items()}
            self.assertTrue(8 < last["late/rank2_ms"] < 15 and last["late/share"] > 0.3, (reader, last))
            self.assertEqual([last[f"late/rank{rank}_ms"] for rank in (0, 1, 3)], [0, 0, 0], reader)

    def test_watch_dumps_what_a_hung_job_does(self):
        """Rank 2 is in an endless loop; the dumps come 3 s after the others wait; some 20 s, with hooks and without."""
        for folder, arguments in ((self.folder / "hooks", []), (self.folder / "hookless", ["hookless"])):
            with self.subTest(folder.name):
                self.check_dumps(folder, arguments)

    def check_dumps(self, folder, arguments):
        folder.mkdir()
        small = {"TORCH_FR_BUFFER_SIZE": "128", "TORCH_NCCL_TRACE_BUFFER_SIZE": "128"}
        done = self.run_job(folder, HERE / "torch_hang.py", arguments, **small)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertIn("probe_sync: the job hangs: ", done.stderr)
        dumps = folder / "dumps"
        self.assertEqual({path.name for path in dumps.iterdir()}, {f"rank_{rank}{kind}" for rank in range(RANKS) for kind in ("", ".stack")})
        found = json.loads(run(CLI, "hang", "--json", dumps))
        self.assertEqual([(cause["ranks"], cause["certainty"]) for cause in found["causes"]], [([2], "certain")])
        self.assertEqual([(stack["rank"], stack["frames"][0].partition(" ")[0]) for stack in found["stacks"]], [(2, "stuck")])

    def test_a_job_is_asked_while_it_hangs(self):
        """Rank 2 is in an endless loop, and then has its interpreter locked, as a C extension might; some 20 s each."""
        for fault, why in (("loop", "never enqueued"), ("locked", "its session answered, but its program did not")):
            with self.subTest(fault):
                folder = self.folder / fault
                folder.mkdir()
                job = self.start_job(folder, HERE / "torch_hang.py", ["ask", fault])
                try:
                    late = folder / "out" / "late.jsonl"
                    deadline = time.monotonic() + LIMIT_S
                    while not (late.exists() and '"waiting"' in late.read_text()) and time.monotonic() < deadline:
                        time.sleep(0.2)
                    told = run(CLI, "hang", "--live", folder / "out")
                    self.assertRegex(told, rf"(?m)^cause +(probably )?rank 2\b.*{why}")
                    (evidence,) = (folder / "out" / "hang").iterdir()
                    answered = {0, 1, 3} if fault == "locked" else {0, 1, 2, 3}
                    names = {f"rank_{rank}{kind}" for rank in answered for kind in ("", ".stack")}
                    self.assertEqual({path.name for path in evidence.iterdir()}, {*names, "arrivals.json", "verdict.json"})
                    found = json.loads((evidence / "verdict.json").read_text())
                    self.assertEqual([cause["ranks"] for cause in found["causes"]], [[2]])
                    if fault == "loop":
                        self.assertIn("stack        rank 2: in stuck (torch_hang.py:", told)
                    page = run(CLI, "report", folder / "out", "-o", "-")
                    self.assertIn("Who waits for whom", page)
                    print(told)
                finally:
                    (folder / "end").touch()
                    job.communicate(timeout=LIMIT_S)

    def test_the_example_is_mended(self):
        for model, largest_ns, folder in (("constant", 100, "traces"), ("sinusoid", 300, "rank$RANK")):
            with self.subTest(model=model):
                self.again()
                settings = ("inject_skew=5", f"skew_model={model}", "window=500ms", f"budget_cpu={BUDGET}")
                folder, traces, _ = self.recorded(*settings, folder=folder)
                run_dir = folder / "probe_sync_run"
                run(sys.executable, FLOW / "torch_truth.py", "bend", run_dir / "truth.json", self.folder / "bent", *traces)
                bent, names = [self.folder / "bent" / path.name for path in traces], [path.name for path in traces]
                judge = [sys.executable, FLOW / "torch_truth.py", "judge", folder, self.folder / "aligned", *names]
                self.check(bent, run_dir, largest_ns, lambda judge=judge: run(*judge))
        self.read("hta", *(self.folder / "aligned" / name for name in names))

    def test_one_line_says_how_it_went_and_perfetto_reads_it(self):
        folder, traces, told = self.recorded()
        self.assertIn("broken edges 0 → 0", told)
        self.read("perfetto", folder / "merged.0.json.gz", *traces)

    def test_what_cannot_work_says_what_to_do(self):
        told = self.uses("torch")
        self.assertRegex(told["profile_without_handler"], r"^ConfigError: .*give on_trace_ready=probe_sync.torch.trace_handler\(folder\)")
        self.assertRegex(told["handler_twice"], r"^AlreadyStarted: .*call stop\(\) on that session first")
        self.assertEqual(told["mark_without_trace"], "no error")
        self.assertRegex(told["unknown_setting"], r"^ConfigError: .*did you mean")
        self.assertIn("create another trace_handler for it", told["traced_after_the_end"])

    def late_job(self, name, late):
        """Where a job of gloo lies in which rank 2 sleeps 10 ms in every third of 90 steps, or nobody does: traces as recorded, bent ones, and the run's directory."""
        folder = self.folder / name
        folder.mkdir()
        settings = ["--local", RANKS, "--inject-skew", "5", "--skew-model", "sinusoid", "--fixed", "--window", "500ms", "--out", folder / "run"]
        beside = subprocess.Popen([str(part) for part in [CLI, "run", *settings]], env=clean(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            command = [self.python, "-m", "torch.distributed.run", "--nproc-per-node", RANKS, "--master-port", free_port()]
            run(*command, ROOT / "bench/gloo_late.py", OUT=str(folder / "traces"), LATE=late)
        finally:
            beside.send_signal(signal.SIGINT)
            self.assertEqual(beside.wait(LIMIT_S), 0)
        traces = [folder / "traces" / f"rank{rank}.pt.trace.json" for rank in range(RANKS)]
        run(sys.executable, FLOW / "torch_truth.py", "bend", folder / "run/truth.json", folder / "bent", *traces)
        return traces, [folder / "bent" / path.name for path in traces], folder / "run"

    def test_a_rank_that_sleeps_is_named_under_bent_clocks(self):
        self.check_late(self.late_job, 90)

    def test_a_loop_of_accelerate(self):
        folder, traces, told = self.recorded(job=EXAMPLES / "accelerate_loop.py")
        self.assertIn(f"probe_sync: {len(traces)} traces", told)
        self.assertIn("broken edges 0 → 0", told)
        self.assertTrue((folder / "merged.0.json.gz").is_file())

    def test_a_start_at_an_agreed_time(self):
        told = subprocess.run(
            [self.python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()), EXAMPLES / "agreed_start.py", self.folder],
            env={**clean(), "PYTHONPATH": PACKAGE},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        self.assertEqual(told.returncode, 0, told.stderr[-3000:])
        found = re.findall(r"rank (\d): (-?\d+) ns after the start, to within ±(\d+) ns", told.stdout)
        self.assertEqual(sorted(rank for rank, _, _ in found), ["0", "1"], told.stdout)
        # How late a thread wakes is the machine's; none begins before the time, as its own clock
        # shows it.
        self.assertTrue(all(int(late) >= 0 for _, late, _ in found), told.stdout)

    def test_a_data_loader_that_forks(self):
        folder, _, told = self.recorded(job=HERE / "loader.py")
        self.assertIn("broken edges 0 → 0", told)
        self.assertTrue((folder / "merged.0.json.gz").is_file())
        found = re.findall(r"sockets: (\d+) of the session, at most (\d+) of them in a worker", told)
        self.assertEqual(len(found), RANKS, told)
        self.assertTrue(all(opened != "0" and most == "0" for opened, most in found), told)

    def test_an_error_of_one_rank_ends_the_job_though_the_others_wait_for_it(self):
        told = self.run_job(self.folder, HERE / "loader.py", ("fail",))
        self.assertNotEqual(told.returncode, 0)
        self.assertIn("probe_sync: rank 1: stopped by ArithmeticError; waiting at most 5 s for the other ranks", told.stderr)
        self.assertIn("ArithmeticError: rank 1 has had enough", told.stderr)
        self.assertTrue((self.folder / "rank1.0.pt.trace.json.gz").is_file(), "what it has recorded is not lost")

    def test_ranks_with_folders_of_their_own_are_merged_at_rank_0(self):
        root = self.folder / "rank0"
        # What an earlier run has left is nobody's word.
        root.mkdir()
        (root / "rank1.0.pt.trace.json.gz").write_bytes(b"of an earlier run")
        _, _, told = self.recorded(folder="rank$RANK")
        self.check_merged(root, [self.folder / f"rank{rank}" for rank in range(RANKS)], told)
        merged = json.loads(gzip.decompress((root / "merged.0.json.gz").read_bytes()))
        named = {event["args"]["name"].partition(" · ")[0] for event in merged["traceEvents"] if event["name"] == "process_name"}
        self.assertEqual(named, {f"rank {rank}" for rank in range(RANKS)})

    def test_all_cycles_of_a_schedule_are_sent_and_merged_before_the_process_ends(self):
        job = self.folder / "scheduled.py"
        job.write_text(SCHEDULED)
        # Into rank 0's own folder, where the files are already.
        root, _, told = self.recorded(job=job, cycles=2)
        for cycle in range(2):
            self.assertTrue((root / f"merged.{cycle}.json.gz").is_file())
        self.assertEqual(told.count("broken edges 0 → 0"), 2, told)


SCHEDULED = """
import sys
import torch
import probe_sync

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
handler = probe_sync.torch.trace_handler(sys.argv[1], shared=False)
schedule = torch.profiler.schedule(wait=1, warmup=1, active=10, repeat=2)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], on_trace_ready=handler, schedule=schedule) as profiler:
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        profiler.step()
torch.distributed.destroy_process_group()
"""


if __name__ == "__main__":
    unittest.main()
