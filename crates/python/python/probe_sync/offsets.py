"""Offsets of a run or table as arrays, and conversion of times with them."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _native, _settings
from ._tables import Table
from .errors import ConfigError

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclasses.dataclass(frozen=True, eq=False)
class NodeLines(Table):
    """One node's lines in a file of offsets."""

    at_ns: npt.NDArray[np.int64]
    """Time, ns since 1970: on the reference clock in files of a run, on the node's own clock in tables."""
    offset_ns: npt.NDArray[np.float64]
    """This clock minus the reference clock."""
    drift_ppm: npt.NDArray[np.float64]
    """This clock's rate relative to the reference; NaN if not given."""
    sigma_ns: npt.NDArray[np.float64]
    """Standard deviation of the offset; NaN if not given."""

    def _columns(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


class Offsets(Table):
    """Offsets of all nodes by time, read from a run's directory, its `offsets.jsonl`, or a CSV of node, node time, offset.

    As a table it has one row per line of the file, with the node in the first column.
    """

    def __init__(self, path: _settings.Path) -> None:
        self._native = _native.Offsets(os.fspath(path))
        self.path: str = os.fspath(path)

    @property
    def reference(self) -> int:
        """The node whose offset is zero."""
        return self._native.reference

    @property
    def nodes(self) -> list[int]:
        """All nodes in the file, including the reference."""
        return self._native.nodes

    @property
    def hosts(self) -> dict[int, str]:
        """Host name of each node, if given."""
        return self._native.hosts

    @property
    def notes(self) -> list[str]:
        """Lines of the file that were ignored, and why."""
        return self._native.notes

    def measured_ns(self, node: int) -> tuple[int, int] | None:
        """Returns the start and end of a node's measurement on its own clock, ns since 1970; None for a node without offsets."""
        return self._native.measured_ns(node)

    def lines(self, node: int) -> NodeLines:
        """Returns a node's lines in the file, in order of time."""
        return NodeLines(*self._native.lines(node))

    def to_reference(self, times_ns: npt.ArrayLike, node: int) -> npt.NDArray[np.int64]:
        """Converts times of a node's system clock (whole ns since 1970) to the reference clock, as `align` does.

        Accepts arrays of any shape. Outside `measured_ns` the clock is extrapolated; `sigma_ns` gives the uncertainty.
        """
        return self._convert(times_ns, node)[0]

    def sigma_ns(self, times_ns: npt.ArrayLike, node: int) -> npt.NDArray[np.float64]:
        """Returns the standard deviations of the times returned by `to_reference`."""
        return self._convert(times_ns, node)[1]

    def _convert(self, times_ns: npt.ArrayLike, node: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        given = np.asarray(times_ns)
        if given.dtype.kind not in "iu":
            raise ConfigError(f"times_ns has type {given.dtype}: give whole nanoseconds; a float cannot hold a time since 1970 to the nanosecond")
        times, sigmas = self._native.convert(np.ascontiguousarray(given, dtype=np.int64).reshape(-1), node)
        return times.reshape(given.shape), sigmas.reshape(given.shape)

    def _columns(self) -> dict[str, Any]:
        nodes = [(node, self.lines(node)._columns()) for node in self.nodes]
        names = [field.name for field in dataclasses.fields(NodeLines)]
        which = np.concatenate([np.full(len(lines["at_ns"]), node, dtype=np.uint32) for node, lines in nodes])
        return {"node": which, **{name: np.concatenate([lines[name] for _, lines in nodes]) for name in names}}

    def __repr__(self) -> str:
        return f"<probe_sync.Offsets {self.path}: {len(self.nodes)} nodes against node {self.reference}>"
