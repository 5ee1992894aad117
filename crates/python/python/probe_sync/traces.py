"""Puts raw traces on one clock, with the functions behind the command line: `align`, `merge`, `check`, `stragglers`, `solve`.

Keywords correspond to the command line's options; see `probe_sync align --help` for details. All calls release the interpreter lock, and Ctrl-C
ends them: a trace that is being written is finished in the background or removed at exit, so no partial output remains.
"""

from __future__ import annotations

import json as _json
import operator
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex

from . import _native, _settings, results
from .errors import ConfigError
from .results import AlignedTrace, AlignResult, CheckResult, MergeResult, SolveResult, StragglersResult


def align(
    traces: _settings.Path | Iterable[_settings.Path] | None = None,
    *,
    output: _settings.Path,
    nodes: Sequence[int] = (),
    assume_order: bool = False,
    run_dir: _settings.Path | None = None,
    offsets: _settings.Path | None = None,
    from_collectives: bool = False,
    max_rate_change: float | None = None,
    extrapolate: _settings.Time | None = None,
    snapshots: _settings.Path | Iterable[_settings.Path] | None = None,
    snapshot_markers: str | None = None,
    realtime_only: bool = False,
    timeline: str = "host",
    skip_bad: bool = False,
    annotate: bool = False,
    embed_snapshots: bool = False,
    validate: bool = False,
    progress: Callable[[float], object] | None = None,
) -> AlignResult:
    """Rewrites traces onto the reference clock, each in its own format: to the file `output`, or for several traces to that directory.

    The clock offsets come from `run_dir` (a run's directory), `offsets` (its offsets, or a CSV of node, node time, offset) or
    `from_collectives`, whose bounds hold if no clock steps or changes its rate by more than `max_rate_change` ppm (default: 10) within a window of 10 s
    or more. Without `traces`, the traces in the run's directory are used. `progress` is called with the fraction of traces written so
    far. `validate` checks happens-before before and after alignment. `skip_bad` skips unreadable traces, with a warning for each; otherwise one
    unreadable trace is an error. `omitted` in the result lists what was skipped.

    Raises `RefusedTrace` if the traces do not match the measured clocks, `DamagedTrace`, `FileError`, and `ConfigError` for invalid arguments.
    """
    asked = _asked(
        traces,
        nodes,
        assume_order,
        run_dir,
        offsets,
        from_collectives,
        max_rate_change,
        extrapolate,
        snapshots,
        snapshot_markers,
        realtime_only,
        timeline,
        skip_bad,
    )
    told = _json.loads(
        _native.align(
            asked, os.fspath(output), annotate=annotate, embed_snapshots=embed_snapshots, validate=validate, progress=progress
        )
    )
    return AlignResult(**results.common(told), traces=_rows(told, None), verdict=results.verdict(told["verdict"]))


def merge(
    traces: _settings.Path | Iterable[_settings.Path] | None = None,
    *,
    output: _settings.Path,
    nodes: Sequence[int] = (),
    assume_order: bool = False,
    run_dir: _settings.Path | None = None,
    offsets: _settings.Path | None = None,
    from_collectives: bool = False,
    max_rate_change: float | None = None,
    extrapolate: _settings.Time | None = None,
    snapshots: _settings.Path | Iterable[_settings.Path] | None = None,
    snapshot_markers: str | None = None,
    realtime_only: bool = False,
    timeline: str = "host",
    skip_bad: bool = False,
    allow_uncalibrated: bool = False,
    plane_layout: str = "xprof",
    annotate: bool = False,
    schema: str | None = None,
    drop_foreign: bool = False,
    mark_late: bool = False,
    ranks: str | SupportsIndex | Iterable[SupportsIndex] | None = None,
    steps: str | int | None = None,
    from_: str | int | None = None,
    to: str | int | None = None,
    only: str | Iterable[str] | None = None,
    max_size: str | int | None = None,
    step_name: str | None = None,
    validate: bool = False,
) -> MergeResult:
    """Merges the traces of all nodes into one file, on one clock. Clocks and errors are as in `align`.

    `allow_uncalibrated` also merges traces with unknown clocks, unchanged and marked as such; `plane_layout` is "xprof" or "gpu-tracks".
    `skip_bad` skips unreadable traces, with a warning for each. For databases, `schema="3.0.0"` adds the tags that newer readers expect to schema 3,
    and `drop_foreign` drops tables that are not rocprofv3's.
    `mark_late` adds a track that shows which rank was late to each collective.

    These filters reduce the file: `ranks` ("0-7,12", or numbers), `steps` ("10..12" is three steps), `from_` and `to` ("+1.5s" after the first event, ns
    on the reference clock, or "30%" of the time span), `only` ("collectives", "gpu", "cpu", "steps", or patterns of names) and `max_size` ("400M", before
    compression). The command line's flag for `from_` is `--from`. The result's `filter` reports what was omitted. `step_name` is a regular expression
    for step events, with a group for the step number.
    """
    kept = {
        "ranks": _ranks(ranks),
        "steps": _text(steps),
        "from_": _text(from_),
        "to": _text(to),
        "only": [only] if isinstance(only, str) else list(only or ()),
        "max_size": _text(max_size),
        "step_name": step_name,
    }
    asked = _asked(
        traces,
        nodes,
        assume_order,
        run_dir,
        offsets,
        from_collectives,
        max_rate_change,
        extrapolate,
        snapshots,
        snapshot_markers,
        realtime_only,
        timeline,
        skip_bad,
    )
    told = _json.loads(
        _native.merge(
            asked,
            os.fspath(output),
            kept=kept,
            allow_uncalibrated=allow_uncalibrated,
            plane_layout=plane_layout,
            annotate=annotate,
            schema=schema,
            drop_foreign=drop_foreign,
            mark_late=mark_late,
            validate=validate,
        )
    )
    own, path = told["own"], os.fspath(output)
    return MergeResult(
        **results.common(told),
        traces=_rows(told, path),
        verdict=results.verdict(told["verdict"]),
        output=path,
        base_ns=own["base_ns"],
        uncalibrated=tuple(own["uncalibrated"]),
        filter=None if own["filter"] is None else results.filter_report(own["filter"], own["filter_text"]),
    )


def check(
    traces: _settings.Path | Iterable[_settings.Path] | None = None,
    *,
    nodes: Sequence[int] = (),
    assume_order: bool = False,
    run_dir: _settings.Path | None = None,
    offsets: _settings.Path | None = None,
    from_collectives: bool = False,
    max_rate_change: float | None = None,
    extrapolate: _settings.Time | None = None,
    snapshots: _settings.Path | Iterable[_settings.Path] | None = None,
    snapshot_markers: str | None = None,
    realtime_only: bool = False,
    timeline: str = "host",
    skip_bad: bool = False,
    report: _settings.Path | None = None,
) -> CheckResult:
    """Checks that no collective ends before every rank has entered it; without clocks, the original times are checked.

    `report` is a JSON file to write, as with `--json`. A broken edge is a result, not an exception: see `result.verdict.outcome`.
    """
    asked = _asked(
        traces,
        nodes,
        assume_order,
        run_dir,
        offsets,
        from_collectives,
        max_rate_change,
        extrapolate,
        snapshots,
        snapshot_markers,
        realtime_only,
        timeline,
        skip_bad,
    )
    told = _json.loads(_native.check(asked, report=None if report is None else os.fspath(report)))
    found = results.verdict(told["verdict"])
    assert found is not None, "check always judges"
    return CheckResult(**results.common(told), verdict=found)


def stragglers(
    traces: _settings.Path | Iterable[_settings.Path] | None = None,
    *,
    nodes: Sequence[int] = (),
    assume_order: bool = False,
    run_dir: _settings.Path | None = None,
    offsets: _settings.Path | None = None,
    from_collectives: bool = False,
    max_rate_change: float | None = None,
    extrapolate: _settings.Time | None = None,
    snapshots: _settings.Path | Iterable[_settings.Path] | None = None,
    snapshot_markers: str | None = None,
    realtime_only: bool = False,
    timeline: str = "host",
    skip_bad: bool = False,
    step_name: str | None = None,
    json: _settings.Path | None = None,
    csv: _settings.Path | None = None,
) -> StragglersResult:
    """Finds the ranks that were late to collectives, by how much, and with what certainty. Clocks and errors are as in `align`.

    `step_name` is a regular expression for events that are steps of the program, with a group for the step number. `json` and `csv` are files to write,
    as with the command line's flags. If there is no collective to analyse, the result has no `instances`.
    """
    asked = _asked(
        traces,
        nodes,
        assume_order,
        run_dir,
        offsets,
        from_collectives,
        max_rate_change,
        extrapolate,
        snapshots,
        snapshot_markers,
        realtime_only,
        timeline,
        skip_bad,
    )
    files = {name: None if path is None else os.fspath(path) for name, path in (("json", json), ("csv", csv))}
    return results.stragglers(_json.loads(_native.stragglers(asked, step_name=step_name, **files)))


def solve(
    *,
    out: _settings.Path,
    probes: _settings.Path | Iterable[_settings.Path] | None = None,
    windows: _settings.Path | Iterable[_settings.Path] | None = None,
    packets: _settings.Path | Iterable[_settings.Path] | None = None,
    window: _settings.Time | None = None,
    knots: str = "auto",
    reference: int | None = None,
    fit: str = "hull",
) -> SolveResult:
    """Recomputes a run from its recording, and writes the offsets to `out` in the format of `offsets.jsonl`.

    Give files as exactly one of `probes` (exchanges of a run with `keep_probes`), `windows` (fits of any run) or `packets` (one-way packets in CSV);
    `window` splits packets into windows. `knots` selects the lines to write: "auto", "rounds", or a time such as "500ms". `reference` is a
    node (default: that of the recorded run); `fit` is "hull", "svm" or "min-rtt".
    """
    given = {
        "probes": _settings.paths("probes", probes),
        "windows": _settings.paths("windows", windows),
        "packets": _settings.paths("packets", packets),
    }
    if sum(bool(files) for files in given.values()) != 1:
        raise ConfigError("solve: give files for exactly one of probes, windows and packets")
    if window is not None and not given["packets"]:
        raise ConfigError("solve: window splits packets; omit it with probes and windows, which already have windows")
    if fit != "hull" and not given["probes"]:
        raise ConfigError("solve: fit applies only to probes; windows are already fitted, and packets are fitted by bounds")
    options = {
        "window": None if window is None else _settings.time_text(window),
        "knots": knots,
        "reference": None if reference is None else str(reference),
        "fit": fit,
    }
    return results.solved(_json.loads(_native.solve({**given, **options}, os.fspath(out))))


def _text(value: str | int | None) -> str | None:
    return None if value is None else str(value)


def _ranks(value: str | SupportsIndex | Iterable[SupportsIndex] | None) -> str | None:
    """Returns ranks as written on the command line."""
    if value is None or isinstance(value, str):
        return value
    numbers = [value] if isinstance(value, SupportsIndex) else value
    return ",".join(str(operator.index(rank)) for rank in numbers)


def _asked(
    traces: _settings.Path | Iterable[_settings.Path] | None,
    nodes: Sequence[int],
    assume_order: bool,
    run_dir: _settings.Path | None,
    offsets: _settings.Path | None,
    from_collectives: bool,
    max_rate_change: float | None,
    extrapolate: _settings.Time | None,
    snapshots: _settings.Path | Iterable[_settings.Path] | None,
    snapshot_markers: str | None,
    realtime_only: bool,
    timeline: str,
    skip_bad: bool,
) -> dict[str, Any]:
    """Returns the request; rejects conflicting arguments."""
    files, pairs = _settings.paths("traces", traces), _settings.paths("snapshots", snapshots)
    sources = {"run_dir": run_dir is not None, "offsets": offsets is not None, "from_collectives": from_collectives}
    chosen = [name for name, given in sources.items() if given]
    refusals = [
        (not files and run_dir is None, "no traces: give traces, or a run_dir that contains traces"),
        (len(chosen) > 1, f"{' and '.join(chosen)}: only one of them can provide the clocks"),
        (max_rate_change is not None and not from_collectives, "max_rate_change applies only with from_collectives"),
        (assume_order and not files, "assume_order needs traces, whose order it uses"),
        (assume_order and len(nodes) > 0, "assume_order and nodes exclude each other; omit one of them"),
        (realtime_only and bool(pairs or snapshot_markers), "realtime_only excludes snapshots and snapshot_markers"),
    ]
    for refused, why in refusals:
        if refused:
            raise ConfigError(why)
    return {
        "traces": files,
        "nodes": [int(node) for node in nodes],
        "assume_order": assume_order,
        "run_dir": None if run_dir is None else os.fspath(run_dir),
        "offsets": None if offsets is None else os.fspath(offsets),
        "extrapolate": None if extrapolate is None else _settings.time_text(extrapolate),
        "snapshots": pairs,
        "snapshot_markers": snapshot_markers,
        "realtime_only": realtime_only,
        "timeline": timeline,
        "skip_bad": skip_bad,
        "from_collectives": from_collectives,
        "max_rate_change": None if max_rate_change is None else float(max_rate_change),
    }


def _rows(told: dict[str, Any], output: str | None) -> tuple[AlignedTrace, ...]:
    return tuple(AlignedTrace(row["path"], output or row["output"], results.stats(row["stats"])) for row in told["own"]["traces"])
