"""A session in one process: its life, Ctrl-C, and every wrong use, each with a text that says what to do."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
import warnings
from unittest import mock

import numpy as np
import probe_sync
from common import LIMIT_S, Folder, clean
from probe_sync import _recorder
from test_launch import free_port

SETTINGS = {"window": "250ms", "tracer_clock": "none"}

# Rank 1 of 2: sends a file, then what is refused.
SENDER = """
import json, pathlib, sys
import probe_sync

unique_id, folder, file = bytes.fromhex(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
settings = {"window": "250ms", "tracer_clock": "none"}
with probe_sync.start(settings, out=folder / "out", rank=1, size=2, unique_id=unique_id) as session:
    session.next_round(timeout=60)
    print(json.dumps([session.run_id, session.sees_root()]), flush=True)
    session.send_files({"traces/a.py": file}, timeout=60)
    print("sent", flush=True)
    for files in ({"../a": file}, {"a": "/nowhere"}):
        try:
            session.send_files(files, timeout=60)
        except probe_sync.FileError as error:
            print(error, flush=True)
    print("that was to be told", flush=True)
"""

# A rank that records, and is told when to finish.
RECORDER = """
import pathlib, sys, time, warnings
from probe_sync import _recorder, launch

folder = pathlib.Path(sys.argv[1])
group = launch.from_env()
recorder = _recorder.Recorder(
    folder,
    group=group,
    around=lambda name: (time.time_ns(), time.time_ns()),
    merge=False,
    shared=None,
    join_timeout=60.0,
    settings={"window": "250ms", "tracer_clock": "none"},
)
print("up", flush=True)
sys.stdin.readline()
words = [folder / f"word{rank}" for rank in range(2)]
words[0].write_text("")
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    recorder.finish([words], lambda cycle: folder / "merged")
print(*[one.message for one in told], flush=True)
"""


class Sessions(Folder):
    def start(self, **more):
        session = probe_sync.start(SETTINGS, out=self.folder / "out", **more)
        self.addCleanup(self.end, session)
        return session

    def end(self, session):
        try:
            session.stop(timeout=20)
        except probe_sync.Error:
            pass

    def test_a_life(self):
        session = self.start(inject_skew=7)
        self.assertIn(session.state.phase, ("meeting", "measuring"))
        self.assertIs(probe_sync.current(), session)
        first = session.wait_until_bound(1000, timeout=20)
        self.assertEqual((len(first), first.reference, first.offset_ns.dtype, first.reachable.dtype), (1, 0, np.float64, np.bool_))
        second = session.next_round(timeout=20)
        later = session.next_round(timeout=20)
        self.assertGreater(later.number, second.number)
        self.assertLess(later.window_ns[0], later.midpoint_ns)
        state = session.state
        self.assertEqual((state.rank, state.node, state.nodes, state.reference, state.reason), (0, 0, 1, 0, None))
        report = session.stop()
        self.assertEqual(report, session.stop())
        self.assertGreater(report["rounds"], later.number)
        self.assertEqual(session.state.phase, "ended")
        self.assertIsNotNone(session.round)
        self.assertIsNone(probe_sync.current())
        self.assertTrue((self.folder / "out/offsets.jsonl").exists())
        page = (self.folder / "out/report.html").read_text()
        self.assertIn(report["run_id"], page)
        self.assertEqual(page.rstrip()[-7:], "</html>")

    def test_a_page_that_cannot_be_written_is_a_warning(self):
        session = self.start(duration="300ms")
        session.wait_until_bound(10_000, timeout=20)
        (self.folder / "out/report.html/in the way").mkdir(parents=True)
        with self.assertWarnsRegex(RuntimeWarning, "cannot write the report page: .*probe_sync report") as told:
            report = session.stop(timeout=20)
        self.assertEqual(told.filename, __file__)
        self.assertGreater(report["rounds"], 0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(session.stop(), report)
        self.assertEqual([path.name for path in (self.folder / "out").iterdir() if "report.html" in path.name], ["report.html"])

    def test_the_page_is_the_runs_where_the_program_changes_its_folder(self):
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir(self.folder)
        with probe_sync.start(SETTINGS, out="out") as session:
            session.wait_until_bound(10_000, timeout=20)
            other = self.folder / "other"
            other.mkdir()
            os.chdir(other)
        self.assertTrue((self.folder / "out/report.html").exists())
        self.assertFalse((other / "out/report.html").exists())

    def test_rounds_end_with_a_run_that_ends_by_itself(self):
        session = self.start(duration="600ms")
        numbers = [seen.number for seen in session.rounds(timeout=20)]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertIsNone(session.next_round(timeout=20) and session.next_round(timeout=20))
        with self.assertRaises(probe_sync.SessionEnded):
            session.wait_until_bound(0, timeout=5) and session.wait_until_bound(0, timeout=5)
        self.assertIsNotNone(session.stop())

    def test_alone_there_is_nobody_to_send_files_to(self):
        session = self.start()
        session.next_round(timeout=20)
        self.assertEqual(json.loads((self.folder / "out/run.json").read_text())["run_id"], session.run_id)
        self.assertTrue(session.sees_root())
        with self.assertRaisesRegex(probe_sync.ConfigError, "cannot send a to rank 0: this is rank 0"):
            session.send_files({"a": __file__})

    def test_a_rank_with_a_folder_of_its_own_sends_its_files(self):
        meeting = probe_sync.Meeting(["127.0.0.1"])
        session = self.start(rank=0, size=2, meeting=meeting)
        other = subprocess.Popen(
            [sys.executable, "-c", SENDER, meeting.unique_id.hex(), str(self.folder / "own"), __file__], env=clean(), stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(other.kill)
        self.assertEqual(json.loads(other.stdout.readline()), [session.run_id, False])
        self.assertEqual(other.stdout.readline(), "sent\n")
        received = self.folder / "out/received/rank1"
        self.assertEqual((received / "traces/a.py").read_bytes(), pathlib.Path(__file__).read_bytes())
        self.assertEqual([path.name for path in received.rglob("*") if path.is_file()], ["a.py"])
        for part in ("points outside the folder", "cannot read /nowhere", "was to be told"):
            self.assertIn(part, other.stdout.readline())
        self.assertIsNotNone(session.stop(timeout=60))
        self.assertEqual(other.communicate(timeout=LIMIT_S)[0], "")
        self.assertEqual(other.returncode, 0)

    def test_whether_a_folder_is_shared_is_yes_no_or_looked_at(self):
        rest = {"group": None, "around": None, "merge": False, "join_timeout": 1.0, "settings": {}}
        with self.assertRaisesRegex(probe_sync.ConfigError, "shared='False': give True, False, or None"):
            _recorder.Recorder(self.folder, shared="False", **rest)

    def recorder(self, **settings):
        made = _recorder.Recorder(
            self.folder,
            group=None,
            around=lambda name: (time.time_ns(), time.time_ns()),
            merge=True,
            shared=None,
            join_timeout=20.0,
            settings={**SETTINGS, **settings},
        )
        self.addCleanup(self.end, made._session)
        return made

    def finish(self, recorder, words):
        """What is told at the end of a recording."""
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            recorder.finish([words], lambda cycle: self.folder / "merged")
        return [str(one.message) for one in told]

    def test_a_rank_that_shares_the_folder_of_a_run_that_has_ended_is_told_nothing(self):
        recorder = self.recorder()
        recorder.mark()
        recorder._session.stop(timeout=20)
        # As another rank of that run would be.
        recorder.rank = 1
        self.assertEqual(self.finish(recorder, [self.folder / "a", self.folder / "b"]), [])

    def test_an_error_on_its_way_does_not_wait_for_traces_that_may_never_come(self):
        recorder, words = self.recorder(), [self.folder / "a"]
        with mock.patch.object(_recorder, "_FAILED_S", 0.2):
            try:
                raise ArithmeticError
            except ArithmeticError:
                told = self.finish(recorder, words)
        self.assertEqual(len(told), 2, told)
        self.assertRegex(told[0], r"rank 0: stopped by ArithmeticError; waiting at most 0 s for the other ranks")
        self.assertRegex(told[1], r"1 trace\(s\) did not arrive: .*a.*align them later")

    def test_the_end_of_a_loop_or_a_program_is_no_error(self):
        for end in (StopIteration(), SystemExit(0), SystemExit()):
            recorder, words = self.recorder(), [self.folder / "a"]
            with mock.patch.object(_recorder, "_FAILED_S", 0.0):
                try:
                    raise end
                except BaseException:
                    threading.Timer(1.0, lambda: words[0].write_text("")).start()
                    told = self.finish(recorder, words)
                    recorder.wait()
            self.assertFalse([line for line in told if "stopped by" in line or "did not arrive" in line], (end, told))
            words[0].unlink()
            self.doCleanups()
            self.setUp()

    def test_a_warning_that_is_an_error_does_not_take_the_place_of_the_loops(self):
        recorder = self.recorder()
        with mock.patch.object(_recorder, "_FAILED_S", 0.2), warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaises(ArithmeticError):
                try:
                    raise ArithmeticError
                finally:
                    recorder.finish([[self.folder / "a"]], lambda cycle: self.folder / "merged")

    def test_an_error_that_is_handled_while_a_recording_is_made_does_not_end_it(self):
        try:
            raise ArithmeticError
        except ArithmeticError:
            recorder, words = self.recorder(duration="1s"), [self.folder / "a"]
            # There, and no trace.
            words[0].write_text("")
            told = self.finish(recorder, words)
            recorder.wait()
        self.assertFalse([line for line in told if "stopped by" in line], told)

    def test_traces_are_not_waited_for_when_the_run_is_over(self):
        recorder = self.recorder(duration="1s")
        told = []
        with mock.patch.object(_recorder, "_OVER_S", 0.2):
            waiting = threading.Thread(target=lambda: told.extend(self.finish(recorder, [self.folder / "missing"])), daemon=True)
            waiting.start()
            waiting.join(LIMIT_S)
        self.assertFalse(waiting.is_alive(), "it waits for what cannot come")
        self.assertEqual(len(told), 1, told)
        self.assertRegex(told[0], "1 trace.s. did not arrive: .*missing; check the output of their ranks")

    def test_traces_of_a_killed_rank_are_not_waited_for(self):
        environment = clean() | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        ranks = []
        for rank in range(2):
            command = [sys.executable, "-c", RECORDER, str(self.folder)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            ranks.append(subprocess.Popen(command, env=environment | {"RANK": str(rank)}, **pipes))
            self.addCleanup(ranks[rank].kill)
        for rank in ranks:
            self.assertEqual(rank.stdout.readline(), "up\n")
        ranks[1].kill()
        told, _ = ranks[0].communicate("finish\n", timeout=LIMIT_S)
        self.assertRegex(told, r"1 trace.s. did not arrive: .*word1 .no longer in the run: rank 1.; check")
        self.assertEqual(ranks[0].returncode, 0)

    def test_a_word_names_a_trace_of_its_own_rank(self):
        word = self.folder / "word"
        word.write_bytes(b"node-3.x-1.xplane.pb")
        self.assertEqual(_recorder.trace_named(word, 1, ".xplane.pb"), "node-3.x-1.xplane.pb")
        names = (b"", b"\xff-1.xplane.pb", b"node-2.xplane.pb", b"node-11.xplane.pb", b"../node-1.xplane.pb", b"node\0-1.xplane.pb")
        for wrong in (*names, b"node-1.xplane.pb\n", b"node-1.json", b"n" * 300 + b"-1.xplane.pb"):
            word.write_bytes(wrong)
            with self.subTest(wrong=wrong), self.assertRaisesRegex(probe_sync.Error, "word does not name a trace of rank 1"):
                _recorder.trace_named(word, 1, ".xplane.pb")

    def test_started_twice(self):
        self.start()
        with self.assertRaisesRegex(probe_sync.AlreadyStarted, r"call stop\(\)"):
            probe_sync.start(out=self.folder / "other")

    def test_used_after_stop(self):
        session = self.start()
        session.stop()
        for use in (lambda: session.next_round(1), lambda: session.wait_until_bound(1, 1), lambda: next(session.rounds(1))):
            with self.assertRaisesRegex(probe_sync.SessionEnded, r"start another with probe_sync.start\(\)"):
                use()
        self.start().stop()

    def test_what_does_not_come_in_time(self):
        session = self.start(rank=0, size=2, meeting=probe_sync.Meeting(["127.0.0.1"]))
        begun = time.monotonic()
        with self.assertRaisesRegex(TimeoutError, "timed out waiting for a bound of ±100 ns after 300.0ms; 0 rounds"):
            session.wait_until_bound(100, timeout=0.3)
        self.assertLess(time.monotonic() - begun, 1)
        with self.assertRaisesRegex(probe_sync.ConfigError, "give seconds"):
            session.next_round(timeout=-1)
        with self.assertRaisesRegex(probe_sync.ConfigError, "half_width_ns=-1"):
            session.wait_until_bound(-1)

    def test_a_peer_that_is_missing(self):
        session = self.start(rank=0, size=3, meeting=probe_sync.Meeting(["127.0.0.1"]))
        self.assertEqual(session.state.phase, "meeting")
        with self.assertRaisesRegex(probe_sync.JoinError, "rank.* 1, 2"):
            session.stop()
        self.assertEqual(session.state.phase, "failed")
        self.assertIn("1, 2", session.state.reason)

    def test_wrong_places(self):
        meeting = probe_sync.Meeting(["127.0.0.1"])
        group = probe_sync.Group(0, 1, meeting.unique_id, meeting)
        for place, text in (
            ({"rank": 2, "size": 2, "unique_id": meeting.unique_id}, "numbered from 0 to size - 1"),
            ({"rank": 0}, "rank and size must be given together"),
            ({"rank": 0, "size": 2}, r"give meeting=probe_sync.Meeting\(\)"),
            ({"rank": 1, "size": 2}, "give unique_id"),
            ({"rank": 1, "size": 2, "meeting": meeting}, "give unique_id"),
            ({"rank": 1, "size": 2, "unique_id": b"x"}, "128 bytes"),
            ({"group": group, "rank": 0}, "omit one of them"),
            ({"windw": "1s"}, "did you mean window"),
            ({"window": "1"}, "time unit needed"),
        ):
            with self.subTest(place=place), self.assertRaisesRegex(probe_sync.ConfigError, text):
                probe_sync.start(**place)
        with self.assertRaisesRegex(probe_sync.ConfigError, "no/such.toml"):
            probe_sync.start("no/such.toml")
        self.start(rank=0, size=1, meeting=meeting).stop()
        with self.assertRaisesRegex(probe_sync.ConfigError, "open another Meeting"):
            probe_sync.start(rank=0, size=2, meeting=meeting)

    def test_a_port_that_is_taken(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            with self.assertRaisesRegex(probe_sync.JoinError, "choose another port"):
                probe_sync.from_hosts(["127.0.0.1", "127.0.0.1"], 0, other.getsockname()[1])
        with self.assertRaisesRegex(probe_sync.ConfigError, "1 to 65535"):
            probe_sync.from_hosts(["127.0.0.1"], 0, 0)
        with self.assertRaisesRegex(probe_sync.ConfigError, "host of every rank"):
            probe_sync.from_hosts("node0", 0, 29400)

    def other_rank(self, meeting, rank, size):
        """A rank in a process of its own."""
        code = (
            "import sys, probe_sync\n"
            f"session = probe_sync.start({SETTINGS!r}, out={str(self.folder / 'out')!r}, rank={rank}, size={size}, unique_id=sys.stdin.buffer.read())\n"
            "try: session.wait_until_bound(10**9, 30); session.stop(30)\n"
            "except probe_sync.JoinError as error: print(error)\n"
        )
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=False, env=clean())
        process.stdin.write(meeting.unique_id)
        process.stdin.close()
        process.stdin = None
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_sizes_that_differ_and_two_ranks_alike(self):
        for size, ranks, text in ((2, [(1, 3)], "must be the same everywhere"), (3, [(1, 3), (1, 3)], "refused rank 1")):
            with self.subTest(ranks=ranks):
                meeting = probe_sync.Meeting(["127.0.0.1"])
                session = self.start(rank=0, size=size, meeting=meeting)
                others = [self.other_rank(meeting, *rank) for rank in ranks]
                # One that is refused ends; a rank whose twin is refused waits for the third.
                end = time.monotonic() + 30
                while all(other.poll() is None for other in others) and time.monotonic() < end:
                    time.sleep(0.02)
                told = b"".join(other.communicate(timeout=30)[0] for other in others if other.poll() is not None).decode()
                self.assertIn("refused", told)
                self.assertIn(text, told)
                self.end(session)

    def test_a_fork_measures_nothing(self):
        session = self.start()
        session.wait_until_bound(1000, timeout=20)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                session.next_round(timeout=5)
                text = "no error"
            except probe_sync.SessionEnded as error:
                text = f"{error}; current: {probe_sync.current()}"
            os.write(writing, text.encode())
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        with os.fdopen(reading) as told:
            self.assertRegex(told.read(), "start a session in this process; current: None")
        self.assertIsNotNone(session.stop())

    def test_waits_of_other_threads_end_with_the_session(self):
        session = self.start()
        found = []

        def wait():
            try:
                session.wait_until_bound(0, timeout=20)
                while session.next_round(timeout=20):
                    pass
            except probe_sync.Error as error:
                found.append(type(error))

        threads = [threading.Thread(target=wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.4)
        session.stop()
        for thread in threads:
            thread.join(5)
            self.assertFalse(thread.is_alive())
        self.assertEqual(set(found), {probe_sync.SessionEnded})

    def test_an_error_in_the_loop_is_the_one_that_is_seen(self):
        begun = time.monotonic()
        with self.assertRaisesRegex(ZeroDivisionError, "division"):
            with probe_sync.start(SETTINGS, out=self.folder / "out", rank=0, size=2, meeting=probe_sync.Meeting(["127.0.0.1"])):
                1 / 0
        self.assertLess(time.monotonic() - begun, 3)
        self.assertIsNone(probe_sync.current())


class Signals(Folder):
    """Python's own handlers run during waits."""

    def test_ctrl_c_ends_a_wait_at_once(self):
        session = probe_sync.start(SETTINGS, out=self.folder / "out", rank=0, size=2, meeting=probe_sync.Meeting(["127.0.0.1"]))
        handler = signal.getsignal(signal.SIGINT)
        sent = []

        def interrupt():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        for wait in (session.next_round, lambda: session.wait_until_bound(1)):
            timer = threading.Timer(0.3, interrupt)
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                wait()
            self.assertLess(time.monotonic() - sent[-1], 0.2)
            timer.join()
        self.assertIs(signal.getsignal(signal.SIGINT), handler)
        self.assertEqual(session.state.phase, "meeting")
        with self.assertRaises(probe_sync.JoinError):
            session.stop(timeout=20)

    def test_a_process_that_does_not_stop_ends_soon(self):
        code = (
            "import time, probe_sync\n"
            f"session = probe_sync.start({SETTINGS!r}, out={str(self.folder / 'out')!r})\n"
            "session.wait_until_bound(1000, 30)\n"
            "print(time.monotonic(), flush=True)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=clean())
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertLess(time.monotonic() - float(done.stdout), 1)


if __name__ == "__main__":
    unittest.main()
