"""Results of `align`, `merge`, `check`, `stragglers`, `convert` and `solve`."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

from ._tables import Table, columns


@dataclasses.dataclass(frozen=True)
class AlignmentStats:
    """Statistics of one trace's alignment: the content of its `alignment_stats.json`."""

    node: int | None
    """The node whose clock the trace used; None if no node's offsets were applied."""
    node_settled_by: str | None
    """The evidence by which the trace was matched to this node."""
    tied_by: Literal["assumed", "same_clock", "steady_clock", "snapshots", "trace", "snapshots_and_trace"] | None
    """How its times are related to the node's system clock: not at all (`assumed`), by marks that show equal times or a constant difference, or by
    pairs; None if the clock is unknown."""
    events: int
    """Number of events, as counted by the format."""
    left_out: int
    """Number of events with implausible times, which are not in the output."""
    times: int
    """Number of times that were converted."""
    corrected: int
    """Number of times that changed."""
    clamped: int
    """Number of times that were adjusted to keep the order on a line."""
    extrapolated_before: int
    """Number of times before the node's measurement began."""
    extrapolated_after: int
    """Number of times after the node's measurement ended."""
    beyond_pairs: int
    """Number of extrapolated times outside the pairs of the node's clock, but within its measurement."""
    correction_ns: tuple[float, float, float] | None
    """Smallest, median and largest correction (new time minus old); None if no time was corrected."""
    uncertainty_ns: float
    """Largest standard deviation of any converted time; infinite if the clock is unknown."""
    base_ns: int | None
    """Base time of the output."""
    notes: tuple[str, ...]
    """Remarks for the user."""


@dataclasses.dataclass(frozen=True)
class AlignedTrace:
    """One trace of an output."""

    path: str
    """Path of the input."""
    output: str
    """Path of the file it was written to."""
    stats: AlignmentStats
    """Statistics of its alignment."""


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """Happens-before edges between the traces, and how many of them are broken."""

    edges: int
    """Number of edges that were checked."""
    broken: int
    """Number of broken edges."""
    explained: int
    """Number of broken edges that are within the clocks' uncertainty."""
    worst_ns: float
    """Largest amount by which an edge is broken; 0 if none is."""
    instances: int
    """Number of operations with parts on at least two nodes."""
    unjudged_edges: int
    """Number of edges that depend on an unknown clock."""
    unjudged_parts: int
    """Number of parts of collectives that are not covered by any edge."""
    ambiguous_instances: int
    """Number of operations that cannot be paired with certainty; they never affect the verdict."""
    details: dict[str, Any] = dataclasses.field(repr=False)
    """The complete report, as written by `probe_sync check --json`."""

    @property
    def violations(self) -> int:
        """Number of broken edges that exceed the clocks' uncertainty."""
        return self.broken - self.explained


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether causality holds between the traces."""

    outcome: Literal["holds", "violated", "incomplete", "nothing"]
    """`holds`, `violated`, `incomplete` (everything that could be checked holds, but some could not), or `nothing` (there was no edge to check)."""
    before: CheckReport | None
    """The check of the original times, if there are also corrected ones."""
    result: CheckReport
    """The check that decides the outcome: of the corrected times, if the clocks are known."""
    text: str = dataclasses.field(repr=False)
    """The verdict in a sentence, the worst broken edges, and a table of operations."""
    remarks: tuple[str, ...] = dataclasses.field(repr=False)
    """Limitations of the verdict."""

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class _Calibrated:
    method: str
    """The source of the clock offsets."""
    timeline: str
    """The clock of the output times."""
    notes: tuple[str, ...]
    """Remarks."""
    warnings: tuple[str, ...]
    """Problems that probably need attention."""
    omitted: dict[str, Any] = dataclasses.field(repr=False)
    """Data that was skipped: unreadable `traces`, and `events` with implausible times, with files, reasons and counts."""
    collectives: dict[str, Any] | None = dataclasses.field(repr=False)
    """Clock offsets estimated from the collectives, with bounds by rank; None if they were not used."""


@dataclasses.dataclass(frozen=True, repr=False)
class CheckResult(_Calibrated):
    """Result of `check`."""

    verdict: Verdict
    """Whether causality holds."""

    def __str__(self) -> str:
        return _head(self.verdict.text)

    def __repr__(self) -> str:
        return f"<probe_sync.CheckResult: {self.verdict.text.partition(chr(10))[0]}>"


@dataclasses.dataclass(frozen=True, repr=False)
class AlignResult(_Calibrated, Table):
    """Result of `align`; as a table it has one row per trace."""

    traces: tuple[AlignedTrace, ...]
    """The traces, in order of nodes."""
    verdict: Verdict | None
    """Whether causality holds; None unless `validate`."""

    @property
    def largest_correction_ns(self) -> float:
        """The correction with the largest absolute value."""
        return _largest(self.traces)

    @property
    def uncertainty_ns(self) -> float:
        """Largest standard deviation of any time."""
        return max((trace.stats.uncertainty_ns for trace in self.traces), default=0.0)

    def _columns(self) -> dict[str, Any]:
        # The correction in three columns; the notes are for people.
        def row(trace: AlignedTrace) -> dict[str, Any]:
            stats = dataclasses.asdict(trace.stats)
            del stats["notes"]
            ends = stats.pop("correction_ns") or (None, None, None)
            corrections = zip(("correction_min_ns", "correction_median_ns", "correction_max_ns"), ends)
            return {"path": trace.path, "output": trace.output, **stats, **dict(corrections)}

        return columns([row(trace) for trace in self.traces])

    def __str__(self) -> str:
        return _line(self.traces, self.verdict, self.uncertainty_ns)

    def __repr__(self) -> str:
        return f"<probe_sync.{type(self).__name__}: {self}>"


@dataclasses.dataclass(frozen=True)
class FilterReport:
    """Events that `merge` omitted from its output."""

    rule: str
    """The filter, as command-line flags."""
    traces_left_out: tuple[str, ...]
    """Names of traces that are not in the output."""
    span_ns: tuple[int | None, int | None]
    """The time span that was kept, ns on the reference clock; None for an end that was not given."""
    events: int
    """Number of events with a time in the other traces."""
    left_out: int
    """Number of these events that are not in the output: the sum of the next five fields."""
    outside: int
    """Number of events entirely outside the span."""
    of_other_kinds: int
    """Number of events of other kinds."""
    too_short: int
    """Events that were too short for the size limit."""
    half_flows: int
    """Number of flow ends whose other end or event is not in the output."""
    unjudged: int
    """Number of events that begin or end something without its other time, which no filter can assess."""
    shortest_ns: int | None
    """Events shorter than this were omitted; None if the size limit omitted nothing."""
    bytes_max: int | None
    """Size limit of the output in bytes."""
    bytes: int
    """Size of the output in bytes, before compression."""
    text: str
    """The report as text; empty if nothing was omitted."""


@dataclasses.dataclass(frozen=True, repr=False)
class MergeResult(AlignResult):
    """Result of `merge`."""

    output: str
    """The file that was written."""
    base_ns: int
    """Common base time of the output."""
    uncalibrated: tuple[str, ...]
    """Traces with an unknown clock, whose times are unchanged."""
    filter: FilterReport | None
    """The omitted events; None if no filter was given."""


@dataclasses.dataclass(frozen=True)
class Straggler:
    """A rank or host that is consistently late and thereby costs time."""

    rank: int | None
    """The rank; None for a whole host."""
    host: str
    """The host."""
    steps: tuple[int, ...]
    """Steps in which it cost the most; empty if steps are unknown."""
    times: int
    """Number of steps in which it was last (of operations, if steps are unknown)."""
    of: int
    """Total number of steps (or operations)."""
    chance: float
    """Probability that a rank is last this often by chance alone."""
    lost_ns: int
    """Time that it cost in these steps."""
    saved_ns: int
    """Time that the job would have saved if it had been as fast as the median."""
    saved_share: float
    """`saved_ns` as a share of the time of all steps."""
    saved_by_step_ns: tuple[int, ...]
    """Time that each of `steps` would have saved, in the same order."""


@dataclasses.dataclass(frozen=True, repr=False)
class StragglersResult(_Calibrated, Table):
    """Result of `stragglers`; as a table it has one row per operation, without arrivals."""

    stragglers: tuple[Straggler, ...]
    """Consistent stragglers, most costly first."""
    instances: tuple[dict[str, Any], ...]
    """All operations, in order of their last arrival; the fields are those of `probe_sync stragglers --json`."""
    text: str
    """The tables and the verdict as text."""
    details: dict[str, Any]
    """The complete document, as written by `probe_sync stragglers --json`."""

    def __str__(self) -> str:
        return _head(self.text)

    def __repr__(self) -> str:
        named = ", ".join(f"rank {found.rank}" if found.rank is not None else f"host {found.host}" for found in self.stragglers)
        return f"<probe_sync.StragglersResult: {len(self.instances)} operations, stragglers: {named or 'none'}>"

    def _columns(self) -> dict[str, Any]:
        return columns([{name: value for name, value in line.items() if name != "arrivals"} for line in self.instances])


@dataclasses.dataclass(frozen=True)
class SolveResult:
    """Result of `solve`."""

    exchanges: int
    """Number of exchanges (or packets) used."""
    nodes: int
    """Number of nodes."""
    rounds: int
    """Number of rounds solved."""
    lines: int
    """Number of lines written, not counting the first."""
    skipped_lines: int
    """Number of lines ignored."""
    left_out_exchanges: int
    """Number of exchanges not used by any fit."""
    skipped_rounds: int
    """Number of rounds ignored because the reference node was missing."""
    carried_rounds: int
    """Number of rounds in which another node maintained the timeline of the missing reference; included in `lines` but not in `rounds`."""
    notes: tuple[str, ...]
    """What was ignored and why, by file and line."""
    asymmetry_sd_ns: float
    """Standard deviation of the asymmetry of a median path."""
    half_width_95_ns: float | None
    """Median half-width of the 95 % intervals; None if only the reference was reached."""
    breaks: int
    """Number of times a clock was stepped or restarted."""
    faults: tuple[str, ...]
    """Clock and path faults, as sentences, in the order in which they appeared."""


@dataclasses.dataclass(frozen=True)
class ConvertedFile:
    """A file or folder that `convert` wrote."""

    path: str
    """Path of the file or folder."""
    rows: int
    """Number of rows of a CSV file, otherwise of slices, instants and ends of flows."""
    bytes: int | None
    """Size before compression, bytes; None for CSV files."""
    notes: tuple[str, ...]
    """Remarks."""


@dataclasses.dataclass(frozen=True, repr=False)
class ConvertResult(_Calibrated, Table):
    """Result of `convert`; as a table it has one row per file."""

    traces: tuple[AlignedTrace, ...]
    """The traces; `output` is empty."""
    files: tuple[ConvertedFile, ...]
    """The files and folders written."""
    window_ns: tuple[int, int] | None
    """The requested time span, ns on the clock of the outputs."""
    collective_flows: dict[str, int] | None
    """Numbers of collectives joined by flows; None if not requested."""

    def _columns(self) -> dict[str, Any]:
        return columns([dataclasses.asdict(file) for file in self.files])

    def __repr__(self) -> str:
        return f"<probe_sync.ConvertResult: {len(self.traces)} traces, {len(self.files)} files>"


def stats(told: dict[str, Any]) -> AlignmentStats:
    """Parses statistics from JSON, in which null means infinite."""
    correction, uncertainty = told["correction_ns"], told["uncertainty_ns"]
    changed = {
        "correction_ns": None if correction is None else tuple(correction),
        "uncertainty_ns": math.inf if uncertainty is None else uncertainty,
        "notes": tuple(told["notes"]),
    }
    return AlignmentStats(**{**told, **changed})


def verdict(told: dict[str, Any] | None) -> Verdict | None:
    """Parses a verdict from JSON."""
    if told is None:
        return None
    before = told["before"]
    known = None if before is None else _report(before)
    return Verdict(told["outcome"], known, _report(told["result"]), told["text"], tuple(told["remarks"]))


def common(told: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields that all results on traces share."""
    lists = {name: tuple(told[name]) for name in ("notes", "warnings")}
    return {**{name: told[name] for name in ("method", "timeline", "collectives", "omitted")}, **lists}


def filter_report(told: dict[str, Any], text: str) -> FilterReport:
    """Parses a filter report from JSON."""
    lists = {name: tuple(told[name]) for name in ("traces_left_out", "span_ns")}
    return FilterReport(**{**told, **lists}, text=text)


def stragglers(told: dict[str, Any]) -> StragglersResult:
    """Parses a result of `stragglers` from JSON."""
    found, text = told["own"]["found"], told["own"]["text"]
    lists = ("steps", "saved_by_step_ns")
    named = tuple(Straggler(**{**line, **{name: tuple(line[name]) for name in lists}}) for line in found["stragglers"])
    return StragglersResult(**common(told), stragglers=named, instances=tuple(found["instances"]), text=text, details=found)


def solved(told: dict[str, Any]) -> SolveResult:
    """Parses a result of `solve` from JSON."""
    return SolveResult(**{**told, "notes": tuple(told["notes"]), "faults": tuple(told["faults"])})


def converted(told: dict[str, Any]) -> ConvertResult:
    own = told["own"]
    return ConvertResult(
        **common(told),
        traces=tuple(AlignedTrace(row["path"], "", stats(row["stats"])) for row in own["traces"]),
        files=tuple(ConvertedFile(file["path"], file["rows"], file["bytes"], tuple(file["notes"])) for file in own["files"]),
        window_ns=None if own["window_ns"] is None else (own["window_ns"][0], own["window_ns"][1]),
        collective_flows=own["collective_flows"],
    )


def _head(text: str) -> str:
    """Returns the first lines of a longer text and the number of omitted lines."""
    lines = text.rstrip().splitlines()
    if len(lines) <= _LINES_SHOWN:
        return "\n".join(lines)
    return "\n".join([*lines[: _LINES_SHOWN - 1], f"… {len(lines) - _LINES_SHOWN + 1} more lines"])


_LINES_SHOWN = 20


def _report(told: dict[str, Any]) -> CheckReport:
    counted = [field.name for field in dataclasses.fields(CheckReport) if field.name != "details"]
    return CheckReport(**{name: told[name] for name in counted}, details=told)


def _largest(traces: tuple[AlignedTrace, ...]) -> float:
    ends = [value for trace in traces for value in trace.stats.correction_ns or ()]
    return max(ends, key=abs, default=0.0)


def _line(traces: tuple[AlignedTrace, ...], found: Verdict | None, uncertainty_ns: float) -> str:
    unsure = "uncertainty unknown" if math.isinf(uncertainty_ns) else f"uncertainty up to {uncertainty_ns:.0f} ns"
    text = f"{len(traces)} traces, largest correction {_largest(traces) * 1e-6:+.3f} ms, {unsure}"
    assumed = sum(trace.stats.tied_by == "assumed" for trace in traces)
    if assumed:
        text += f", not counting {assumed} traces without marks, whose times are assumed to be system clock times"
    if found is None:
        return text
    before = "" if found.before is None else f"{found.before.broken} → "
    outcome = "no collective to check" if found.outcome == "nothing" else found.outcome
    return f"{text}; broken edges {before}{found.result.broken} of {found.result.edges}: {outcome}"
