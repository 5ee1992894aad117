"""The names of the ROCm/XLA distributed profiler's tools, on `merge` and `check`."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from . import _recorder, _settings
from .errors import ConfigError
from .results import MergeResult
from .traces import check, merge


def combine_traces(
    traces: Sequence[_settings.Path],
    snapshots: Iterable[_settings.Path] | None,
    offsets: _settings.Path | None,
    output: _settings.Path,
    apply_alignment: bool = True,
) -> MergeResult:
    """Puts the traces of nodes 0, 1, 2, ... into one XSpace, as `merge` does; without `apply_alignment` with their times as they are.

    The traces are in the order of the nodes; where their hosts or ranks say otherwise they are refused.
    """
    if not apply_alignment:
        return merge(traces, output=output, allow_uncalibrated=True)
    if offsets is None:
        raise ConfigError("combine_traces: give offsets, or apply_alignment=False to keep the times as they are")
    return merge(traces, output=output, offsets=offsets, snapshots=snapshots, assume_order=True)


def analyze_collective_operations(
    trace_files: _settings.Path | Sequence[_settings.Path], output_file: _settings.Path | None = None, csv_file: _settings.Path | None = None
) -> dict[str, Any]:
    """Checks happens-before on the times as they are in the traces, as `check` does; `output_file` gets the summary as JSON.

    `violations` are edges that are broken, `overlaps` those that hold, `warnings` what could not be judged, `gap_count` the operations,
    `details` the broken edges. Collectives are paired by what the traces state of them, never by counting, and what cannot be paired is a warning. A
    table of start gaps is not made: `csv_file` is refused.
    """
    if csv_file is not None:
        raise ConfigError("analyze_collective_operations: csv_file is not written; output_file has the broken edges")
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
