"""Which ranks are late while the job runs."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._native import Session as _Native


@dataclasses.dataclass(frozen=True)
class Late:
    """A rank, or a host with all its ranks, that is late again and again; `str()` of it is a sentence."""

    rank: int | None
    """The rank; None where all ranks of the host are late."""
    host: str
    """Its host."""
    group: str
    """The group in whose operations it is late."""
    since_ns: int
    """Its first late arrival, ns on the reference clock."""
    operations: int
    """Operations of the group since then."""
    times: int
    """Those at which it was late."""
    lead_ns: int
    """Median time by which it was later than the second-latest, ns."""
    lead_sigma_ns: float
    """Standard deviation of `lead_ns` by the clocks, ns."""
    share: float
    """Share of the time since then that the others waited for it."""
    text: str = dataclasses.field(compare=False)

    def __str__(self) -> str:
        return self.text

    @property
    def key(self) -> tuple[int | None, str, str, int]:
        """Tells one lateness from another while its numbers grow."""
        return (self.rank, self.host, self.group, self.since_ns)


@dataclasses.dataclass(frozen=True)
class Waiting:
    """An operation that some members entered and others did not; `str()` of it is a sentence."""

    group: str
    """The group."""
    step: int
    """Number of the operation."""
    since_ns: int
    """First arrival, ns on the reference clock."""
    waited_ns: int
    """How long its first member has waited, ns."""
    missing: tuple[int, ...]
    """Ranks that have not arrived, the first 16."""
    waiting: tuple[int, ...]
    """Ranks that wait, the first 16."""
    text: str = dataclasses.field(compare=False)

    def __str__(self) -> str:
        return self.text

    @property
    def key(self) -> tuple[str, int, int]:
        """Tells one wait from another while it grows."""
        return (self.group, self.step, self.since_ns)


@dataclasses.dataclass(frozen=True)
class LateStanding:
    """Who is late and who is waited for, now; `str()` of it is a line for each, and empty where nobody is."""

    late: tuple[Late, ...]
    """Who is late, most costly first."""
    waiting: tuple[Waiting, ...]
    """Who is waited for."""

    def __str__(self) -> str:
        return "\n".join([f"late: {late}" for late in self.late] + [f"waiting: {wait}" for wait in self.waiting])


def standing(native: _Native) -> LateStanding:
    """What a session shows."""
    late, waiting = json.loads(native.late())
    return LateStanding(tuple(_late(text, line) for text, line in late), tuple(_waiting(text, line) for text, line in waiting))


def _late(text: str, line: dict[str, Any]) -> Late:
    names = [field.name for field in dataclasses.fields(Late) if field.name != "text"]
    return Late(**{name: line[name] for name in names}, text=text)


def _waiting(text: str, line: dict[str, Any]) -> Waiting:
    missing = tuple(missing["rank"] for missing in line["missing"])
    return Waiting(line["group"], line["step"], line["since_ns"], line["waited_ns"], missing, tuple(line["waiting"]), text)
