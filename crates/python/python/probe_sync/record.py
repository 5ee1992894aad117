"""Records what this process does, at the cost of two readings of the processor's counter per scope::

    recording = probe_sync.record.start("rank0.rec", policy="flight")  # once; the file outlives a kill
    with probe_sync.record.scope("load", bytes=4096):
        ...
    recording.finish()

`probe_sync record convert rank0.rec -f pftrace -o rank0.pftrace` writes it as a trace, and `probe_sync record recover` shows what a hanging or killed
process was doing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import _native, _settings
from ._native import Scope, Span, counter, instant, scope, span
from .errors import ConfigError, SessionEnded

if TYPE_CHECKING:
    from typing_extensions import Self

F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["Finished", "Recording", "Scope", "Span", "collective", "counter", "instant", "scope", "span", "start"]


@dataclasses.dataclass(frozen=True)
class Finished:
    """What a recording contains."""

    events: int
    """Events that are in it."""
    lost: int
    """Events that are not, because memory was full."""


class Recording:
    """A recording in progress; a context manager that finishes it unless that was done. In a forked child it belongs to the parent and continues there."""

    def __init__(self, settings: Sequence[tuple[str, str]], started_at: str) -> None:
        self._native = _native.Recording(settings, started_at)

    @property
    def path(self) -> str | None:
        """The file that it records into, if any."""
        return self._native.path

    @property
    def is_recording(self) -> bool:
        """False while it is paused."""
        return self._native.is_recording

    @property
    def lost(self) -> int:
        """Events lost so far because memory was full."""
        return self._native.lost

    def pause(self) -> None:
        """Pauses recording. Open scopes are still recorded when they end."""
        self._native.pause()

    def resume(self) -> None:
        """Resumes recording."""
        self._native.resume()

    def snapshot(self, path: _settings.Path) -> None:
        """Writes everything recorded so far to a file, replacing an existing one. Recording continues."""
        self._native.snapshot(os.fspath(path))

    def finish(self, path: _settings.Path | None = None) -> Finished:
        """Ends the recording. `path` is a file for a copy, which one without a file of its own needs; if it cannot be written, call again."""
        return Finished(*self._native.finish(None if path is None else os.fspath(path)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(SessionEnded):
            self.finish()


def start(path: _settings.Path | None = None, **settings: _settings.Setting) -> Recording:
    """Starts recording, into a file that must not exist, or without one into memory.

    Settings are those of the recorder: `policy` ("drop_newest", "flight", "stream"), `bytes` ("64MiB"), `every`, `keep` ("5s"), `kinds`
    ("user,collective"), `one_in`, `longer_than` ("20us"), `reach` ("process", "thread"), `clock`, `pair_period`, `threads`, `rank`, `devices` ("cupti":
    NVIDIA GPUs), `control` (a folder), and True or False for `details`, `shapes`, `stacks`, `modules`, `flops`, `memory`, `count_omitted`, `paused`, `on_demand`. Raises
    `AlreadyStarted` if one is running.
    """
    spill = {} if path is None else {"spill": path}
    caller = sys._getframe(1)
    return Recording(_settings.settings(spill, settings), f"{caller.f_code.co_filename}:{caller.f_lineno}")


def collective(
    operation: str,
    *,
    group: str | None = None,
    sequence: int | None = None,
    ranks: Sequence[int] | None = None,
    group_size: int | None = None,
    dtype: str | None = None,
    sent: int | None = None,
    received: int | None = None,
    root: int | None = None,
    source: int | None = None,
    destination: int | None = None,
) -> Scope:
    """Returns the scope of this rank's part in a collective operation or message, which `check` and `stragglers` pair by group and sequence number.

    `operation` is "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "broadcast", "scatter", "reduce", "gather", "send" or "recv";
    `sent` and `received` are numbers of elements.
    """
    given = {
        "group": group,
        "ranks": None if ranks is None else list(ranks),
        "group_size": group_size,
        "sequence": sequence,
        "dtype": dtype,
        "sent": sent,
        "received": received,
        "root": root,
        "source": source,
        "destination": destination,
    }
    return _native.collective(operation, {key: value for key, value in given.items() if value is not None})


def _decorated(context: Scope, function: F) -> F:
    """Returns the function within a scope at each call. A scope ends on the thread that entered it, so a coroutine or generator needs a span within."""
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{function.__qualname__} gives way to other code while it runs: use `with probe_sync.record.span(...)` within it")
    enter, leave = context.__enter__, context.__exit__

    @functools.wraps(function)
    def within(*args: Any, **kwargs: Any) -> Any:
        enter()
        try:
            return function(*args, **kwargs)
        finally:
            leave(None, None, None)

    return within  # type: ignore[return-value]
