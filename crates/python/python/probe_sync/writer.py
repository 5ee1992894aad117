"""Writes traces in viewers' formats from arrays, chunk by chunk::

    with probe_sync.TraceWriter("job.pftrace", "pftrace") as writer:
        process = writer.process("train", pid=4711, rank=3)
        thread = writer.thread("main", process, tid=4711)
        writer.slices(thread, names, starts_ns, ends_ns)  # any number of times

All times are ns on one clock. Memory is bounded by the chunk. The file appears when it is closed.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Union

import numpy as np

from . import _native, _settings
from .errors import ConfigError, SessionEnded

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Self

Texts = Union[str, Iterable[str]]


@dataclasses.dataclass(frozen=True)
class WrittenTrace:
    """What a file contains."""

    path: str
    """The file."""
    tracks: int
    """Tracks declared."""
    slices: int
    """Events with a duration."""
    instants: int
    """Events without a duration."""
    counters: int
    """Counter values."""
    bytes: int
    """Size before compression."""


class TraceWriter:
    """A trace being written; a context manager that closes it, or after an exception leaves no file.

    `format` is "pftrace" (Perfetto), "json" (Chrome), "kineto" or "xspace"; a file whose name ends in `.gz` is compressed. Formats that count from one
    time count from `base_ns`. `metadata` are texts about the whole trace, for formats that can store them. Chunks in order of time, longer slices first,
    give the smallest file; any order is written completely.
    """

    def __init__(self, path: _settings.Path, format: str, *, base_ns: int = 0, metadata: Mapping[str, str] | None = None) -> None:
        self.path: str = os.fspath(path)
        self._native = _native.TraceWriter(self.path, format, base_ns, list((metadata or {}).items()))

    def process(self, name: str, *, pid: int = 0, host: str = "", rank: int | None = None) -> int:
        """Declares a process; returns the number of its track."""
        return self._native.process(name, pid, host, rank)

    def thread(self, name: str, process: int, *, tid: int) -> int:
        """Declares a thread of a process; returns the number of its track."""
        return self._native.track("thread", name, process, tid, "")

    def stream(self, name: str, parent: int) -> int:
        """Declares a stream of a device, below `agent`; returns the number of its track."""
        return self._native.track("stream", name, parent, 0, "")

    def agent(self, name: str, process: int) -> int:
        """Declares a device; returns the number of its track."""
        return self._native.track("agent", name, process, 0, "")

    def counter(self, name: str, parent: int, *, unit: str = "") -> int:
        """Declares a track for values over time; returns its number."""
        return self._native.track("counter", name, parent, 0, unit)

    def slices(
        self, track: int | npt.ArrayLike, names: Texts, starts_ns: npt.ArrayLike, ends_ns: npt.ArrayLike, *, category: Texts = ""
    ) -> None:
        """Writes events with a duration. `track`, `names` and `category` are one value for all events, or one per event."""
        starts = _times("starts_ns", starts_ns)
        count = len(starts)
        ends = _times("ends_ns", ends_ns)
        self._native.events(_tracks(track, count), _texts(names, count), _texts(category, count), starts, ends)

    def instants(self, track: int | npt.ArrayLike, names: Texts, times_ns: npt.ArrayLike, *, category: Texts = "") -> None:
        """Writes events without a duration. `track`, `names` and `category` are as in `slices`."""
        times = _times("times_ns", times_ns)
        count = len(times)
        self._native.events(_tracks(track, count), _texts(names, count), _texts(category, count), times, None)

    def values(self, counter: int | npt.ArrayLike, times_ns: npt.ArrayLike, values: npt.ArrayLike) -> None:
        """Writes values of counters, which hold from those times on."""
        times = _times("times_ns", times_ns)
        self._native.counters(_tracks(counter, len(times)), times, np.ascontiguousarray(values, dtype=np.float64).reshape(-1))

    def close(self) -> WrittenTrace:
        """Completes the file, which gets its name."""
        written = self._native.close()
        if written is None:
            raise SessionEnded(f"{self.path} is already closed")
        return WrittenTrace(self.path, *written)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._native.close()
        else:
            self._native.abandon()


def _times(name: str, times_ns: npt.ArrayLike) -> npt.NDArray[np.int64]:
    given = np.asarray(times_ns)
    if given.dtype.kind not in "iu" and given.size > 0:
        raise ConfigError(f"{name} has type {given.dtype}: give whole nanoseconds")
    return np.ascontiguousarray(given, dtype=np.int64).reshape(-1)


def _tracks(track: int | npt.ArrayLike, count: int) -> npt.NDArray[np.uint32]:
    given = np.asarray(track, dtype=np.uint32)
    return np.full(count, given, dtype=np.uint32) if given.ndim == 0 else np.ascontiguousarray(given)


def _texts(texts: Texts, count: int) -> list[str]:
    return [texts] * count if isinstance(texts, str) else list(texts)
