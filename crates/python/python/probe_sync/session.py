"""A session: the run of this process, beside its training loop."""

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

from . import _native, _settings, lateness
from .errors import AlreadyStarted, ClockError, ConfigError, Error

if TYPE_CHECKING:
    from ._native import Clock, Meeting, Round
    from .lateness import LateStanding
    from .launch import Group


@dataclasses.dataclass(frozen=True)
class State:
    """Where a session stands."""

    phase: Literal["meeting", "measuring", "ended", "failed"]
    """`meeting` until all ranks have come, then `measuring`, at last `ended` or `failed`."""
    rank: int | None
    """This rank; this and what follows is None until the ranks have met."""
    node: int | None
    """The node that this rank is, or follows: ranks of one clock are one node."""
    nodes: int | None
    """Number of nodes."""
    reference: int | None
    """The node whose offset is zero."""
    rounds: int
    """Rounds solved so far."""
    reason: str | None
    """Why it failed."""
    away: tuple[int, ...]
    """At rank 0: ranks that were lost, or so late that the others go on without them, and have not come back."""


class Session:
    """A run under way, measured by a thread of its own; `probe_sync.start` makes it.

    No wait holds the interpreter, and Ctrl-C ends every wait at once; the session goes on then. As a context manager it stops at the end.
    """

    def __init__(self, native: _native.Session) -> None:
        self._native = native
        # Without a call of Python's own between: it is called in every step.
        self.arrive: Callable[[str, int], None] = native.arrive
        """`arrive(group, step)` says that this rank arrives now at operation `step` of `group`, right before an operation that all members of the group wait in.

        Every member calls it; who is late is found from it (`late`). It takes some 0.1 µs and never waits; what finds no room is dropped and counted.
        """
        self._seen: Round | None = None
        # What a relative `out` is relative to, also where the program changes its folder.
        self._folder = _folder()
        self._has_page = False

    @property
    def state(self) -> State:
        """Where it stands."""
        phase, known, reason = self._native.progress()
        rank, node, nodes, reference, rounds, away = known or (None, None, None, None, 0, [])
        return State(cast(Any, phase), rank, node, nodes, reference, rounds, reason, tuple(away))

    @property
    def clock(self) -> Clock:
        """The reference's time, for all threads and for forked children; it goes on after the end, with growing bounds."""
        return self._native.clock()

    def late(self) -> LateStanding:
        """Which ranks are late and which are waited for, on every rank: at rank 0 as of now, elsewhere as of the last change or five seconds ago."""
        return lateness.standing(self._native)

    def pause(self) -> None:
        """From the next round on this rank starts no exchanges. Where all ranks pause nothing is measured, and bounds grow."""
        self._native.pause(True)

    def resume(self) -> None:
        """From the next round on this rank measures again."""
        self._native.pause(False)

    def pause_all(self, timeout: float | None = None) -> int:
        """No node starts exchanges from the round on whose number this returns: any rank may ask, and rank 0 ends the window under way for it.

        Rounds go on, and bounds grow. Raises `WaitTimeout` when nothing was decided within `timeout` seconds.
        """
        return self._native.ask("pause", timeout)

    def resume_all(self, timeout: float | None = None) -> int:
        """All nodes measure again from the round on whose number this returns."""
        return self._native.ask("resume", timeout)

    def phase(self, name: str | None, timeout: float | None = None) -> int:
        """Rounds belong to this phase of an experiment, from the one on whose number this returns; `report.json` lists phases. None ends it."""
        return self._native.ask("phase" if name is None else f"phase {name}", timeout)

    def end_round(self, timeout: float | None = None) -> int:
        """Ends the window under way on all nodes together; the number of the round that follows."""
        return self._native.ask("end-round", timeout)

    @property
    def round(self) -> Round | None:
        """The last round that was solved; None before the first."""
        return self._native.latest()

    def next_round(self, timeout: float | None = None) -> Round | None:
        """Waits for a round later than the one that this method returned last, and returns the latest; None when the run has ended.

        Raises `WaitTimeout` after `timeout` seconds, and `JoinError` or `SessionFailed` when the session fails.
        """
        found = self._native.next_round(self._seen, timeout)
        self._seen = found or self._seen
        return found

    def rounds(self, timeout: float | None = None) -> Iterator[Round]:
        """Rounds from the latest on, until the run ends; rounds that were solved while nobody asked are skipped.

        Raises what `next_round` raises, `WaitTimeout` when a round takes longer than `timeout` seconds.
        """
        seen: Round | None = None
        while (found := self._native.next_round(seen, timeout)) is not None:
            seen = found
            yield found

    def wait_until_bound(self, half_width_ns: int, timeout: float | None = None) -> Round:
        """Waits until this node's offset is known to within ± `half_width_ns` in 95 %, and returns the round that says so.

        Raises `BoundUnreachable` after some rounds where the asymmetry of paths and hosts alone exceeds the bound, `WaitTimeout` after
        `timeout` seconds, and `JoinError` or `SessionFailed` when the session fails.
        """
        if half_width_ns < 0:
            raise ConfigError(f"half_width_ns={half_width_ns}: give the half-width of an interval in whole nanoseconds, 0 or more")
        return self._native.wait_until_bound(min(int(half_width_ns), 2**32 - 1), timeout)

    @property
    def run_id(self) -> str:
        """The run's number, drawn by rank 0: equal on all ranks, and no other run's. Waits until the ranks have met."""
        return self._native.run_id(None)

    def sees_root(self) -> bool:
        """Whether this rank sees rank 0's `out` under the name of its own, from the first round on: the `run.json` there is this run's."""
        return self._native.sees_root(None)

    def send_files(self, files: Mapping[str, _settings.Path], timeout: float | None = None) -> None:
        """Brings what `align` and `merge` read of this rank (marks, snapshot pairs) into rank 0's `out`, and then `files`, name by name.

        For ranks that do not see rank 0's directory; every rank but rank 0 may call it until the run ends. A file lies at rank 0 in
        `out/received/rankR/NAME` once it is whole. Names are relative, with `/` between their parts. Raises `FileError` for what rank 0 does not have
        within `timeout` seconds.
        """
        self._native.send_files([(os.fspath(path), name) for name, path in files.items()], timeout)

    def stop(self, timeout: float | None = None) -> dict[str, Any] | None:
        """Ends the run on all ranks with the window under way; the content of `report.json` at rank 0, None elsewhere.

        Rank 0 leaves the run as a page for a browser, `report.html` in `out`; where that cannot be written it warns. Every rank is to call it. Called again it
        returns the same. After `timeout` seconds it raises `WaitTimeout`, and may be called again.
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
        """Writes the page of a run that has ended, once; why it cannot. It is for people to look at, so nothing fails for it."""
        if report is None or self._has_page:
            return None
        self._has_page = True
        try:
            return _native.write_page(os.path.join(self._folder, report["out"]))
        except Error as error:
            return f"the report page is not written: {error}"

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
    """Starts to measure beside this process's work, and returns at once; every rank of a job calls it.

    `config` is a mapping of settings or a TOML or JSON file; `out` is the run's directory, and `keys` are further settings, as the flags of
    `probe_sync run --help` with underscores: `window="250ms"`. They win over `PROBE_SYNC_<KEY>` variables, and those over a file.

    How the ranks meet: `group` of an adapter (`probe_sync.from_torch()`, `from_env()`, ...), or by hand `rank` and `size` with
    `meeting=probe_sync.Meeting()` at rank 0 and `unique_id=`, that meeting's 128 bytes, at the others. With none of these the process
    measures alone.

    Raises `AlreadyStarted` while a session of this process runs, `ConfigError` for what is unusable. Whatever comes later is a state of
    the session, and is raised by its waits.
    """
    given = {"rank": rank, "size": size, "meeting": meeting, "unique_id": unique_id}
    if group is not None:
        doubled = [name for name, value in given.items() if value is not None]
        if doubled:
            raise ConfigError(f"group says already what {', '.join(doubled)} would say; leave one of them out")
        rank, size, meeting, unique_id = group.rank, group.size, group.meeting, group.unique_id
        if rank == 0:
            unique_id = None
    by_file = isinstance(config, (str, os.PathLike))
    table = {} if config is None or by_file else cast("Mapping[str, _settings.Setting]", config)
    settings = _settings.settings(table, keys if out is None else {"out": os.fspath(out), **keys})
    file = os.fspath(cast(_settings.Path, config)) if by_file else None
    global _clock, _current
    with _lock:
        if _running() is not None:
            raise AlreadyStarted(
                "this process measures already: call stop() on that session first, or use it: probe_sync.current() returns it"
            )
        native = _native.start(file, settings, rank=rank, size=size, meeting=meeting, unique_id=unique_id)
        session = Session(native)
        _current, _clock = (os.getpid(), session), native.clock()
    return session


def current() -> Session | None:
    """The session of this process that runs now; None where there is none."""
    with _lock:
        return _running()


def clock() -> Clock:
    """The clock of this process's session, also when that has ended, and in a forked child.

    Raises `ClockError` where no session was started.
    """
    if _clock is None:
        raise ClockError("this process has no session: call probe_sync.start() first, or probe_sync.Clock.open(path) for a clock_page of this host")
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
    """At exit: the run is asked to end, and nobody waits for it."""
    if _current is not None:
        _current[1]._native.abandon()
    _native.leave()


def _after_fork() -> None:
    """A lock that another thread of the parent held is nobody's in the child."""
    global _lock
    _lock = threading.Lock()


_FAREWELL_S = 1.0

_lock = threading.Lock()
# Held here, so that a session whose owner has let go of it measures on.
_current: tuple[int, Session] | None = None
# Of the last session.
_clock: Clock | None = None

atexit.register(_leave)
os.register_at_fork(after_in_child=_after_fork)
