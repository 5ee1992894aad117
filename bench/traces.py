#!/usr/bin/env python3
"""How long whole commands on traces take, beside `cat` of the same bytes in the same minute.

    python3 bench/traces.py PROGRAM [--megabytes 200] [--runs 5] [--only TEXT] [--write | --judge]

Makes traces of two ranks in a folder in memory: Kineto JSON in PyTorch's own layout and XSpaces. Runs each command and its
baseline in turn and prints the least time of each, MB/s of input, the ratio to the baseline, the processor time and the peak
memory. `cat FILE > COPY` is the baseline of everything that reads plain files and writes them; `gzip -dc | gzip -1` that of packed ones.
If orjson or protobuf's upb is installed, the scripts that use them are timed on the same file.

--write stores the ratios in bench/traces.json, under the size; --judge fails if one is 1.5 times worse than the stored one, or if none is
stored. Ratios of small files also contain what a process costs to start, so only ratios of one size are compared: those of 16 MiB are of a
development build, those of 200 MiB of a release build.
"""

import argparse
import gzip
import importlib.util
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from xspace import as_varint

HERE = pathlib.Path(__file__).resolve().parent
STORED = HERE / "traces.json"
WORSE = 1.5
LIMIT_S = 600
BASE_NS = 1_790_857_026_000_000_000
"""Base of the times; the traces begin one second after it."""
STEP_US = 20_000
AHEAD_US = 2500
"""How far the clock of rank 1 is ahead."""
OPERATORS = 60


def operator(rank, number, index, at):
    """An operator, its launch, its kernel and their flow, as PyTorch writes them."""
    call = number * (OPERATORS + 1) + index + 1
    last = index == OPERATORS
    name = "c10d::allreduce_" if last else ("aten::linear", "aten::addmm", "aten::_to_copy", "aten::as_strided", "aten::copy_")[index % 5]
    yield f'''
  {{
    "ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 30591, "tid": 30591,
    "ts": {at:.3f}, "dur": {120.5 + index % 7:.3f},
    "args": {{
      "External id": {call},"Record function id": {call}, "Sequence number": {call}, "Fwd thread id": 0, "Concrete Inputs": ["", "{index}", "[1]"], "Input type": ["float", "Scalar", "ScalarList"], "Input Strides": [[256, 1], [], []], "Input Dims": [[4, 256], [], []], "Ev Idx": {call}
    }}
  }},'''
    yield f'''
  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 30591, "tid": 30591,
    "ts": {at + 20.125:.3f}, "dur": 8.250,
    "args": {{
      "External id": {call}, "cbid": 211, "correlation": {call}
    }}
  }},
  {{
    "ph": "s", "id": {call}, "pid": 30591, "tid": 30591, "ts": {at + 20.125:.3f},
    "cat": "ac2g", "name": "ac2g"
  }},'''
    begins = at + 60 + (400 * ((number + rank) % 2) if last else index % 11)
    kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
    name = kernel if last else "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int)"
    collective = f', "Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024, "Group size": 2, "dtype": "Float", "Process Group Name": "0", "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1]", "Seq": {number}' if last else ""
    yield f'''
  {{
    "ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7,
    "ts": {begins:.3f}, "dur": {700.25 if last else 55.75 + index % 3:.3f},
    "args": {{
      "External id": {call}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {call}, "registers per thread": 32, "shared memory": 0, "blocks per SM": 0.5, "warps per SM": 2, "grid": [66, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 6{collective}
    }}
  }},
  {{
    "ph": "f", "id": {call}, "pid": 0, "tid": 7, "ts": {begins:.3f},
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }},'''


def kineto(path, rank, size):
    """A trace of about `size` bytes."""
    info = {"backend": "nccl", "rank": rank, "world_size": 2, "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}]}
    with open(path, "w") as file:
        written = file.write(f'''{{
  "schemaVersion": 1,
  "distributedInfo": {json.dumps(info)},
  "host_name": "node{rank}",
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": {BASE_NS},
  "traceEvents": [
  {{
    "ph": "M", "name": "process_name", "ts": 1000000.000, "pid": 30591, "tid": 0,
    "args": {{
      "name": "python"
    }}
  }},''')
        number = 0
        while written < size:
            start = 1_000_000 + number * STEP_US + rank * AHEAD_US
            written += file.write(f'''
  {{
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{number}", "pid": 30591, "tid": 30591,
    "ts": {start:.3f}, "dur": {STEP_US - 100:.3f},
    "args": {{
      "External id": 0,"Record function id": 0, "Ev Idx": 0
    }}
  }},''')
            for index in range(OPERATORS + 1):
                for text in operator(rank, number, index, start + 50 + 300 * index):
                    written += file.write(text)
            number += 1
        file.write(f'''
  {{
    "ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": {1_000_000 + number * STEP_US:.3f}
  }}
  ],
  "traceName": "rank{rank}.pt.trace.json"
}}
''')


def message(number, content):
    return as_varint(number << 3 | 2) + as_varint(len(content)) + content


def value(number, content):
    return as_varint(number << 3) + as_varint(content)


def xspace(path, rank, size):
    """An XSpace of about `size` bytes: a host with three threads and a device with two lines, long each."""
    shares = ((b"/host:CPU", (b"python", b"tf_XLAEigen/1", b"tf_XLAEigen/2")), (b"/device:GPU:0 (NVIDIA H100)", (b"Stream #7(Compute)", b"XLA Ops")))
    each = size // 5
    with open(path, "wb") as file:
        for number, (plane, lines) in enumerate(shares):
            content = value(1, number) + message(2, plane)
            for index, name in enumerate(lines):
                draw = random.Random(f"{rank} {plane} {index}")
                events, at, count = bytearray(value(1, index + 1) + message(2, name) + value(3, BASE_NS + 1_000_000_000)), 0, 0
                while len(events) < each:
                    lasts = draw.randrange(100_000, 9_000_000)
                    stat = message(4, value(1, 1) + value(3, count))
                    events += message(4, value(1, 1 + count % 40) + value(2, at) + value(3, lasts) + stat)
                    at += lasts + draw.randrange(1000, 100_000)
                    count += 1
                content += message(3, bytes(events))
            for key in range(1, 41):
                content += message(4, value(1, key) + message(2, value(1, key) + message(2, b"fusion.%d" % key)))
            content += message(5, value(1, 1) + message(2, value(1, 1) + message(2, b"run_id")))
            file.write(message(1, content))
        file.write(message(4, b"node%d" % rank))


def make(folder, size):
    for rank in range(2):
        kineto(folder / f"k{rank}.json", rank, size)
        xspace(folder / f"x{rank}.xplane.pb", rank, size)
        with open(folder / f"k{rank}.json", "rb") as plain, gzip.open(folder / f"z{rank}.json.gz", "wb", 1) as packed:
            shutil.copyfileobj(plain, packed, 1 << 20)
    with open(folder / "offsets.csv", "w") as file:
        file.write("node,node_realtime_ns,offset_vs_node0_ns\n")
        for node in range(2):
            for at in range(0, 600 * 50):
                file.write(f"{node},{BASE_NS + 900_000_000 + at * 20_000_000},{node * (AHEAD_US * 1000 + at % 7)}\n")


def run(command, folder):
    """Runs a command; wall and processor seconds, and the peak of memory in MiB."""
    for old in folder.glob("out*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    began = time.perf_counter()
    child = subprocess.Popen(command, cwd=folder, shell=isinstance(command, str), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    stop = threading.Timer(LIMIT_S, child.kill)
    stop.start()
    said = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    stop.cancel()
    wall = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{command}: {said.decode()[-2000:]}")
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def cases(program):
    """Name, inputs, command and baseline of everything that is timed."""
    k, x, z = ([f"k{rank}.json" for rank in range(2)], [f"x{rank}.xplane.pb" for rank in range(2)], [f"z{rank}.json.gz" for rank in range(2)])
    clocks = ["--offsets", "offsets.csv"]

    def of(command, traces, *rest):
        return [program, command, "--traces", *traces, "--nodes", *(str(rank) for rank in range(len(traces))), *clocks, *rest]

    def copies(traces):
        return " && ".join(f"cat {name} > out{name}" for name in traces)

    yield "align Kineto, one file", k[:1], of("align", k[:1], "--output", "out.json"), copies(k[:1])
    yield "align Kineto, two files", k, of("align", k, "--output", "out"), copies(k)
    yield "align XSpace, one file", x[:1], of("align", x[:1], "--output", "out.xplane.pb"), copies(x[:1])
    yield "align XSpace, two files", x, of("align", x, "--output", "out"), copies(x)
    yield "merge two Kineto to .json", k, of("merge", k, "--output", "out.json"), copies(k)
    yield "merge two Kineto to .pftrace", k, of("merge", k, "--output", "out.pftrace"), copies(k)
    yield "merge two XSpaces", x, of("merge", x, "--output", "out.xplane.pb"), copies(x)
    yield "check two Kineto", k, of("check", k), copies(k)
    yield "stragglers, two Kineto", k, of("stragglers", k), copies(k)
    yield "align packed Kineto, one file", z[:1], of("align", z[:1], "--output", "out.json.gz"), "gzip -dc z0.json.gz | gzip -1 > outz0"


def peers(folder):
    for name, module, source, target in (("kineto_orjson.py", "orjson", "k0.json", "out.json"), ("xspace_upb.py", "google.protobuf", "x0.xplane.pb", "out.pb")):
        try:
            there = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            there = False
        if there:
            wall, _, memory = run([sys.executable, str(HERE / name), source, target], folder)
            print(f"{name:32} {wall:7.2f} s {memory:6.0f} MiB")
        else:
            print(f"skipped {name}: {module} is not installed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=lambda text: str(pathlib.Path(text).resolve()))
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--folder", default="/dev/shm" if os.path.isdir("/dev/shm") else None, help="where the files are made")
    parser.add_argument("--keep", type=pathlib.Path, help="make the files here, or use those that are here, and leave them")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--judge", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        folder = options.keep or pathlib.Path(folder)
        folder.mkdir(exist_ok=True)
        if not (folder / "offsets.csv").exists():
            # In a process of its own: the peak of a command's memory counts what its parent has.
            maker = multiprocessing.Process(target=make, args=(folder, options.megabytes << 20))
            maker.start()
            maker.join()
            if maker.exitcode != 0:
                sys.exit("the traces could not be made")
        stored = json.loads(STORED.read_text()) if STORED.exists() else {}
        ratios, worse = {}, []
        cores = len(os.sched_getaffinity(0))
        print(f"{cores} cores, files of {options.megabytes} MiB, least of {options.runs}")
        for name, inputs, command, baseline in cases(options.program):
            if options.only not in name:
                continue
            size = sum((folder / path).stat().st_size for path in inputs) / 1e6
            times = [(run(baseline, folder), run(command, folder)) for _ in range(options.runs)]
            base = min(of_base[0] for of_base, _ in times)
            wall, used, memory = (min(of_command[part] for _, of_command in times) for part in range(3))
            ratios[name] = round(wall / base, 2)
            print(f"{name:32} {wall:7.3f} s {size / wall:6.0f} MB/s {ratios[name]:6.2f} × {base:.3f} s, {used:.2f} s of processors, {memory:.0f} MiB", flush=True)
            before = stored.get(str(options.megabytes), {}).get(name)
            if before is None:
                worse.append(f"{name}: no ratio is stored for {options.megabytes} MiB")
            elif ratios[name] > WORSE * before:
                worse.append(f"{name}: {ratios[name]} times the baseline, {before} stored")
        if options.peers:
            peers(folder)
    if options.write:
        stored[str(options.megabytes)] = stored.get(str(options.megabytes), {}) | ratios
        STORED.write_text(json.dumps(stored, indent=2) + "\n")
    if options.judge and worse:
        sys.exit("\n".join(worse))


if __name__ == "__main__":
    main()
