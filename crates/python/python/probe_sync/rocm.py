"""Functions with the names of the ROCm/XLA distributed profiler's tools, implemented with `merge` and `check`."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from . import _recorder, _settings
from .errors import ConfigError
from .offsets import Offsets
from .results import MergeResult
from .traces import check, merge


def combine_traces(
    traces: Sequence[_settings.Path],
    snapshots: Iterable[_settings.Path] | None,
    offsets: _settings.Path | None,
    output: _settings.Path,
    apply_alignment: bool = True,
) -> MergeResult:
    """Merges the traces of nodes 0, 1, 2, ... into one XSpace, as `merge` does; without `apply_alignment`, times are unchanged.

    Traces must be in node order; they are rejected if their hosts or ranks contradict it.
    """
    if not apply_alignment:
        return merge(traces, output=output, allow_uncalibrated=True)
    if offsets is None:
        raise ConfigError("combine_traces: give offsets, or apply_alignment=False to keep the original times")
    return merge(traces, output=output, clocks=Offsets(offsets), snapshots=snapshots, assume_order=True)


def analyze_collective_operations(
    trace_files: _settings.Path | Sequence[_settings.Path], output_file: _settings.Path | None = None, csv_file: _settings.Path | None = None
) -> dict[str, Any]:
    """Checks happens-before on the original times of the traces, as `check` does, and writes the summary as JSON to `output_file`.

    `violations` counts broken edges, `overlaps` edges that hold, `warnings` parts that could not be checked, and `gap_count` operations; `details` lists
    the broken edges. Collectives are paired by what the traces record about them, never by counting; those that cannot be paired count as warnings. A
    table of start gaps is not supported, so `csv_file` is rejected.
    """
    if csv_file is not None:
        raise ConfigError("analyze_collective_operations: csv_file is not supported; output_file contains the broken edges")
    found = check(trace_files).verdict.result
    summary: dict[str, Any] = {
        "violations": found.violations,
        "overlaps": found.edges - found.broken,
        "warnings": found.ambiguous_instances + found.unjudged_edges + found.unjudged_parts,
        "gap_count": found.instances,
        "details": found.details["broken_edges"],
    }
    if output_file is not None:
        text = json.dumps(summary, indent=2)
        _recorder.write_whole(pathlib.Path(output_file), lambda beside: pathlib.Path(beside).write_text(text, encoding="utf-8"))
    return summary
