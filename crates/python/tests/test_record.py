"""What a Python program records is in its trace, as the command writes it."""

import gc
import json
import os
import threading
import time
import unittest

import probe_sync
from common import Folder, cli
from probe_sync import record


class Record(Folder):
    def recorded(self, path, *arguments):
        """Events of a recording, by name, in order of time."""
        trace = self.folder / "trace.json"
        status, said = cli("record", "convert", path, "-f", "kineto", "-o", trace, *arguments)
        self.assertEqual(status, 0, said)
        content = json.loads(trace.read_text())
        base = int(content.get("baseTimeNanoseconds", 0))
        found = {}
        for event in sorted(content["traceEvents"], key=lambda event: event.get("ts", 0)):
            event["from_ns"] = base + round(event.get("ts", 0) * 1000)
            event["to_ns"] = event["from_ns"] + round(event.get("dur", 0) * 1000)
            found.setdefault(event["name"], []).append(event)
        return found

    def test_scopes(self):
        load = record.scope("load")
        self.assertIs(record.scope("load"), load)

        @record.scope("double", "function", module="model.double", shapes=lambda: [[2, 3], [4]])
        def double(number):
            return 2 * number

        class Tensor:
            def __float__(self):
                raise AssertionError("a value is read")

            __call__ = __float__

        with load:
            self.assertEqual(double(3), 6, "nothing is recorded yet")
        before = time.time_ns()
        with record.start(self.folder / "a.rec", rank=3) as recording:
            self.assertEqual(recording.path, str(self.folder / "a.rec"))
            with record.scope("step", step=7, ratio=0.5, last=True, note="héllo", large=2**63, larger=2**70, shape=(2, 3), other=Tensor()) as step:
                with load, load:
                    self.assertEqual(double(4), 8)
                step.add(loss=1.25)
                record.instant("batch", size=4)
                record.counter("power", 512.5)
            with self.assertRaises(ZeroDivisionError), record.scope("fails"):
                1 / 0
            with load:
                # What is not recorded does not end what is.
                recording.pause()
                with load:
                    pass
                recording.resume()
                inner = time.time_ns()
            recording.pause()
            self.assertFalse(recording.is_recording)
            with load:
                pass
            recording.resume()
        after = time.time_ns()
        self.assertEqual(double.__name__, "double")
        found = self.recorded(self.folder / "a.rec")
        step, loads, doubled = found["step"][0], found["load"], found["double"]
        self.assertEqual((len(found["step"]), len(loads), len(doubled), len(found["fails"]), len(found["batch"])), (1, 3, 1, 1, 1))
        self.assertGreater(loads[2]["to_ns"], inner - 1_000_000)
        stated = {"step": 7, "ratio": 0.5, "last": True, "note": "héllo", "large": 2**63, "larger": str(2**70), "shape": [2, 3], "other": "<Tensor>", "loss": 1.25}
        self.assertEqual({key: step["args"].get(key) for key in stated}, stated)
        self.assertEqual(found["batch"][0]["args"]["size"], 4)
        self.assertIn(512.5, found["power"][0]["args"].values())
        # Each within the one around it, all within this test; clocks are read to within a millisecond.
        slack = 1_000_000
        self.assertLess(before - slack, step["from_ns"])
        self.assertLess(step["to_ns"], after + slack)
        for outer, inner in ((step, loads[0]), (loads[0], loads[1]), (loads[1], doubled[0])):
            self.assertLessEqual(outer["from_ns"], inner["from_ns"])
            self.assertLessEqual(inner["to_ns"], outer["to_ns"])

    def test_arguments_that_are_functions_are_called_if_wanted(self):
        def never():
            raise AssertionError("called")

        with record.start(self.folder / "a.rec", shapes=False, kinds="user"):
            with record.scope("plain", shapes=never, cost=lambda: 3):
                pass
            with record.scope("other", "io", cost=never):
                pass
            with self.assertRaises(AssertionError), record.scope("raises", cost=never):
                self.fail("the block does not run")
        found = self.recorded(self.folder / "a.rec")
        self.assertEqual(found["plain"][0]["args"]["cost"], 3)
        self.assertNotIn("other", found)
        self.assertEqual(len(found["raises"]), 1, "closed again")

    def test_threads_tasks_and_generators(self):
        work, many = record.scope("work"), 50

        def run():
            for _ in range(many):
                with work:
                    pass

        def generator():
            with record.scope("abandoned"):
                yield 1
                yield 2

        with record.start(self.folder / "a.rec"):
            threads = [threading.Thread(target=run) for _ in range(4)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            first = generator()
            next(first)
            with record.scope("after"):
                pass
            del first
            gc.collect()
            # One that begins on this thread and ends on another.
            span = record.span("request", "io", number=1)
            span.__enter__()
            ends = threading.Thread(target=span.__exit__, args=(None, None, None))
            ends.start()
            ends.join()
        found = self.recorded(self.folder / "a.rec")
        self.assertEqual(len(found["work"]), 4 * many)
        self.assertEqual(len({event["tid"] for event in found["work"]}), 4)
        self.assertEqual((len(found["abandoned"]), len(found["after"])), (1, 1))
        self.assertIn("request", found)

        async def task():
            pass

        with self.assertRaisesRegex(probe_sync.ConfigError, "task gives way to other code.*record.span"):
            record.scope("task")(task)

    def test_collectives(self):
        with record.start(self.folder / "a.rec", rank=1):
            with record.collective("all_reduce", group="dp", sequence=9, ranks=[0, 1], group_size=2, dtype="Float", sent=64, received=64):
                pass
        found = next(event for events in self.recorded(self.folder / "a.rec").values() for event in events if "Collective name" in event.get("args", {}))
        named = {"Collective name": "all_reduce", "Process Group Name": "dp", "Group size": 2, "In msg nelems": 64}
        self.assertEqual({key: found["args"].get(key) for key in named}, named)
        with self.assertRaisesRegex(probe_sync.ConfigError, '"sum" is not a collective operation; give one of all_reduce'):
            record.collective("sum")

    def test_refusals(self):
        with record.start() as recording:
            here = os.path.basename(__file__)
            with self.assertRaisesRegex(probe_sync.AlreadyStarted, rf"a session was started at .*{here}:\d+"):
                record.start()
            self.assertIsNone(recording.path)
            with record.scope("kept"):
                pass
            with self.assertRaisesRegex(probe_sync.FileError, "nowhere"):
                recording.finish(self.folder / "nowhere/copy.rec")
            finished = recording.finish(self.folder / "copy.rec")
            self.assertEqual((finished.events, finished.lost), (1, 0))
            self.assertIn("kept", self.recorded(self.folder / "copy.rec"))
            with self.assertRaisesRegex(probe_sync.SessionEnded, "is finished; start another with probe_sync.record.start"):
                recording.pause()
        for settings, text in (
            ({"policy": "ring"}, "`ring` is not one of drop_newest, flight, stream"),
            ({"ring": 3}, "`ring` is not a setting; the settings are reach, policy"),
            ({"on_demand": True}, "there is no folder for its socket"),
        ):
            with self.subTest(settings), self.assertRaisesRegex(probe_sync.ConfigError, text):
                record.start(**settings)
        with self.assertRaisesRegex(probe_sync.ConfigError, "`steps` is not an event kind"):
            record.scope("load", "steps")
        (self.folder / "there.rec").write_bytes(b"")
        with self.assertRaisesRegex(probe_sync.FileError, "there.rec"):
            record.start(self.folder / "there.rec")

    def test_forked_children_leave_the_recording_alone(self):
        with record.start(self.folder / "a.rec") as recording, record.scope("around"):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    with record.scope("of the child"):
                        pass
                    recording.finish()
                except probe_sync.SessionEnded as error:
                    status = 0 if "belongs to the parent" in str(error) else 2
                finally:
                    del recording
                    gc.collect()
                    os._exit(status)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            with record.scope("afterwards"):
                pass
        found = self.recorded(self.folder / "a.rec")
        self.assertEqual((len(found["around"]), len(found["afterwards"])), (1, 1))
        self.assertNotIn("of the child", found)

    def test_on_demand(self):
        with record.start(self.folder / "a.rec", on_demand=True, control=self.folder) as recording:
            with record.scope("before"):
                pass
            self.assertEqual(cli("record", "start", self.folder)[0], 0)
            with record.scope("asked"):
                pass
            self.assertEqual(cli("record", "stop", self.folder)[0], 0)
            recording.snapshot(self.folder / "copy.rec")
        for name in ("a.rec", "copy.rec"):
            found = self.recorded(self.folder / name)
            self.assertIn("asked", found)
            self.assertNotIn("before", found)


if __name__ == "__main__":
    unittest.main()
