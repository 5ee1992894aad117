"""What `align`, `merge`, `check`, `stragglers` and `solve` return."""

from __future__ import annotations

import dataclasses
import importlib
import math
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class AlignmentStats:
    """What was done to one trace: the content of its `alignment_stats.json`."""

    node: int | None
    """The node whose clock the trace was on; None where no node's offsets were applied."""
    node_settled_by: str | None
    """What settled that it is this node."""
    tied_by: Literal["assumed", "same_clock", "steady_clock", "snapshots", "trace", "snapshots_and_trace"] | None
    """What ties its times to the node's system clock: nothing (`assumed`), marks that show that they are its times or a constant away from them, or
    pairs; None where the clock is not known."""
    events: int
    """Events, as the format counts them."""
    left_out: int
    """Events whose times cannot be believed, which are not in the output."""
    times: int
    """Times that were mapped."""
    clamped: int
    """Times held back so that order on a line is kept."""
    extrapolated_before: int
    """Times before the node was first measured."""
    extrapolated_after: int
    """Times after it was last measured."""
    correction_ns: tuple[float, float, float] | None
    """Smallest, median and largest correction (new time minus old); None where no time was corrected."""
    uncertainty_ns: float
    """Largest standard deviation of any mapped time; infinite where the clock is not known."""
    base_ns: int | None
    """The base of the output's times."""
    notes: tuple[str, ...]
    """What the user should know."""


@dataclasses.dataclass(frozen=True)
class AlignedTrace:
    """One trace that went into an output."""

    path: str
    """The input."""
    output: str
    """The file that it was written into."""
    stats: AlignmentStats
    """What was done to it."""


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """Happens-before edges between the traces, and which of them do not hold."""

    edges: int
    """Edges that were judged."""
    broken: int
    """Edges that do not hold."""
    explained: int
    """Of the broken ones, those that the clocks' uncertainty explains."""
    worst_ns: float
    """The largest amount by which an edge is broken; 0 when none is."""
    instances: int
    """Operations with parts on at least two nodes."""
    unjudged_edges: int
    """Edges that depend on a clock that is not known."""
    unjudged_parts: int
    """Parts of collectives that nothing here covers."""
    ambiguous_instances: int
    """Operations that no order pairs with certainty; never a verdict."""
    details: dict[str, Any] = dataclasses.field(repr=False)
    """The whole report, as `probe_sync check --json` writes it."""

    @property
    def violations(self) -> int:
        """Broken edges that uncertainty does not explain."""
        return self.broken - self.explained


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether causality holds between the traces."""

    outcome: Literal["holds", "violated", "incomplete", "nothing"]
    """`holds`, `violated`; `incomplete` where what was judged holds and not all could be; `nothing` where there was no edge to judge."""
    before: CheckReport | None
    """The times as they are in the files, where there are corrected ones too."""
    result: CheckReport
    """The check that counts: of the corrected times where clocks are known."""
    text: str = dataclasses.field(repr=False)
    """The verdict in a sentence, the worst broken edges, and a table of operations."""
    remarks: tuple[str, ...] = dataclasses.field(repr=False)
    """What limits the verdict."""

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class _Calibrated:
    method: str
    """How the clocks were learnt."""
    timeline: str
    """Which clock the times are on now."""
    notes: tuple[str, ...]
    """Worth knowing."""
    warnings: tuple[str, ...]
    """What probably has to be changed."""
    omitted: dict[str, Any] = dataclasses.field(repr=False)
    """What is in no result: `traces` that cannot be read, and `events` whose times cannot be believed, with files, reasons and counts."""
    collectives: dict[str, Any] | None = dataclasses.field(repr=False)
    """What the collectives say of the clocks, with bounds by rank; None where they were not asked."""


@dataclasses.dataclass(frozen=True, repr=False)
class CheckResult(_Calibrated):
    """What `check` found."""

    verdict: Verdict
    """Whether causality holds."""

    def __str__(self) -> str:
        return _head(self.verdict.text)

    def __repr__(self) -> str:
        return f"<probe_sync.CheckResult: {self.verdict.text.partition(chr(10))[0]}>"


@dataclasses.dataclass(frozen=True, repr=False)
class AlignResult(_Calibrated):
    """What `align` did."""

    traces: tuple[AlignedTrace, ...]
    """The traces, in order of nodes."""
    verdict: Verdict | None
    """Whether causality holds; None unless `validate`."""

    @property
    def largest_correction_ns(self) -> float:
        """The correction that is farthest from 0."""
        return _largest(self.traces)

    @property
    def uncertainty_ns(self) -> float:
        """Largest standard deviation of any time."""
        return max((trace.stats.uncertainty_ns for trace in self.traces), default=0.0)

    def __str__(self) -> str:
        return _line(self.traces, self.verdict, self.uncertainty_ns)

    def __repr__(self) -> str:
        return f"<probe_sync.{type(self).__name__}: {self}>"


@dataclasses.dataclass(frozen=True)
class FilterReport:
    """What `merge` left out of its output."""

    rule: str
    """The rule, as the command line's flags."""
    traces_left_out: tuple[str, ...]
    """Traces that are not in the output, by name."""
    span_ns: tuple[int | None, int | None]
    """What was kept of time, ns on the reference clock; an end is None where it was not asked for."""
    events: int
    """Events with a time in the other traces."""
    left_out: int
    """Of these, those that are not in the output: the sum of the five below."""
    outside: int
    """Events that lie outside of the span whole."""
    of_other_kinds: int
    """Events of other kinds."""
    too_short: int
    """Events that were too short for the size."""
    half_flows: int
    """Ends of flows whose other end, or whose event, is not in the output."""
    unjudged: int
    """Events that begin or end something and do not say when the rest is, which no filter can judge."""
    shortest_ns: int | None
    """Events shorter than this were left out; None where the size left out nothing."""
    bytes_max: int | None
    """How many bytes were allowed."""
    bytes: int
    """How many the output has, before packing."""
    text: str
    """The same in words; empty where nothing was left out."""


@dataclasses.dataclass(frozen=True, repr=False)
class MergeResult(AlignResult):
    """What `merge` did."""

    output: str
    """The file that was written."""
    base_ns: int
    """The common base of its times."""
    uncalibrated: tuple[str, ...]
    """Traces whose clock is not known, and whose times are as they were."""
    filter: FilterReport | None
    """What was left out; None where everything was asked for."""


@dataclasses.dataclass(frozen=True)
class Straggler:
    """A rank or a whole host that is late again and again, and costs time by it."""

    rank: int | None
    """The rank; None: a whole host."""
    host: str
    """The host."""
    steps: tuple[int, ...]
    """Steps in which it cost most; empty where steps are not known."""
    times: int
    """How many steps these are; where steps are not known, operations."""
    of: int
    """Out of how many."""
    chance: float
    """How probable it is that chance alone names anybody so often."""
    lost_ns: int
    """What it cost in these steps, by its leads."""
    saved_ns: int
    """How much sooner the job would have ended had it been as fast as the median."""
    saved_share: float
    """The same as a share of all steps."""
    saved_by_step_ns: tuple[int, ...]
    """How much shorter each of `steps` would have been, in the same order."""


@dataclasses.dataclass(frozen=True, repr=False)
class StragglersResult(_Calibrated):
    """Who was late to the collectives."""

    stragglers: tuple[Straggler, ...]
    """Who is late again and again; most costly first. Empty: nobody."""
    instances: tuple[dict[str, Any], ...]
    """Every operation, in order of its last arrival; its fields are those of `probe_sync stragglers --json`."""
    text: str
    """Tables and the verdict in words."""
    details: dict[str, Any]
    """The whole document, as `probe_sync stragglers --json` writes it."""

    def __str__(self) -> str:
        return _head(self.text)

    def __repr__(self) -> str:
        named = ", ".join(f"rank {found.rank}" if found.rank is not None else f"host {found.host}" for found in self.stragglers)
        return f"<probe_sync.StragglersResult: {len(self.instances)} operations, stragglers: {named or 'none'}>"

    def to_pandas(self) -> Any:
        """One row per operation, without its arrivals; needs pandas."""
        pandas = importlib.import_module("pandas")
        return pandas.DataFrame([{name: value for name, value in line.items() if name != "arrivals"} for line in self.instances])

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The same rows for readers of Arrow (polars, duckdb); needs pyarrow."""
        rows = [{name: value for name, value in line.items() if name != "arrivals"} for line in self.instances]
        return importlib.import_module("pyarrow").Table.from_pylist(rows).__arrow_c_stream__(requested_schema)


@dataclasses.dataclass(frozen=True)
class SolveResult:
    """What `solve` recomputed."""

    exchanges: int
    """Exchanges used; of packets, the packets."""
    nodes: int
    """Nodes seen."""
    rounds: int
    """Rounds solved."""
    lines: int
    """Lines written, the first apart."""
    skipped_lines: int
    """Lines left out."""
    left_out_exchanges: int
    """Exchanges that no fit used."""
    skipped_rounds: int
    """Rounds left out for want of the reference node."""
    carried_rounds: int
    """Rounds without the reference, in which another node carried its timeline on; not among `rounds`, but among the lines."""
    notes: tuple[str, ...]
    """What was left out and why, by file and line."""
    asymmetry_sd_ns: float
    """Standard deviation of a median path's asymmetry."""
    half_width_95_ns: float | None
    """Median half-width of the 95 % intervals; None when nobody but the reference was reached."""
    breaks: int
    """Times at which a clock was stepped or restarted."""
    faults: tuple[str, ...]
    """Faults of clocks and paths, as sentences, in the order in which they showed."""


def stats(told: dict[str, Any]) -> AlignmentStats:
    """Statistics from JSON, in which infinite is null."""
    correction, uncertainty = told["correction_ns"], told["uncertainty_ns"]
    changed = {
        "correction_ns": None if correction is None else tuple(correction),
        "uncertainty_ns": math.inf if uncertainty is None else uncertainty,
        "notes": tuple(told["notes"]),
    }
    return AlignmentStats(**{**told, **changed})


def verdict(told: dict[str, Any] | None) -> Verdict | None:
    """A verdict from JSON."""
    if told is None:
        return None
    before = told["before"]
    known = None if before is None else _report(before)
    return Verdict(told["outcome"], known, _report(told["result"]), told["text"], tuple(told["remarks"]))


def common(told: dict[str, Any]) -> dict[str, Any]:
    """The fields of every result on traces."""
    lists = {name: tuple(told[name]) for name in ("notes", "warnings")}
    return {**{name: told[name] for name in ("method", "timeline", "collectives", "omitted")}, **lists}


def filter_report(told: dict[str, Any], text: str) -> FilterReport:
    """What was left out, from JSON."""
    lists = {name: tuple(told[name]) for name in ("traces_left_out", "span_ns")}
    return FilterReport(**{**told, **lists}, text=text)


def stragglers(told: dict[str, Any]) -> StragglersResult:
    """Who was late, from JSON."""
    found, text = told["own"]["found"], told["own"]["text"]
    lists = ("steps", "saved_by_step_ns")
    named = tuple(Straggler(**{**line, **{name: tuple(line[name]) for name in lists}}) for line in found["stragglers"])
    return StragglersResult(**common(told), stragglers=named, instances=tuple(found["instances"]), text=text, details=found)


def solved(told: dict[str, Any]) -> SolveResult:
    """What `solve` tells, from JSON."""
    return SolveResult(**{**told, "notes": tuple(told["notes"]), "faults": tuple(told["faults"])})


def _head(text: str) -> str:
    """The first lines of a longer text, and how to see all of it."""
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
        text += f" beside that of {assumed} without marks, whose times are taken as the system clock's"
    if found is None:
        return text
    before = "" if found.before is None else f"{found.before.broken} → "
    outcome = "no collective to judge" if found.outcome == "nothing" else found.outcome
    return f"{text}; broken edges {before}{found.result.broken} of {found.result.edges}: {outcome}"
