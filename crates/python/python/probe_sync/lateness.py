"""Which ranks are late while the job runs."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._native import Session as _Native


@dataclasses.dataclass(frozen=True)
class Late:
    """A rank, or a host with all its ranks, that is repeatedly late; its `str()` is a sentence."""

    rank: int | None
    """The rank; None if all ranks of the host are late."""
    host: str
    """Host name."""
    group: str
    """Name of the group in whose operations it is late."""
    since_ns: int
    """First late arrival, ns on the reference clock."""
    operations: int
    """Operations of the group since the first late arrival."""
    times: int
    """Operations at which it was late."""
    lead_ns: int
    """Median time between the second-latest arrival and its own, ns."""
    lead_sigma_ns: float
    """Standard deviation of `lead_ns` due to clock errors, ns."""
    share: float
    """Share of the time since the first late arrival that others waited for it."""
    text: str = dataclasses.field(compare=False)

    def __str__(self) -> str:
        return self.text

    @property
    def key(self) -> tuple[int | None, str, str, int]:
        """Identifies the lateness while its numbers change."""
        return (self.rank, self.host, self.group, self.since_ns)


@dataclasses.dataclass(frozen=True)
class Waiting:
    """An operation that some members entered and others have not; its `str()` is a sentence."""

    group: str
    """Name of the group."""
    step: int
    """Number of the operation in its group."""
    since_ns: int
    """First arrival, ns on the reference clock."""
    waited_ns: int
    """Waiting time of the first member, ns."""
    missing: tuple[int, ...]
    """Ranks that have not arrived; at most the first 16."""
    waiting: tuple[int, ...]
    """Ranks that are waiting; at most the first 16."""
    text: str = dataclasses.field(compare=False)

    def __str__(self) -> str:
        return self.text

    @property
    def key(self) -> tuple[str, int, int]:
        """Identifies the wait while its length changes."""
        return (self.group, self.step, self.since_ns)


@dataclasses.dataclass(frozen=True)
class LateStanding:
    """Late ranks, and ranks that others wait for, at present; its `str()` has one line for each, and is empty if there are none."""

    late: tuple[Late, ...]
    """Late ranks and hosts, most costly first."""
    waiting: tuple[Waiting, ...]
    """Operations that wait for ranks."""

    def __str__(self) -> str:
        return "\n".join([f"late: {late}" for late in self.late] + [f"waiting: {wait}" for wait in self.waiting])


def standing(native: _Native) -> LateStanding:
    """Returns the present state of a session."""
    late, waiting = json.loads(native.late())
    return LateStanding(tuple(_late(text, line) for text, line in late), tuple(_waiting(text, line) for text, line in waiting))


def _late(text: str, line: dict[str, Any]) -> Late:
    names = [field.name for field in dataclasses.fields(Late) if field.name != "text"]
    return Late(**{name: line[name] for name in names}, text=text)


def _waiting(text: str, line: dict[str, Any]) -> Waiting:
    missing = tuple(missing["rank"] for missing in line["missing"])
    return Waiting(line["group"], line["step"], line["since_ns"], line["waited_ns"], missing, tuple(line["waiting"]), text)
