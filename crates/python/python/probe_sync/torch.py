"""Traces of all ranks of torch.profiler on one clock: `trace_handler` for a loop as it is, `profile` for more marks.

    handler = probe_sync.torch.trace_handler("traces", merge=True)
    with torch.profiler.profile(on_trace_ready=handler) as prof:
        ...                                             # the loop stays as it is

Every rank makes the handler once, before it profiles: the clocks are measured from then on. Each optimizer step puts a mark into the trace (at most ten a
second), between two readings of the system clock: that ties torch's clock to the host's, and proves whose trace it is.

The folder is one that all ranks see, or one on every host: a rank that does not see rank 0's sends its traces there over the session when it has written them,
in the order in which ranks come. `shared=True` or `False` says which it is where that should not be looked at.

`probe_sync.torch.profile` is `torch.profiler.profile` with marks in `step()` and at both ends of every recording.
"""

from __future__ import annotations

import atexit
import importlib
import json
import pathlib
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

from . import _recorder, launch
from .errors import ConfigError

try:
    _torch: Any = importlib.import_module("torch")
    _profiler: Any = importlib.import_module("torch.profiler")
    _optimizers: Any = importlib.import_module("torch.optim.optimizer")
except ImportError as _error:
    raise ConfigError(f"probe_sync.torch: torch cannot be imported ({_error}); install torch in this environment") from _error

if TYPE_CHECKING:
    from ._settings import Path, Setting
    from .launch import Group
    from .results import MergeResult

__all__ = ["TraceHandler", "profile", "trace_handler"]


class TraceHandler:
    """Writes this rank's trace, and at the end all ranks' as one; `trace_handler` makes it."""

    def __init__(
        self, folder: Path, merge: bool, group: Group | None, shared: bool | None, join_timeout: float, settings: dict[str, Setting]
    ) -> None:
        self.folder = pathlib.Path(folder)
        self.rank, self.size = _recorder.place(group)
        self._cycles = 0
        # What an earlier run left must not pass for this one's; the ranks meet after it.
        for rank in range(self.size) if self.rank == 0 else (self.rank,):
            for old in self.folder.glob(f"rank{rank}.*.pt.trace.json.gz"):
                old.unlink(missing_ok=True)
        self._recorder = _recorder.Recorder(
            folder, group=group, around=_around, merge=merge, shared=shared, join_timeout=join_timeout, settings=settings
        )
        self._hook = _optimizers.register_optimizer_step_post_hook(self._after_step)
        atexit.register(self._at_exit)

    def __call__(self, prof: Any) -> None:
        """For `on_trace_ready`: writes the trace. Without a schedule there is one trace, and this ends the run."""
        if self._recorder.finished:
            # A failure to measure must not end a training job.
            text = f"probe_sync: rank {self.rank}: this trace was recorded after the measurement had ended, and stays as it is; make a trace_handler for it"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        _recorder.write_whole(self._path(self._cycles, self.rank), prof.export_chrome_trace)
        self._cycles += 1
        if not getattr(prof, "record_steps", False):
            self.finish()

    def finish(self) -> None:
        """Ends the measurement when all ranks have written, and has rank 0 merge in the background. At exit it is called for you."""
        self._finish(None)

    def _finish(self, failure: BaseException | None) -> None:
        atexit.unregister(self._at_exit)
        self._hook.remove()
        written = [[self._path(cycle, rank) for rank in range(self.size)] for cycle in range(self._cycles)]
        self._recorder.finish(written, lambda cycle: self.folder / f"merged.{cycle}.json.gz", failure=failure)

    def wait(self, timeout: float | None = None) -> MergeResult | None:
        """The result of the merge, at rank 0; waits for it up to `timeout` seconds."""
        return self._recorder.wait(timeout)

    @property
    def merged(self) -> list[pathlib.Path]:
        """The merged files so far, at rank 0."""
        return list(self._recorder.merged)

    @property
    def run_dir(self) -> pathlib.Path:
        """The measurement's directory."""
        return self._recorder.run

    def mark(self, *, always: bool = True) -> None:
        """Puts a mark into the trace under way; with `always=False` at most ten a second. Without a trace under way nothing happens."""
        if _torch._C._autograd._profiler_enabled():
            if always:
                self._recorder.mark()
            else:
                self._recorder.mark_now_and_then()

    def _at_exit(self) -> None:
        self._finish(getattr(sys, "last_value", None))
        # The interpreter has waited for threads before: it would cut the merge off.
        self.wait()

    def _after_step(self, *_: Any) -> None:
        self.mark(always=False)

    def _path(self, cycle: int, rank: int) -> pathlib.Path:
        return self.folder / f"rank{rank}.{cycle}.pt.trace.json.gz"


def trace_handler(
    folder: Path,
    *,
    merge: bool = True,
    group: Group | None = None,
    shared: bool | None = None,
    join_timeout: float = 300.0,
    **settings: Setting,
) -> TraceHandler:
    """A handler for `on_trace_ready` that measures the clocks from now on; every rank makes one, and waits here for the others.

    `folder` is where this rank writes. `shared` says whether rank 0 sees what is written there (detected by default); where
    it does not, this rank sends it. `group` says how the ranks meet (default: torch.distributed where it is initialised, else what the launcher
    has put into the environment, else alone). `settings` are those of `probe_sync.start`.
    """
    return TraceHandler(folder, merge, group or _recorder.group_of(launch.torch_is_up(), launch.from_torch), shared, join_timeout, settings)


class profile(_profiler.profile):  # type: ignore[misc]  # noqa: N801
    """`torch.profiler.profile` with marks in `step()` and at both ends of a recording, where `on_trace_ready` is a `trace_handler`."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        handler = self.on_trace_ready
        if not isinstance(handler, TraceHandler):
            raise ConfigError("probe_sync.torch.profile: give on_trace_ready=probe_sync.torch.trace_handler(folder)")
        self._handler = handler
        if not launch.torch_is_up():
            self.preset_metadata_json("distributedInfo", json.dumps({"rank": handler.rank, "world_size": handler.size}))

    def start_trace(self) -> None:
        """Begins to record, with a mark."""
        super().start_trace()
        self._handler.mark()

    def stop_trace(self) -> None:
        """Ends the recording with a mark."""
        self._handler.mark()
        super().stop_trace()

    def step(self) -> None:
        """The next step, with a mark now and then."""
        self._handler.mark(always=False)
        super().step()


def _around(name: str) -> tuple[int, int]:
    event = _enter(name)
    before = time.time_ns()
    event.__enter__()
    after = time.time_ns()
    event.__exit__(None, None, None)
    return before, after


# The public one takes some 3 µs from the first reading to the second, this one 0.5 µs; torch has had it since 2.1.
_enter: Any = getattr(_torch._C._profiler, "_RecordFunctionFast", None) or _profiler.record_function
