"""When this rank issues each collective of torch.distributed, by hooks of its process groups: some microseconds per collective.

Torch's Flight Recorder was tried as well: a reading of 64 operations takes 0.5 ms, of the usual 2000 tens of milliseconds, and collectives wait meanwhile.

Only collectives in which every member waits for every other are looked at: not those with a root, nor messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Hooks:
    """Says `arrive(group, number)` before each collective of this process."""

    def __init__(self, arrive: Callable[[str, int], None], groups: Callable[[], list[Any]]) -> None:
        self._arrive, self._groups = arrive, groups
        self._hooked: list[Any] = []
        self.missed = 0
        """Collectives whose number torch did not say."""
        self.look()

    def look(self) -> None:
        """Takes in process groups that were made since."""
        for group in self._groups():
            if not any(group is known for known in self._hooked):
                group.register_pre_hook(HOOK_ID, self._hook(group))
                self._hooked.append(group)

    def remove(self) -> None:
        """Leaves the process groups as they were."""
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
                    arrive(name, number())
                except RuntimeError:
                    # An error would end the job.
                    self.missed += 1

        return issued


def _called(name: str, description: str) -> str:
    """What people call a process group; its name, where its description is not its own."""
    return name if description in ("", "undefined") else description if description == "default_pg" else f"{description} {name}"


def _name(operation: str, called: str) -> str:
    """`all_reduce (dp_0 1)`; empty for what not every member waits in."""
    waits = operation.lstrip("_").startswith(("all", "barrier", "reduce_scatter"))
    return f"{operation} ({called})".encode()[:NAME_MAX].decode(errors="ignore") if waits else ""


HOOK_ID = 0x7073
NAME_MAX = 64
