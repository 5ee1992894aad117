"""Puts the jax.profiler traces of all processes on one clock: `trace`, `start_trace` and `stop_trace` replace jax.profiler's functions.

    with probe_sync.jax.trace("traces", merge=True):
        ...                                             # the unmodified loop

The clocks are measured from `start_trace` on. A thread puts a mark into the trace ten times per second, between two readings of the system clock.
The traces of all processes go to one folder in `traces/plugins/profile`, named after host and rank, so that xprof shows all hosts in one
session. (jax.profiler uses only the host name, so that processes on the same host overwrite each other's traces.)

`traces` can be a folder shared by all processes or local to each host: a process that does not share process 0's folder sends its trace there over the
session once it has written it. `shared=True` or `False` overrides the detection.
"""

from __future__ import annotations

import contextlib
import importlib
import pathlib
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _recorder, launch
from .errors import ConfigError, Error

try:
    _profiler: Any = importlib.import_module("jax.profiler")
    _distributed: Any = importlib.import_module("jax._src.distributed")
except ImportError as _error:
    raise ConfigError(f"probe_sync.jax: jax cannot be imported ({_error}); install jax in this environment") from _error

if TYPE_CHECKING:
    # Without JAX installed, type checkers treat its options as Any.
    from jax.profiler import ProfileOptions  # type: ignore[import-not-found, unused-ignore]

    from ._settings import Path, Setting
    from .launch import Group
    from .results import MergeResult

__all__ = ["Trace", "start_trace", "stop_trace", "trace"]


class Trace:
    """A trace in progress, and its files once it has ended."""

    def __init__(
        self, log_dir: Path, merge: bool, group: Group | None, shared: bool | None, join_timeout: float, settings: dict[str, Setting]
    ) -> None:
        self.log_dir: pathlib.Path = pathlib.Path(log_dir)
        self.rank: int
        self.size: int
        self.rank, self.size = _recorder.place(group)
        self._stop = threading.Event()
        self._recorder = _recorder.Recorder(
            log_dir, group=group, around=_around, merge=merge, shared=shared, join_timeout=join_timeout, settings=settings
        )
        # A name that all processes make alike and no other run has.
        self.session: str = f"probe_sync_{self._recorder.run_id}"
        self.folder: pathlib.Path = self.log_dir / "plugins" / "profile" / self.session
        self._own: pathlib.Path | None = None
        self._thread = threading.Thread(target=self._mark_often, name="probe_sync_marks", daemon=True)

    @property
    def run_dir(self) -> pathlib.Path:
        """Directory of the measurement."""
        return self._recorder.run

    @property
    def merged(self) -> list[pathlib.Path]:
        """The merged file, at process 0."""
        return list(self._recorder.merged)

    def wait(self, timeout: float | None = None) -> MergeResult | None:
        """Returns the result of the merge, at process 0; waits for it up to `timeout` seconds."""
        return self._recorder.wait(timeout)

    def _begin(self, profiler_options: ProfileOptions | None) -> None:
        self._own = pathlib.Path(tempfile.mkdtemp(prefix=f".rank{self.rank}-", dir=self.log_dir))
        keywords = {} if profiler_options is None else {"profiler_options": profiler_options}
        _profiler.start_trace(self._own, **keywords)
        self._recorder.mark()
        self._thread.start()

    def _end(self) -> None:
        self._stop.set()
        self._thread.join()
        self._recorder.mark()
        _profiler.stop_trace()
        assert self._own is not None, "it has begun"
        found = sorted(self._own.rglob("*.xplane.pb"))
        if len(found) != 1:
            raise Error(f"jax.profiler wrote {len(found)} traces to {self._own} instead of one")
        name = f"{_recorder.host()}-{self.rank}.xplane.pb"
        _recorder.write_whole(self.folder / name, lambda beside: shutil.move(found[0], beside))
        _recorder.write_whole(self._word(self.rank), lambda beside: pathlib.Path(beside).write_text(name, encoding="utf-8"))
        shutil.rmtree(self._own, ignore_errors=True)
        # Process 0 knows the others' names by their words.
        words = [self._word(rank) for rank in range(self.size)]
        merged = self.log_dir / f"{self.session}.merged.xplane.pb"
        self._recorder.finish([words], lambda _: merged, self._trace)

    def _word(self, rank: int) -> pathlib.Path:
        return self.run_dir / "written" / f"{self.session}.{rank}"

    def _trace(self, word: pathlib.Path) -> pathlib.Path:
        return self.folder / _recorder.trace_named(word, int(word.suffix[1:]), ".xplane.pb")

    def _mark_often(self) -> None:
        while not self._stop.wait(_PERIOD_S):
            self._recorder.mark()


def start_trace(
    log_dir: Path,
    *,
    merge: bool = True,
    group: Group | None = None,
    shared: bool | None = None,
    profiler_options: ProfileOptions | None = None,
    join_timeout: float = 300.0,
    **settings: Setting,
) -> Trace:
    """Starts measuring the clocks and starts jax.profiler. Every process must call it; it waits for the other processes.

    `log_dir` is where this process writes. `shared` says whether process 0 shares that folder (detected by default); if
    not, this process sends its files. `group` says how the processes meet (default: jax.distributed if it is initialised, otherwise the
    launcher's environment, otherwise this process alone). `profiler_options` are jax's, `settings` those of `probe_sync.start`.
    """
    global _current
    if _current is not None:
        raise ConfigError("probe_sync.jax: a trace is already in progress in this process; call stop_trace() first")
    group = group or _recorder.group_of(_distributed.global_state.client is not None, launch.from_jax)
    found = Trace(log_dir, merge, group, shared, join_timeout, settings)
    found._begin(profiler_options)
    _current = found
    return found


def stop_trace() -> Trace:
    """Stops jax.profiler, ends the measurement once all processes have written their traces, and starts the merge at process 0 in the background."""
    global _current
    if _current is None:
        raise ConfigError("probe_sync.jax: no trace is in progress in this process; call start_trace(log_dir) first")
    found, _current = _current, None
    found._end()
    return found


@contextlib.contextmanager
def trace(
    log_dir: Path,
    *,
    merge: bool = True,
    group: Group | None = None,
    shared: bool | None = None,
    profiler_options: ProfileOptions | None = None,
    join_timeout: float = 300.0,
    **settings: Setting,
) -> Iterator[Trace]:
    """Context manager that calls `start_trace` and `stop_trace`."""
    found = start_trace(
        log_dir,
        merge=merge,
        group=group,
        shared=shared,
        profiler_options=profiler_options,
        join_timeout=join_timeout,
        **settings,
    )
    try:
        yield found
    finally:
        stop_trace()


def _around(name: str) -> tuple[int, int]:
    before = time.time_ns()
    event = _profiler.TraceAnnotation(name)
    after = time.time_ns()
    # The stamp is taken when it is made; it is only recorded when it was entered and left.
    event.__enter__()
    event.__exit__(None, None, None)
    return before, after


_PERIOD_S = 0.1

_current: Trace | None = None
