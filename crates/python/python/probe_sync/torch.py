"""Puts the torch.profiler traces of all ranks on one clock: `trace_handler` for an unmodified loop, `profile` for more marks. `watch` finds late ranks without a profiler.

    handler = probe_sync.torch.trace_handler("traces", merge=True)
    with torch.profiler.profile(on_trace_ready=handler) as prof:
        ...                                             # the unmodified loop

Every rank creates the handler once, before profiling; the clocks are measured from then on. Each optimizer step puts a mark into the trace (at most ten
per second), between two readings of the system clock. The marks relate torch's clock to the host's and identify the rank that wrote the trace.

The folder can be shared by all ranks or local to each host: a rank that does not share rank 0's folder sends its traces there over the session once it
has written them. `shared=True` or `False` overrides the detection.

`probe_sync.torch.profile` is `torch.profiler.profile` with marks in `step()` and at both ends of every recording.
"""

from __future__ import annotations

import atexit
import datetime
import importlib
import json
import pathlib
import sys
import threading
import time
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, cast

from . import _collectives, _flight_recorder, _hang, _recorder, launch
from . import session as _session
from .errors import ConfigError

try:
    _torch: Any = importlib.import_module("torch")
    _profiler: Any = importlib.import_module("torch.profiler")
    _optimizers: Any = importlib.import_module("torch.optim.optimizer")
except ImportError as _error:
    raise ConfigError(f"probe_sync.torch: torch cannot be imported ({_error}); install torch in this environment") from _error

if TYPE_CHECKING:
    from collections.abc import Callable

    # Without torch installed, type checkers treat the base class as Any.
    from torch.profiler import profile as _Profile  # type: ignore[import-not-found, unused-ignore]

    from ._settings import Path, Setting
    from .lateness import LateStanding
    from .launch import Group
    from .results import MergeResult
    from .session import Session
else:
    _Profile = _profiler.profile

__all__ = ["TraceHandler", "Watch", "profile", "trace_handler", "watch"]


class _Recording(Protocol):
    """The part of a profiler that a handler uses."""

    def export_chrome_trace(self, path: str) -> object: ...


class TraceHandler:
    """Writes this rank's trace, and at the end merges all ranks' traces; created by `trace_handler`."""

    def __init__(
        self, folder: Path, merge: bool, group: Group | None, shared: bool | None, join_timeout: float, settings: dict[str, Setting]
    ) -> None:
        self.folder: pathlib.Path = pathlib.Path(folder)
        self.rank: int
        self.size: int
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

    def __call__(self, prof: _Recording) -> None:
        """For `on_trace_ready`: writes the trace. Without a schedule there is only one trace, and this call ends the run."""
        if self._recorder.finished:
            # A failure to measure must not end a training job.
            text = f"probe_sync: rank {self.rank}: this trace was recorded after the measurement had ended and will not be aligned; create another trace_handler for it"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        _recorder.write_whole(self._path(self._cycles, self.rank), prof.export_chrome_trace)
        self._cycles += 1
        if not getattr(prof, "record_steps", False):
            self.finish()

    def finish(self) -> None:
        """Ends the measurement once all ranks have written their traces, and starts the merge at rank 0 in the background. Called automatically at exit."""
        self._finish(None)

    def _finish(self, failure: BaseException | None) -> None:
        atexit.unregister(self._at_exit)
        self._hook.remove()
        written = [[self._path(cycle, rank) for rank in range(self.size)] for cycle in range(self._cycles)]
        self._recorder.finish(written, lambda cycle: self.folder / f"merged.{cycle}.json.gz", failure=failure)

    def wait(self, timeout: float | None = None) -> MergeResult | None:
        """Returns the result of the merge, at rank 0; waits for it up to `timeout` seconds."""
        return self._recorder.wait(timeout)

    @property
    def merged(self) -> list[pathlib.Path]:
        """The merged files so far, at rank 0."""
        return list(self._recorder.merged)

    @property
    def run_dir(self) -> pathlib.Path:
        """Directory of the measurement."""
        return self._recorder.run

    def mark(self, *, always: bool = True) -> None:
        """Puts a mark into the current trace; with `always=False`, at most ten per second. Does nothing if there is no current trace."""
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
    """Creates a handler for `on_trace_ready` and starts measuring the clocks. Every rank must call it; it waits for the other ranks.

    `folder` is where this rank writes. `shared` says whether rank 0 shares that folder (detected by default); if
    not, this rank sends its files. `group` says how the ranks meet (default: torch.distributed if it is initialised, otherwise the launcher's
    environment, otherwise this process alone). `settings` are those of `probe_sync.start`.
    """
    return TraceHandler(folder, merge, group or _recorder.group_of(launch.torch_is_up(), launch.from_torch), shared, join_timeout, settings)


class Watch:
    """Finds late ranks while the job runs; created by `watch`."""

    def __init__(
        self,
        session: Session,
        source: _collectives.Hooks | _flight_recorder.FlightRecorder,
        is_own: bool,
        on_late: Callable[[LateStanding], object] | None,
        hang: _hang.Dumper | None,
        evidence: Callable[[], list[tuple[str, bytes]]],
    ) -> None:
        self.session = session
        self._hang, self._evidence = hang, evidence
        self._source, self._is_own, self._on_late = source, is_own, on_late
        self._known: set[Any] = set()
        self._has_failed = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe_sync watch", daemon=True)
        self._thread.start()

    def verdict(self) -> str:
        """Returns a sentence for each late rank or host and for each operation that waits for ranks; empty if there are none. Usable on every rank."""
        return str(self.session.late())

    @property
    def missed(self) -> int:
        """Collectives of this rank that were not seen: torch did not provide a number, or its Flight Recorder had forgotten them."""
        return self._source.missed

    def stop(self) -> dict[str, Any] | None:
        """Ends the watch, and the session if `watch` started it. Returns the session's report at rank 0. Every rank must call it."""
        self._ended.set()
        self._thread.join()
        self._source.remove()
        self.session._native.withdraw_from_hang()
        return self.session.stop() if self._is_own else None

    def _run(self) -> None:
        while not self._ended.wait(self._source.wait_s()):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001
                # It must not end the watch: a hang may follow.
                if not self._has_failed:
                    warnings.warn(f"probe_sync.torch.watch: {error!r}; the watch continues", RuntimeWarning, stacklevel=1)
                self._has_failed = True

    def _look(self) -> None:
        self.session._answer_hang(self._evidence)
        self._source.look()
        if self._on_late is None and self._hang is None:
            return
        standing = self.session.late()
        if self._hang is not None:
            self._hang.look(standing)
        self._tell(standing)

    def _tell(self, standing: LateStanding) -> None:
        if self._on_late is None:
            return
        known: set[Any] = {*(late.key for late in standing.late), *(wait.key for wait in standing.waiting)}
        if known != self._known:
            self._known = known
            try:
                self._on_late(standing)
            except Exception as error:  # noqa: BLE001
                # It must neither end the watch nor the job.
                warnings.warn(f"probe_sync.torch.watch: on_late raised {error!r}", RuntimeWarning, stacklevel=1)


def watch(
    *,
    on_late: Callable[[LateStanding], object] | None = None,
    on_hang: Path | None = None,
    hang_after: float | datetime.timedelta = 60,
    group: Group | None = None,
    **settings: Setting,
) -> Watch:
    """Starts to find late ranks, from the collectives that each rank issues. Every rank must call it, after `init_process_group`.

    It uses this process's session if there is one; otherwise it starts one, with the `settings` of `probe_sync.start`. `on_late` is called on a thread of its own,
    on every rank, when a rank begins or ceases to be late or to be waited for.

    `on_hang` is a folder. When an operation has waited for a rank for `hang_after` seconds, every rank that still runs writes its Flight Recorder
    dump (`rank_N`) and the Python stacks of its threads (`rank_N.stack`) there, once per hang; `probe_sync hang FOLDER` then says which rank stopped the job.
    Choose a shorter time than torch's own timeout, which ends the process.

    Collectives are observed through hooks of the process groups, at some microseconds per collective. Before torch 2.15 there are no hooks; then the Flight
    Recorder is read twice a second, and its ring must be small: export TORCH_FR_BUFFER_SIZE=64 and TORCH_NCCL_TRACE_BUFFER_SIZE=64.
    """
    if not launch.torch_is_up():
        raise ConfigError("probe_sync.torch.watch: call it after torch.distributed.init_process_group()")
    distributed: Any = importlib.import_module("torch.distributed")
    world = distributed.distributed_c10d._world
    has_hooks = all(hasattr(made, "register_pre_hook") for made in world.pg_map)
    if not has_hooks:
        _flight_recorder.require_small_ring(_torch.__version__)
    running = _session.current()
    seconds = _seconds(hang_after)
    session = running or _session.start(group=group or launch.from_torch(), **cast("dict[str, Any]", settings))
    hang = None if on_hang is None else _hang.Dumper(pathlib.Path(on_hang), seconds, distributed.get_rank())
    source: _collectives.Hooks | _flight_recorder.FlightRecorder
    if has_hooks:
        source = _collectives.Hooks(session.arrive, lambda: list(world.pg_map))
    else:
        source = _flight_recorder.FlightRecorder(session._report_arrivals)
    rank = distributed.get_rank()
    return Watch(session, source, running is None, on_late, hang, lambda: _hang.evidence(rank))


def _seconds(after: float | datetime.timedelta) -> float:
    seconds = after.total_seconds() if isinstance(after, datetime.timedelta) else after
    if not (isinstance(seconds, (int, float)) and 0 < seconds < 1e6):
        raise ConfigError(f"hang_after={after!r}: give a positive number of seconds, or a timedelta")
    return float(seconds)


class profile(_Profile):  # type: ignore[misc, unused-ignore]  # noqa: N801
    """`torch.profiler.profile` with marks in `step()` and at both ends of a recording; requires a `trace_handler` as `on_trace_ready`."""

    def __init__(self, *, on_trace_ready: TraceHandler | None = None, **keywords: Any) -> None:
        super().__init__(on_trace_ready=on_trace_ready, **keywords)
        handler = on_trace_ready
        if not isinstance(handler, TraceHandler):
            raise ConfigError("probe_sync.torch.profile: give on_trace_ready=probe_sync.torch.trace_handler(folder)")
        self._handler = handler
        if not launch.torch_is_up():
            self.preset_metadata_json("distributedInfo", json.dumps({"rank": handler.rank, "world_size": handler.size}))

    def __enter__(self) -> profile:
        super().__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        super().__exit__(kind, error, trace)

    def start_trace(self) -> None:
        """Starts recording, with a mark."""
        super().start_trace()
        self._handler.mark()

    def stop_trace(self) -> None:
        """Stops recording, with a mark."""
        self._handler.mark()
        super().stop_trace()

    def step(self) -> None:
        """Begins the next step, with an occasional mark."""
        self._handler.mark(always=False)
        super().step()


def _around(name: str) -> tuple[int, int]:
    event = _enter(name)
    before = time.time_ns()
    event.__enter__()
    after = time.time_ns()
    event.__exit__(None, None, None)
    return before, after


# The public one takes some 3 µs from the first reading to the second, this one 0.5 µs; torch has
# had it since 2.1.
_enter: Any = getattr(_torch._C._profiler, "_RecordFunctionFast", None) or _profiler.record_function
