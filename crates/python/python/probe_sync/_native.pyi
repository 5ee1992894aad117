"""The native module; use the other modules, which wrap it."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar, final

import numpy as np
import numpy.typing as npt

__all__ = ["Clock", "Marks", "Meeting", "Messages", "Offsets", "Reading", "Recording", "RocpdWriter", "Round", "Rows", "Scope", "Session", "Span", "TraceWriter", "__version__", "agreed_id", "align", "check", "collective", "convert", "counter", "instant", "leave", "merge", "query", "scope", "solve", "span", "start", "stragglers", "write_page", "write_whole"]

__version__: str

_F = TypeVar("_F", bound=Callable[..., Any])

@final
class Clock:
    """The reference time in this process, in its forked children, and with `clock_page=` in every process on the host."""

    @staticmethod
    def open(path: str) -> Clock:
        """Opens the clock that a session on this host maintains in a file (its setting `clock_page=`)."""
    def now_ns(self) -> int:
        """Returns the current reference time, ns since 1970, which never goes back. Raises `ClockError` if it is not known yet."""
    def now(self) -> Reading:
        """Returns the current reference time with its bounds."""
    @property
    def status(self) -> str:
        """`unsynchronised`, `synchronised`, `holdover` (no new estimates; bounds grow) or `failed` (the session failed; bounds grow)."""
    def after(self, time_ns: int) -> bool:
        """Returns True if this time has certainly passed."""
    def before(self, time_ns: int) -> bool:
        """Returns True if this time is certainly still in the future."""
    def wait_until_known(self, timeout: float | None = None) -> None:
        """Waits until the reference time is known. Raises `WaitTimeout` after `timeout` seconds."""
    def wait_until(self, time_ns: int, timeout: float | None = None) -> None:
        """Waits until the clock shows this time, for example to start on all ranks at once. Raises `WaitTimeout` after `timeout` seconds."""
    def convert(self, times: npt.NDArray[np.int64], of: str = "realtime") -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Converts times of this host's clock `of` (`realtime`, `monotonic_raw`, `boottime`) to the reference clock. Returns them with the half-widths
        of their 95 % intervals. Raises `ClockError` if that clock was set in between."""

@final
class Reading:
    """One reading of a clock, in ns since 1970."""

    @property
    def time(self) -> int:
        """The reference time, which never goes back within an epoch."""
    @property
    def earliest(self) -> int:
        """Earliest possible reference time."""
    @property
    def latest(self) -> int:
        """Latest possible reference time."""
    @property
    def bound95(self) -> int:
        """Half-width of the 95 % interval around `time`."""
    @property
    def status(self) -> str:
        """The clock's status, as in `Clock.status`."""
    @property
    def epoch(self) -> int:
        """Number of times the clock was stepped (`clock_adjust="step"`)."""

@final
class Marks:
    def next_name(self) -> tuple[int, str] | None: ...
    def write(self, number: int, before_ns: int, after_ns: int) -> bool: ...

@final
class Meeting:
    """The place where a group's ranks meet; rank 0 creates it and listens from then on.

    `addresses` are the addresses at which the other ranks can reach this machine (default: those of its interfaces). With `port` and `known`, the other
    ranks derive the id themselves (`agreed_id`).
    """

    def __new__(cls, addresses: Sequence[str] | None = None, *, port: int | None = None, known: bytes | None = None) -> Meeting: ...
    @property
    def unique_id(self) -> bytes:
        """The 128 bytes with which the other ranks join. Anyone who has them can impersonate a rank."""

@final
class Messages:
    """Queues between a session and the threads that carry its messages."""

    def __new__(cls, rank: int, size: int) -> Messages: ...
    def take(self) -> tuple[int, bytes] | None:
        """Waits for the next message to send and returns its destination and bytes, or None after the end of the session. The message taken before counts as sent."""
    def deliver(self, source: int, message: bytes) -> None:
        """Adds a received message."""
    def fail(self, reason: str) -> None:
        """Ends the session with this reason."""
    def is_closed(self) -> bool:
        """Returns True after the end of the session."""
    def close(self) -> None:
        """Closes the queues, whether or not the session has ended."""
    def close_unused(self) -> None:
        """Closes the queues if no session has used them."""

@final
class Round:
    """One round: all nodes' clocks relative to the reference, as arrays in the order of `nodes`."""

    @property
    def number(self) -> int:
        """Number of the round."""
    @property
    def reference(self) -> int:
        """The node whose offset is zero."""
    @property
    def midpoint_ns(self) -> int:
        """The instant to which the offsets apply, on the reference clock, ns since 1970."""
    @property
    def window_ns(self) -> tuple[int, int]:
        """The window's start and end on the reference clock, ns since 1970."""
    @property
    def nodes(self) -> npt.NDArray[np.uint32]:
        """Node numbers, in the order of all columns: all nodes, or in a large group only the reference and this rank's node (`share_rounds`)."""
    @property
    def offset_ns(self) -> npt.NDArray[np.float64]:
        """Each clock minus the reference clock at the midpoint; meaningless unless `reachable`."""
    @property
    def drift_ppm(self) -> npt.NDArray[np.float64]:
        """Each clock's rate relative to the reference."""
    @property
    def sigma_ns(self) -> npt.NDArray[np.float64]:
        """Standard deviation of `offset_ns`; infinite unless `reachable`."""
    @property
    def bound_lo_ns(self) -> npt.NDArray[np.float64]:
        """Lower end of the hard interval: no smaller offset can have produced the observed packets."""
    @property
    def bound_hi_ns(self) -> npt.NDArray[np.float64]:
        """Upper end of the hard interval: no larger offset can have produced the observed packets."""
    @property
    def reachable(self) -> npt.NDArray[np.bool_]:
        """True if fitted edges connect the node to the reference."""
    def to_pandas(self) -> Any:
        """Returns a DataFrame with one row per node; requires pandas."""
    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Exports the rows as an Arrow stream (for polars, duckdb and others); requires pyarrow."""
    def __len__(self) -> int: ...

@final
class Session:
    def progress(self) -> tuple[str, tuple[int, int, int, int, int, list[int]] | None, str | None]: ...
    def latest(self) -> Round | None: ...
    def next_round(self, after: Round | None, timeout: float | None) -> Round | None: ...
    def wait_until_bound(self, half_width_ns: int, timeout: float | None) -> Round: ...
    def ask(self, request: str, timeout: float | None) -> int: ...
    def clock(self) -> Clock: ...
    def arrive(self, group: str, step: int) -> None: ...
    def observe_collectives(self) -> None: ...
    def report_arrivals(self, arrivals: Sequence[tuple[str, int, int]], until_ns: int, lost: int) -> None: ...
    def late(self) -> str: ...
    def hang_requested(self) -> int | None: ...
    def withdraw_from_hang(self) -> None: ...
    def answer_hang(self, number: int, files: Sequence[tuple[str, bytes]], timeout: float) -> None: ...
    def marks(self, timeout: float | None) -> Marks: ...
    def run_id(self, timeout: float | None) -> str: ...
    def sees_root(self, timeout: float | None) -> bool: ...
    def send_files(self, files: Sequence[tuple[str, str]], timeout: float | None) -> None: ...
    def pause(self, paused: bool) -> None: ...
    def stop(self, timeout: float | None) -> str | None: ...
    def abandon(self) -> None: ...

@final
class Offsets:
    def __new__(cls, path: str) -> Offsets: ...
    @property
    def reference(self) -> int: ...
    @property
    def nodes(self) -> list[int]: ...
    @property
    def hosts(self) -> dict[int, str]: ...
    @property
    def notes(self) -> list[str]: ...
    def measured_ns(self, node: int) -> tuple[int, int] | None: ...
    def lines(
        self, node: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]: ...
    def convert(self, times_ns: npt.NDArray[np.int64], node: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]: ...

@final
class Rows:
    @property
    def columns(self) -> list[str]: ...
    @property
    def timeline(self) -> str: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def warnings(self) -> list[str]: ...
    def next_batch(self) -> list[npt.NDArray[np.int64] | npt.NDArray[np.float64] | list[object]] | None: ...

@final
class RocpdWriter:
    def __new__(cls, path: str, flush_interval: str) -> RocpdWriter: ...
    @property
    def path(self) -> str: ...
    def agent(self, name: str, index: int) -> int: ...
    def record(self, kind: str, name: str, start_ns: int, end_ns: int, fields: dict[str, Any]) -> bool: ...
    def flush(self, timeout: float) -> None: ...
    def close(self) -> tuple[int, int, int, int] | None: ...

@final
class TraceWriter:
    def __new__(cls, path: str, format: str, base_ns: int, metadata: Sequence[tuple[str, str]]) -> TraceWriter: ...
    def process(self, name: str, pid: int, host: str, rank: int | None) -> int: ...
    def track(self, kind: str, name: str, parent: int, tid: int, unit: str) -> int: ...
    def events(
        self,
        track: npt.NDArray[np.uint32],
        names: Sequence[str],
        categories: Sequence[str],
        starts_ns: npt.NDArray[np.int64],
        ends_ns: npt.NDArray[np.int64] | None,
    ) -> None: ...
    def counters(self, track: npt.NDArray[np.uint32], times_ns: npt.NDArray[np.int64], values: npt.NDArray[np.float64]) -> None: ...
    def close(self) -> tuple[int, int, int, int, int] | None: ...
    def abandon(self) -> None: ...

@final
class Recording:
    def __new__(cls, settings: Sequence[tuple[str, str]], started_at: str) -> Recording: ...
    @property
    def path(self) -> str | None: ...
    @property
    def is_recording(self) -> bool: ...
    @property
    def lost(self) -> int: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def snapshot(self, path: str) -> None: ...
    def finish(self, path: str | None) -> tuple[int, int]: ...

@final
class Scope:
    """A scope: a context manager, and a decorator that gives each call of a function a scope.

    It may be kept and entered any number of times, by any thread and within itself. It ends on the thread that entered it; what gives way to other tasks
    needs a `Span`.
    """

    def __enter__(self) -> Scope: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
    def __call__(self, function: _F) -> _F: ...
    def add(self, **arguments: object) -> None:
        """Adds arguments to the latest use on this thread that has not ended."""

@final
class Span:
    """A context manager for what may end on another thread, or in another task, than it began."""

    def __enter__(self) -> Span: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

def scope(name: str, kind: str | None = None, /, **arguments: object) -> Scope:
    """Returns the scope of a name, for `with` or as a decorator.

    `kind` is "function", "backward", "user" (the default), "collective", "runtime", "io", "memory" or "custom". Arguments are numbers, texts, booleans
    and lists of these; of anything else the type's name is recorded, so that no tensor is read. One that is a function is called only if the scope is
    recorded, and `shapes`, `stack` and `module` only if the recording wants them.
    """

def span(name: str, kind: str | None = None, /, **arguments: object) -> Span:
    """Returns a span, for `with`; arguments as in `scope`."""

def instant(name: str, kind: str | None = None, /, **arguments: object) -> None:
    """Records an instant; arguments as in `scope`."""

def counter(name: str, value: float) -> None:
    """Records the new value of a counter."""

def collective(operation: str, arguments: dict[str, Any]) -> Scope: ...
def start(
    file: str | None,
    settings: Sequence[tuple[str, str]],
    *,
    rank: int | None,
    size: int | None,
    meeting: Meeting | None,
    unique_id: bytes | None,
    messages: Messages | None,
) -> Session: ...
def agreed_id(addresses: Sequence[str], *, port: int, known: bytes) -> bytes: ...
def leave() -> None: ...
def align(
    asked: dict[str, Any],
    output: str,
    *,
    annotate: bool,
    embed_snapshots: bool,
    validate: bool,
    progress: Callable[[float], object] | None,
) -> str: ...
def merge(
    asked: dict[str, Any],
    output: str,
    *,
    kept: dict[str, Any],
    allow_uncalibrated: bool,
    plane_layout: str,
    annotate: bool,
    schema: str | None,
    drop_foreign: bool,
    mark_late: bool,
    validate: bool,
) -> str: ...
def check(asked: dict[str, Any], *, report: str | None) -> str: ...
def stragglers(asked: dict[str, Any], *, step_name: str | None, json: str | None, csv: str | None) -> str: ...
def convert(
    asked: dict[str, Any],
    output: str,
    *,
    name: str,
    formats: Sequence[str],
    no_correction: bool,
    collective_flows: bool,
    machines: bool,
    without_args: bool,
    group_by_queue: bool,
    agent_index: str,
    span: dict[str, Any],
) -> str: ...
def query(sql: str, asked: dict[str, Any], *, no_correction: bool, span: dict[str, Any], timeout: str | None) -> Rows: ...
def write_page(out: str) -> str | None: ...
def write_whole(path: str, write: Callable[[str], object]) -> None: ...
def solve(recording: dict[str, Any], out: str) -> str: ...
