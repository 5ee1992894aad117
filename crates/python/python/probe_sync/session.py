"""A session: this process's part in a run, alongside its training loop."""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast

from . import _carried, _native, _settings, lateness
from .errors import AlreadyStarted, ClockError, ConfigError, Error

if TYPE_CHECKING:
    from ._native import Clock, Meeting, Round
    from .lateness import LateStanding
    from .launch import Group


@dataclasses.dataclass(frozen=True)
class State:
    """State of a session."""

    phase: Literal["meeting", "measuring", "ended", "failed"]
    """`meeting` until all ranks have joined, then `measuring`, and finally `ended` or `failed`."""
    rank: int | None
    """This rank; this and the following fields are None until the ranks have met."""
    node: int | None
    """The node of this rank; ranks that share a clock are one node."""
    nodes: int | None
    """Number of nodes."""
    reference: int | None
    """The node whose offset is zero."""
    rounds: int
    """Number of rounds solved so far."""
    reason: str | None
    """Reason for the failure."""
    away: tuple[int, ...]
    """At rank 0: ranks that are currently lost, or so late that the others continue without them."""


class Session:
    """A run in progress, measured on its own thread; created by `probe_sync.start`.

    Waits release the interpreter lock, and Ctrl-C ends any wait immediately; the session then continues. As a context manager, it stops on exit.
    """

    def __init__(self, native: _native.Session) -> None:
        self._native = native
        # Without a call of Python's own between: it is called in every step.
        self.arrive: Callable[[str, int], None] = native.arrive
        """`arrive(group, step)` records that this rank arrives now at operation `step` of `group`, right before an operation that all members of the group wait in.

        Every member calls it; who is late is found from it (`late`). It takes some 0.1 µs and never waits; what finds no room is dropped and counted.
        """
        self._seen: Round | None = None
        # What a relative `out` is relative to, also where the program changes its folder.
        self._folder = _folder()
        self._has_page = False

    @property
    def state(self) -> State:
        """The current state."""
        phase, known, reason = self._native.progress()
        rank, node, nodes, reference, rounds, away = known or (None, None, None, None, 0, [])
        return State(cast(Any, phase), rank, node, nodes, reference, rounds, reason, tuple(away))

    @property
    def clock(self) -> Clock:
        """The reference time, usable from all threads and forked children. It continues after the session's end, with growing bounds."""
        return self._native.clock()

    def observe_collectives(self) -> None:
        """Records an arrival whenever a `record.collective` scope begins in which all members wait: all_reduce, all_gather, reduce_scatter, all_to_all, barrier.

        Group and step are the scope's `group` and `sequence`; scopes without them are ignored. No recording is needed. Ends with the session.
        """
        self._native.observe_collectives()

    def _report_arrivals(self, arrivals: list[tuple[str, int, int]], until_ns: int, lost: int) -> None:
        """Records arrivals at times of the system clock, `lost` others that are not known, and that arrivals are complete only until `until_ns`."""
        self._native.report_arrivals(arrivals, until_ns, lost)

    def _answer_hang(self, files: Callable[[], list[tuple[str, bytes]]]) -> None:
        """Answers `probe_sync hang --live` if it asks; the first call tells rank 0 that this program answers."""
        number = self._native.hang_requested()
        if number is not None:
            self._native.answer_hang(number, files(), _ANSWER_S)

    def late(self) -> LateStanding:
        """Returns the late ranks, and the ranks that others wait for, on every rank. The state is current at rank 0; elsewhere it is as old as the last change or five seconds."""
        return lateness.standing(self._native)

    def pause(self) -> None:
        """Stops starting exchanges on this rank from the next round on. If all ranks pause, nothing is measured and bounds grow."""
        self._native.pause(True)

    def resume(self) -> None:
        """Resumes measuring on this rank from the next round on."""
        self._native.pause(False)

    def pause_all(self, timeout: float | None = None) -> int:
        """Stops exchanges on all nodes, and returns the number of the first round without them. Any rank may call it; rank 0 ends the current window early.

        Rounds continue, and bounds grow. Raises `WaitTimeout` if there is no decision within `timeout` seconds.
        """
        return self._native.ask("pause", timeout)

    def resume_all(self, timeout: float | None = None) -> int:
        """Resumes exchanges on all nodes, and returns the number of the first round with them."""
        return self._native.ask("resume", timeout)

    def phase(self, name: str | None, timeout: float | None = None) -> int:
        """Begins a phase of an experiment, and returns the number of its first round; `report.json` lists phases. None ends the current phase."""
        return self._native.ask("phase" if name is None else f"phase {name}", timeout)

    def end_round(self, timeout: float | None = None) -> int:
        """Ends the current window early on all nodes, and returns the number of the following round."""
        return self._native.ask("end-round", timeout)

    @property
    def round(self) -> Round | None:
        """The last solved round; None before the first."""
        return self._native.latest()

    def next_round(self, timeout: float | None = None) -> Round | None:
        """Waits for a round newer than the one that this method returned last, and returns the latest one; None if the run has ended.

        Raises `WaitTimeout` after `timeout` seconds, and `JoinError` or `SessionFailed` if the session fails.
        """
        found = self._native.next_round(self._seen, timeout)
        self._seen = found or self._seen
        return found

    def rounds(self, timeout: float | None = None) -> Iterator[Round]:
        """Iterates over rounds, starting with the latest, until the run ends. Skips rounds that were solved between two calls, except for the last.

        Raises the same errors as `next_round`; `WaitTimeout` if a round takes longer than `timeout` seconds.
        """
        seen: Round | None = None
        while (found := self._native.next_round(seen, timeout)) is not None:
            seen = found
            yield found

    def wait_until_bound(self, half_width_ns: int, timeout: float | None = None) -> Round:
        """Waits until the half-width of the 95 % interval of this node's offset is at most `half_width_ns`, and returns that round.

        Raises `BoundUnreachable` after a few rounds if path and host asymmetry alone exceeds the bound, `WaitTimeout` after
        `timeout` seconds, and `JoinError` or `SessionFailed` if the session fails.
        """
        if half_width_ns < 0:
            raise ConfigError(f"half_width_ns={half_width_ns}: give the half-width of an interval in whole nanoseconds, 0 or more")
        return self._native.wait_until_bound(min(int(half_width_ns), 2**32 - 1), timeout)

    @property
    def run_id(self) -> str:
        """The run's unique id, chosen by rank 0 and the same on all ranks. Waits until the ranks have met."""
        return self._native.run_id(None)

    def sees_root(self) -> bool:
        """Returns True if this rank's `out` is rank 0's directory, that is, contains this run's `run.json`. Usable from the first round on."""
        return self._native.sees_root(None)

    def send_files(self, files: Mapping[str, _settings.Path], timeout: float | None = None) -> None:
        """Sends this rank's marks and snapshot pairs, which `align` and `merge` read, to rank 0's `out`, followed by `files` in order.

        For ranks that do not share rank 0's directory; every rank except rank 0 may call it until the run ends. Once complete, a file is at rank 0 in
        `out/received/rankR/NAME`. Names are relative, with `/` as separator. Raises `FileError` if rank 0 does not have all files within
        `timeout` seconds.
        """
        self._native.send_files([(os.fspath(path), name) for name, path in files.items()], timeout)

    def stop(self, timeout: float | None = None) -> dict[str, Any] | None:
        """Ends the run on all ranks after the current window. Returns the content of `report.json` at rank 0, and None elsewhere.

        Every rank must call it. Rank 0 also writes the run as an HTML page, `report.html` in `out`, and warns if it cannot. Calling it again returns the
        same result. Raises `WaitTimeout` after `timeout` seconds; it can then be called again.
        """
        return self._stop_and_warn(timeout)

    def _stop_and_warn(self, timeout: float | None) -> dict[str, Any] | None:
        report = self._report(timeout)
        problem = self._page(report)
        if problem is not None:
            # At the line of whoever called the method that called this one.
            warnings.warn(problem, RuntimeWarning, stacklevel=3)
        return report

    def _report(self, timeout: float | None) -> dict[str, Any] | None:
        told = self._native.stop(timeout)
        _forget(self)
        return None if told is None else cast("dict[str, Any]", json.loads(told))

    def _page(self, report: dict[str, Any] | None) -> str | None:
        """Writes the page of an ended run, once. Returns the reason if it cannot; the page is optional, so this is not an error."""
        if report is None or self._has_page:
            return None
        self._has_page = True
        try:
            return _native.write_page(os.path.join(self._folder, report["out"]))
        except Error as error:
            return f"cannot write the report page: {error}"

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self._stop_and_warn(None)
            return
        # The error under way is the one to see; the other ranks may never stop.
        try:
            self._report(_FAREWELL_S)
        except Error:
            _forget(self)

    def __repr__(self) -> str:
        return f"<probe_sync.Session {self.state}>"


def start(
    config: Mapping[str, _settings.Setting] | _settings.Path | None = None,
    *,
    out: _settings.Path | None = None,
    group: Group | None = None,
    rank: int | None = None,
    size: int | None = None,
    meeting: Meeting | None = None,
    unique_id: bytes | None = None,
    **keys: _settings.Setting,
) -> Session:
    """Starts measuring alongside this process's work, and returns immediately; every rank of a job must call it.

    `config` is a mapping of settings or a TOML or JSON file; `out` is the run's directory, and `keys` are further settings, named like the flags of
    `probe_sync run --help` with underscores: `window="250ms"`. They take precedence over `PROBE_SYNC_<KEY>` variables, and those over a file.

    `group` says how the ranks meet; adapters such as `probe_sync.from_torch()` or `from_env()` return it. Alternatively, give `rank` and `size`, with
    `meeting=probe_sync.Meeting()` at rank 0 and that meeting's 128-byte `unique_id` at the other ranks. With none of these, the process
    measures alone.

    Raises `AlreadyStarted` if this process already has a running session, and `ConfigError` for invalid arguments. Later failures are reported by
    the session's state and raised by its waits.
    """
    given = {"rank": rank, "size": size, "meeting": meeting, "unique_id": unique_id}
    if group is not None:
        doubled = [name for name, value in given.items() if value is not None]
        if doubled:
            raise ConfigError(f"group already determines {', '.join(doubled)}; omit one of them")
        rank, size, meeting, unique_id = group.rank, group.size, group.meeting, group.unique_id
        if rank == 0:
            unique_id = None
    messages = group.messages if group is not None else None
    by_file = isinstance(config, (str, os.PathLike))
    table = {} if config is None or by_file else cast("Mapping[str, _settings.Setting]", config)
    settings = _settings.settings(table, keys if out is None else {"out": os.fspath(out), **keys})
    file = os.fspath(cast(_settings.Path, config)) if by_file else None
    global _clock, _current
    with _lock:
        if _running() is not None:
            raise AlreadyStarted(
                "this process is already measuring: call stop() on that session first, or use it: probe_sync.current() returns it"
            )
        native = _native.start(file, settings, rank=rank, size=size, meeting=meeting, unique_id=unique_id, messages=messages)
        session = Session(native)
        _current, _clock = (os.getpid(), session), native.clock()
    return session


def current() -> Session | None:
    """Returns this process's running session, or None."""
    with _lock:
        return _running()


def clock() -> Clock:
    """Returns the clock of this process's session, even after the session has ended and in a forked child.

    Raises `ClockError` if no session was started.
    """
    if _clock is None:
        raise ClockError("this process has no session: call probe_sync.start() first, or probe_sync.Clock.open(path) for a clock_page on this host")
    return _clock


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def _running() -> Session | None:
    if _current is None or _current[0] != os.getpid():
        return None
    return _current[1] if _current[1].state.phase in ("meeting", "measuring") else None


def _forget(session: Session) -> None:
    global _current
    with _lock:
        if _current is not None and _current[1] is session:
            _current = None


def _leave() -> None:
    """At exit: asks the run to end, without waiting for it."""
    if _current is not None:
        _current[1]._native.abandon()
    _carried.end_all()
    _native.leave()


def _after_fork() -> None:
    """Replaces the lock, which another thread of the parent may have held, in a forked child."""
    global _lock
    _lock = threading.Lock()


_FAREWELL_S = 1.0
# Longest time in which files of evidence reach rank 0.
_ANSWER_S = 5.0

_lock = threading.Lock()
# Held here, so that a session whose owner has let go of it measures on.
_current: tuple[int, Session] | None = None
# Of the last session.
_clock: Clock | None = None

atexit.register(_leave)
os.register_at_fork(after_in_child=_after_fork)
