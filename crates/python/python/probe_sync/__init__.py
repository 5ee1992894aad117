"""Measures the clock offsets between a cluster's nodes while a job runs, and puts its profiler traces on one clock.

Alongside a training loop, on every rank::

    session = probe_sync.start(group=probe_sync.from_torch(), out="run")
    ...                       # training; every rank ends with session.stop()

Afterwards, anywhere::

    probe_sync.align(traces, clocks=probe_sync.Run("run"), output="aligned/", validate=True)

This package never prints, installs no signal handlers, and does not link MPI. Errors are subclasses of `probe_sync.Error`; their messages say what to do.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import record, rocpd
from ._inputs import FROM_COLLECTIVES, FromCollectives, Run, TraceKeywords
from ._native import Clock, Meeting, Reading, Round, __version__
from .errors import (
    AlreadyStarted,
    BoundUnreachable,
    ClockError,
    ConfigError,
    DamagedTrace,
    Error,
    FileError,
    JoinError,
    MissingFile,
    RefusedTrace,
    SessionEnded,
    SessionFailed,
    WaitTimeout,
)
from .lateness import Late, LateStanding, Waiting
from ._carried import over_jax, over_torch
from .launch import Group, from_env, from_hosts, from_jax, from_mpi4py, from_torch
from .offsets import NodeLines, Offsets
from .results import (
    AlignedTrace,
    AlignResult,
    AlignmentStats,
    CheckReport,
    CheckResult,
    ConvertedFile,
    ConvertResult,
    FilterReport,
    MergeResult,
    SolveResult,
    Straggler,
    StragglersResult,
    Verdict,
)
from .rocm import analyze_collective_operations, combine_traces
from .session import Session, State, clock, current, start
from .traces import Rows, align, check, convert, merge, query, solve, stragglers
from .writer import TraceWriter, WrittenTrace

if TYPE_CHECKING:
    from . import jax as jax
    from . import torch as torch
else:
    # Hidden from type checkers, which would accept any misspelt name because of it.
    def __getattr__(name: str) -> Any:
        """Imports `probe_sync.torch` and `probe_sync.jax` on first use; nothing else needs torch or JAX."""
        if name in ("jax", "torch"):
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")



__all__ = [
    "AlignResult",
    "AlignedTrace",
    "AlignmentStats",
    "AlreadyStarted",
    "BoundUnreachable",
    "CheckReport",
    "CheckResult",
    "Clock",
    "ClockError",
    "ConfigError",
    "ConvertResult",
    "ConvertedFile",
    "DamagedTrace",
    "Error",
    "FROM_COLLECTIVES",
    "FileError",
    "FilterReport",
    "FromCollectives",
    "Group",
    "JoinError",
    "Late",
    "LateStanding",
    "Meeting",
    "MergeResult",
    "MissingFile",
    "NodeLines",
    "Offsets",
    "Reading",
    "RefusedTrace",
    "Round",
    "Rows",
    "Run",
    "Session",
    "SessionEnded",
    "SessionFailed",
    "SolveResult",
    "State",
    "Straggler",
    "StragglersResult",
    "TraceKeywords",
    "TraceWriter",
    "Verdict",
    "WaitTimeout",
    "Waiting",
    "WrittenTrace",
    "__version__",
    "align",
    "analyze_collective_operations",
    "check",
    "clock",
    "combine_traces",
    "convert",
    "current",
    "from_env",
    "from_hosts",
    "from_jax",
    "from_mpi4py",
    "from_torch",
    "merge",
    "over_jax",
    "over_torch",
    "query",
    "record",
    "rocpd",
    "solve",
    "start",
    "stragglers",
]
