"""Jobs whose ranks used different profilers, with known clocks and a known late rank: what one timeline of all makes of them.

Kineto JSON, a report of Nsight Systems, a Perfetto trace in PyTorch's layout, and a database of rocprofv3 on CLOCK_BOOTTIME. The events are
made up; clocks differ by offsets and rates. PyTorch's words for a collective join all but Nsight Systems, which knows NCCL's communicator only:
nothing relates that to PyTorch's process group, so its operations stay apart and no rank may be named; without it every last rank must be.
Checked: every kernel of the merged trace is where it truly was, causality holds, arrivals and last ranks are right.

    target/readers/venv/bin/python bench/mixed/run.py [PROGRAM]

Needs `perfetto` (PyPI) and a database of rocprofv3 for its tables (--like).
"""

import argparse
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIKE = ROOT.parent / "shared/data/rocpd/b_4node_offset_drift/node0_results.db"
SKIPPED, STEPS = 77, 24
# What CLOCK_BOOTTIME of rocprofv3's node lacks to its system clock.
BOOT_NS = 1_749_990_000_000_000_000
ELEMENTS = 1 << 20
KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
ENDINGS = {"kineto": ".pt.trace.json", "nsys": ".sqlite", "perfetto": ".pftrace", "rocpd": "_results.db"}
# Of a time that an aligned trace states, ns: it is rounded to a nanosecond, and so are the clocks.
WITHIN_NS = 3


def module(path):
    spec = importlib.util.spec_from_file_location(path.parent.name + "_" + path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def stated(rank, ranks, number):
    group = {"Process Group Name": "0", "Process Group Ranks": json.dumps(list(range(ranks))), "Group size": ranks}
    sizes = {"In msg nelems": ELEMENTS, "Out msg nelems": ELEMENTS, "dtype": "Float"}
    return {"Collective name": "allreduce", "Seq": number, "Rank": rank, **group, **sizes}


def kineto(path, rank, ranks, steps, local):
    base = steps[0]["begin_ns"] // 10**18 * 10**18
    events = []
    for number, step in enumerate(steps):
        start, end = local(rank, step["ready_ns"][rank]), local(rank, step["done_ns"])
        us = lambda ns: f"{ns // 1000}.{ns % 1000:03d}"  # noqa: E731
        args = json.dumps(stated(rank, ranks, number))
        times = f'"ts": {us(start - base)}, "dur": {us(end - start)}'
        events.append(f'{{"ph": "X", "cat": "kernel", "name": "{KERNEL}(float*)", "pid": 0, "tid": 20, {times}, "args": {args}}}')
    job = {"backend": "nccl", "rank": rank, "world_size": ranks}
    header = f'"schemaVersion": 1, "distributedInfo": {json.dumps(job)}, "baseTimeNanoseconds": {base}'
    path.write_text(f'{{{header}, "traceEvents": [\n' + ",\n".join(events) + "\n]}\n")


def rocpd(path, rank, ranks, steps, local, like, maker):
    import sqlite3

    uuid, definitions = maker.tables(like)
    guid = f"{0x2000 + rank:08x}-0000-7000-8000-{rank:012x}"
    suffix = "_" + guid.replace("-", "_")
    path.unlink(missing_ok=True)
    out = sqlite3.connect(path)
    for _, _, sql in sorted(definitions, key=lambda entry: entry[0] != "table"):
        out.execute(sql.replace(uuid, suffix).replace(uuid.strip("_").replace("_", "-"), guid))

    def put(base, **row):
        names = ", ".join(f'"{name}"' for name in row)
        out.execute(f"INSERT INTO rocpd_{base}{suffix} ({names}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))

    at = lambda true_ns: local(rank, true_ns) - BOOT_NS  # noqa: E731
    begin, end, pid = at(steps[0]["begin_ns"]), at(steps[-1]["done_ns"]) + 1_000_000, 4000 + rank
    for tag, value in [("schema_version", "3"), ("uuid", suffix), ("guid", guid)]:
        put("metadata", tag=tag, value=value)
    for number, text in enumerate(["", "user_annotation", "allreduce"]):
        put("string", id=number + 1, guid=guid, string=text)
    put("info_node", id=7, guid=guid, hash=7, machine_id="0" * 32, system_name="Linux", hostname=f"node{rank}")
    environment = json.dumps({"RANK": str(rank), "WORLD_SIZE": str(ranks)})
    put("info_process", id=pid, guid=guid, nid=7, ppid=1, pid=pid, init=begin, fini=end, start=begin, end=end, command="train", environment=environment)
    put("info_thread", id=pid, guid=guid, nid=7, ppid=1, pid=pid, tid=pid)
    for number, step in enumerate(steps):
        put("event", id=number + 1, guid=guid, category_id=2, stack_id=number + 1, parent_stack_id=0, correlation_id=0)
        put("region", guid=guid, nid=7, pid=pid, tid=pid, start=at(step["ready_ns"][rank]), end=at(step["done_ns"]), name_id=3, event_id=number + 1)
        for place, (name, value) in enumerate(stated(rank, ranks, number).items()):
            put("arg", guid=guid, event_id=number + 1, position=place, type="text", name=name, value=str(value))
    out.commit()
    out.close()


def clocks(folder, profilers, steps, local):
    """The offsets of all nodes, and what each trace's clock shows next to its node's system clock."""
    first, last = steps[0]["begin_ns"] - 1_000_000_000, steps[-1]["done_ns"] + 1_000_000_000
    rows = ["node,node_realtime_ns,offset_vs_node0_ns"]
    for rank, profiler in enumerate(profilers):
        pairs = []
        for true_ns in range(first, last, 50_000_000):
            now = local(rank, true_ns)
            rows.append(f"{rank},{now},{now - true_ns}")
            pairs.append(json.dumps({"sys_clock_ns": now, "tracer_clock_ns": now - BOOT_NS * (profiler == "rocpd"), "bracket_ns": 2}))
        (folder / f"rank{rank}.snapshot_pairs.jsonl").write_text("\n".join(pairs) + "\n")
    (folder / "offsets.csv").write_text("\n".join(rows) + "\n")


def make(folder, profilers, late, like):
    """The traces, in the order of their ranks, and the true steps."""
    torch_like, nsys = module(ROOT / "bench/perfetto/torch_like.py"), module(ROOT / "bench/nsys/make.py")
    ranks, local, traces = len(profilers), torch_like.local, []
    steps = torch_like.job(ranks, STEPS, late, 1)
    for rank, profiler in enumerate(profilers):
        path = folder / f"rank{rank}{ENDINGS[profiler]}"
        traces.append(path.name)
        if profiler == "kineto":
            kineto(path, rank, ranks, steps, local)
        elif profiler == "nsys":
            nsys.make(path, rank, ranks, [(step["begin_ns"], step["ready_ns"], step["done_ns"]) for step in steps], 2026)
        elif profiler == "perfetto":
            path.write_bytes(torch_like.make(rank, ranks, steps, "stages")[0].SerializeToString())
        else:
            rocpd(path, rank, ranks, steps, local, like, module(ROOT / "bench/rocpd/make.py"))
    clocks(folder, profilers, steps, local)
    return traces, steps


def kernels(merged):
    """The slices of the merged trace that are a rank's part in the operation, by rank: start and end, ns."""
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

    trace = schema.Trace.FromString(merged.read_bytes())
    names, parents, tracks, clock, open_, found = {}, {}, {}, 0, {}, {}
    for packet in trace.packet:
        for reading in packet.clock_snapshot.clocks:
            clock = reading.timestamp if reading.clock_id >= 64 else clock
        for entry in packet.interned_data.event_names:
            names[entry.iid] = entry.name
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            parents[descriptor.uuid] = descriptor.parent_uuid
            tracks[descriptor.uuid] = descriptor.process.process_name or descriptor.name
        if not packet.HasField("track_event"):
            continue
        if packet.timestamp_clock_id in (0, 64):
            clock += packet.timestamp
            now = clock
        else:
            now = packet.timestamp
        event = packet.track_event
        if event.type == event.TYPE_SLICE_BEGIN:
            open_.setdefault(event.track_uuid, []).append((now, names.get(event.name_iid, event.name)))
        elif event.type == event.TYPE_SLICE_END:
            start, name = open_[event.track_uuid].pop()
            track = event.track_uuid
            while parents.get(track):
                track = parents[track]
            if "AllReduce_Sum" in name or name == "allreduce":
                found.setdefault(int(tracks[track].split()[1]), []).append((start, now))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", type=pathlib.Path, default=ROOT / "target/debug/probe_sync")
    parser.add_argument("--like", type=pathlib.Path, default=LIKE)
    parser.add_argument("--out", type=pathlib.Path, help="keep the job here")
    options = parser.parse_args()
    if not options.like.exists():
        print(f"skipped: {options.like} is absent")
        return SKIPPED
    if importlib.util.find_spec("perfetto") is None:
        print("skipped: the package perfetto is not installed")
        return SKIPPED
    faults = []
    for name, profilers, late in JOBS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = options.out / name if options.out else pathlib.Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            traces, steps = make(folder, profilers, late, options.like)
            found = judge(options.program.resolve(), folder, traces, profilers, steps)
            faults += [f"{name}: {fault}" for fault in found]
    print("\n".join(faults) or "no faults")
    return 1 if faults else 0


def judge(program, folder, traces, profilers, steps):
    ranks = range(len(profilers))
    joined = [rank for rank in ranks if profilers[rank] != "nsys"]
    pairs = [f"rank{rank}.snapshot_pairs.jsonl" for rank in ranks]
    given = [*traces, "--nodes", f"0-{len(profilers) - 1}", "--offsets", "offsets.csv", "--snapshots", *pairs]

    def run(*arguments):
        done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=120)
        if done.returncode not in (0, 4):
            sys.exit(f"{' '.join(arguments)}: {done.stderr}")
        return done.stdout

    faults, worst = [], 0
    run("merge", *given, "--output", "job.pftrace")
    found = kernels(folder / "job.pftrace")
    if sorted(found) != list(ranks):
        faults.append(f"the merged trace has kernels of ranks {sorted(found)}")
    for rank, slices in found.items():
        # A report of Nsight Systems sees an end a few microseconds later on each rank.
        late_ns = 700 * rank if profilers[rank] == "nsys" else 0
        for (start, end), step in zip(sorted(slices), steps, strict=True):
            worst = max(worst, abs(start - step["ready_ns"][rank]), abs(end - step["done_ns"] - late_ns))
    if worst > WITHIN_NS:
        faults.append(f"a kernel is {worst} ns from its true time")
    checked = json.loads(run("check", *given, "--json"))["result"]
    edges = len(joined) * (len(joined) - 1) // 2 * STEPS
    if (checked["instances"], checked["edges"], checked["broken"]) != (STEPS, edges, 0):
        faults.append(f"check: {checked['instances']} operations, {checked['edges']} edges, {checked['broken']} broken")
    late = json.loads(run("stragglers", *given, "--json"))
    named = 0
    for step, operation in zip(steps, late["instances"], strict=True):
        ready = {rank: step["ready_ns"][rank] for rank in joined}
        arrived = {arrival["rank"]: arrival["arrival_ns"] for arrival in operation["arrivals"]}
        if arrived.keys() != ready.keys() or any(abs(arrived[rank] - ready[rank]) > WITHIN_NS for rank in joined):
            faults.append(f"{operation['instance']}: arrivals {arrived}, truly {ready}")
        last = max(joined, key=ready.get)
        expected = last if len(joined) == len(profilers) else None
        named += operation["last_rank"] is not None
        if operation["last_rank"] != expected and not operation["tied_ranks"]:
            faults.append(f"{operation['instance']}: last rank {operation['last_rank']}, truly {expected}")
    print(f"{' + '.join(profilers)}: kernels of {len(found)} ranks within {worst} ns of the truth; {checked['edges']} edges hold; {named} of {STEPS} last ranks named")
    return faults


JOBS = [("four", ["kineto", "nsys", "perfetto", "rocpd"], 2), ("three", ["kineto", "perfetto", "rocpd"], 1)]

if __name__ == "__main__":
    sys.exit(main())
