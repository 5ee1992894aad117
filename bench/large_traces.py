"""A job of Kineto traces of any size, and a merged file divided into its ranks again.

    python3 bench/large_traces.py make FOLDER --ranks 8 --megabytes 256
    python3 bench/large_traces.py divide MERGED.json FOLDER

All ranks are on one clock (`probe_sync_timeline`). A step has operators that launch kernels by flows, many short functions, and an all-reduce to which
one rank comes late. Lines are written as they come, so that memory does not grow with the size.
"""

import argparse
import json
import pathlib
import random

STEP_US = 200_000
OPERATORS = 40
FUNCTIONS = 1500
NODE_STRIDE = 1_000_000
"""Processes of the k-th trace of a merged file begin at k + 1 times this (crates/formats/src/kineto/tracks.rs)."""


def x(cat, name, pid, tid, ts, dur, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": round(ts, 3), "dur": round(dur, 3), "args": args}


def step(rank, ranks, number, draw, start):
    yield x("user_annotation", f"ProfilerStep#{number}", 1, 1, start, STEP_US - 500)
    for index in range(FUNCTIONS):
        yield x("python_function", f"model.py({index % 97}): forward", 1, 1, start + 100 + 100 * index, 2 + 60 * draw.random(), **{"Python id": index})
    for index in range(OPERATORS + 1):
        last = index == OPERATORS
        at = start + 1000 + 4000 * index
        late = 900 * draw.random() + (3000 if last and rank == number % 5 else 0)
        launch = number * (OPERATORS + 1) + index + 1
        yield x("cpu_op", "aten::all_reduce" if last else "aten::mm", 1, 1, at, 300, **{"External id": launch})
        yield x("cuda_runtime", "cudaLaunchKernel", 1, 1, at + 20, 8, correlation=launch)
        yield {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": launch, "pid": 1, "tid": 1, "ts": round(at + 20, 3)}
        args = {"correlation": launch}
        name, begins = "sgemm_128x64", at + 100 + 50 * draw.random()
        if last:
            members = ", ".join(map(str, range(ranks)))
            args |= {"Collective name": "allreduce", "Process Group Name": "0", "Process Group Ranks": f"[{members}]", "Seq": number}
            name, begins = "ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + 100 + late
        ends = at + 8000 if last else begins + 200 + 1500 * draw.random()
        yield x("kernel", name, 0, 7, begins, ends - begins, **args)
        yield {"ph": "f", "bp": "e", "cat": "ac2g", "name": "ac2g", "id": launch, "pid": 0, "tid": 7, "ts": round(begins, 3)}


def write(path, head, events, enough=None):
    """Writes a trace; with `enough`, up to so many bytes."""
    with open(path, "w") as file:
        written = file.write(json.dumps(head)[:-1] + ', "traceEvents": [')
        separator = "\n"
        for event in events:
            written += file.write(separator + json.dumps(event))
            separator = ",\n"
            if enough and written >= enough and event.get("name", "").startswith("ProfilerStep"):
                break
        file.write("\n]}\n")


def make(folder, ranks, megabytes):
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        draw = random.Random(rank)
        head = {"schemaVersion": 1, "probe_sync_timeline": "host", "host_name": f"gpu-{rank:02}", "baseTimeNanoseconds": 1_800_000_000_000_000_000}
        head["distributedInfo"] = {"rank": rank, "world_size": ranks}
        events = (event for number in range(1 << 20) for event in step(rank, ranks, number, draw, STEP_US * number))
        write(folder / f"rank{rank}.pt.trace.json", head, events, megabytes << 20)


def divide(merged, folder):
    """Needs the events one per line, as `merge` writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    files, base = {}, None
    with open(merged) as lines:
        for line in lines:
            line = line.strip().rstrip(",")
            if line.startswith('"baseTimeNanoseconds"'):
                base = int(line.split(":")[1])
            if not line.startswith('{"ph"'):
                continue
            rank = json.loads(line)["pid"] // NODE_STRIDE - 1
            if rank not in files:
                files[rank] = open(folder / f"rank{rank}.pt.trace.json", "w")
                head = {"schemaVersion": 1, "probe_sync_timeline": "host", "baseTimeNanoseconds": base, "host_name": f"gpu-{rank:02}"}
                files[rank].write(json.dumps(head | {"distributedInfo": {"rank": rank}})[:-1] + ', "traceEvents": [\n' + line)
            else:
                files[rank].write(",\n" + line)
    for file in files.values():
        file.write("\n]}\n")
        file.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("folder", type=pathlib.Path)
    making.add_argument("--ranks", type=int, default=8)
    making.add_argument("--megabytes", type=int, default=256)
    dividing = commands.add_parser("divide")
    dividing.add_argument("merged", type=pathlib.Path)
    dividing.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.command == "make":
        make(arguments.folder, arguments.ranks, arguments.megabytes)
    else:
        divide(arguments.merged, arguments.folder)


if __name__ == "__main__":
    main()
