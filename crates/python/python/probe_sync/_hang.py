"""Writes what a hung job leaves: each rank's Flight Recorder dump and Python stacks, for `probe_sync hang`."""

from __future__ import annotations

import importlib
import pathlib
import pickle
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

from . import _recorder
from .errors import Error

if TYPE_CHECKING:
    from .lateness import LateStanding


class Dumper:
    """Writes this rank's files into `folder` when an operation has waited for a rank for `after_s` seconds, once per hang."""

    def __init__(self, folder: pathlib.Path, after_s: float, rank: int) -> None:
        self._after_ns, self._rank, self._folder = round(after_s * 1e9), rank, folder
        self._dump, self._stack = folder / f"rank_{rank}", folder / f"rank_{rank}.stack"
        self._is_armed = False
        self._arm()

    def look(self, standing: LateStanding) -> None:
        """Writes the files if the job hangs; a failure to write is a warning."""
        hung = [wait for wait in standing.waiting if wait.waited_ns >= self._after_ns]
        if not hung:
            self._arm()
        elif self._is_armed:
            self._is_armed = False
            try:
                self._write()
            except (Error, OSError, RuntimeError) as error:
                _recorder._tell(f"probe_sync: rank {self._rank}: cannot write its dump and stacks: {error}")
            if self._rank == min(min(wait.waiting, default=self._rank) for wait in hung):
                told = f"probe_sync: the job hangs: {hung[0]}; every rank writes its dump and stacks to {self._folder}"
                _recorder._tell(f"{told}; run `probe_sync hang {self._folder}`")

    def _arm(self) -> None:
        """Removes the files of an earlier hang or job, which must not pass for those of the next one."""
        if not self._is_armed:
            self._is_armed = True
            for old in (self._dump, self._stack):
                old.unlink(missing_ok=True)

    def _write(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for name, content in evidence(self._rank):
            _write(self._folder / name, content)


def evidence(rank: int) -> list[tuple[str, bytes]]:
    """Returns the files of a rank as `probe_sync hang` reads them: the stacks of its threads and its Flight Recorder dump, if this torch has one."""
    record = _flight_record()
    dumps = [] if record is None else [(f"rank_{rank}", record)]
    return [(f"rank_{rank}.stack", _stacks().encode()), *dumps]


def _write(path: pathlib.Path, content: bytes) -> None:
    _recorder.write_whole(path, lambda private: pathlib.Path(private).write_bytes(content))


def _flight_record() -> bytes | None:
    """Returns the dump of the Flight Recorder that was used last, as torch's own watchdog writes it; None if this torch has none."""
    c10d = importlib.import_module("torch._C._distributed_c10d")
    dumps = []
    if hasattr(c10d, "_dump_fr_trace"):
        dumps.append(bytes(c10d._dump_fr_trace(True, False, False, backend="gloo")))
    if hasattr(c10d, "_dump_nccl_trace"):
        dumps.append(bytes(c10d._dump_nccl_trace(includeCollectives=True, includeStackTraces=False, onlyActive=False)))
    return max(dumps, key=_last_enqueue_ns, default=None)


def _last_enqueue_ns(dump: bytes) -> int:
    # This process wrote it.
    entries: list[dict[str, Any]] = pickle.loads(dump).get("entries", [])  # noqa: S301
    return max((entry.get("time_created_ns") or 0 for entry in entries), default=0)


def _stacks() -> str:
    """Returns the stacks of all threads but this one, the main thread first."""
    names = {thread.ident: "MainThread" if thread is threading.main_thread() else thread.name for thread in threading.enumerate()}
    frames = {ident: frame for ident, frame in sys._current_frames().items() if ident != threading.get_ident()}
    in_order = sorted(frames, key=lambda ident: (names.get(ident) != "MainThread", ident))
    parts = [[f"{names.get(ident, ident)} (most recent call last):\n", *traceback.format_stack(frames[ident])] for ident in in_order]
    return "".join(line for part in parts for line in part)
