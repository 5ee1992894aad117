"""Uses of probe_sync.torch or probe_sync.jax that cannot work: `uses.py torch|jax FOLDER` prints what each is answered, a line of JSON."""

import json
import pathlib
import sys
import warnings

import probe_sync

SETTINGS = {"window": "250ms", "tracer_clock": "none"}


def answer(use):
    """What a use is refused with."""
    try:
        use()
    except probe_sync.Error as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def of_torch(folder):
    import torch

    profiler = torch.profiler.ProfilerActivity.CPU
    told = {"profile_without_handler": answer(lambda: probe_sync.torch.profile(activities=[profiler]))}
    handler = probe_sync.torch.trace_handler(folder, **SETTINGS)
    told["handler_twice"] = answer(lambda: probe_sync.torch.trace_handler(folder, **SETTINGS))
    told["mark_without_trace"] = answer(handler.mark)
    with torch.profiler.profile(activities=[profiler], on_trace_ready=handler):
        torch.ones(8).sum()
    handler.wait(60)
    told["unknown_setting"] = answer(lambda: probe_sync.torch.trace_handler(folder, windw="1s"))
    with torch.profiler.profile(activities=[profiler]) as late:
        torch.ones(8).sum()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        handler(late)
    told["traced_after_the_end"] = " ".join(str(warning.message) for warning in caught)
    return told


def of_jax(folder):
    told = {"stop_without_start": answer(probe_sync.jax.stop_trace)}
    with probe_sync.start(SETTINGS, out=folder / "own"):
        told["beside_a_session"] = answer(lambda: probe_sync.jax.start_trace(folder, **SETTINGS))
    trace = probe_sync.jax.start_trace(folder, **SETTINGS)
    told["start_twice"] = answer(lambda: probe_sync.jax.start_trace(folder, **SETTINGS))
    probe_sync.jax.stop_trace()
    trace.wait(60)
    told["stop_twice"] = answer(probe_sync.jax.stop_trace)
    return told


if __name__ == "__main__":
    print(json.dumps({"torch": of_torch, "jax": of_jax}[sys.argv[1]](pathlib.Path(sys.argv[2]))))
