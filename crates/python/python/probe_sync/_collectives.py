"""Observes when this rank issues each collective of torch.distributed, by hooks of its process groups, at some microseconds per collective.

Torch's Flight Recorder is only used where there are no hooks (`_flight_recorder`): reading 64 operations takes 0.5 ms, and reading the usual 2000 takes tens
of milliseconds, during which collectives wait.

Only collectives in which every member waits for every other are observed, not those with a root or messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Hooks:
    """Calls `arrive(group, number)` before each collective of this process."""

    def __init__(self, arrive: Callable[[str, int], None], groups: Callable[[], list[Any]]) -> None:
        self._arrive, self._groups = arrive, groups
        self._hooked: list[Any] = []
        self.missed = 0
        """Collectives for which torch did not provide a number."""
        self.look()

    def look(self) -> None:
        """Adds hooks to process groups created since the last call."""
        for group in self._groups():
            if not any(group is known for known in self._hooked):
                group.register_pre_hook(HOOK_ID, self._hook(group))
                self._hooked.append(group)

    def wait_s(self) -> float:
        """Returns the time until the next look for new groups."""
        return LOOK_S

    def remove(self) -> None:
        """Removes the hooks from the process groups."""
        for group in self._hooked:
            try:
                group.unregister_pre_hook(HOOK_ID)
            except RuntimeError:
                # It was destroyed.
                pass
        self._hooked.clear()

    def _hook(self, group: Any) -> Callable[[Any], None]:
        arrive, number, called = self._arrive, group._get_sequence_number_for_group, _called(group.group_name, group.group_desc)
        names: dict[Any, str] = {}

        def issued(args: Any) -> None:
            operation = args.name
            name = names.get(operation)
            if name is None:
                name = names[operation] = _name(operation.name.lower(), called)
            if name:
                try:
                    # Torch counts the operation after this hook; its Flight Recorder shows that number.
                    arrive(name, number() + 1)
                except RuntimeError:
                    # An error would end the job.
                    self.missed += 1

        return issued


def group_name(operation: str, name: str, description: str) -> str:
    """Returns the name under which arrivals at such operations of a process group are reported; empty for operations in which not every member waits."""
    return _name(operation, _called(name, description))


def _called(name: str, description: str) -> str:
    """Returns the display name of a process group: its description and name, or one of them if it is the default group or has no description."""
    return name if description in ("", "undefined") else description if description == "default_pg" else f"{description} {name}"


def _name(operation: str, called: str) -> str:
    """Returns the name of an operation, such as `all_reduce (dp_0 1)`; empty for operations in which not every member waits."""
    waits = operation.lstrip("_").startswith(("all", "barrier", "reduce_scatter"))
    return f"{operation} ({called})".encode()[:NAME_MAX].decode(errors="ignore") if waits else ""


HOOK_ID = 0x7073
LOOK_S = 0.5
NAME_MAX = 64
