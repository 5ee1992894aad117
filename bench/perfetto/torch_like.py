"""Made Perfetto traces in the layout of PyTorch's own writer, of a job whose clocks and late rank are known.

The layout is that of torch/csrc/profiler/cupti/monitor_pftrace.cpp and torch/profiler/_cupti/monitor_trace.py, which need a GPU:
descriptors of tracks, one packet of interned names, for each group of events all beginnings and then all ends, then what the GPU
did and its counters; times are nanoseconds of the system clock, and no packet names a clock. What a GPU did stands in
GpuRenderStageEvents alone, with a collective's descriptor as texts; earlier versions stated it as slices, too (`--layout slices`).
The events are made up: no profiler wrote them. A step computes and sums: a kernel of NCCL begins when its rank is ready and ends on
all ranks when the last one was.

pip install perfetto; python3 bench/perfetto/torch_like.py --out examples/traces/perfetto
"""

import argparse
import gzip
import json
import pathlib
import random

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

BEGIN_NS = 1_750_000_000_000_000_000
STEP_NS = 10_000_000
# Offset at the begin, ns, and rate, ppm: of node 0's clock none.
CLOCKS = [(0, 0), (2_500_000, 50), (-15_000_000, -100), (800_000, 20)]
SEQUENCE = 1
BEGIN, END = schema.TrackEvent.TYPE_SLICE_BEGIN, schema.TrackEvent.TYPE_SLICE_END
CLEARED, NEEDED = schema.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED, schema.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
NAMES = ["ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ampere_sgemm_128x64_tn", "cudaLaunchKernel", "c10d::allreduce_", "aten::mm", "sum of gradients"]
REDUCE, GEMM, LAUNCH, ALLREDUCE, MM, SUM = range(1, 7)
PROCESS, THREAD, GPU, STREAM = range(1, 5)
ELEMENTS = 1 << 20
KERNEL, ANNOTATION, QUEUE = 1, 4, 100
# Fields of messages that the published classes may lack: GpuTrackEvent.gpu_correlation, InternedData.compute_kernels.
GPU_CORRELATION, COMPUTE_KERNELS = 3000, 1000


def local(rank, true_ns):
    """The time that a rank's clock shows at a time of node 0's clock."""
    offset_ns, rate_ppm = CLOCKS[rank % len(CLOCKS)]
    return true_ns + offset_ns + (true_ns - BEGIN_NS) * rate_ppm // 1_000_000


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def unknown(message, field, content):
    """Adds a field that the class of the message does not know."""
    message.MergeFromString(varint(field << 3 | 2) + varint(len(content)) + content)


def annotate(message, name, value):
    entry = message.debug_annotations.add(name=name)
    if isinstance(value, list):
        for each in value:
            entry.array_values.add(int_value=each)
    elif isinstance(value, str):
        entry.string_value = value
    else:
        entry.int_value = value


def descriptors(trace, pid, layout):
    """The tracks: a process with a thread, and in the earlier layout a GPU with a stream."""
    tracks = [(PROCESS, 0, pid, None, "python"), (THREAD, PROCESS, pid, pid, f"thread {pid} (python)")]
    if layout == "slices":
        tracks += [(GPU, 0, 0, None, "GPU 0"), (STREAM, GPU, 0, 7, "stream 7")]
    for uuid, parent, number, tid, name in tracks:
        track = trace.packet.add().track_descriptor
        track.uuid = uuid
        if parent:
            track.parent_uuid = parent
        if tid is None:
            track.process.pid, track.process.process_name = number, name
        else:
            track.thread.pid, track.thread.tid, track.thread.thread_name = number, tid, name
    packet = trace.packet.add(trusted_packet_sequence_id=SEQUENCE, sequence_flags=CLEARED)
    counters = packet.interned_data.gpu_counter_descriptors.add(iid=1, gpu_id=0)
    counters.counter_descriptor.specs.add(counter_id=1, name="Power (W)")
    counters.counter_descriptor.specs.add(counter_id=2, name="SM clock (MHz)")
    for iid, name in enumerate(NAMES, 1):
        packet.interned_data.event_names.add(iid=iid, name=name)
    for iid, name, category in [(1, "Kernel", 2), (2, "Memcpy", 0), (3, "Memset", 0), (4, "Annotation", 0), (QUEUE, "stream 7", 0)]:
        packet.interned_data.gpu_specifications.add(iid=iid, name=name, category=category)
    packet.interned_data.graphics_contexts.add(iid=1, pid=pid)
    kernel = varint(1 << 3) + varint(1) + varint(3 << 3 | 2) + varint(len(NAMES[GEMM - 1])) + NAMES[GEMM - 1].encode()
    unknown(packet.interned_data, COMPUTE_KERNELS, kernel)


def group(trace, rows):
    """Beginnings, then ends, of slices (track, name, begin, end, flow, what the GPU did for it, annotations)."""
    for track, name, begin, _, flow, correlation, annotations in rows:
        packet = trace.packet.add(timestamp=begin, trusted_packet_sequence_id=SEQUENCE, sequence_flags=NEEDED)
        event = packet.track_event
        event.type, event.track_uuid, event.name_iid = BEGIN, track, name
        if flow:
            event.flow_ids.append(flow)
        if correlation:
            unknown(event, GPU_CORRELATION, varint(1 << 3) + varint(correlation))
        for key, value in annotations.items():
            annotate(event, key, value)
    for track, _, _, end, *_ in rows:
        packet = trace.packet.add(timestamp=end, trusted_packet_sequence_id=SEQUENCE)
        packet.track_event.type, packet.track_event.track_uuid = END, track


def stage(trace, pid, name, begin, end, correlation, details):
    """Something that the GPU did; what is said about it are texts."""
    packet = trace.packet.add(timestamp=begin, trusted_packet_sequence_id=SEQUENCE, sequence_flags=NEEDED)
    done = packet.gpu_render_stage_event
    done.event_id, done.duration, done.gpu_id, done.context = correlation, end - begin, 0, 1
    done.hw_queue_iid, done.stage_iid, done.name_iid = QUEUE, ANNOTATION if name == SUM else KERNEL, name
    if name == GEMM:
        done.kernel_iid = 1
    if name != SUM:
        done.launch.grid_size.x, done.launch.grid_size.y, done.launch.grid_size.z = 64, 32, 1
        done.launch.workgroup_size.x, done.launch.workgroup_size.y, done.launch.workgroup_size.z = 128, 1, 1
    texts = {"device id": 0, "context id": 1, "stream id": 7} | ({"correlation": correlation} if correlation else {})
    texts |= details | {"arch": "sm_90", "process_id": pid, "process_name": "python"}
    for key, value in texts.items():
        done.extra_data.add(name=key, value=value if isinstance(value, str) else json.dumps(value))


def make(rank, ranks, steps, layout):
    """The trace of a rank and the true times of its events; `steps`: when each began, when each rank was ready, when it was done."""
    trace, pid = schema.Trace(), 4000 + rank
    descriptors(trace, pid, layout)
    operators, calls, kernels, ranges, times = [], [], [], [], []

    def add(rows, name, begin, end, correlation, **details):
        times.append([NAMES[name - 1], begin, end])
        rows.append((name, local(rank, begin), local(rank, end), correlation, details))

    for number, step in enumerate(steps):
        begin, ready, done = step["begin_ns"], step["ready_ns"][rank], step["done_ns"]
        add(operators, MM, begin, begin + 60_000, 0, **{"External id": 2 * number + 1, "Sequence number": number})
        add(calls, LAUNCH, begin + 10_000, begin + 15_000, 2 * number + 1)
        add(operators, ALLREDUCE, begin + 100_000, begin + 150_000, 0, **{"External id": 2 * number + 2})
        add(calls, LAUNCH, begin + 120_000, begin + 125_000, 2 * number + 2)
        add(kernels, GEMM, begin + 20_000, ready - 1_000, 2 * number + 1)
        collective = {"Collective name": "allreduce", "In msg nelems": ELEMENTS, "Out msg nelems": ELEMENTS, "Group size": ranks, "dtype": "Float"}
        collective |= {"Process Group Name": "0", "Process Group Description": "default_pg", "Process Group Ranks": list(range(ranks)), "Rank": rank, "Seq": number}
        add(kernels, REDUCE, ready, done, 2 * number + 2, **collective)
        if layout == "stages":
            add(ranges, SUM, ready - 1, done + 1, 0)
    group(trace, [(THREAD, name, begin, end, 0, 0, details) for name, begin, end, _, details in operators])
    # The kernels of each kind are a batch of their own.
    kernels.sort(key=lambda row: -row[0])
    if layout == "slices":
        group(trace, [(STREAM, name, begin, end, correlation, 0, details | {"correlation": correlation, "grid": [64, 32, 1]}) for name, begin, end, correlation, details in kernels])
    flows = layout == "slices"
    group(trace, [(THREAD, name, begin, end, flows * correlation, correlation, {"cbid": 211, "correlation": correlation}) for name, begin, end, correlation, _ in calls])
    for name, begin, end, correlation, details in kernels + ranges:
        stage(trace, pid, name, begin, end, correlation, details if layout == "stages" else {})
    for number, step in enumerate(steps):
        for counter, value in [(1, {"double_value": 300.5 + number % 50}), (2, {"int_value": 1400 + number % 7})]:
            packet = trace.packet.add(timestamp=local(rank, step["begin_ns"]), trusted_packet_sequence_id=SEQUENCE, sequence_flags=NEEDED)
            packet.gpu_counter_event.counter_descriptor_iid = 1
            packet.gpu_counter_event.counters.add(counter_id=counter, **value)
    return trace, times


def job(ranks, count, late, seed):
    """Steps: rank `late` is 2 ms late to every third collective."""
    rng = random.Random(seed)
    steps = []
    for number in range(count):
        begin = BEGIN_NS + (number + 1) * STEP_NS + rng.randrange(500_000)
        ready = [begin + 3_000_000 + rng.randrange(300_000) + 2_000_000 * (rank == late and number % 3 == 0) for rank in range(ranks)]
        steps.append({"begin_ns": begin, "ready_ns": ready, "done_ns": max(ready) + 400_000 + rng.randrange(200_000)})
    return steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--late", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layout", choices=["stages", "slices"], default="stages")
    parser.add_argument("--plain", action="store_true", help="do not compress the traces")
    parser.add_argument("--events", action="store_true", help="also write the true times of all slices and stages")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    steps = job(options.ranks, options.steps, options.late, options.seed)
    for rank in range(options.ranks):
        trace, times = make(rank, options.ranks, steps, options.layout)
        content = trace.SerializeToString(deterministic=True)
        path = options.out / f"rank{rank}.pftrace{'' if options.plain else '.gz'}"
        path.write_bytes(content if options.plain else gzip.compress(content, 9, mtime=0))
        if options.events:
            (options.out / f"rank{rank}.events.json").write_text(json.dumps(times) + "\n")
    end = steps[-1]["done_ns"] + 100_000_000
    every = range(BEGIN_NS - 100_000_000, end + 100_000_000, 100_000_000)
    rows = [f"{rank},{local(rank, true)},{local(rank, true) - true}" for rank in range(1, options.ranks) for true in every]
    (options.out / "offsets.csv").write_text("\n".join(["node,node_realtime_ns,offset_vs_node0_ns", *rows]) + "\n")
    order = [sorted(step["ready_ns"]) for step in steps]
    truth = {"late": options.late, "steps": [step | {"lead_ns": last - before} for step, (*_, before, last) in zip(steps, order)]}
    (options.out / "truth.json").write_text(json.dumps(truth) + "\n")


if __name__ == "__main__":
    main()
