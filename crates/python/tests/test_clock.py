"""The reference's time in Python: its bounds hold, a fork reads it, and what it cannot say is an error."""

import os
import time
import unittest

import numpy as np
import probe_sync
from common import Folder


class Alone(Folder):
    """A session of one rank is its own reference: its clock is this machine's system clock."""

    def setUp(self):
        super().setUp()
        self.session = probe_sync.start(out=self.folder / "run", tracer_clock="none", clock_page=str(self.folder / "clock"))
        self.addCleanup(self.session.stop)
        self.clock = self.session.clock
        self.clock.wait_until_known(30)

    def within(self, clock):
        before = time.time_ns()
        now = clock.now()
        after = time.time_ns()
        self.assertLessEqual(now.earliest, after)
        self.assertGreaterEqual(now.latest, before)
        self.assertLessEqual(now.earliest, now.time)
        self.assertLessEqual(now.time, now.latest)

    def test_now(self):
        for _ in range(1000):
            self.within(self.clock)
        self.assertEqual(self.clock.status, "synchronised")
        last = 0
        for _ in range(1000):
            now = self.clock.now_ns()
            self.assertGreaterEqual(now, last)
            last = now
        self.assertTrue(self.clock.after(last - 1_000_000_000) and self.clock.before(last + 1_000_000_000))
        self.within(probe_sync.clock())
        self.within(probe_sync.Clock.open(str(self.folder / "clock")))

    def test_a_wait_for_a_time(self):
        at = self.clock.now_ns() + 30_000_000
        self.clock.wait_until(at, timeout=10)
        self.assertGreaterEqual(self.clock.now_ns(), at)
        with self.assertRaises(probe_sync.WaitTimeout):
            self.clock.wait_until(at + 3_600_000_000_000, timeout=0.05)

    def test_many_times_at_once(self):
        times = np.array([time.time_ns() for _ in range(100)], dtype=np.int64)
        found, bounds = self.clock.convert(times)
        self.assertTrue(np.all(np.abs(found - times) <= bounds + 1000), (found - times, bounds))
        raw, _ = self.clock.convert(np.array([time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)]), of="monotonic_raw")
        self.assertLess(abs(int(raw[0]) - time.time_ns()), 1_000_000_000)
        with self.assertRaisesRegex(probe_sync.ClockError, "cannot be converted"):
            self.clock.convert(np.array([1], dtype=np.int64))
        with self.assertRaisesRegex(probe_sync.ConfigError, "realtime, monotonic_raw or boottime"):
            self.clock.convert(times, of="tai")

    def test_a_fork_reads_the_clock_and_nothing_else(self):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                self.within(self.clock)
                try:
                    self.session.next_round(1)
                except probe_sync.SessionEnded as error:
                    os.write(writer, str(error).encode())
            finally:
                os._exit(0)
        os.close(writer)
        self.assertIn("start a session in this process", os.read(reader, 1000).decode())
        os.waitpid(child, 0)
        os.close(reader)
        self.assertIsNotNone(self.session.next_round(60))

    def test_it_goes_on_after_the_end(self):
        self.session.stop()
        self.assertEqual(self.clock.status, "holdover")
        self.within(self.clock)
        self.assertRaisesRegex(probe_sync.SessionEnded, "start another", self.session.pause)


class NoSession(Folder):
    def test_what_is_missing_is_said(self):
        with self.assertRaisesRegex((probe_sync.ClockError, probe_sync.FileError), "clock"):
            probe_sync.Clock.open(str(self.folder / "none"))


if __name__ == "__main__":
    unittest.main()
