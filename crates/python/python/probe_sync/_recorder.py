"""Common parts of the modules for torch and JAX: a session alongside a profiler, marks in its trace, and one merged trace at the end.

A rank writes its trace to the folder and renames it once it is complete, which tells the others that it is written. A rank whose folder is not rank 0's
(it lacks the run's id) sends its marks and traces to rank 0 over the session, where they appear under the same names, again once they are complete. Rank 0
waits for all of them, then ends the run, so that no rank's recording outlasts the measurement, and merges on its own thread, so that no rank waits in a
collective for the merge. The other ranks wait for the end of the run. All waits are bounded.

This module never touches a profiler.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import _native, launch, session, traces
from ._inputs import Run
from .errors import ConfigError, Error, SessionEnded, WaitTimeout
from .results import MergeResult

if TYPE_CHECKING:
    from ._native import Marks
    from ._settings import Path, Setting
    from .launch import Group

#: Enters an event of this name and leaves it; the system clock just before and just after its stamp was taken, ns.
Around = Callable[[str], tuple[int, int]]


class Recorder:
    """One rank's part. Every rank creates it at about the same time; the constructor returns once the clocks are known."""

    def __init__(
        self,
        folder: Path,
        *,
        group: Group | None,
        around: Around,
        merge: bool,
        shared: bool | None,
        join_timeout: float,
        settings: dict[str, Setting],
    ) -> None:
        if shared not in (None, True, False):
            raise ConfigError(f"shared={shared!r}: give True, False, or None to detect whether this rank shares rank 0's folder")
        self.folder = pathlib.Path(folder)
        self.run = self.folder / "probe_sync_run"
        self.rank, self.size = place(group)
        self.merged: list[pathlib.Path] = []
        self.result: MergeResult | None = None
        self._around, self._merge, self._shared = around, merge, shared
        self._last_mark, self._lock = 0.0, threading.Lock()
        # One that is being handled while the recording is made does not end it.
        self._handled = sys.exc_info()[1]
        self._deadline = float("inf")
        self.finished = False
        self._merging: threading.Thread | None = None
        self.folder.mkdir(parents=True, exist_ok=True)
        self._session = session.start(settings, group=group, out=self.run)
        try:
            self._marks: Marks = self._session._native.marks(join_timeout)
            # Until a round is solved nothing is measured: what is recorded now lies within.
            self._session.next_round(join_timeout)
            self._saw_root = self._sees_root(before=False)
        except BaseException:
            self._session._native.abandon()
            raise

    @property
    def run_id(self) -> str:
        """The run's unique id, the same on all ranks."""
        return self._session.run_id

    def mark(self) -> None:
        """Puts a mark into the current trace, and writes the tightest of several brackets."""
        with self._lock:
            best: tuple[int, int, int] | None = None
            for _ in range(_ATTEMPTS):
                named = self._marks.next_name()
                if named is None:
                    return
                before, after = self._around(named[1])
                if best is None or after - before < best[2] - best[1]:
                    best = (named[0], before, after)
            if best is not None:
                self._marks.write(*best)
            self._last_mark = time.monotonic()

    def mark_now_and_then(self) -> None:
        """Calls `mark` at most ten times per second."""
        if time.monotonic() - self._last_mark >= _PERIOD_S:
            self.mark()

    def finish(
        self,
        written: Sequence[Sequence[pathlib.Path]],
        output: Callable[[int], pathlib.Path],
        trace: Callable[[pathlib.Path], pathlib.Path] = lambda path: path,
        failure: BaseException | None = None,
    ) -> None:
        """Ends the run once all ranks have written. `written[k][r]` appears when rank r has written its `trace` of cycle k; `output(k)` is the merged
        file of a cycle. `failure` is the error that ended the program, if any; an exception being raised is detected here."""
        with self._lock:
            if self.finished:
                return
            self.finished = True
        raised = sys.exc_info()[1]
        if raised is not None and raised is not self._handled:
            failure = raised
        if failure is not None and _ends_well(failure):
            failure = None
        if failure is not None:
            # The other ranks may wait for this one in a collective, and never come; only when this
            # rank has ended does its launcher end them.
            self._deadline = time.monotonic() + _FAILED_S
            told = f"stopped by {type(failure).__name__}; waiting at most {_FAILED_S:.0f} s for the other ranks before the error is raised"
            _tell(f"probe_sync: rank {self.rank}: {told}")
        try:
            if self.rank != 0:
                self._send([cycle[self.rank] for cycle in written], trace)
                self._wait_for_end()
                return
            missing, away = self._wait_for(written)
            self._stop()
            if missing:
                told = ", ".join(str(path) for _, path in missing[:4])
                gone = sorted({rank for rank, _ in missing}.intersection(away))
                lost = f" (no longer in the run: rank {', '.join(map(str, gone))})" if gone else ""
                raise Error(
                    f"{len(missing)} trace(s) did not arrive: {told}{lost}; check the output of their ranks, give all ranks a folder shared with "
                    f"rank 0, or align them later: probe_sync.merge(traces, clocks=probe_sync.Run({str(self.run)!r}), output=...)"
                )
            cycles = [[self._taken(rank, trace(path)) for rank, path in enumerate(cycle)] for cycle in written]
        except (Error, OSError) as error:
            # A failure to measure must not end a training job.
            _tell(f"probe_sync: rank {self.rank}: {error}")
            return
        if failure is not None:
            if self._merge and written:
                _tell(f"probe_sync: not merging the traces after an error; to merge them, call probe_sync.merge(traces, clocks=probe_sync.Run({str(self.run)!r}), output=...)")
            return
        if self._merge and written:
            # Not a daemon: the interpreter waits for it at exit.
            merging = threading.Thread(target=self._together, args=(cycles, output), name="probe_sync_merge")
            try:
                merging.start()
            except RuntimeError:
                # The interpreter is about to end and starts no thread any more.
                self._together(cycles, output)
            else:
                self._merging = merging

    def wait(self, timeout: float | None = None) -> MergeResult | None:
        """Returns the result of the last merge, if there is one; at rank 0 only."""
        if self._merging is not None:
            self._merging.join(timeout)
        return self.result

    def _send(self, written: Sequence[pathlib.Path], trace: Callable[[pathlib.Path], pathlib.Path]) -> None:
        """Sends this rank's traces to rank 0 unless they share a folder; the file that rank 0 waits for is sent last."""
        if self._sees_root(before=self._saw_root) if self._shared is None else self._shared:
            return
        # In this order, and each once.
        paths = dict.fromkeys(path for word in written for path in (trace(word), word))
        try:
            self._session.send_files({self._name(path): path for path in paths}, timeout=self._within(_LONGEST_S))
        except Error as error:
            # The end of the run is waited for all the same.
            _tell(f"probe_sync: {error}")

    def _sees_root(self, before: bool) -> bool:
        """Returns True if this rank shares rank 0's folder; if the run has ended, returns `before`."""
        try:
            return self._session.sees_root()
        except SessionEnded:
            return before

    def _wait_for_end(self) -> None:
        end = time.monotonic() + self._within(_LONGEST_S + _END_S)
        try:
            while self._session._native.next_round(self._session.round, max(0.0, end - time.monotonic())) is not None:
                pass
        except SessionEnded:
            pass
        except WaitTimeout:
            if time.monotonic() < self._deadline:
                raise
        self._stop()

    def _stop(self) -> None:
        """Ends this rank's part of the run; past the deadline it does not wait for the other ranks, and the session ends with the process."""
        try:
            problem = self._session._page(self._session._report(max(self._within(_END_S), _FAREWELL_S)))
            if problem is not None:
                _tell(f"probe_sync: {problem}")
        except WaitTimeout:
            if time.monotonic() < self._deadline:
                raise

    def _within(self, seconds: float) -> float:
        """Limits a time in seconds to the deadline."""
        return max(0.0, min(seconds, self._deadline - time.monotonic()))

    def _wait_for(self, written: Sequence[Sequence[pathlib.Path]]) -> tuple[list[tuple[int, pathlib.Path]], tuple[int, ...]]:
        """Waits for the files of all ranks in the run, as long as data arrives. Returns the missing files and the lost ranks."""
        missing = [(rank, path) for cycle in written for rank, path in enumerate(cycle)]
        begun = latest = looked = time.monotonic()
        seen: tuple[int, int] | None = None
        while missing := [(rank, path) for rank, path in missing if not self._taken(rank, path).exists()]:
            now = time.monotonic()
            if seen is None or now - looked >= _LOOK_S:
                looked = now
                news = (len(missing), self._received())
                latest, seen = (latest, seen) if news == seen else (now, news)
            away = self._session.state.away
            # Nothing is sent to a run that is over, nor by ranks that it has lost; what ranks write
            # into a folder that all see may just be about to get its name, and a rank that was too
            # late for a round may live.
            over = self._session.state.phase in ("ended", "failed") or all(rank in away for rank, _ in missing)
            if now - latest >= (_OVER_S if over else _WRITTEN_S) or now - begun >= _LONGEST_S or now >= self._deadline:
                break
            time.sleep(0.05)
        return missing, self._session.state.away

    def _taken(self, rank: int, path: pathlib.Path) -> pathlib.Path:
        """Returns a rank's file in the folder, after moving it there if the rank sent it."""
        sent = self.run / "received" / f"rank{rank}" / self._name(path)
        if rank != 0 and sent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(sent, path)
        return path

    def _received(self) -> int:
        """Returns the number of bytes received from ranks so far."""
        total = 0
        for path in (self.run / "received").rglob("*"):
            # What was whole is renamed at any time.
            with contextlib.suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def _name(self, path: pathlib.Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def _together(self, written: Sequence[Sequence[pathlib.Path]], output: Callable[[int], pathlib.Path]) -> None:
        for cycle, paths in enumerate(written):
            target = output(cycle)
            try:
                self.result = traces.merge(list(paths), clocks=Run(self.run), output=target, validate=True)
            except Error as error:
                warnings.warn(f"probe_sync: {target} was not written: {error}", RuntimeWarning, stacklevel=2)
                continue
            self.merged.append(target)
            print(f"probe_sync: {self.result}; {target}", file=sys.stderr, flush=True)


def _ends_well(error: BaseException) -> bool:
    """Returns True if this is how a loop or program ends after completing its work."""
    return isinstance(error, (StopIteration, StopAsyncIteration, GeneratorExit)) or (isinstance(error, SystemExit) and error.code in (None, 0))


def _tell(text: str) -> None:
    """Warns without replacing an error that is being raised, and without ending a job in which warnings are errors."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        print(text, file=sys.stderr, flush=True)


def place(group: Group | None) -> tuple[int, int]:
    """Returns the rank and the number of ranks."""
    return (0, 1) if group is None else (group.rank, group.size)


def group_of(is_up: bool, adapter: Callable[[], Group]) -> Group | None:
    """Returns how the ranks meet: through `adapter` if its library is initialised, else through the launcher's environment, else None."""
    if is_up:
        return adapter()
    return launch.from_env() if launch.is_launched() else None


def write_whole(path: pathlib.Path, write: Callable[[str], object]) -> None:
    """Has `write` create a file of that name in a private folder, and moves it into place once it is complete."""
    _native.write_whole(os.fspath(path), write)


def trace_named(word: pathlib.Path, rank: int, suffix: str) -> str:
    """Returns the name of a rank's trace as given in `word`, which may not refer to another rank or folder."""
    try:
        name = word.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        name = ""
    if len(name) > _NAME_MAX or re.fullmatch(rf"[^/\0\n]+-{rank}{re.escape(suffix)}", name) is None:
        raise Error(f"{word} does not name a trace of rank {rank}; were its files modified, or does rank {rank} use another version of probe_sync?")
    return name


def host() -> str:
    """Returns this host's short name."""
    return socket.gethostname().split(".")[0]


_ATTEMPTS = 8
_NAME_MAX = 255
_PERIOD_S = 0.1
# Ranks end within seconds of each other; a large trace takes a while to write. Counted from when
# something came last.
_WRITTEN_S = 300.0
_OVER_S = 30.0
_LOOK_S = 1.0
# Many large traces that are sent to rank 0 take longer.
_LONGEST_S = 3600.0
# Of a rank whose work an error ends.
_FAILED_S = 5.0
_FAREWELL_S = 1.0
_END_S = 30.0
