"""Traces onto one clock: the same bytes as the command line writes, typed results, and errors that say what to do."""

import contextlib
import datetime
import json
import os
import signal
import threading
import time
import unittest

import numpy as np
import probe_sync
from common import ROOT, Folder, cli, data


def event(ts, dur=5):
    return json.dumps({"traceEvents": [{"ph": "X", "ts": ts, "dur": dur, "name": "a"}], "baseTimeNanoseconds": 0})


def flags(keywords):
    """Keywords as the flags that say the same."""
    for name, value in keywords.items():
        flag = "--" + name.strip("_").replace("_", "-")
        match name, value:
            case _, True:
                yield flag
            case "only", list():
                yield from (word for kind in value for word in (flag, kind))
            case _, list():
                yield from (flag, ",".join(map(str, value)))
            case _:
                yield from (flag, str(value))


class Recorded(Folder):
    """Recorded traces of four nodes, whose clocks are known."""

    def same(self, ours, theirs):
        names = sorted(path.relative_to(theirs) for path in theirs.rglob("*") if path.is_file())
        self.assertTrue(names)
        self.assertEqual(sorted(path.relative_to(ours) for path in ours.rglob("*") if path.is_file()), names)
        for name in names:
            self.assertEqual((ours / name).read_bytes(), (theirs / name).read_bytes(), name)

    def sets(self):
        for kind, pattern in (("jax", "node*.xplane.pb"), ("torch", "node*.json.gz")):
            folder = data(f"{kind}/b_4node_offset_drift")
            yield kind, sorted(folder.glob(pattern)), folder / "offsets.csv"

    def test_align_as_the_command_line(self):
        for kind, traces, offsets in self.sets():
            with self.subTest(kind):
                shares = []
                ours, theirs = self.folder / f"{kind}-ours", self.folder / f"{kind}-theirs"
                aligned = probe_sync.align(
                    traces, nodes=[0, 1, 2, 3], clocks=probe_sync.Offsets(offsets), output=ours, validate=True, progress=shares.append
                )
                status, _ = cli("align", "--traces", *traces, "--nodes", 0, 1, 2, 3, "--offsets", offsets, "--output", theirs)
                self.assertEqual(status, 0)
                self.same(ours, theirs)
                self.assertEqual(shares, [0.25, 0.5, 0.75, 1.0])
                self.assertEqual((aligned.verdict.outcome, aligned.verdict.result.broken), ("holds", 0))
                self.assertGreater(aligned.verdict.before.broken, 40)
                self.assertGreater(abs(aligned.largest_correction_ns), 1e6)
                self.assertIn("broken edges", str(aligned))

    def test_merge_as_the_command_line(self):
        for kind, traces, offsets in self.sets():
            with self.subTest(kind):
                name = "all.xplane.pb" if kind == "jax" else "all.json.gz"
                ours, theirs = self.folder / f"{kind}-ours", self.folder / f"{kind}-theirs"
                ours.mkdir()
                theirs.mkdir()
                merged = probe_sync.merge(traces, nodes=[0, 1, 2, 3], clocks=probe_sync.Offsets(offsets), output=ours / name)
                status, _ = cli("merge", "--traces", *traces, "--nodes", 0, 1, 2, 3, "--offsets", offsets, "--output", theirs / name)
                self.assertEqual(status, 0)
                self.same(ours, theirs)
                self.assertEqual((len(merged.traces), merged.uncalibrated, merged.verdict), (4, (), None))

    def test_filters_as_the_command_line(self):
        for kind, traces, offsets in self.sets():
            name = "all.xplane.pb" if kind == "jax" else "all.json.gz"
            whole = probe_sync.merge(traces, nodes=range(4), clocks=probe_sync.Offsets(offsets), output=self.folder / name, max_size="1G").filter
            self.assertEqual((whole.left_out, whole.text, whole.bytes_max), (0, "", 1_000_000_000))
            cases = [
                ({"ranks": [0, 2, 3], "from_": "10%", "to": "60%", "only": ["collectives", "gpu,steps"]}, "outside"),
                ({"max_size": whole.bytes * 9 // 10, "mark_late": True}, "too_short"),
            ]
            for number, (filters, why) in enumerate(cases):
                with self.subTest(kind, filters=filters):
                    ours, theirs = self.folder / f"{kind}-{number}-ours", self.folder / f"{kind}-{number}-theirs"
                    ours.mkdir()
                    theirs.mkdir()
                    merged = probe_sync.merge(traces, nodes=range(4), clocks=probe_sync.Offsets(offsets), output=ours / name, **filters)
                    status, told = cli(
                        "merge", "--traces", *traces, "--nodes", 0, 1, 2, 3, "--offsets", offsets, "--output", theirs / name, *flags(filters)
                    )
                    self.assertEqual(status, 0)
                    self.same(ours, theirs)
                    left_out = merged.filter
                    self.assertIn(left_out.text.splitlines()[-1], told)
                    parts = [getattr(left_out, part) for part in ("outside", "of_other_kinds", "too_short", "half_flows", "unjudged")]
                    self.assertEqual((sum(parts), left_out.left_out > 0), (left_out.left_out, True))
                    self.assertGreater(getattr(left_out, why), 0)
                    kept = [os.path.basename(trace.path) for trace in merged.traces]
                    self.assertEqual(len(kept) + len(left_out.traces_left_out), 4)
                    if filters.get("ranks") == [0, 2, 3]:
                        self.assertEqual(kept, [traces[rank].name for rank in (0, 2, 3)])

    def test_stragglers_as_the_command_line(self):
        folder = data("torch/b_4node_offset_drift")
        traces, offsets = sorted(folder.glob("node*.json.gz")), folder / "offsets.csv"
        ours, theirs = [{name: self.folder / f"{who}.{name}" for name in ("json", "csv")} for who in ("ours", "theirs")]
        found = probe_sync.stragglers(traces, nodes=range(4), clocks=probe_sync.Offsets(offsets), **ours)
        known = ["--traces", *traces, "--nodes", 0, 1, 2, 3, "--offsets", offsets]
        self.assertEqual(cli("stragglers", *known, "--json", theirs["json"], "--csv", theirs["csv"])[0], 0)
        for name, path in ours.items():
            self.assertEqual(path.read_bytes(), theirs[name].read_bytes(), name)
        self.assertEqual(found.details, json.loads(ours["json"].read_text()))
        self.assertIn(found.text, cli("stragglers", "-v", *known)[1])
        self.assertGreaterEqual(len(found.instances), 23)

    def test_a_summary_is_short_and_a_cell_of_a_notebook_one_line(self):
        folder = data("torch/b_4node_offset_drift")
        traces, offsets = sorted(folder.glob("node*.json.gz")), folder / "offsets.csv"
        known = {"nodes": range(4), "clocks": probe_sync.Offsets(offsets)}
        results = [
            probe_sync.check(traces),
            probe_sync.check(traces, **known),
            probe_sync.align(traces, output=self.folder / "aligned", **known),
            probe_sync.merge(traces, output=self.folder / "merged.json.gz", **known),
            probe_sync.stragglers(traces, **known),
            probe_sync.Offsets(offsets),
        ]
        for result in results:
            with self.subTest(type(result).__name__):
                self.assertLessEqual(len(str(result).splitlines()), 20)
                self.assertEqual(len(repr(result).splitlines()), 1)
                self.assertLess(len(repr(result)), 400)

    def test_tables_for_pandas_and_arrow(self):
        folder = data("torch/b_4node_offset_drift")
        traces, offsets = sorted(folder.glob("node*.json.gz")), folder / "offsets.csv"
        known = {"nodes": range(4), "clocks": probe_sync.Offsets(offsets)}
        late = probe_sync.stragglers(traces, **known)
        table = probe_sync.Offsets(offsets)
        rows = sum(len(table.lines(node).at_ns) for node in table.nodes)
        tables = [
            (late, len(late.instances), "lead_ns"),
            (probe_sync.align(traces, output=self.folder / "aligned", **known), 4, "correction_median_ns"),
            (table, rows, "node"),
            (table.lines(1), len(table.lines(1).at_ns), "offset_ns"),
        ]
        for result, length, column in tables:
            with self.subTest(type(result).__name__):
                with contextlib.suppress(ModuleNotFoundError):
                    frame = result.to_pandas()
                    self.assertEqual(len(frame), length)
                    self.assertIn(column, frame.columns)
                with contextlib.suppress(ModuleNotFoundError):
                    import pyarrow

                    read = pyarrow.table(result)
                    self.assertEqual(read.num_rows, length)
                    self.assertIn(column, read.column_names)

    def test_check_as_the_command_line(self):
        for kind, traces, _ in self.sets():
            with self.subTest(kind):
                ours, theirs = self.folder / f"{kind}-ours.json", self.folder / f"{kind}-theirs.json"
                found = probe_sync.check(traces, report=ours)
                status, text = cli("check", "-v", "--traces", *traces, "--json", theirs)
                self.assertEqual(status, 3)
                self.assertEqual(ours.read_bytes(), theirs.read_bytes())
                self.assertEqual(found.verdict.outcome, "violated")
                self.assertIn(found.verdict.text, text)

    def test_names_of_the_rocm_tools(self):
        folder = data("jax/b_4node_offset_drift")
        traces, out = sorted(folder.glob("node*.xplane.pb")), self.folder / "combined.xplane.pb"
        combined = probe_sync.combine_traces(traces, None, folder / "offsets.csv", out, apply_alignment=True)
        self.assertEqual((len(combined.traces), out.exists()), (4, True))
        raw = self.folder / "raw.xplane.pb"
        self.assertEqual(len(probe_sync.combine_traces(traces, None, None, raw, apply_alignment=False).uncalibrated), 4)
        summary = probe_sync.analyze_collective_operations(traces, self.folder / "summary.json")
        self.assertEqual((summary["violations"], summary["violations"] + summary["overlaps"]), (46, 144))
        self.assertEqual(json.loads((self.folder / "summary.json").read_text()), summary)
        with self.assertRaisesRegex(probe_sync.ConfigError, "csv_file"):
            probe_sync.analyze_collective_operations(traces, csv_file="a.csv")

    def test_times_through_exact_offsets(self):
        folder = data("jax/b_4node_offset_drift")
        offsets = probe_sync.Offsets(folder / "offsets.csv")
        self.assertEqual((offsets.reference, offsets.nodes), (0, [0, 1, 2, 3]))
        for node in (1, 2, 3):
            lines = offsets.lines(node)
            inside = lines.at_ns[10:-10]
            error = offsets.to_reference(inside, node) - (inside - np.rint(lines.offset_ns[10:-10]).astype(np.int64))
            self.assertLessEqual(np.abs(error).max(), 1)
            self.assertTrue((offsets.sigma_ns(inside, node) >= 0).all())

    def test_a_damaged_trace_is_named_with_its_byte(self):
        trace = data("jax/x_corrupt_utf8_mangled") / "tpu_inference_2.xplane.pb"
        with self.assertRaisesRegex(probe_sync.DamagedTrace, r"tpu_inference_2.xplane.pb: byte \d+"):
            probe_sync.check(trace)

    def test_convert_as_the_command_line(self):
        for kind, traces, offsets in self.sets():
            with self.subTest(kind):
                ours, theirs = self.folder / f"{kind}-ours", self.folder / f"{kind}-theirs"
                known = {"nodes": range(4), "clocks": probe_sync.Offsets(offsets)}
                for name, formats, options in (("all", ["pftrace", "json.gz"], {"collective_flows": True}), ("each", ["kineto"], {"end": "50%"})):
                    done = probe_sync.convert(traces, output_dir=ours, formats=formats, name=name, **options, **known)
                    inputs = ["--input", *traces, "--nodes", 0, 1, 2, 3, "--offsets", offsets]
                    status, _ = cli("convert", *inputs, "-d", theirs, "-o", name, "-f", *formats, *flags(options))
                    self.assertEqual((status, len(done.traces)), (0, 4))
                    self.assertEqual(len(done.files), 4 if formats == ["kineto"] else 2)
                    self.assertTrue(all(file.rows > 0 and os.path.exists(file.path) for file in done.files))
                # Statistics state the paths of the outputs.
                files = sorted(path.name for path in theirs.iterdir() if path.is_file() and "stats" not in path.name)
                self.assertEqual(len(files), 6)
                for name in files:
                    self.assertEqual((ours / name).read_bytes(), (theirs / name).read_bytes(), name)

    def test_windows_between_markers_as_the_command_line(self):
        _, traces, offsets = list(self.sets())[1]
        known = {"nodes": range(4), "clocks": probe_sync.Offsets(offsets)}
        inputs = ["--input", *traces, "--nodes", 0, 1, 2, 3, "--offsets", offsets]
        rows = {}
        for inclusive in (True, False):
            ours, theirs = self.folder / f"ours{inclusive}", self.folder / f"theirs{inclusive}"
            options = {"start_marker": "train_step#3", "end": "90%", "inclusive": inclusive}
            done = probe_sync.convert(traces, output_dir=ours, formats="json", **options, **known)
            status, _ = cli("convert", *inputs, "-d", theirs, "-f", "json", "-o", "out", "--start-marker", "train_step#3", "--end", "90%", "--inclusive", str(inclusive).lower())
            self.assertEqual(status, 0)
            self.assertEqual((ours / "out_results.json").read_bytes(), (theirs / "out_results.json").read_bytes())
            rows[inclusive] = done.files[0].rows
        whole = probe_sync.convert(traces, output_dir=self.folder / "whole", formats="json", **known).files[0].rows
        self.assertTrue(0 < rows[True] < rows[False] < whole, (rows, whole))

    def test_offsets_of_the_folder_of_a_run(self):
        """A run's folder may be given as `Offsets(folder)`, as well as by `Run(folder)`."""
        fixture = ROOT / "crates/analysis/fixtures/gpu/torch_gpu"
        traces = sorted(fixture.glob("rank*.json.gz"))
        outputs = []
        for name, clocks in (("offsets", probe_sync.Offsets(fixture / "run")), ("run", probe_sync.Run(fixture / "run"))):
            outputs.append(self.folder / f"{name}.pftrace")
            merged = probe_sync.merge(traces, clocks=clocks, output=outputs[-1])
            self.assertEqual((len(merged.traces), merged.uncalibrated), (4, ()))
        self.assertEqual(outputs[0].read_bytes(), outputs[1].read_bytes())

    def test_csv_as_the_command_line(self):
        traces = sorted(data("rocpd/b_4node_offset_drift").glob("node*.db"))
        ours, theirs = self.folder / "ours", self.folder / "theirs"
        done = probe_sync.convert(traces, output_dir=ours, formats="csv", clocks=probe_sync.FROM_COLLECTIVES)
        status, _ = cli("convert", "--input", *traces, "--from-collectives", "-d", theirs, "-o", "out", "-f", "csv")
        self.assertEqual(status, 0)
        self.same(ours, theirs)
        self.assertEqual({os.path.basename(file.path) for file in done.files}, {path.name for path in theirs.iterdir()})

    def test_query_as_the_command_line(self):
        traces = sorted(data("rocpd/b_4node_offset_drift").glob("node*.db"))
        sql = "SELECT rank, name, start, end - start AS length, NULL AS absent, 0.5 AS half FROM regions ORDER BY start, rank"
        known = {"clocks": probe_sync.FROM_COLLECTIVES}
        rows = probe_sync.query(sql, traces, **known)
        self.assertEqual(rows.columns, ("rank", "name", "start", "length", "absent", "half"))
        found = list(rows)
        status, told = cli("query", "--traces", *traces, "--from-collectives", "--sql", sql, "--format", "json")
        self.assertEqual(status, 0)
        self.assertEqual([dict(zip(rows.columns, row)) for row in found], json.loads(told[told.index("[") : told.rindex("]") + 1]))
        self.assertGreater(len(found), 100)
        self.assertEqual(list(rows), [], "an iterator is read once")
        table = probe_sync.query(sql, traces, **known)._columns()
        self.assertEqual(table["start"].dtype, np.int64)
        self.assertEqual([table[name][0] for name in ("rank", "name", "absent", "half")], [found[0][at] for at in (0, 1, 4, 5)])
        with self.assertRaisesRegex(probe_sync.ConfigError, "sql: no such table"):
            probe_sync.query("SELECT * FROM elsewhere", traces, **known)
        with self.assertRaisesRegex(probe_sync.ConfigError, "two columns are named a"):
            probe_sync.query("SELECT 1 AS a, 2 AS a", traces, **known)._columns()

    def test_rows_that_are_dropped_end_the_query(self):
        traces = sorted(data("rocpd/b_4node_offset_drift").glob("node*.db"))
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
        # Threads of earlier tests may end meanwhile.
        before = set(os.listdir("/proc/self/task"))

        def new_threads():
            return set(os.listdir("/proc/self/task")) - before

        def wait_for_their_end(what):
            deadline = time.monotonic() + 10
            while new_threads() and time.monotonic() < deadline:
                time.sleep(0.01)
            self.assertFalse(new_threads(), what)

        rows = probe_sync.query(endless, traces, no_correction=True)
        self.assertEqual([next(rows) for _ in range(3)], [(1,), (2,), (3,)])
        self.assertTrue(new_threads())
        del rows
        wait_for_their_end("rows that are dropped end the query")
        never = endless.replace("SELECT i FROM", "SELECT sum(i) FROM")
        with self.assertRaises(KeyboardInterrupt):
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            probe_sync.query(never, traces, no_correction=True)
        wait_for_their_end("an interrupted query ends")
        with self.assertRaisesRegex(probe_sync.ConfigError, "aborted after 200ms"):
            probe_sync.query(never, traces, timeout="200ms", no_correction=True)


class Made(Folder):
    """Traces made here."""

    def setUp(self):
        super().setUp()
        self.offsets = self.folder / "offsets.csv"
        self.offsets.write_text("node,node_realtime_ns,offset_vs_node0_ns\n1,0,2500000\n1,90000000,2500000\n")
        self.traces = [self.folder / "node0.json", self.folder / "node1.json"]
        for trace, ts in zip(self.traces, (7500, 10000)):
            trace.write_text(event(ts))

    def test_a_correction_is_new_minus_old(self):
        done = probe_sync.merge(self.traces, nodes=[0, 1], clocks=probe_sync.Offsets(self.offsets), output=self.folder / "all.json")
        self.assertEqual(done.traces[1].stats.correction_ns, (-2.5e6, -2.5e6, -2.5e6))
        self.assertEqual((done.largest_correction_ns, done.timeline), (-2.5e6, "system clock of node 0"))

    def test_a_bad_trace_is_left_out_on_request(self):
        bad = self.folder / "bad.json"
        bad.write_text('{"traceEvents": [')
        asked = {"nodes": [0, 2, 1], "clocks": probe_sync.Offsets(self.offsets), "output": self.folder / "all.json"}
        traces = [self.traces[0], bad, self.traces[1]]
        with self.assertRaisesRegex(probe_sync.DamagedTrace, "bad.json"):
            probe_sync.merge(traces, **asked)
        done = probe_sync.merge(traces, skip_bad=True, **asked)
        self.assertEqual(len(done.traces), 2)
        self.assertIn("bad.json", done.warnings[0])
        for found in (
            done,
            probe_sync.align(traces, skip_bad=True, **{**asked, "output": self.folder / "aligned"}),
            probe_sync.check(traces, nodes=[0, 2, 1], clocks=probe_sync.Offsets(self.offsets), skip_bad=True),
            probe_sync.stragglers(traces, nodes=[0, 2, 1], clocks=probe_sync.Offsets(self.offsets), skip_bad=True),
        ):
            self.assertEqual([row["path"] for row in found.omitted["traces"]], [str(bad)])

    def test_a_database_that_is_none_is_damaged(self):
        bad = self.folder / "node0_results.db"
        bad.write_bytes(b"SQLite format 3\0" + bytes(500))
        with self.assertRaisesRegex(probe_sync.DamagedTrace, "node0_results.db"):
            probe_sync.check(bad)

    def test_who_was_late_again_and_again_is_named(self):
        # Rank 1 comes to each of 60 all-reduces 2 ms after rank 0, on one host.
        def trace(rank):
            args = {"Collective name": "allreduce", "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}
            rows = []
            for step in range(60):
                begin, late = step * 20_000, 2000 * rank
                rows.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": begin, "dur": 19_000})
                rows.append(
                    {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0, "tid": 7, "ts": begin + 5000 + late}
                    | {"dur": 2100 - late, "args": {**args, "Seq": step}}
                )
            path = self.folder / f"rank{rank}.json"
            path.write_text(json.dumps({"distributedInfo": {"rank": rank, "world_size": 2}, "host_name": "gpu-01", "traceEvents": rows}))
            return path

        found = probe_sync.stragglers([trace(0), trace(1)])
        (late,) = found.stragglers
        self.assertEqual((late.rank, late.host, late.of), (1, "gpu-01", 60))
        self.assertGreater(late.times, 50)
        self.assertEqual((len(late.steps), len(late.saved_by_step_ns)), (late.times, late.times))
        self.assertIn("rank 1", str(found))

        # Of steps 3 and 4 both ranks' ProfilerStep and kernel stay, and what reaches into their
        # span: step 2 ends before it, 5 begins after.
        traces = [self.folder / f"rank{rank}.json" for rank in (0, 1)]
        less = probe_sync.merge(traces, allow_uncalibrated=True, output=self.folder / "less.json", steps="3..4")
        self.assertEqual((less.filter.events, less.filter.left_out, less.filter.outside), (240, 232, 232))
        self.assertEqual(less.filter.span_ns[1] - less.filter.span_ns[0], 39_000_000)

    def test_without_collectives_nobody_is_late(self):
        found = probe_sync.stragglers(self.traces, nodes=[0, 1], clocks=probe_sync.Offsets(self.offsets))
        self.assertEqual((found.stragglers, found.instances), ((), ()))

    def test_times_of_any_shape(self):
        offsets = probe_sync.Offsets(self.offsets)
        times = np.array([[10_000_000, 20_000_000], [30_000_000, 90_000_000]])
        self.assertTrue((offsets.to_reference(times, 1) == times - 2_500_000).all())
        self.assertTrue((offsets.to_reference(times, 0) == times).all())
        self.assertEqual(offsets.to_reference(10_000_000, 1), 7_500_000)
        self.assertEqual(offsets.measured_ns(1), (0, 90_000_000))
        with self.assertRaisesRegex(probe_sync.ConfigError, "whole nanoseconds"):
            offsets.to_reference([1.5], 1)
        with self.assertRaisesRegex(probe_sync.RefusedTrace, "no offsets for node 7"):
            offsets.to_reference([1], 7)

    def test_what_does_not_go_together(self):
        known = {"clocks": probe_sync.Offsets(self.offsets)}
        for call, text in (
            (lambda: probe_sync.check(), "give traces"),
            (lambda: probe_sync.check(self.traces, clocks="run"), "give Run"),
            (lambda: probe_sync.convert(self.traces, output_dir="x", formats="pftrace", no_correction=True, **known), "omit one of them"),
            (lambda: probe_sync.convert(self.traces, output_dir="x", formats="pdf"), "formats: \"pdf\" is unknown"),
            (lambda: probe_sync.convert(self.traces, output_dir="x", formats=()), "formats is empty"),
            (lambda: probe_sync.query("SELECT 1", self.traces, start="soon"), "start: soon is neither"),
            (lambda: probe_sync.query("SELECT 1", self.traces, start=1, start_marker="a"), "start and start_marker exclude each other"),
            (lambda: probe_sync.convert(self.traces, output_dir="x", formats="json", end="50%", end_marker="a"), "end and end_marker exclude each other"),
            (lambda: probe_sync.check(self.traces, cpu_clock="tsc", suspended=0), "cpu_clock='tsc'"),
            (lambda: probe_sync.check(self.traces, cpu_clock="monotonic"), "need each other"),
            (lambda: probe_sync.check(self.traces, cpu_clock="monotonic", suspended={None: "-5s"}), "suspended"),
            (lambda: probe_sync.check(self.traces, nodes=[0, 1], assume_order=True), "omit one of them"),
            (lambda: probe_sync.check(self.traces, realtime_only=True, snapshot_markers="x"), "excludes snapshots"),
            (lambda: probe_sync.check(self.traces, timeline="gpu", **known), "\"host\" or \"tracer\""),
            (lambda: probe_sync.check(self.traces, extrapolate="2", **known), "extrapolate: "),
            (lambda: probe_sync.check(self.traces, snapshot_markers="("), "snapshot_markers: "),
            (lambda: probe_sync.merge(self.traces, output="x.json", plane_layout="flat"), "gpu-tracks"),
            (lambda: probe_sync.align(self.traces[1], output="x.json"), r"give clocks=Run\(directory\), clocks=Offsets\(file\)"),
            (lambda: probe_sync.merge(self.traces, output="x.json", ranks="3-1"), "ranks: 3-1 is not a list of ranks"),
            (lambda: probe_sync.merge(self.traces, output="x.json", steps="5..3"), "steps: 5..3 ends before it begins"),
            (lambda: probe_sync.merge(self.traces, output="x.json", from_="soon"), "from_: soon is neither"),
            (lambda: probe_sync.merge(self.traces, output="x.json", only="("), "only="),
            (lambda: probe_sync.merge(self.traces, output="x.json", max_size=0), "max_size: must be at least 1"),
            (lambda: probe_sync.stragglers(self.traces, step_name="step"), "step_name: step has no group"),
            (lambda: probe_sync.stragglers(self.traces, json="x", csv="x"), "json and csv"),
            (lambda: probe_sync.solve(out="x"), "one of probes, windows and packets"),
            (lambda: probe_sync.solve(out="x", packets="y", fit="svm"), "fit applies only to probes"),
        ):
            with self.subTest(text), self.assertRaisesRegex(probe_sync.ConfigError, text):
                call()

    def test_an_unknown_keyword_is_named_with_its_function(self):
        with self.assertRaisesRegex(TypeError, r"align\(\) got an unexpected keyword argument 'run_dir'; give clocks=Run"):
            probe_sync.align(self.traces, run_dir="run", output="x.json")

    def test_whose_the_traces_are_is_not_guessed(self):
        with self.assertRaisesRegex(probe_sync.RefusedTrace, "Give nodes"):
            probe_sync.align(self.traces, clocks=probe_sync.Offsets(self.offsets), output=self.folder / "out")

    def test_events_outside_of_the_measurement(self):
        self.traces[1].write_text(event(3_000_000))
        ask = {"nodes": [0, 1], "clocks": probe_sync.Offsets(self.offsets), "output": self.folder / "out"}
        with self.assertRaisesRegex(probe_sync.RefusedTrace, "extrapolate"):
            probe_sync.align(self.traces, **ask)
        done = probe_sync.align(self.traces, extrapolate=datetime.timedelta(seconds=10), **ask)
        self.assertEqual(done.traces[1].stats.extrapolated_after, 2)

    def test_files_that_are_not_there(self):
        with self.assertRaises(FileNotFoundError):
            probe_sync.check(self.folder / "no.json")
        with self.assertRaises(FileNotFoundError):
            probe_sync.Offsets(self.folder / "no.jsonl")
        with self.assertRaisesRegex(probe_sync.FileError, "cannot open"):
            probe_sync.check(self.folder / "no.json")
        with self.assertRaises(OSError):
            probe_sync.Offsets(self.folder / "no.jsonl")

    def test_solve_of_captured_packets(self):
        packets, ours, theirs = (self.folder / name for name in ("packets.csv", "ours.jsonl", "theirs.jsonl"))
        packets.write_text("src,dst,send_ns,recv_ns\n0,1,1000,2200\n1,0,3000,2200\n0,1,51000,52200\n1,0,53000,52200\n")
        solved = probe_sync.solve(packets=packets, out=ours, knots="rounds")
        self.assertEqual((solved.nodes, solved.rounds, solved.skipped_lines), (2, 1, 0))
        status, _ = cli("solve", "--packets", packets, "--out", theirs, "--knots", "rounds")
        self.assertEqual((status, ours.read_bytes()), (0, theirs.read_bytes()))
        self.assertAlmostEqual(probe_sync.Offsets(ours).lines(1).offset_ns[0], 1000, delta=1)


class Interrupted(Folder):
    """A call that its caller leaves."""

    def setUp(self):
        super().setUp()
        events = ", ".join(['{"ph": "X", "ts": 5, "dur": 5, "name": "a"}'] * 800_000)
        self.trace = self.folder / "node1.json"
        self.trace.write_text(f'{{"traceEvents": [{events}], "baseTimeNanoseconds": 0}}')
        offsets = self.folder / "offsets.csv"
        offsets.write_text("node,node_realtime_ns,offset_vs_node0_ns\n1,0,2000\n1,90000000,2000\n")
        self.ask = {"nodes": [1], "clocks": probe_sync.Offsets(offsets), "output": self.folder / "aligned.json"}

    def test_ctrl_c_ends_the_call_and_leaves_nothing_half(self):
        begun = time.monotonic()
        probe_sync.align(self.trace, **self.ask)
        whole = time.monotonic() - begun
        waits = []
        for _ in range(3):
            sent = []

            def interrupt():
                sent.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)

            timer = threading.Timer(whole / 3, interrupt)
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                while True:
                    probe_sync.align(self.trace, **self.ask)
            waits.append(time.monotonic() - sent[0])
        self.assertLess(sorted(waits)[1], 0.2)
        # Whoever writes next waits for what was left under way.
        probe_sync.align(self.trace, **self.ask)
        self.assertEqual(list(self.folder.glob("*.partial")), [])

    def test_an_error_of_the_progress_callback_ends_the_call(self):
        def progress(share):
            raise ZeroDivisionError(share)

        with self.assertRaisesRegex(ZeroDivisionError, "1.0"):
            probe_sync.align(self.trace, progress=progress, **self.ask)


if __name__ == "__main__":
    unittest.main()
