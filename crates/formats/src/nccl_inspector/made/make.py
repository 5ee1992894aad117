"""Writes synthetic logs of the NCCL Inspector: four processes on four hosts, whose clocks differ.

No GPU was involved; `git_rev` is `synthetic`. Members, their order and the spelling of numbers
follow plugins/profiler/inspector of NCCL 2.30 with NCCL_INSPECTOR_DUMP_VERBOSE=1.

    python3 make.py
"""

import json
import os

# Time of the reference clock, µs, and what the hosts' clocks show more than it.
NOW = 1_767_225_600_000_000
OFFSETS = [0, 5_000, -2_000, 700]
# Rank 2 launches this much later, µs.
LATE = 3_000
# From the last start to the end, µs.
TRANSFER = 400


def event(kind, rank, sequence, function, start, stop, channels, dump, timing="kernel_gpu"):
    """One line; `channels` has a start and a stop each."""
    size = 67_108_864
    duration = max(stop - start for start, stop in channels)
    sequences = [
        {"channel_id": n, "kernel_start_sn": 3 + 3 * n, "kernel_stop_sn": 5 + 3 * n, "kernel_record_sn": 4 + 3 * n}
        for n in range(len(channels))
    ]
    stamps = [
        {"channel_id": n, "kernel_start_ts": start, "kernel_stop_ts": stop, "kernel_record_ts": stop}
        for n, (start, stop) in enumerate(channels)
    ]
    operation = {kind: function, f"{kind}_sn": sequence}
    if kind == "p2p":
        operation["p2p_peer"] = (rank + 1) % 4
    operation |= {
        f"{kind}_msg_size_bytes": size,
        f"{kind}_exec_time_us": duration,
        f"{kind}_timing_source": timing,
        f"{kind}_algobw_gbs": round(size / duration / 1000, 6),
        f"{kind}_busbw_gbs": round(size / duration / 1000 * 1.5, 6),
        "event_trace_sn": {f"{kind}_start_sn": 1, f"{kind}_stop_sn": 2, "kernel_events": sequences},
        "event_trace_ts": {f"{kind}_start_ts": start, f"{kind}_stop_ts": stop, "kernel_events": stamps},
    }
    return {
        "header": {"id": "0x7f8c496ae9f661", "comm_name": "unknown", "rank": rank, "n_ranks": 4, "nnodes": 4},
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "git_rev": "synthetic",
            "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": dump,
            "hostname": f"gpu-0{rank}",
            "pid": 1000 + rank,
        },
        f"{kind}_perf": operation,
    }


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    for rank, offset in enumerate(OFFSETS):
        lines = []
        # NCCL numbers each function of a communicator from 0, so that the numbers repeat.
        functions = ["AllReduce", "AllGather"] + ["AllReduce"] * 6
        for step, function in enumerate(functions):
            sequence = functions[:step].count(function)
            launch = NOW + step * 50_000 + offset + rank * 10 + (LATE if rank == 2 else 0)
            begin = launch + 20
            end = NOW + step * 50_000 + offset + 20 + LATE + 20 + TRANSFER + rank
            channels = [(begin, end), (begin + 1, end - 2)]
            lines.append(event("coll", rank, sequence, function, launch, launch + 3, channels, end + 500))
        start = NOW + 400_000 + offset
        lines.append(event("p2p", rank, 1, "Send", start, start + 2, [(start + 9, start + 99)], start + 600))
        with open(os.path.join(folder, f"gpu-0{rank}-pid{1000 + rank}.log"), "w") as file:
            for line in lines:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
