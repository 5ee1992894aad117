"""Traces written from arrays hold what was given, as the package's own readers and a JSON parser see it."""

import gzip
import json
import unittest

import numpy as np
import probe_sync
from common import ROOT, Folder

BASE_NS = 1_795_187_182_000_000_000


def recorded():
    """Slices of a thread of a recorded trace: names, starts and ends."""
    trace = json.loads(gzip.decompress((ROOT / "examples/traces/torch/node0.pt.trace.json.gz").read_bytes()))
    found = [event for event in trace["traceEvents"] if event["ph"] == "X" and event.get("cat") == "cpu_op"]
    starts = BASE_NS + np.round([event["ts"] * 1000 for event in found]).astype(np.int64) % 10**9
    lengths = np.round([event["dur"] * 1000 for event in found]).astype(np.int64)
    return [event["name"] for event in found], starts, starts + lengths


class TraceWriter(Folder):
    def write(self, name, format):
        """Writes the recorded slices in three chunks, with marks and a counter; what was written."""
        names, starts, ends = recorded()
        self.assertGreater(len(names), 100)
        with probe_sync.TraceWriter(self.folder / name, format, base_ns=BASE_NS, metadata={"made_by": "a test"}) as writer:
            process = writer.process("train", pid=4711, host="gpu-07", rank=3)
            thread = writer.thread("main", process, tid=4712)
            for part in np.array_split(np.arange(len(names)), 3):
                writer.slices(thread, [names[at] for at in part], starts[part], ends[part], category="cpu_op")
            writer.instants(thread, "mark", starts[:2])
            self.assertFalse((self.folder / name).exists())
            if format in ("pftrace", "json"):
                power = writer.counter("power", process, unit="W")
                writer.values(power, [starts[0], starts[1]], [512.5, 498.0])
            written = writer.close()
        self.assertTrue((self.folder / name).exists())
        self.assertEqual((written.slices, written.instants, written.path), (len(names), 2, str(self.folder / name)))
        return names, starts, ends

    def check(self, path, written):
        """Compares the slices of a Chrome trace with those written."""
        text = path.read_bytes()
        trace = json.loads(gzip.decompress(text) if path.suffix == ".gz" else text)
        base = int(trace.get("baseTimeNanoseconds", 0))
        # In an XSpace an instant is an event of no length.
        found = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["name"] != "mark"]
        times = sorted((event["name"], base + round(event["ts"] * 1000), round(event["dur"] * 1000)) for event in found)
        names, starts, ends = written
        self.assertEqual(times, sorted(zip(names, starts.tolist(), (ends - starts).tolist(), strict=True)))

    def test_chrome(self):
        self.check(self.folder / "out.json", self.write("out.json", "json"))
        self.check(self.folder / "out.json.gz", self.write("out.json.gz", "json"))

    def test_kineto_and_xspace(self):
        for name, format in (("out.pt.trace.json", "kineto"), ("out.xplane.pb", "xspace")):
            with self.subTest(format):
                written = self.write(name, format)
                probe_sync.convert(self.folder / name, output_dir=self.folder, name=format, formats="json", no_correction=True)
                self.check(self.folder / f"{format}_results.json", written)

    def test_perfetto(self):
        names, _, _ = self.write("out.pftrace", "pftrace")
        content = (self.folder / "out.pftrace").read_bytes()
        self.assertTrue(all(name.encode() in content for name in {*names, "main", "power"}))

    def test_an_exception_leaves_no_file(self):
        with self.assertRaises(ZeroDivisionError), probe_sync.TraceWriter(self.folder / "out.json", "json") as writer:
            writer.process("train")
            _ = 1 / 0
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_wrong_uses(self):
        with self.assertRaisesRegex(probe_sync.ConfigError, "format=\"dvi\""):
            probe_sync.TraceWriter(self.folder / "out.dvi", "dvi")
        with self.assertRaises(probe_sync.MissingFile):
            probe_sync.TraceWriter(self.folder / "none/out.json", "json")
        with probe_sync.TraceWriter(self.folder / "out.json", "json") as writer:
            thread = writer.thread("main", writer.process("train"), tid=1)
            for arguments, text in (
                ((7, "a", [1], [2]), "never declared"),
                ((thread, "a", [2], [1]), "ends before it begins"),
                ((thread, "a", [1, 2], [3]), "out.json: "),
                ((thread, ["a"], [1, 2], [3, 4]), "out.json: "),
                ((thread, "a", [1.5], [2.5]), "whole nanoseconds"),
            ):
                with self.subTest(text), self.assertRaisesRegex(probe_sync.ConfigError, text):
                    writer.slices(*arguments)
            writer.slices(thread, "a", [1], [2])
            self.assertEqual(writer.close().slices, 1)
        with self.assertRaisesRegex(probe_sync.SessionEnded, "is closed"):
            writer.instants(thread, "a", [1])


if __name__ == "__main__":
    unittest.main()
