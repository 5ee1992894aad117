"""Keywords that all functions on traces share: the source of the clocks, and how traces are read."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Union

from . import _settings
from .errors import ConfigError
from .offsets import Offsets

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack


@dataclasses.dataclass(frozen=True)
class Run:
    """Clocks measured by a run, given by its directory. Without `traces`, the traces in that directory are used."""

    directory: _settings.Path


@dataclasses.dataclass(frozen=True)
class FromCollectives:
    """Clocks estimated from the collectives in the traces alone.

    The bounds hold if no clock steps or changes its rate by more than `max_rate_change` ppm (default: 10) within a window of 10 s or more.
    """

    max_rate_change: float | None = None


FROM_COLLECTIVES = FromCollectives()

Clocks = Union[Run, Offsets, FromCollectives]


class TraceKeywords(TypedDict, total=False):
    """Keywords of `align`, `merge`, `check`, `stragglers`, `convert` and `query`."""

    clocks: Clocks | None
    """Source of the clocks: `Run("run")`, `Offsets("offsets.csv")` or `FROM_COLLECTIVES`. None: times are used as they are."""
    nodes: Sequence[int]
    """The node that wrote each trace. By default this is determined from hosts and ranks in the traces."""
    assume_order: bool
    """True if the traces are one per node, in the order of the nodes."""
    extrapolate: _settings.Time | None
    """How far events may lie outside the measured time."""
    snapshots: _settings.Path | Iterable[_settings.Path] | None
    """Files of snapshot pairs, in the order of the traces. By default those of the run."""
    snapshot_markers: str | None
    """Pattern of events that state the system time, with the time (ns) in the group `system_ns`."""
    realtime_only: bool
    """True to treat the traces' times as the system clock, whatever markers and snapshots say."""
    timeline: str
    """Clock of the results: "host" or "tracer", of the reference node."""
    cpu_clock: str | None
    """Databases of rocprof-sys: "monotonic" if that is the clock of the rows that it stamped itself. Needs `suspended`."""
    suspended: _settings.Time | Mapping[str | None, _settings.Time] | None
    """How long each host was suspended since boot, by host (None: all others), or one time for all hosts. Needs `cpu_clock`."""
    skip_bad: bool
    """True to skip unreadable traces with a warning. Otherwise one unreadable trace is an error."""


def request(function: str, traces: _settings.Path | Iterable[_settings.Path] | None, keywords: TraceKeywords) -> dict[str, Any]:
    """Returns the request of a function for the native module; rejects unknown keywords and conflicting arguments."""
    for name in keywords:
        if name not in TraceKeywords.__annotations__:
            hint = "; give clocks=Run(directory), Offsets(file) or FROM_COLLECTIVES" if name in ("run_dir", "offsets", "from_collectives") else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")
    return _request(traces, **keywords)


def _request(
    traces: _settings.Path | Iterable[_settings.Path] | None,
    *,
    clocks: Clocks | None = None,
    nodes: Sequence[int] = (),
    assume_order: bool = False,
    extrapolate: _settings.Time | None = None,
    snapshots: _settings.Path | Iterable[_settings.Path] | None = None,
    snapshot_markers: str | None = None,
    realtime_only: bool = False,
    timeline: str = "host",
    cpu_clock: str | None = None,
    suspended: _settings.Time | Mapping[str | None, _settings.Time] | None = None,
    skip_bad: bool = False,
) -> dict[str, Any]:
    files, pairs = _settings.paths("traces", traces), _settings.paths("snapshots", snapshots)
    if not (clocks is None or isinstance(clocks, (Run, Offsets, FromCollectives))):
        raise ConfigError(f"clocks={clocks!r}: give Run(directory), Offsets(file) or FROM_COLLECTIVES")
    refusals = [
        (not files and not isinstance(clocks, Run), "no traces: give traces, or clocks=Run(directory) of a run that contains traces"),
        (assume_order and not files, "assume_order needs traces, whose order it uses"),
        (assume_order and len(nodes) > 0, "assume_order and nodes exclude each other; omit one of them"),
        (cpu_clock not in (None, "monotonic"), f"cpu_clock={cpu_clock!r}: give \"monotonic\""),
        ((cpu_clock is None) != (suspended is None), "cpu_clock and suspended need each other; give both"),
        (realtime_only and bool(pairs or snapshot_markers), "realtime_only excludes snapshots and snapshot_markers"),
    ]
    for refused, why in refusals:
        if refused:
            raise ConfigError(why)
    if isinstance(clocks, Offsets) and os.path.isdir(clocks.path):
        clocks = Run(clocks.path)
    rate = clocks.max_rate_change if isinstance(clocks, FromCollectives) else None
    return {
        "traces": files,
        "nodes": [int(node) for node in nodes],
        "assume_order": assume_order,
        "run_dir": os.fspath(clocks.directory) if isinstance(clocks, Run) else None,
        "offsets": clocks.path if isinstance(clocks, Offsets) else None,
        "extrapolate": None if extrapolate is None else _settings.time_text(extrapolate),
        "snapshots": pairs,
        "snapshot_markers": snapshot_markers,
        "realtime_only": realtime_only,
        "timeline": timeline,
        "skip_bad": skip_bad,
        "from_collectives": isinstance(clocks, FromCollectives),
        "suspended": None if suspended is None else _suspended(suspended),
        "max_rate_change": None if rate is None else float(rate),
    }


def _suspended(value: _settings.Time | Mapping[str | None, _settings.Time]) -> list[tuple[str | None, str]]:
    table = value if isinstance(value, Mapping) else {None: value}
    return [(host, _settings.time_text(time)) for host, time in table.items()]


def span(start: str | int | None, end: str | int | None, start_marker: str | None, end_marker: str | None, inclusive: bool) -> dict[str, Any]:
    """Returns which events are wanted, for the native module."""
    times = {name: None if time is None else str(time) for name, time in (("start", start), ("end", end))}
    return {**times, "start_marker": start_marker, "end_marker": end_marker, "inclusive": inclusive}
