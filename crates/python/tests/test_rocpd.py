"""Databases of rocprofv3 written from Python, read by SQLite while they grow, at their end and after a kill."""

import os
import sqlite3
import subprocess
import sys
import threading
import unittest

import common
import probe_sync
from probe_sync import rocpd

ENDLESS = """
import sys, time
from probe_sync import rocpd

writer = rocpd.Writer(sys.argv[1], flush_interval=0.005)
for at in range(10**9):
    writer.region("step", at, at + 1)
    if at == 1000:
        writer.flush()
        print("flushed", flush=True)
    if at % 100 == 0:
        time.sleep(0.001)
"""


def rows(path, query):
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


class Writer(common.Folder):
    def test_events_are_in_the_file_at_a_flush_and_at_the_end(self):
        path = self.folder / "new" / "%pid%_results.db"
        with rocpd.Writer(path, flush_interval="1h") as writer:
            self.assertEqual(writer.path, str(self.folder / f"new/{os.getpid()}_results.db"))
            gpu, other = writer.agent("gfx942"), writer.agent("gfx942", 1)
            self.assertTrue(writer.region("step", 1000, 9000, category="HIP_RUNTIME_API", stack_id=7))
            self.assertTrue(writer.kernel("gemm", 2000, 5000, agent=gpu, queue="Queue 1", stream="Stream 1", stack_id=7))
            self.assertTrue(writer.copy("MEMORY_COPY_DEVICE_TO_DEVICE", 5000, 8000, source=gpu, destination=other, size=4096))
            self.assertTrue(writer.counter("power", 6000, 512.5, agent=gpu))
            self.assertTrue(writer.sample("checkpoint", 8500, correlation_id=3))
            writer.flush()
            self.assertEqual(rows(writer.path, "SELECT name, category, start, end, tid FROM regions"), [("step", "HIP_RUNTIME_API", 1000, 9000, threading.get_native_id())])
            self.assertEqual(rows(writer.path, "SELECT name, queue, stream, duration FROM kernels"), [("gemm", "Queue 1", "Stream 1", 3000)])
            self.assertEqual(rows(writer.path, "SELECT name, size FROM memory_copies"), [("MEMORY_COPY_DEVICE_TO_DEVICE", 4096)])
            self.assertEqual(rows(writer.path, "SELECT value FROM rocpd_pmc_event"), [(512.5,)])
            self.assertEqual(rows(writer.path, "SELECT timestamp FROM rocpd_sample ORDER BY timestamp"), [(6000,), (8500,)])  # a counter has one too
            writer.region("step", 10000, 19000, thread=12)
            report = writer.close()
        self.assertEqual((report.events, report.dropped, report.path), (6, 0, writer.path))
        self.assertEqual(rows(writer.path, "SELECT tid FROM regions ORDER BY start"), [(threading.get_native_id(),), (12,)])
        found = probe_sync.query("SELECT name, start FROM regions ORDER BY start", writer.path)
        self.assertEqual([name for name, _ in found], ["step", "step"])
        with self.assertRaisesRegex(probe_sync.SessionEnded, "is closed"):
            writer.region("late", 1, 2)
        with self.assertRaises(probe_sync.SessionEnded):
            writer.close()

    def test_rows_of_two_clocks_are_converted_to_one(self):
        """What rocprof-sys stamps itself is on CLOCK_MONOTONIC, three hours behind if the machine slept for so long."""
        path, hours = self.folder / "results.db", 3 * 3600 * 10**9
        with rocpd.Writer(path) as writer:
            gpu = writer.agent("gfx942")
            writer.region("main", 10**15 - hours, 10**15 - hours + 900, category="host")
            writer.region("hipLaunchKernel", 10**15 + 200, 10**15 + 210, category="rocm_hip_api")
            writer.kernel("gemm", 10**15 + 220, 10**15 + 300, agent=gpu, category="rocm_kernel_dispatch")
        with self.assertRaisesRegex(probe_sync.DamagedTrace, "they use two clocks"):
            probe_sync.merge(path, output=self.folder / "apart.db", allow_uncalibrated=True)
        for name, suspended in (("one.db", "3h"), ("two.db", {os.uname().nodename: "3h", None: 0})):
            output = self.folder / name
            probe_sync.merge(path, output=output, allow_uncalibrated=True, cpu_clock="monotonic", suspended=suspended)
            found = rows(output, "SELECT name, start FROM regions ORDER BY start")
            self.assertEqual(found, [("main", 10**15), ("hipLaunchKernel", 10**15 + 200)])

    def test_query_between_markers_as_the_command_line(self):
        path = self.folder / "results.db"
        with rocpd.Writer(path) as writer:
            for at in range(10):
                writer.region("step", at * 100, at * 100 + 100)
            writer.region("warm", 250, 251)
            writer.region("done", 750, 751)
        sql = "SELECT count(*) AS steps FROM regions WHERE name = 'step'"
        for options, expected in (
            ({}, 10),
            ({"start_marker": "warm"}, 7),
            ({"start_marker": "warm", "end_marker": "done"}, 4),
            ({"start_marker": "warm", "end_marker": "done", "inclusive": False}, 6),
        ):
            self.assertEqual(list(probe_sync.query(sql, path, **options)), [(expected,)])
            flags = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", "false" if value is False else value)]
            status, text = common.cli("query", "--traces", path, "--sql", sql, "--format", "csv", *flags)
            self.assertEqual((status, text.split()[:2]), (0, ["steps", str(expected)]), text)

    def test_a_killed_process_leaves_a_whole_file(self):
        path = self.folder / "killed.db"
        process = subprocess.Popen([sys.executable, "-c", ENDLESS, path], stdout=subprocess.PIPE, text=True)
        self.assertEqual(process.stdout.readline(), "flushed\n")
        process.kill()
        process.wait()
        process.stdout.close()
        connection = sqlite3.connect(path)
        self.addCleanup(connection.close)
        self.assertEqual(connection.execute("PRAGMA quick_check").fetchall(), [("ok",)])
        self.assertEqual(connection.execute("PRAGMA foreign_key_check").fetchall(), [])
        self.assertGreater(connection.execute("SELECT count(*) FROM regions").fetchone()[0], 1000)

    def test_wrong_uses(self):
        path = self.folder / "results.db"
        with rocpd.Writer(path) as writer:
            with self.assertRaisesRegex(probe_sync.FileError, "already exists"):
                rocpd.Writer(path)
            with self.assertRaisesRegex(probe_sync.ConfigError, "agent 3"):
                writer.kernel("gemm", 1, 2, agent=3)
            with self.assertRaisesRegex(TypeError, "colour"):
                writer.region("step", 1, 2, colour="red")
        with self.assertRaisesRegex(probe_sync.ConfigError, "%nonsense%"):
            rocpd.Writer(self.folder / "%nonsense%.db")
        with self.assertRaisesRegex(probe_sync.ConfigError, "flush_interval"):
            rocpd.Writer(self.folder / "other.db", flush_interval="soon")


if __name__ == "__main__":
    unittest.main()
