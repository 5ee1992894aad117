"""Puts raw traces on one clock, with the functions behind the command line: `align`, `merge`, `check`, `stragglers`, `convert`, `query`, `solve`.

Keywords correspond to the command line's options; see `probe_sync align --help` for details. All calls release the interpreter lock, and Ctrl-C
ends them: a trace that is being written is finished in the background or removed at exit, so no partial output remains.
"""

from __future__ import annotations

import json as _json
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from . import _inputs, _native, _settings, results
from ._tables import Table
from .errors import ConfigError
from .results import AlignedTrace, AlignResult, CheckResult, ConvertResult, MergeResult, SolveResult, StragglersResult

if TYPE_CHECKING:
    from ._inputs import TraceKeywords, Unpack


def align(
    traces: _settings.Path | Iterable[_settings.Path] | None = None,
    *,
    output: _settings.Path,
    annotate: bool = False,
    embed_snapshots: bool = False,
    validate: bool = False,
    progress: Callable[[float], object] | None = None,
    **keywords: Unpack[TraceKeywords],
) -> AlignResult:
    """Rewrites traces onto the reference clock, each in its own format: to the file `output`, or for several traces to that directory.

    `clocks` is `Run(directory)` of a run, `Offsets(file)` (its offsets, or a CSV of node, node time, offset) or `FROM_COLLECTIVES`. `TraceKeywords`
    describes this and the other keywords that all functions on traces share. Without `traces`, the traces in the run's directory are used.
    `progress` is called with the fraction of traces written so far. `validate` checks happens-before before and after alignment. `omitted` in
    the result lists what was skipped.

    Raises `RefusedTrace` if the traces do not match the measured clocks, `DamagedTrace`, `FileError`, and `ConfigError` for invalid arguments.
    """
    asked = _inputs.request("align", traces, keywords)
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
    **keywords: Unpack[TraceKeywords],
) -> MergeResult:
    """Merges the traces of all nodes into one file, on one clock. Clocks and errors are as in `align`.

    `allow_uncalibrated` also merges traces with unknown clocks, unchanged and marked as such; `plane_layout` is "xprof" or "gpu-tracks".
    For databases, `schema="3.0.0"` adds the tags that newer readers expect to schema 3,
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
    asked = _inputs.request("merge", traces, keywords)
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
    report: _settings.Path | None = None,
    **keywords: Unpack[TraceKeywords],
) -> CheckResult:
    """Checks that no collective ends before every rank has entered it; without clocks, the original times are checked.

    `report` is a JSON file to write, as with `--json`. A broken edge is a result, not an exception: see `result.verdict.outcome`.
    """
    asked = _inputs.request("check", traces, keywords)
    told = _json.loads(_native.check(asked, report=None if report is None else os.fspath(report)))
    found = results.verdict(told["verdict"])
    assert found is not None, "check always judges"
    return CheckResult(**results.common(told), verdict=found)


def stragglers(
    traces: _settings.Path | Iterable[_settings.Path] | None = None,
    *,
    step_name: str | None = None,
    json: _settings.Path | None = None,
    csv: _settings.Path | None = None,
    **keywords: Unpack[TraceKeywords],
) -> StragglersResult:
    """Finds the ranks that were late to collectives, by how much, and with what certainty. Clocks and errors are as in `align`.

    `step_name` is a regular expression for events that are steps of the program, with a group for the step number. `json` and `csv` are files to write,
    as with the command line's flags. If there is no collective to analyse, the result has no `instances`.
    """
    asked = _inputs.request("stragglers", traces, keywords)
    files = {name: None if path is None else os.fspath(path) for name, path in (("json", json), ("csv", csv))}
    return results.stragglers(_json.loads(_native.stragglers(asked, step_name=step_name, **files)))


def convert(
    traces: _settings.Path | Iterable[_settings.Path] | None = None,
    *,
    output_dir: _settings.Path,
    formats: str | Iterable[str],
    name: str = "out",
    no_correction: bool = False,
    collective_flows: bool = False,
    machines: bool = False,
    without_args: bool = False,
    group_by_queue: bool = False,
    agent_index: str = "relative",
    start: str | int | None = None,
    end: str | int | None = None,
    start_marker: str | None = None,
    end_marker: str | None = None,
    inclusive: bool = True,
    **keywords: Unpack[TraceKeywords],
) -> ConvertResult:
    """Writes all traces in other formats to `output_dir`; the names of the files begin with `name`. Clocks and errors are as in `align`.

    `formats` are "pftrace", "json", "json.gz", "otf2" (one output with all traces), "kineto", "kineto.gz", "xspace" (one file per trace) and "csv" (of
    databases, one file per kind of event). `no_correction` leaves all times unchanged. `collective_flows` joins the parts of each collective by flows;
    `machines` (for "pftrace") keeps each host's times and describes how the clocks are related. `without_args` omits the arguments of events.
    `group_by_queue` and `agent_index` ("absolute", "relative", "type-relative") apply to databases. `start` and `end` select events: ns on the clock of the
    outputs, "+1.5s" after the first event, or "30%" of the time span. `start_marker` and `end_marker` select by the start of the event of this name instead.
    `inclusive=False` also keeps events that overlap the limits.
    """
    if no_correction and keywords.get("clocks") is not None:
        raise ConfigError("no_correction excludes clocks: omit one of them")
    asked = _inputs.request("convert", traces, keywords)
    told = _json.loads(
        _native.convert(
            asked,
            os.fspath(output_dir),
            name=name,
            formats=[formats] if isinstance(formats, str) else list(formats),
            no_correction=no_correction,
            collective_flows=collective_flows,
            machines=machines,
            without_args=without_args,
            group_by_queue=group_by_queue,
            agent_index=agent_index,
            span=_inputs.span(start, end, start_marker, end_marker, inclusive),
        )
    )
    return results.converted(told)


class Rows(Table):
    """Rows of a query: an iterator of tuples that reads the databases as it goes, or a table of the rows that are left."""

    def __init__(self, native: _native.Rows) -> None:
        self._native = native
        self._left: Iterator[tuple[Any, ...]] | None = None
        self.columns: tuple[str, ...] = tuple(native.columns)
        self.timeline: str = native.timeline
        self.notes: tuple[str, ...] = tuple(native.notes)
        self.warnings: tuple[str, ...] = tuple(native.warnings)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self

    def __next__(self) -> tuple[Any, ...]:
        if self._left is None:
            self._left = _tuples(self._native)
        return next(self._left)

    def _columns(self) -> dict[str, Any]:
        twice = [name for at, name in enumerate(self.columns) if name in self.columns[:at]]
        if twice:
            raise ConfigError(f"two columns are named {twice[0]}; rename one with AS")
        if self._left is not None:
            return dict(zip(self.columns, _transposed(list(self), len(self.columns)), strict=True))
        batches = list(_batches(self._native))
        return {name: _joined([batch[at] for batch in batches]) for at, name in enumerate(self.columns)}

    def __repr__(self) -> str:
        return f"<probe_sync.Rows of {', '.join(self.columns)}; times are on {self.timeline}>"


def query(
    sql: str,
    traces: _settings.Path | Iterable[_settings.Path] | None = None,
    *,
    no_correction: bool = False,
    start: str | int | None = None,
    end: str | int | None = None,
    start_marker: str | None = None,
    end_marker: str | None = None,
    inclusive: bool = True,
    timeout: _settings.Time | None = None,
    **keywords: Unpack[TraceKeywords],
) -> Rows:
    """Runs one SQL query over the databases (rocpd) of all ranks, with all times on one clock. Clocks and errors are as in `align`.

    Tables and views are rocprofv3's, with the columns `host`, `rank` and `file` in front. The rows are an iterator of tuples;
    `Rows.to_pandas()` gives a DataFrame. `no_correction` leaves times on the clocks of their nodes; `start`, `end`, the markers and `inclusive` select
    events as in `convert`; `timeout` limits the time until the last row, including the reader's.
    """
    if no_correction and keywords.get("clocks") is not None:
        raise ConfigError("no_correction excludes clocks: omit one of them")
    asked = _inputs.request("query", traces, keywords)
    limit = None if timeout is None else _settings.time_text(timeout)
    span = _inputs.span(start, end, start_marker, end_marker, inclusive)
    return Rows(_native.query(sql, asked, no_correction=no_correction, span=span, timeout=limit))


def _batches(native: _native.Rows) -> Iterator[list[Any]]:
    while (batch := native.next_batch()) is not None:
        yield batch


def _tuples(native: _native.Rows) -> Iterator[tuple[Any, ...]]:
    for batch in _batches(native):
        yield from zip(*map(_values, batch), strict=True)


def _values(column: Any) -> list[Any]:
    return list(column.tolist() if isinstance(column, np.ndarray) else column)


def _joined(parts: list[Any]) -> Any:
    """Joins the parts of a column: an array if all parts are arrays of one type, otherwise a list."""
    kinds = {part.dtype if isinstance(part, np.ndarray) else None for part in parts}
    if len(kinds) == 1 and None not in kinds:
        return np.concatenate(parts)
    return [value for part in parts for value in _values(part)]


def _transposed(rows: list[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [[row[at] for row in rows] for at in range(width)]


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


def _rows(told: dict[str, Any], output: str | None) -> tuple[AlignedTrace, ...]:
    return tuple(AlignedTrace(row["path"], output or row["output"], results.stats(row["stats"])) for row in told["own"]["traces"])
