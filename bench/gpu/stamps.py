"""Kernels that read the GPU's own timer, under torch's profiler: what the profiler's stamps of a GPU are worth.

    python bench/gpu/run.py FOLDER stamps        # on the machine with the GPU
    python bench/gpu/stamps.py judge FOLDER      # anywhere

run.py starts four processes on one GPU and clock.cu beside them. Each profiles kernels that write the timer down first thing, for ten
seconds. The timer is the GPU's, so it is the same in all processes; clock.cu says what the system clock shows at the same time. `judge` prints, for each process,
by how much its kernels read the timer later than the profiler says that they began. What differs between processes of one GPU is the profiler's error.
"""

import bisect
import decimal
import gzip
import json
import os
import pathlib
import statistics
import sys
import time

KERNEL = r"""
extern "C" __global__ void stamp(unsigned long long *out) {
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    out[0] = now;
}
"""


def main(folder):
    import cupy
    import torch
    from torch.profiler import ProfilerActivity, profile

    rank = os.environ["RANK"]
    stamp = cupy.RawKernel(KERNEL, "stamp")
    readings = cupy.zeros(1000, dtype=cupy.uint64)
    torch.cuda.set_device(0)
    torch.ones(1, device="cuda")
    stamp((1,), (1,), (readings[:1],))
    cupy.cuda.Device(0).synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for number in range(1000):
            stamp((1,), (1,), (readings[number:],))
            cupy.cuda.Device(0).synchronize()
            time.sleep(0.01)
    profiler.export_chrome_trace(f"{folder}/rank{rank}.pt.trace.json.gz")
    pathlib.Path(folder, f"rank{rank}.readings.json").write_text(json.dumps(readings.tolist()))


def judge(folder):
    clock = [tuple(map(int, line.split())) for line in (folder / "clock").read_text().splitlines()]
    half_ns = statistics.median((after - before) / 2 for before, _, after in clock)
    print(f"clock.cu: {len(clock)} readings, the system clock within {half_ns:.0f} ns (median)")
    base = clock[0][1]
    # What the system clock is ahead of the timer, on a line between two neighbours: differences,
    # exact enough in a float.
    at, ahead = [gpu - base for _, gpu, _ in clock], [before + (after - before) // 2 - gpu for before, gpu, after in clock]

    def system_ns(gpu):
        place = min(max(bisect.bisect_right(at, gpu - base), 1), len(at) - 1)
        share = (gpu - base - at[place - 1]) / (at[place] - at[place - 1])
        return gpu + ahead[place - 1] + round((ahead[place] - ahead[place - 1]) * share)

    for path in sorted(folder.glob("rank*.pt.trace.json.gz")):
        readings = json.loads(path.with_name(path.name.replace(".pt.trace.json.gz", ".readings.json")).read_text())
        trace = json.loads(gzip.open(path).read(), parse_float=decimal.Decimal)
        kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel" and event["name"] == "stamp"]
        kernels.sort(key=lambda event: event["args"]["correlation"])
        starts = [int(trace["baseTimeNanoseconds"]) + int(event["ts"] * 1000) for event in kernels]
        late = sorted(system_ns(reading) - start for start, reading in zip(starts, readings, strict=True))
        told = [late[int(share * (len(late) - 1))] for share in (0, 0.01, 0.5, 0.99, 1)]
        print(f"{path.name}: {len(late)} kernels read the timer {told} ns after their stamp (least, 1 %, median, 99 %, most)")


if __name__ == "__main__":
    if sys.argv[1] == "judge":
        judge(pathlib.Path(sys.argv[2]))
    else:
        main(sys.argv[1])
