"""The native part; what people call is in the other modules."""

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

__all__ = ["Clock", "Marks", "Meeting", "Offsets", "Reading", "Round", "Session", "__version__", "agreed_id", "align", "check", "leave", "merge", "solve", "start", "stragglers", "write_page", "write_whole"]

__version__: str

@final
class Clock:
    """The reference's time in this process, in its forked children, and with `clock_page=` in every process of the host."""

    @staticmethod
    def open(path: str) -> Clock:
        """The clock that a session of this host keeps in a file (`clock_page=` there)."""
    def now_ns(self) -> int:
        """The reference's time now, ns since 1970; it never goes back. `ClockError` while nothing is known."""
    def now(self) -> Reading:
        """The same with its bounds."""
    @property
    def status(self) -> str:
        """`unsynchronised`, `synchronised`, `holdover` (no new estimate: the bounds grow), `failed` (the session has: they grow)."""
    def after(self, time_ns: int) -> bool:
        """Whether this time has certainly passed."""
    def before(self, time_ns: int) -> bool:
        """Whether this time has certainly not come."""
    def wait_until_known(self, timeout: float | None = None) -> None:
        """Returns when something is known; `WaitTimeout` after `timeout` seconds."""
    def wait_until(self, time_ns: int, timeout: float | None = None) -> None:
        """Returns when the clock shows this time, for a start that all ranks agreed on; `WaitTimeout` after `timeout` seconds."""
    def convert(self, times: npt.NDArray[np.int64], of: str = "realtime") -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Times of this host's clock `of` (`realtime`, `monotonic_raw`, `boottime`) on the reference's clock, and the half-width of each one's
        95 % interval. `ClockError` where that clock was set in between."""

@final
class Reading:
    """What a clock shows at an instant, in ns since 1970."""

    @property
    def time(self) -> int:
        """The reference's time; it never goes back within an epoch."""
    @property
    def earliest(self) -> int:
        """Earliest possible reference time."""
    @property
    def latest(self) -> int:
        """Latest possible reference time."""
    @property
    def bound95(self) -> int:
        """Half of the 95 % interval about `time`."""
    @property
    def status(self) -> str:
        """As `Clock.status`."""
    @property
    def epoch(self) -> int:
        """How often the clock was stepped (`clock_adjust="step"`)."""

@final
class Marks:
    def next_name(self) -> tuple[int, str] | None: ...
    def write(self, number: int, before_ns: int, after_ns: int) -> bool: ...

@final
class Meeting:
    """Rank 0 of a group that is about to meet: it listens from now on.

    `addresses` are those at which the others may reach this machine (default: its interfaces'). With `port` and `known` the others make the
    id themselves (`agreed_id`).
    """

    def __new__(cls, addresses: Sequence[str] | None = None, *, port: int | None = None, known: bytes | None = None) -> Meeting: ...
    @property
    def unique_id(self) -> bytes:
        """What the other ranks join by, 128 bytes. Whoever has them can take a rank's place."""

@final
class Round:
    """One round: all nodes' clocks against the reference's, as arrays in order of nodes."""

    @property
    def number(self) -> int:
        """Its number."""
    @property
    def reference(self) -> int:
        """The node whose offset is zero."""
    @property
    def midpoint_ns(self) -> int:
        """The instant at which the offsets hold, on the reference clock, ns since 1970."""
    @property
    def window_ns(self) -> tuple[int, int]:
        """The window's start and end on the reference clock, ns since 1970."""
    @property
    def nodes(self) -> npt.NDArray[np.uint32]:
        """The nodes' numbers, in the order of all columns: all nodes, or in a large group the reference and this rank's own (`share_rounds`)."""
    @property
    def offset_ns(self) -> npt.NDArray[np.float64]:
        """Each clock minus the reference clock at the midpoint; meaningless unless `reachable`."""
    @property
    def drift_ppm(self) -> npt.NDArray[np.float64]:
        """Each clock's rate against the reference's."""
    @property
    def sigma_ns(self) -> npt.NDArray[np.float64]:
        """Standard deviation of `offset_ns`; infinite unless `reachable`."""
    @property
    def bound_lo_ns(self) -> npt.NDArray[np.float64]:
        """Lower end of the hard interval: no smaller offset can have produced the packets."""
    @property
    def bound_hi_ns(self) -> npt.NDArray[np.float64]:
        """Upper end of the hard interval."""
    @property
    def reachable(self) -> npt.NDArray[np.bool_]:
        """Whether fitted edges join the node to the reference."""
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
    def late(self) -> str: ...
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

def start(
    file: str | None,
    settings: Sequence[tuple[str, str]],
    *,
    rank: int | None,
    size: int | None,
    meeting: Meeting | None,
    unique_id: bytes | None,
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
def write_page(out: str) -> str | None: ...
def write_whole(path: str, write: Callable[[str], object]) -> None: ...
def solve(recording: dict[str, Any], out: str) -> str: ...
