"""Writes what a hung job leaves: each rank's Flight Recorder dump and Python stacks, for `probe_sync hang`."""

from __future__ import annotations

import importlib
import pathlib
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

    def __init__(self, folder: pathlib.Path, after_s: float, distributed: Any) -> None:
        self._folder, self._after_ns = folder, round(after_s * 1e9)
        self._distributed = distributed
        self._has_dumped = False

    def look(self, standing: LateStanding) -> None:
        """Writes the files if the job hangs; a failure to write is a warning."""
        if not standing.waiting:
            self._has_dumped = False
        hung = [wait for wait in standing.waiting if wait.waited_ns >= self._after_ns]
        if not hung or self._has_dumped:
            return
        self._has_dumped = True
        rank = self._distributed.get_rank()
        try:
            self._write(rank)
        except (Error, OSError, RuntimeError) as error:
            _recorder._tell(f"probe_sync: rank {rank}: cannot write what it does while the job hangs: {error}")
            return
        if rank == min(min(wait.waiting, default=rank) for wait in hung):
            _recorder._tell(f"probe_sync: the job hangs: {hung[0]}; every rank writes what it does to {self._folder}: probe_sync hang {self._folder}")

    def _write(self, rank: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        stacks = _stacks()
        _recorder.write_whole(self._folder / f"rank_{rank}.stack", lambda path: pathlib.Path(path).write_text(stacks, encoding="utf-8"))
        record = _flight_record(self._distributed.get_backend())
        if record is not None:
            _recorder.write_whole(self._folder / f"rank_{rank}", lambda path: pathlib.Path(path).write_bytes(record))


def _flight_record(backend: str) -> bytes | None:
    """Returns the dump of torch's Flight Recorder as torch's own watchdog writes it; None if this torch has none."""
    c10d = importlib.import_module("torch._C._distributed_c10d")
    if "nccl" in backend and hasattr(c10d, "_dump_nccl_trace"):
        return bytes(c10d._dump_nccl_trace(includeCollectives=True, includeStackTraces=False, onlyActive=False))
    if hasattr(c10d, "_dump_fr_trace"):
        return bytes(c10d._dump_fr_trace(True, False, False, backend=backend.rpartition(":")[2]))
    return None


def _stacks() -> str:
    """Returns the stacks of all threads but this one, the main thread first."""
    names = {thread.ident: "MainThread" if thread is threading.main_thread() else thread.name for thread in threading.enumerate()}
    frames = {ident: frame for ident, frame in sys._current_frames().items() if ident != threading.get_ident()}
    in_order = sorted(frames, key=lambda ident: (names.get(ident) != "MainThread", ident))
    parts = [[f"{names.get(ident, ident)} (most recent call last):\n", *traceback.format_stack(frames[ident])] for ident in in_order]
    return "".join(line for part in parts for line in part)
