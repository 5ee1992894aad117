#!/usr/bin/env python3
"""Tests the C interface as its users receive it: installed, linked and run.

    python3 crates/capi/tests/c/run.py [NAME ...]

install.sh installs the library into target/xtask/c. Programs of this folder, of examples/c and of the guide are compiled with all warnings as errors.
Programs that need MPI run under Open MPI and MPICH, whose communicators and binary interfaces differ: Debian installs both, as mpicc.openmpi and
mpicc.mpich; elsewhere there is one mpicc, of either. The output ends with a tally as `cargo xtask` counts it; a missing compiler or MPI is a skip.
It does not measure times; bench/clock.c does, by hand.
"""

import functools
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[3]
PREFIX = ROOT / "target/xtask/c"
SONAME = "libprobe_sync.so.0"
C = ["gcc", "-std=c11"]
CXX = ["g++", "-x", "c++", "-std=c++17"]
WARNINGS = ["-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"]
# By which a program says that it needs MPI.
MPI_HEADER = "probe_sync_mpi.h"
MPI_SOURCE = PREFIX / "share/probe_sync/probe_sync_mpi.c"
PMPI_SOURCE = PREFIX / "share/probe_sync/probe_sync_pmpi.c"
# Root may start ranks, and more than there are cores; MPICH ends a job after a minute.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1", "MPIEXEC_TIMEOUT": "60"}
# The command to compare with, built by `cargo xtask test` before this runs; alone, `cargo build` makes it.
CLI = pathlib.Path(os.environ.get("PROBE_SYNC_CLI", ROOT / "target/debug/probe_sync"))
TRACES = ROOT / "examples/traces"
FIXTURE = ROOT / "crates/analysis/fixtures/gpu/torch_gpu"
LIMIT_S = 120
BUILD_S = 2700


def run(*command, limit_s=LIMIT_S, **environment):
    """Runs a program in the installation's folder; what it printed."""
    done = subprocess.run(
        list(map(str, command)), cwd=PREFIX, env=os.environ | environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit_s
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-6000:]}")
    return done.stdout


def compiled(name, compiler, *sources):
    """Compiles a program against the installed library; its path."""
    program = PREFIX / "bin" / name
    lib = PREFIX / "lib"
    run(*compiler, *WARNINGS, "-I", PREFIX / "include", *sources, "-o", program, "-L", lib, "-lprobe_sync", f"-Wl,-rpath,{lib}")
    return program


@functools.cache
def plain(name, source):
    return compiled(name, C, ROOT / source)


def out(name):
    """Where a program's run goes."""
    return PREFIX / "runs" / name


def files(folder):
    """The content of all files below a folder, by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def rows(path, query):
    """The rows of a database that another process may be writing."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def guide(with_mpi):
    """The programs of the guide."""
    text = (ROOT / "docs/guide/c.md").read_text()
    programs = [block for block in re.findall(r"\n```c\n(.*?\n)```", text, re.DOTALL) if (MPI_HEADER in block) == with_mpi]
    assert programs, "docs/guide/c.md has no such program"
    return programs


def needs(*programs):
    missing = [program for program in programs if shutil.which(program) is None]
    return unittest.skipIf(missing, f"{', '.join(missing)} not installed")


def setUpModule():
    missing = [program for program in ["gcc", "g++", "nm"] if shutil.which(program) is None]
    if missing:
        raise unittest.SkipTest(f"{', '.join(missing)} not installed")
    subprocess.run([ROOT / "crates/capi/install/install.sh", PREFIX, "dev"], check=True, timeout=BUILD_S)
    (PREFIX / "bin").mkdir(exist_ok=True)
    (PREFIX / "runs").mkdir(exist_ok=True)


class Case(unittest.TestCase):
    def same(self, name, found):
        """Compares a list with the committed one."""
        self.assertEqual((HERE / name).read_text().splitlines(), found.splitlines(), f"{name} and the library differ")

    def judge(self, output, run, others):
        """Compares what an example measured with the truth of its run.

        An example prints the results of ps_session_round, a line per node: `offset NODE MIDDLE OFFSET BOUND95 LOW HIGH` in ns. With a constant
        virtual clock, node i shows t + off_i + ppm_i * 1e-6 * (t - t0_i) when node 0, which has none, shows t; `probe-sync-testbed verify` knows
        the other models.
        """
        truth = json.loads((run / "truth.json").read_text())["nodes"]
        lines = [line for line in output.splitlines() if line.startswith("offset ")]
        self.assertEqual(len(lines), others + 1, output)
        worst = 0.0
        for line in lines:
            node, middle, offset, _, low, high = line.split()[1:]
            clock = truth[node]
            expected = clock["off_ns"] + clock["ppm"] * 1e-6 * (int(middle) - clock["t0_ns"])
            # The lines are rounded to a tenth.
            self.assertTrue(float(low) - 0.1 <= expected <= float(high) + 0.1, f"node {node}: true {expected:.1f}, not in the interval: {line}")
            worst = max(worst, abs(float(offset) - expected))
        print(f"{others} node(s) besides node 0, worst error {worst:.1f} ns")


class Library(Case):
    def test_symbols(self):
        """It exports what is committed, and needs neither MPI nor anything else but the system's own."""
        library = PREFIX / "lib" / SONAME
        self.same("symbols.txt", "\n".join(sorted(line.split()[2] for line in run("nm", "-D", "--defined-only", library).splitlines())))
        needed = run("readelf", "-d", library)
        for line in needed.splitlines():
            if "(NEEDED)" in line:
                self.assertRegex(line, r"libc\.so|libm\.so|libgcc_s\.so|ld-linux")
        self.assertIn(f"soname: [{SONAME}]", needed)

    def test_layouts(self):
        """Sizes, offsets and numbers are the same for C and C++."""
        for name, compiler in [("layouts_c", C), ("layouts_cc", CXX)]:
            self.same("layouts.txt", run(compiled(name, compiler, HERE / "layouts.c"), out(name)))

    def test_wrong_uses(self):
        run(plain("wrong_use", HERE / "wrong_use.c"), out("wrong_use"))

    def test_two_processes(self):
        output = run(plain("two_processes", "examples/c/two_processes.c"), out("two_processes"))
        self.judge(output, out("two_processes"), 1)

    def test_bench(self):
        run(plain("clock_bench", "bench/clock.c"), "3", out("clock_bench"))

    def test_recordings(self):
        shutil.rmtree(out("record"), ignore_errors=True)
        out("record").mkdir()
        run(plain("record", HERE / "record.c"), out("record"))

    @unittest.skipIf(not CLI.exists(), f"{CLI} is not built")
    def test_traces(self):
        """The functions on traces write the bytes that the command writes, and return its document."""
        program = plain("traces", HERE / "traces.c")
        torch, jax = (sorted(TRACES.glob(f"{name}/node*")) for name in ["torch", "jax"])
        clocks = ["assume_order=true", f"offsets={TRACES}/torch/offsets.csv"]
        collectives = ["from_collectives=true", "max_rate_change=200", "nodes=0-3"]
        cases = [
            ("align", ["aligned"], torch, [*clocks, "annotate=true", "validate=true"]),
            ("align", ["one.xplane.pb"], jax[1:2], ["nodes=1", f"offsets={TRACES}/jax/offsets.csv", "extrapolate=1s"]),
            ("merge", ["all.json.gz"], torch, clocks),
            ("merge", ["all.pftrace"], torch + jax, ["no_correction=true"]),
            ("merge", ["few.json"], torch, [*clocks, "ranks=0,2", "only=collectives", "to=50%", "mark_late=true", "validate=true"]),
            ("merge", ["run.pftrace"], sorted(FIXTURE.glob("rank*.json.gz")), [f"run_dir={FIXTURE}/run"]),
            ("convert", ["out", "json,pftrace"], torch, [*clocks, "start=10%", "inclusive=false", "collective_flows=true", "output_file=job"]),
            ("convert", ["out", "kineto.gz,xspace"], torch, [*clocks, "without_args=true"]),
            ("check", [], torch, []),
            ("check", [], torch, clocks),
            ("check", [], jax, collectives),
            ("merge", ["bad.json"], torch, ["nodes=0,1,2,3", "no_correction=true", "validate=true"]),
        ]
        for number, (call, output, traces, options) in enumerate(cases):
            with self.subTest(f"{call} {' '.join(options)}"):
                self.compare(out(f"traces{number}"), program, call, output, traces, options)

    def compare(self, folder, program, call, output, traces, options):
        """Makes a call from C and by the command, in two folders."""
        shutil.rmtree(folder, ignore_errors=True)
        in_c, by_command = (folder / side for side in ["c", "command"])
        in_c.mkdir(parents=True)
        by_command.mkdir()
        path, formats = [*output, "-", "-"][:2]
        there = {"capture_output": True, "text": True, "timeout": LIMIT_S}
        found = subprocess.run([program, call, path, formats, *options, "--", *traces], cwd=in_c, **there)
        flags = []
        for option in options:
            key, value = option.split("=", 1)
            flags += [f"--{key.replace('_', '-')}", *([] if value == "true" else [value])]
        if call == "convert":
            flags += ["--output-path", path, "-f", *formats.split(",")]
        elif output:
            flags += ["--output", path]
        expected = subprocess.run([CLI, call, "--traces", *traces, *flags, "--json"], cwd=by_command, **there)
        said = found.stdout + found.stderr + expected.stderr
        # Status 3 is the command's for violations, which is the outcome of a check.
        self.assertIn((found.returncode, expected.returncode), [(0, 0), (17, 3), *([(0, 3), (0, 4)] if call == "check" else [])], said)
        self.assertEqual(found.stdout, expected.stdout, said)
        self.assertEqual(files(in_c), files(by_command))
        self.assertEqual(bool(files(in_c)), found.returncode == 0 and call != "check")
        document, counts = json.loads(found.stdout), list(map(int, found.stderr.split("\n")[0].split()))
        if call == "check":
            self.assertEqual(counts[2:4], [document["result"]["edges"], document["violations"]])
            self.assertEqual(counts[4], {0: 1, 3: 2}.get(expected.returncode, counts[4]))

    def test_wrong_uses_of_traces(self):
        shutil.rmtree(out("traces_wrong"), ignore_errors=True)
        out("traces_wrong").mkdir()
        torch = sorted(TRACES.glob("torch/node*"))
        program = plain("traces", HERE / "traces.c")
        self.assertIn("wrong: ok", run(program, "wrong", out("traces_wrong"), *torch[:2]))
        self.assertIn("threads: ok", run(program, "threads", "-", *torch))

    def test_traces_example(self):
        torch = sorted(TRACES.glob("torch/node*"))
        for name, compiler in [("traces_example", C), ("traces_example_cc", CXX)]:
            output = run(compiled(name, compiler, ROOT / "examples/c/traces.c"), TRACES / "torch/offsets.csv", out("example.json.gz"), *torch)
            self.assertIn("as recorded: 46 of 92 edges are broken\non one clock: 0 of 92 edges are broken\nmerged 4 traces", output)

    def test_databases(self):
        """A database can be read after a flush and at the end, and is whole after a kill; the functions on traces read it."""
        program = plain("rocpd", HERE / "rocpd.c")
        folder = out("rocpd")
        shutil.rmtree(folder, ignore_errors=True)
        path = folder / "new/results.db"
        there = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen([program, "write", path], **there) as process:
            self.assertEqual(process.stdout.readline(), "flushed\n")
            self.assertEqual(rows(path, "SELECT name, start, end, stack_id FROM regions"), [("step", 1000, 9000, 7)])
            kernels = [("gemm", 0, "Queue 1", "Stream 1"), ("gemm", 1, "Default Queue", "Default Stream")]
            self.assertEqual(rows(path, "SELECT name, agent_abs_index, queue, stream FROM kernels ORDER BY start"), kernels)
            self.assertEqual(rows(path, "SELECT size FROM memory_copies"), [(4096,)])
            self.assertEqual(rows(path, "SELECT value FROM rocpd_pmc_event"), [(512.5,)])
            self.assertEqual(rows(path, "SELECT timestamp FROM rocpd_sample ORDER BY timestamp"), [(6500,), (8500,)])  # a counter has one too
            said, _ = process.communicate("\n", timeout=LIMIT_S)
        self.assertEqual((said, process.returncode), ("7 events, 0 dropped\n", 0))
        self.assertEqual(rows(path, "SELECT count(*) FROM regions"), [(2,)])
        self.assertEqual([file.name for file in path.parent.iterdir()], ["results.db"])
        traces = plain("traces", HERE / "traces.c")
        run(traces, "convert", folder / "csv", "csv", "--", path)
        self.assertIn("gemm", (folder / "csv/out_kernel_trace.csv").read_text())
        killed = folder / "killed.db"
        with subprocess.Popen([program, "endless", killed], **there) as process:
            self.assertEqual(process.stdout.readline(), "flushed\n")
            process.kill()
        self.assertEqual(rows(killed, "PRAGMA quick_check"), [("ok",)])
        self.assertGreater(rows(killed, "SELECT count(*) FROM regions")[0][0], 1000)
        self.assertIn("wrong: ok", run(program, "wrong", folder / "wrong.db"))

    def test_guide(self):
        """The guide's programs, word for word, as C and as C++."""
        for number, text in enumerate(guide(with_mpi=False)):
            source = PREFIX / f"readme{number}.c"
            source.write_text(text)
            compiled("readme_cc", CXX, source)
            program = compiled("readme", C, source)
            missing = subprocess.run([program, "/no/such/clock"], capture_output=True, text=True, timeout=LIMIT_S)
            self.assertNotEqual(missing.returncode, 0)
            self.assertIn("/no/such/clock", missing.stderr)
            # A clock outlives its run.
            page = PREFIX / "clock_page"
            run(plain("clock_bench", "bench/clock.c"), "1", out("clock_page"), PROBE_SYNC_CLOCK_PAGE=str(page))
            self.assertIn("ns, surely within", run(program, page))

    @needs("cmake")
    def test_cmake(self):
        """The examples by find_package, linked dynamically and statically."""
        build = PREFIX / "cmake"
        run("cmake", "-S", ROOT / "examples/c", "-B", build, "--fresh", f"-DCMAKE_PREFIX_PATH={PREFIX}")
        run("cmake", "--build", build)
        run(build / "two_processes_static", out("static"))

    @needs("valgrind")
    def test_valgrind(self):
        """Wrong uses and a whole session: no read or write where there is nothing, and nothing lost."""
        leaks = ["--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"]
        for program in [plain("wrong_use", HERE / "wrong_use.c"), plain("two_processes", "examples/c/two_processes.c")]:
            run("valgrind", *leaks, program, out(f"valgrind_{program.name}"))
        torch = sorted(TRACES.glob("torch/node*"))[:2]
        traces = [plain("traces", HERE / "traces.c"), "merge", out("valgrind.json"), "-", "from_collectives=true", "nodes=0,1", "--", *torch]
        run("valgrind", *leaks, *traces)
        shutil.rmtree(out("valgrind_rocpd"), ignore_errors=True)
        run("valgrind", *leaks, plain("rocpd", HERE / "rocpd.c"), "wrong", out("valgrind_rocpd") / "wrong.db")


class UnderMpi:
    """Tests of one MPI, which its subclasses name."""

    def setUp(self):
        self.mpicc, self.mpicxx, self.launch = (f"{program}.{self.name}" for program in ["mpicc", "mpicxx", "mpirun"])
        if shutil.which(self.mpicc) is None or shutil.which(self.launch) is None:
            # One without a suffix counts as what it says it is.
            version = run("mpirun", "--version") if shutil.which("mpirun") and shutil.which("mpicc") else ""
            if not version or bool(re.search("Open ?MPI|OpenRTE", version)) != (self.name == "openmpi"):
                self.skipTest(f"{self.mpicc} and {self.launch} not installed")
            self.mpicc, self.mpicxx, self.launch = "mpicc", "mpicxx", "mpirun"

    def mpirun(self, ranks, *command, **environment):
        end = ["--timeout", "60"] if self.name == "openmpi" else []
        return run(self.launch, *end, "-n", ranks, *command, **MPI, **environment)

    def compiled(self, name, *sources):
        return compiled(f"{name}_{self.name}", [self.mpicc, "-std=c11"], *sources)

    def out(self, name):
        return out(f"{name}_{self.name}")

    def test_session(self):
        program = self.compiled("mpi_session", ROOT / "examples/c/mpi_session.c")
        output = self.mpirun(4, program, self.out("mpi_session"))
        self.assertIn("4 ranks at thread level 0: ok", output)
        self.judge(output, self.out("mpi_session"), 3)

    def test_guide(self):
        source = PREFIX / "readme_mpi.c"
        source.write_text(guide(with_mpi=True)[0])
        # The C++ bindings of old MPI headers are not ours to warn of.
        cxx = [self.mpicxx, "-x", "c++", "-std=c++17", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"]
        compiled(f"readme_mpi_cc_{self.name}", cxx, source)
        output = self.mpirun(2, self.compiled("readme_mpi", source), PROBE_SYNC_OUT=str(self.out("readme_mpi")))
        self.assertEqual(output.count("ns ahead of node 0"), 2, output)

    def test_profiling_layer(self):
        """In front of a program unaware of this project, the layer of the profiling interface names the late rank, and no other."""
        layer = compiled(f"libprobe_sync_pmpi_{self.name}.so", [self.mpicc, "-std=c11", "-shared", "-fPIC"], PMPI_SOURCE)
        job = PREFIX / "bin" / f"late_job_{self.name}"
        run(self.mpicc, "-std=c11", HERE / "late_job.c", "-o", job)
        # Clocks that are wrong by more than the rank is late.
        skew = {"PROBE_SYNC_INJECT_SKEW": "7", "PROBE_SYNC_SKEW_OFFSET": "50ms"}
        told = self.out("late_job")
        output = self.mpirun(4, "env", f"LD_PRELOAD={layer}", job, "12", PROBE_SYNC_OUT=str(told), PROBE_SYNC_WINDOW="500ms", **skew)
        self.assertIn("sum 4", output)
        late = [json.loads(line).get("late") for line in (told / "late.jsonl").read_text().splitlines()]
        found = {(late["rank"], late["group"]) for late in late if late}
        self.assertEqual(found, {(2, "allreduce (world)")})

    def test_thread_levels(self):
        program = self.compiled("mpi_launcher", ROOT / "examples/c/mpi_launcher.c", MPI_SOURCE)
        for number, level in enumerate(["single", "funneled", "serialized", "multiple"]):
            run = self.out(f"mpi_launcher_{level}")
            output = self.mpirun(8, program, level, run)
            self.assertIn(f"8 ranks at thread level {number}:", output)
            self.assertIn("no steps" if level == "multiple" else "longest step of at most", output)
            self.judge(output, run, 7)

    def test_pairs_of_ranks_with_directories_of_their_own(self):
        """The snapshot pairs of a rank that does not see rank 0's directory are there at the end."""
        program = self.compiled("mpi_launcher", ROOT / "examples/c/mpi_launcher.c", MPI_SOURCE)
        zero, one = self.out("pairs_0"), self.out("pairs_1")
        for folder in [zero, one]:
            shutil.rmtree(folder, ignore_errors=True)
        self.mpirun(1, program, "funneled", zero, ":", "-n", "1", program, "funneled", one)
        pairs = [(folder / "snapshots/node1.snapshot_pairs.jsonl").read_text() for folder in [zero, one]]
        self.assertEqual(*pairs)
        self.assertGreaterEqual(pairs[0].count("\n"), 2)
        self.assertFalse((one / "run.json").exists())

    def test_launchers_that_misbehave(self):
        program = self.compiled("mpi_launchers", HERE / "mpi_launchers.c", MPI_SOURCE)
        for case in ["wrong_uses", "silent", "lets_go", "finalises", "finalises_steps"]:
            self.assertIn(": ok", self.mpirun(4, program, case, self.out(f"mpi_launchers_{case}")))

    @needs("cmake")
    def test_cmake(self):
        build = PREFIX / f"cmake_{self.name}"
        run("cmake", "-S", ROOT / "examples/c", "-B", build, "--fresh", f"-DCMAKE_PREFIX_PATH={PREFIX}", f"-DMPI_C_COMPILER={self.mpicc}")
        run("cmake", "--build", build)
        output = self.mpirun(2, build / "mpi_launcher", "funneled", self.out("mpi_launcher_cmake"))
        self.assertIn("2 ranks at thread level 1:", output)


class OpenMpi(UnderMpi, Case):
    name = "openmpi"


class Mpich(UnderMpi, Case):
    name = "mpich"


if __name__ == "__main__":
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{name}*" for name in sys.argv[1:]] or None
    found = unittest.TextTestRunner(verbosity=2).run(loader.loadTestsFromModule(sys.modules["__main__"]))
    for test, reason in found.skipped:
        print(f"skip {test.id()}: {reason}")
    failed = len(found.failures) + len(found.errors)
    print(f"{found.testsRun - failed - sum('test_' in test.id() for test, _ in found.skipped)} passed, {failed} failed, {len(found.skipped)} skipped")
    sys.exit(not found.wasSuccessful())
