"""Reads from torch's Flight Recorder when this rank issued each collective, for versions of torch whose process groups have no hooks (before 2.15).

Collectives wait while the recorder is read, some 8 µs per entry, so that only a small ring is read, and never for more than 0.5 % of the time. All ranks
read at the same instants: if a ring holds less than was issued since the last reading, they still see the same operations.
"""

from __future__ import annotations

import collections
import importlib
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from . import _collectives
from .errors import ConfigError


def require_small_ring(version: str) -> None:
    """Raises `ConfigError` if the ring of the recorder is off, or too large to be read next to a job."""
    entries = _ring_size()
    if not 0 < entries <= ENTRIES_MAX:
        size = f"its Flight Recorder holds {entries} entries, and reading them would delay collectives" if entries else "its Flight Recorder is off"
        raise ConfigError(
            f"probe_sync.torch.watch: torch {version} has no hooks for collectives (2.15 and later have them), and {size}; "
            f"export {SIZES[0]}=64 and {SIZES[1]}=64 before the job starts"
        )


class FlightRecorder:
    """Reports `(group, number, time of issue in ns)` of each collective of this process, and until when they are complete, to `report`."""

    def __init__(self, report: Callable[[list[tuple[str, int, int]], int], None]) -> None:
        self._report = report
        self._readers = [_Reader(dump) for dump in _dumps()]
        self._period_ns = PERIOD_NS
        self._costs_ns: collections.deque[int] = collections.deque(maxlen=COSTS)
        self.missed = 0
        """Collectives that the ring had forgotten before they were read."""
        self._report([], time.time_ns())

    def look(self) -> None:
        """Reads the collectives since the last call."""
        until, begun = time.time_ns(), time.thread_time_ns()
        texts = [reader.dump(True, False) for reader in self._readers]
        self._costs_ns.append(time.thread_time_ns() - begun)
        usual_ns, self._period_ns = statistics.median(self._costs_ns), PERIOD_NS
        while usual_ns * COST > self._period_ns:
            self._period_ns *= 2
        arrivals: list[tuple[str, int, int]] = []
        for reader, text in zip(self._readers, texts, strict=True):
            self.missed += reader.take(text, arrivals)
        self._report(arrivals, until)

    def wait_s(self) -> float:
        """Returns the time until the next reading."""
        return (self._period_ns - time.time_ns() % self._period_ns) / 1e9

    def remove(self) -> None:
        """Does nothing: torch keeps its recorder."""


class _Reader:
    """One of torch's recorders."""

    def __init__(self, dump: Callable[[bool, bool], bytes]) -> None:
        self.dump = dump
        self._next: int | None = None

    def take(self, text: bytes, arrivals: list[tuple[str, int, int]]) -> int:
        """Adds the collectives since the last call; returns how many are missing."""
        entries: list[dict[str, Any]] = json.loads(text).get("entries") or []
        new = [entry for entry in entries if self._next is None or entry["record_id"] >= self._next]
        if not new:
            return 0
        first, last = min(entry["record_id"] for entry in new), max(entry["record_id"] for entry in new)
        missed = 0 if self._next is None else first - self._next
        self._next = last + 1
        for entry in new:
            # Torch does not know the time of what it has not enqueued.
            if entry.get("is_p2p") or not entry["time_created_ns"]:
                continue
            name = _collectives.group_name(entry["profiling_name"].rpartition(":")[2], *entry["process_group"])
            if name:
                arrivals.append((name, entry["collective_seq_id"], entry["time_created_ns"]))
        return missed


def _dumps() -> list[Callable[[bool, bool], bytes]]:
    """Returns what reads torch's recorders as JSON: the one of NCCL, and the one of gloo."""
    c10d = importlib.import_module("torch._C._distributed_c10d")
    found: list[Callable[[bool, bool], bytes]] = []
    if hasattr(c10d, "_dump_fr_trace_json"):
        found.append(c10d._dump_fr_trace_json)
    if hasattr(c10d, "_dump_nccl_trace_json"):
        found.append(c10d._dump_nccl_trace_json)
    return found


def _ring_size() -> int:
    for variable in SIZES:
        size = os.environ.get(variable, "")
        if size.isdecimal():
            return int(size)
    return ENTRIES_DEFAULT


SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
ENTRIES_DEFAULT = 2000
ENTRIES_MAX = 256
PERIOD_NS = 500_000_000
COST = 200
"""The period is at least this many times the processor time that a reading usually takes."""
COSTS = 9
"""Readings of which the usual one is taken."""
