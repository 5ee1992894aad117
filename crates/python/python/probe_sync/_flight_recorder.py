"""Reads from torch's Flight Recorder when this rank issued each collective, for versions of torch whose process groups have no hooks (before 2.15).

Collectives wait while the recorder is read, some 8 µs per entry, so that only a small ring is read, and never for more than 0.5 % of the time. All ranks
read at the same instants of their system clocks: if a ring holds less than was issued since the last reading, they still see the same operations.
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
    """Raises `ConfigError` unless this torch has a recorder, and its ring is small enough to be read next to a job."""
    without = f"probe_sync.torch.watch: torch {version} has no hooks for collectives (2.15 and later have them)"
    if not _dumps():
        raise ConfigError(f"{without}, and no Flight Recorder that could be read instead; call session.arrive(group, step) in the loop")
    # Which of the two a version reads, and its default, differ.
    if not all(os.environ.get(size, "").isdecimal() and 0 < int(os.environ[size]) <= ENTRIES_MAX for size in SIZES):
        raise ConfigError(
            f"{without}, and reading its Flight Recorder would delay collectives unless it is small; export {SIZES[0]}=64 and {SIZES[1]}=64 before the job starts"
        )


class FlightRecorder:
    """Reports each collective of this process as `(group, number, time of issue in ns)`.

    `report` receives new collectives, the time until which they are complete, and how many were lost.
    """

    def __init__(self, report: Callable[[list[tuple[str, int, int]], int, int], None]) -> None:
        self._report = report
        self._readers = [Reader(dump) for dump in _dumps()]
        self._period_ns = PERIOD_NS
        self._costs_ns: collections.deque[int] = collections.deque(maxlen=COSTS)
        self.missed = 0
        """Collectives that the ring had forgotten before they were read."""
        until = time.time_ns()
        # What was issued before the watch began is not judged.
        for reader in self._readers:
            reader.skip()
        self._report([], until, 0)

    def look(self) -> None:
        """Reads the collectives since the last call."""
        until, begun = time.time_ns(), time.thread_time_ns()
        texts = [reader.dump(True, False) for reader in self._readers]
        self._costs_ns.append(time.thread_time_ns() - begun)
        usual_ns, self._period_ns = statistics.median(self._costs_ns), PERIOD_NS
        while usual_ns * COST > self._period_ns:
            self._period_ns *= 2
        arrivals: list[tuple[str, int, int]] = []
        missed = sum(reader.take(text, arrivals) for reader, text in zip(self._readers, texts, strict=True))
        self.missed += missed
        self._report(arrivals, until, missed)

    def wait_s(self) -> float:
        """Returns the time until the next reading."""
        return (self._period_ns - time.time_ns() % self._period_ns) / 1e9

    def remove(self) -> None:
        """Ends the reports: what is reported by other means is complete at all times."""
        self._report([], FOREVER_NS, 0)


class Reader:
    """Reads one of torch's recorders."""

    def __init__(self, dump: Callable[[bool, bool], bytes]) -> None:
        self.dump = dump
        self._next = 0

    def skip(self) -> None:
        """Passes over the present entries."""
        self.take(self.dump(True, False), [])

    def take(self, text: bytes, arrivals: list[tuple[str, int, int]]) -> int:
        """Adds the collectives since the last call; returns how many are lost."""
        entries: list[dict[str, Any]] = json.loads(text).get("entries") or []
        if not entries:
            return 0
        numbers: list[int] = [entry["record_id"] for entry in entries]
        first, last = min(numbers), max(numbers)
        # A ring keeps its latest entry, so lower numbers mean that torch has emptied it.
        since = self._next if last >= self._next - 1 else 0
        self._next = last + 1
        for entry in entries:
            # Entries that were never enqueued have no time.
            if entry["record_id"] < since or entry.get("is_p2p") or not entry["time_created_ns"]:
                continue
            name = _collectives.group_name(entry["profiling_name"].rpartition(":")[2], *entry["process_group"])
            if name:
                arrivals.append((name, entry["collective_seq_id"], entry["time_created_ns"]))
        return max(0, first - since)


def _dumps() -> list[Callable[[bool, bool], bytes]]:
    """Returns the functions that dump torch's recorders as JSON: the one of gloo, and the one of NCCL."""
    c10d = importlib.import_module("torch._C._distributed_c10d")
    found: list[Callable[[bool, bool], bytes]] = []
    if hasattr(c10d, "_dump_fr_trace_json"):
        found.append(c10d._dump_fr_trace_json)
    if hasattr(c10d, "_dump_nccl_trace_json"):
        found.append(c10d._dump_nccl_trace_json)
    return found


SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
ENTRIES_MAX = 256
PERIOD_NS = 500_000_000
FOREVER_NS = 2**63 - 1
COST = 200
"""The period is at least this many times the processor time that a reading usually takes."""
COSTS = 9
"""Number of recent readings whose median cost is used."""
