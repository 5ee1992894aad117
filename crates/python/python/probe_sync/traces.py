"""From raw traces to traces on one clock, on the library calls of the command line: `align`, `merge`, `check`, `stragglers`, `solve`.

Keywords are the command line's options; `probe_sync align --help` has more on them. No call holds the interpreter, and Ctrl-C ends
each of them: a trace that is being written is finished in the background, or removed at exit, and nothing half is left.
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
    """Rewrites traces onto the reference clock, each in its own format: into the file `output`, or for several into that directory.

    The clocks are learnt from `run_dir` (a run's directory), `offsets` (its offsets, or a CSV of node, node time, offset) or
    `from_collectives`, whose bounds hold if no clock changes its rate by more than `max_rate_change` ppm within a window of 10 s or more (10 if
    it is not given) and none steps. Without `traces` those in the run's directory are taken. `progress` is called with the share of the traces that are
    written. `validate` checks happens-before before and after. `skip_bad` leaves out traces that cannot be read, and warns of each; without it one refuses all.
    What was left out is in `omitted`.

    Raises `RefusedTrace` where the traces do not fit what is known, `DamagedTrace`, `FileError`, and `ConfigError` for the call itself.
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
    """Puts the traces of all nodes into one file, on one clock. Clocks and errors are as in `align`.

    `allow_uncalibrated` merges nodes without known clocks too, unchanged and marked so; `plane_layout` is "xprof" or "gpu-tracks".
    `skip_bad` leaves out traces that cannot be read, and warns of each. Of databases, `schema="3.0.0"` adds to those of schema 3 the tags that newer readers
    want, and `drop_foreign` leaves out tables that are not rocprofv3's.
    `mark_late` adds a track that says who was late to each collective.

    The file has less in it by `ranks` ("0-7,12", or numbers), `steps` ("10..12" are three), `from_` and `to` ("+1.5s" after the first event, ns on the
    reference clock, or "30%" of the span), `only` ("collectives", "gpu", "cpu", "steps", or patterns of names) and `max_size` ("400M", before packing);
    the command line's flag is `--from`. What was left out is the result's `filter`. `step_name` is a pattern of events that are steps, with a group that
    is the number.
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
    """Proves or disproves that no collective ends before a peer has begun; without clocks the traces are checked as they are.

    `report` is a JSON file to write, as `--json` does. A broken edge is a result, not an exception: look at `result.verdict.outcome`.
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
    """Says who was late to the collectives, by how much, and how sure that is. Clocks and errors are as in `align`.

    `step_name` is a pattern of events that are steps of the program, with a group that is the number. `json` and `csv` are files to write, as
    the command line's flags do. Without any collective to judge, the result has no `instances`.
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
    """Recomputes a run from its recording, and writes `out` in the form of `offsets.jsonl`.

    One of `probes` (exchanges of a run with `keep_probes`), `windows` (fits of any run) and `packets` (one-way packets in CSV) has the files;
    `window` cuts packets into windows. `knots` says which lines are written: "auto", "rounds", or a time as "500ms". `reference` is a
    node (default: the recorded run's); `fit` is "hull", "svm" or "min-rtt".
    """
    given = {
        "probes": _settings.paths("probes", probes),
        "windows": _settings.paths("windows", windows),
        "packets": _settings.paths("packets", packets),
    }
    if sum(bool(files) for files in given.values()) != 1:
        raise ConfigError("solve: give files to one of probes, windows and packets")
    if window is not None and not given["packets"]:
        raise ConfigError("solve: window cuts packets; leave it out with probes and windows, which have their own")
    if fit != "hull" and not given["probes"]:
        raise ConfigError("solve: fit is for probes; windows and packets are fitted already, or by bounds")
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
    """As on the command line."""
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
    """The request, of what goes together."""
    files, pairs = _settings.paths("traces", traces), _settings.paths("snapshots", snapshots)
    sources = {"run_dir": run_dir is not None, "offsets": offsets is not None, "from_collectives": from_collectives}
    chosen = [name for name, given in sources.items() if given]
    refusals = [
        (not files and run_dir is None, "no traces: give traces, or run_dir with traces in it"),
        (len(chosen) > 1, f"{' and '.join(chosen)}: the clocks are learnt from one of them"),
        (max_rate_change is not None and not from_collectives, "max_rate_change applies only with from_collectives"),
        (assume_order and not files, "assume_order is about the order of traces: give traces"),
        (assume_order and len(nodes) > 0, "assume_order and nodes both say whose the traces are; leave one of them out"),
        (realtime_only and bool(pairs or snapshot_markers), "realtime_only takes no pairs: leave snapshots and snapshot_markers out"),
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
