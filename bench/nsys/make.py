"""Made databases as `nsys export --type sqlite` writes them, of a job whose clocks and late rank are known.

The tables and columns are those of NVIDIA's published schema (SQLite Schema Reference, 3.28.1 of 2026.4, and the page of 2021.5 for `--schema 2021`), the rows are made up: no profiler wrote them. Each rank has
its own host, clock and report. A step computes, copies and sums: a kernel of NCCL begins when its rank is ready and ends on all ranks when the last one was.

python3 bench/nsys/make.py --out examples/traces/nsys
"""

import argparse
import json
import pathlib
import random
import sqlite3
import struct

BEGIN_NS = 1_750_000_000_000_000_000
STEP_NS = 10_000_000
# Offset at the begin, ns, and rate, ppm: of node 0's clock none.
CLOCKS = [(0, 0), (2_500_000, 50), (-15_000_000, -100), (800_000, 20)]
COMMUNICATOR = 0xF00DFACE12345678
DEVICE = "start {i} NOT NULL, end {i} NOT NULL, deviceId {i} NOT NULL, contextId {i} NOT NULL, streamId {i} NOT NULL, correlationId {i}, globalPid {i}"
CALL = "start {i} NOT NULL, end {i} NOT NULL, eventClass {i} NOT NULL, globalTid {i}, correlationId {i}, nameId {i} NOT NULL, returnValue {i} NOT NULL"
PAIRS = "name TEXT NOT NULL, value TEXT"
TABLES = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "ThreadNames": "nameId {i} NOT NULL, priority {i}, globalTid {i}",
    "TARGET_INFO_SYSTEM_ENV": "globalVid {i}, devStateName TEXT NOT NULL, name TEXT NOT NULL, nameEnum {i} NOT NULL, value TEXT NOT NULL",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs {i}, utcTime TEXT, localTime TEXT",
    "ANALYSIS_DETAILS": "globalVid {i} NOT NULL, duration {i} NOT NULL, startTime {i} NOT NULL, stopTime {i} NOT NULL",
    "TARGET_INFO_GPU": "vmId {i} NOT NULL, id {i} NOT NULL, name TEXT, smCount {i}",
    "CUPTI_ACTIVITY_KIND_KERNEL": DEVICE
    + ", demangledName {i} NOT NULL, shortName {i} NOT NULL, registersPerThread {i} NOT NULL, gridX {i} NOT NULL, gridY {i} NOT NULL, gridZ {i} NOT NULL, blockX {i} NOT NULL, blockY {i} NOT NULL, blockZ {i} NOT NULL",
    "CUPTI_ACTIVITY_KIND_MEMCPY": DEVICE + ", bytes {i} NOT NULL, copyKind {i} NOT NULL, srcKind {i}, dstKind {i}",
    "CUPTI_ACTIVITY_KIND_RUNTIME": CALL,
    "NVTX_EVENTS": "start {i} NOT NULL, end {i}, eventType {i} NOT NULL, rangeId {i}, category {i}, color {i}, text TEXT, globalTid {i}, endGlobalTid {i}, textId {i}, domainId {i}",
}
NEWER = {
    "TARGET_INFO_SESSION_START_TIME": ", systemClockNs {i}",
    "NVTX_EVENTS": ", jsonTextId {i}, jsonText TEXT, binaryData TEXT, eventId {i} NOT NULL PRIMARY KEY",
    "META_DATA_CAPTURE": PAIRS,
    "META_DATA_EXPORT": PAIRS,
    "PROCESSES": "globalPid {i}, pid {i}, name TEXT",
    "TARGET_INFO_CUDA_DEVICE": "gpuId {i}, cudaId {i} NOT NULL, pid {i} NOT NULL, uuid TEXT, numMultiprocessors {i}",
    "CUPTI_ACTIVITY_KIND_MEMSET": DEVICE + ", value {i} NOT NULL, bytes {i} NOT NULL, memKind {i}",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": DEVICE + ", syncType {i} NOT NULL, eventId {i} NOT NULL",
    "OSRT_API": "start {i} NOT NULL, end {i} NOT NULL, eventClass {i} NOT NULL, globalTid {i}, nameId {i} NOT NULL, returnValue {i} NOT NULL, nestingLevel {i}, callchainId {i} NOT NULL",
    "SCHED_EVENTS": "start {i} NOT NULL, cpu {i} NOT NULL, isSchedIn {i} NOT NULL, globalTid {i}",
    "MPI_COLLECTIVES_EVENTS": "start {i} NOT NULL, end {i}, globalTid {i}, textId {i}, commHandle {i}, commUid {i}, rootRank {i}, size {i}, recvSize {i}",
    "TARGET_INFO_GPU_METRICS": "typeId {i} NOT NULL, sourceId {i} NOT NULL, typeName TEXT NOT NULL, metricId {i} NOT NULL, metricName TEXT NOT NULL",
    "GPU_METRICS": "rawTimestamp {i} NOT NULL, timestamp {i} NOT NULL, typeId {i} NOT NULL, metricId {i} NOT NULL, value {i} NOT NULL",
    "NVTX_PAYLOAD_SCHEMAS": "domainId {i}, schemaId {i}, name TEXT, type {i}, flags {i}, numEntries {i}, payloadSize {i}, alignTo {i}",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId {i} NOT NULL, schemaId {i} NOT NULL, idx {i} NOT NULL, flags {i}, type {i}, name TEXT, description TEXT, arrayOrUnionDetail {i}, offset {i}",
    "DIAGNOSTIC_EVENT": "timestamp {i} NOT NULL, timestampType {i} NOT NULL, source {i} NOT NULL, severity {i} NOT NULL, text TEXT NOT NULL, globalPid {i}",
}
# Layouts of NCCL's payloads: number, then name, type (5: int, 18: uint64, 22: size_t) and offset of each field.
INIT, REDUCE = 16777218, 16777223
LAYOUTS = {
    INIT: [("NCCL communicator ID", 18, None), ("No. of ranks", 5, 8), ("Rank", 5, 12), ("CUDA device", 5, 16)],
    REDUCE: [("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8), ("Reduction operation", 16777232, 16)],
}


class Report:
    """The report of one rank."""

    def __init__(self, path, schema, page):
        path.unlink(missing_ok=True)
        self.out = sqlite3.connect(path)
        self.out.execute(f"PRAGMA page_size = {page}")
        self.schema = schema
        kind = "INT" if schema == 2021 else "INTEGER"
        newer = {} if schema == 2021 else NEWER
        for name in TABLES | newer:
            columns = TABLES.get(name, "") + newer.get(name, "")
            self.out.execute(f"CREATE TABLE {name} ({columns.replace('{i}', kind)})")
        self.strings = {}
        self.rows = 0

    def string(self, text):
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            self.out.execute("INSERT INTO StringIds VALUES (?, ?)", (self.strings[text], text))
        return self.strings[text]

    def put(self, table, **row):
        if table not in TABLES and self.schema == 2021:
            return
        if table == "NVTX_EVENTS" and self.schema != 2021:
            self.rows += 1
            row["eventId"] = self.rows
        names = ", ".join(row)
        self.out.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", list(row.values()))

    def close(self):
        self.out.commit()
        self.out.close()


def payload(layout, content):
    """Bytes of an event: domain, layout, length, place of the content; content."""
    return struct.pack("<QQQQ", 1, layout, len(content), 32) + content


def local(rank, true_ns):
    """The time that a rank's clock shows at a time of node 0's clock."""
    offset_ns, rate_ppm = CLOCKS[rank % len(CLOCKS)]
    return true_ns + offset_ns + (true_ns - BEGIN_NS) * rate_ppm // 1_000_000


def describe(report, rank, ranks, start_ns, pid, schema, end):
    """Tables about the process, the machine and the export."""
    put = report.put
    utc = "%Y-%m-%dT%H:%M:%S"
    [text] = report.out.execute("SELECT strftime(?, ?, 'unixepoch')", (utc, start_ns // 1_000_000_000)).fetchone()
    [local_text] = report.out.execute("SELECT strftime(?, ?, 'unixepoch', '+9 hours')", (utc, start_ns // 1_000_000_000)).fetchone()
    start = {"utcEpochNs": start_ns, "utcTime": text, "localTime": local_text}
    put("TARGET_INFO_SESSION_START_TIME", **start, **({"systemClockNs": 412_959_225} if schema != 2021 else {}))
    put("ANALYSIS_DETAILS", globalVid=1 << 48, duration=end, startTime=412_959_225, stopTime=412_959_225 + end)
    environment = f"PATH=/usr/bin;RANK={rank};WORLD_SIZE={ranks};HOME=/root"
    for name, value in [("Hostname", f"gpu-{rank:02}"), ("DeviceEnvironment", environment)]:
        put("TARGET_INFO_SYSTEM_ENV", globalVid=1 << 48, devStateName="CpuCores", name=name, nameEnum=0, value=value)
    put("TARGET_INFO_GPU", vmId=1 << 48, id=0, name="NVIDIA H100", smCount=132)
    put("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=pid)
    for name, value in [
        ("EXPORT_PRODUCT_NAME", "made by bench/nsys/make.py"),
        ("EXPORT_PRODUCT_VERSION", "2026.4"),
        ("EXPORT_SCHEMA_VERSION", "3.28.1"),
        ("EXPORT_PARAM_TIME_NORMALIZE", "false"),
        ("EXPORT_PARAM_TIME_SHIFT", "0"),
        ("EXPORT_PARAM_INCLUDE_BLOBS", "true"),
    ]:
        put("META_DATA_EXPORT", name=name, value=value)
    for name in ("RANK", "WORLD_SIZE"):
        value = rank if name == "RANK" else ranks
        put("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value=f'{name}="{value}"')
    put("DIAGNOSTIC_EVENT", timestamp=-1_951_986, timestampType=1, source=2, severity=2, text="made up")
    for layout, fields in LAYOUTS.items() if schema != 2021 else []:
        put("NVTX_PAYLOAD_SCHEMAS", domainId=1, schemaId=layout, type=1, numEntries=len(fields), payloadSize=24)
        for index, (name, kind, offset) in enumerate(fields):
            put("NVTX_PAYLOAD_SCHEMA_ENTRIES", domainId=1, schemaId=layout, idx=index, type=kind, name=name, offset=offset)


def make(path, rank, ranks, steps, schema, page=1024):
    """The report of a rank; `steps`: when each began, when each rank was ready, and when the sum was done."""
    report = Report(path, schema, page)
    put, string = report.put, report.string
    newer = schema != 2021
    pid = 4000 + rank
    process = (1 << 48) | (pid << 24)
    thread = process | pid
    # Hosts start their sessions at different times.
    start_ns = local(rank, BEGIN_NS - 500_000_000 - 37_000_000 * rank)
    at = lambda true_ns: local(rank, true_ns) - start_ns  # noqa: E731
    describe(report, rank, ranks, start_ns, pid, schema, at(steps[-1][2]) + 1_000_000)
    put("PROCESSES", globalPid=process, pid=pid, name="python3")
    put("ThreadNames", nameId=string("python3"), priority=20, globalTid=thread)
    put("TARGET_INFO_GPU_METRICS", typeId=0x1_0000_0000, sourceId=1, typeName="GPU Metrics", metricId=3, metricName="SM Issue [Throughput %]")

    def nvtx(start, end, kind, text=None, name=None, domain=0, data=None):
        row = {"start": start, "end": end, "eventType": kind, "text": text, "globalTid": thread, "domainId": domain}
        row["textId"] = string(name) if name else None
        put("NVTX_EVENTS", **row, **({"binaryData": data} if data and newer else {}))

    def call(start, end, name, number):
        put("CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, eventClass=0, globalTid=thread, correlationId=number, nameId=string(name), returnValue=0)

    def device(table, start, end, number, stream=7, **more):
        put(table, start=start, end=end, deviceId=0, contextId=1, streamId=stream, correlationId=number, globalPid=process, **more)

    def kernel(start, end, number, name, stream):
        grid = {f"{what}{axis}": 1 for what in ("grid", "block") for axis in "XYZ"}
        names = {"demangledName": string(f"{name}(float *, int)"), "shortName": string(name)}
        device("CUPTI_ACTIVITY_KIND_KERNEL", start, end, number, stream, registersPerThread=32, **names, **grid)

    if newer:
        nvtx(at(BEGIN_NS) - 40_000_000, None, 75, text="NCCL", domain=1)
    first = at(BEGIN_NS) - 30_000_000
    nvtx(first, first + 20_000_000, 59, name="ncclCommInitRank", domain=1, data=payload(INIT, struct.pack("<QiiiI", COMMUNICATOR, ranks, rank, 0, 0)))
    number = 100
    for step, (begin, ready, done) in enumerate(steps):
        t = at(begin)
        nvtx(t, at(done) + 10_000, 59, text=f"step {step}")
        call(t + 10_000, t + 18_000, "cudaMemcpyAsync_v3020", number)
        device("CUPTI_ACTIVITY_KIND_MEMCPY", t + 20_000, t + 60_000, number, bytes=65_536, copyKind=1, srcKind=1, dstKind=2)
        if newer:
            call(t + 20_000, t + 26_000, "cudaMemsetAsync_v3020", number + 1)
            device("CUPTI_ACTIVITY_KIND_MEMSET", t + 62_000, t + 64_000, number + 1, value=0, bytes=4096, memKind=2)
            put("OSRT_API", start=t + 2_000, end=t + 5_000, eventClass=27, globalTid=thread, nameId=string("poll"), returnValue=0, nestingLevel=0, callchainId=0)
            put("SCHED_EVENTS", start=t + 1_000, cpu=3, isSchedIn=1, globalTid=thread)
            put("GPU_METRICS", rawTimestamp=t * 3, timestamp=t + 50_000, typeId=0x1_0000_0000, metricId=3, value=(step * 7) % 100)
        call(t + 30_000, t + 38_000, "cudaLaunchKernel_v7000", number + 2)
        kernel(t + 70_000, at(ready[rank]) - 5_000, number + 2, "gemm", 7)
        nvtx(t + 45_000, t + 60_000, 59, name="ncclAllReduce", domain=1, data=payload(REDUCE, struct.pack("<QQiI", COMMUNICATOR, 4_194_304, 0, 0)))
        call(t + 50_000, t + 57_000, "cudaLaunchKernelExC_v11060", number + 3)
        # Ranks see the end a few microseconds apart.
        kernel(at(ready[rank]), at(done + 700 * rank), number + 3, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20)
        if newer:
            call(t + 65_000, at(done) + 5_000, "cudaStreamSynchronize_v3020", number + 4)
            device("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", t + 66_000, at(done) + 4_000, number + 4, 20, syncType=3, eventId=0)
        number += 5
    if newer:
        t = at(steps[-1][2]) + 50_000
        put("MPI_COLLECTIVES_EVENTS", start=t, end=t + 30_000, globalTid=thread, textId=string("MPI_Barrier"), commHandle=1, size=0)
        # The report ends within a range.
        nvtx(t + 40_000, None, 59, text="open")
    report.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--late", type=int, default=2, help="the rank that is late to each third sum, by 2 ms")
    parser.add_argument("--schema", type=int, choices=[2021, 2026], default=2026)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    chance = random.Random(7)
    steps, begin = [], BEGIN_NS
    for step in range(asked.steps):
        late = lambda rank: 2_000_000 if rank == asked.late and step % 3 == 0 else 0  # noqa: B023, E731
        ready = [begin + 3_000_000 + chance.randrange(300_000) + late(rank) for rank in range(asked.ranks)]
        done = max(ready) + 400_000 + chance.randrange(100_000)
        steps.append((begin, ready, done))
        begin = done + STEP_NS - 4_000_000 + chance.randrange(2_000_000)
    for rank in range(asked.ranks):
        make(asked.out / f"rank{rank}.sqlite", rank, asked.ranks, steps, asked.schema)
    truth = [{"ready_ns": ready, "done_ns": done} for _, ready, done in steps]
    (asked.out / "truth.json").write_text(json.dumps({"late": asked.late, "steps": truth}) + "\n")
    with (asked.out / "offsets.csv").open("w") as out:
        out.write("node,node_realtime_ns,offset_vs_node0_ns\n")
        for rank in range(1, asked.ranks):
            for true_ns in range(BEGIN_NS - 1_000_000_000, begin + 100_000_000, 100_000_000):
                now = local(rank, true_ns)
                out.write(f"{rank},{now},{now - true_ns}\n")


if __name__ == "__main__":
    main()
