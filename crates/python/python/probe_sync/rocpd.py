"""Writes databases as rocprofv3 does (rocpd), while the program runs::

    with probe_sync.rocpd.Writer("%hostname%/%pid%_results.db") as writer:
        start = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        ...
        writer.region("step", start, time.clock_gettime_ns(time.CLOCK_BOOTTIME))

There is one database per process. Times are ns of CLOCK_BOOTTIME. Events are committed at least every `flush_interval`, so other processes can read
them while the program runs, and a process that is killed leaves a whole file.
"""

from __future__ import annotations

import dataclasses
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict

from . import _native, _settings
from .errors import SessionEnded

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


@dataclasses.dataclass(frozen=True)
class Report:
    """What happened to all events of a database."""

    path: str
    """The file."""
    events: int
    """Events in the file."""
    dropped: int
    """Events missing because the disk was full, too slow, or did not respond."""
    rows: int
    """Rows of the events."""
    commits: int
    """Committed transactions."""


class EventKeywords(TypedDict, total=False):
    """Keywords of all events."""

    category: str
    """Category, as in `HIP_RUNTIME_API`. By default the usual one of the event."""
    thread: int
    """Thread ID (`threading.get_native_id()`) of the thread that did or launched it. By default the calling thread."""
    stack_id: int
    """Number of the call within the process; a kernel has that of the call that launched it."""
    parent_stack_id: int
    """Number of the enclosing call."""
    correlation_id: int
    """A number assigned by the program."""


class Writer:
    """A database being written; a context manager that closes it.

    `path` may contain rocprofv3's keys, such as `%pid%` and `%rank%`. Folders are created, and an existing file is never replaced. Events never wait for
    the file system: one that does not fit in the buffer is dropped and counted, and its method returns False.
    """

    def __init__(self, path: _settings.Path = "%hostname%/%pid%_results.db", *, flush_interval: _settings.Time = "1s") -> None:
        self._native = _native.RocpdWriter(os.fspath(path), _settings.time_text(flush_interval))
        self.path: str = os.fspath(self._native.path)

    def agent(self, name: str, index: int = 0) -> int:
        """Adds a GPU, for example "gfx942", with its index on the node; returns its number for events."""
        return self._native.agent(name, index)

    def region(self, name: str, start_ns: int, end_ns: int, **keywords: Unpack[EventKeywords]) -> bool:
        """Records something that a thread did."""
        return self._record("region", name, start_ns, end_ns, keywords)

    def kernel(
        self, name: str, start_ns: int, end_ns: int, *, agent: int, queue: str | None = None, stream: str | None = None, **keywords: Unpack[EventKeywords]
    ) -> bool:
        """Records a kernel that ran on an agent."""
        return self._record("kernel", name, start_ns, end_ns, keywords, agent=agent, queue=queue, stream=stream)

    def copy(
        self, name: str, start_ns: int, end_ns: int, *, source: int, destination: int, size: int, stream: str | None = None, **keywords: Unpack[EventKeywords]
    ) -> bool:
        """Records a copy of `size` bytes from one agent to another; `name` is for example "MEMORY_COPY_DEVICE_TO_DEVICE"."""
        return self._record("copy", name, start_ns, end_ns, keywords, agent=source, destination=destination, size=size, stream=stream)

    def counter(self, name: str, time_ns: int, value: float, *, agent: int | None = None, **keywords: Unpack[EventKeywords]) -> bool:
        """Records the value of a counter."""
        return self._record("counter", name, time_ns, time_ns, keywords, agent=agent, value=value)

    def sample(self, name: str, time_ns: int, **keywords: Unpack[EventKeywords]) -> bool:
        """Records an instant event."""
        return self._record("sample", name, time_ns, time_ns, keywords)

    def flush(self, timeout: float = 30.0) -> None:
        """Commits everything recorded so far, and waits until it is in the file. Raises `FileError` after `timeout` seconds."""
        self._native.flush(timeout)

    def close(self) -> Report:
        """Commits the remaining events, ends the file, and reports what happened to all events."""
        report = self._native.close()
        if report is None:
            raise SessionEnded(f"{self.path} is already closed")
        return Report(self.path, *report)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._native.close()

    def _record(self, kind: str, name: str, start_ns: int, end_ns: int, keywords: EventKeywords, **own: Any) -> bool:
        for keyword in keywords:
            if keyword not in EventKeywords.__annotations__:
                raise TypeError(f"{kind}() got an unexpected keyword argument {keyword!r}")
        return self._native.record(kind, name, start_ns, end_ns, {**_UNSET, **keywords, **own})


_UNSET: dict[str, Any] = {
    "category": None,
    "thread": None,
    "stack_id": 0,
    "parent_stack_id": 0,
    "correlation_id": 0,
    "agent": None,
    "destination": None,
    "queue": None,
    "stream": None,
    "size": 0,
    "value": 0.0,
}
