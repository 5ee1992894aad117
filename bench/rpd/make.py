"""Made databases as `rpd_tracer` of rocmProfileData writes them, of a job whose clocks and late rank are known.

The tables are those of its schemas 2 and 3, the rows are made up: no profiler wrote them. Each rank has its own host, clocks and file. A step computes, copies and sums: a kernel of RCCL begins when its rank is ready
and ends on all ranks when the last one was. Times are on each host's CLOCK_MONOTONIC; `node<rank>.snapshot_pairs.jsonl` has what a run with `--tracer-clock monotonic` reads.

python3 bench/rpd/make.py --out examples/traces/rpd
"""

import argparse
import json
import pathlib
import random
import sqlite3

BEGIN_NS = 1_750_000_000_000_000_000
STEP_NS = 10_000_000
# Offset at the begin, ns, and rate, ppm: of node 0's clock none.
CLOCKS = [(0, 0), (2_500_000, 50), (-15_000_000, -100), (800_000, 20)]
# System time at which each host's CLOCK_MONOTONIC was 0.
BOOTS = [BEGIN_NS - 8_306_017_000_000_000, BEGIN_NS - 3_489_389_000_000_000, BEGIN_NS - 400_000_000_000, BEGIN_NS - 78_794_000_000_000]
KEY = "id integer NOT NULL PRIMARY KEY AUTOINCREMENT"
TABLES = {
    "rocpd_string": f"{KEY}, string varchar(4096) NOT NULL",
    "rocpd_metadata": f"{KEY}, tag varchar(4096) NOT NULL, value varchar(4096) NOT NULL",
    "rocpd_api": f"{KEY}, pid integer NOT NULL, tid integer NOT NULL, start integer NOT NULL, end integer NOT NULL, apiName_id {{i}} NOT NULL, {{domain}}args_id {{i}} NOT NULL",
    "rocpd_op": f"{KEY}, gpuId integer NOT NULL, queueId integer NOT NULL, sequenceId integer NOT NULL, {{signal}}start integer NOT NULL, end integer NOT NULL, description_id {{i}} NOT NULL, opType_id {{i}} NOT NULL",
    "rocpd_api_ops": f"{KEY}, api_id {{i}} NOT NULL REFERENCES rocpd_api (id), op_id {{i}} NOT NULL REFERENCES rocpd_op (id)",
    "rocpd_kernelapi": "api_ptr_id {i} NOT NULL PRIMARY KEY REFERENCES rocpd_api (id), stream varchar(18) NOT NULL, gridX integer NOT NULL, gridY integer NOT NULL, gridZ integer NOT NULL, workgroupX integer NOT NULL, workgroupY integer NOT NULL, workgroupZ integer NOT NULL, groupSegmentSize integer NOT NULL, privateSegmentSize integer NOT NULL, kernelName_id {i} NOT NULL",
    "rocpd_copyapi": "api_ptr_id {i} NOT NULL PRIMARY KEY REFERENCES rocpd_api (id), stream varchar(18) NOT NULL, size integer NOT NULL, width integer NOT NULL, height integer NOT NULL, kind integer NOT NULL, dst varchar(18) NOT NULL, src varchar(18) NOT NULL, dstDevice integer NOT NULL, srcDevice integer NOT NULL, sync bool NOT NULL, pinned bool NOT NULL",
    "rocpd_monitor": f"{KEY}, deviceType varchar(16) NOT NULL, deviceId integer NOT NULL, monitorType varchar(16) NOT NULL, start integer NOT NULL, end integer NOT NULL, value varchar(255) NOT NULL",
}
NEWER = {"rocpd_ustring": TABLES["rocpd_string"], "rocpd_stackframe": f"{KEY}, api_ptr_id bigint NOT NULL, depth integer NOT NULL, name_id bigint NOT NULL"}
VIEWS = """
CREATE VIEW api AS SELECT t.id, pid, tid, start, end, A.string AS apiName, B.string AS args FROM rocpd_api t JOIN rocpd_string A ON A.id = t.apiName_id JOIN {arguments} B ON B.id = t.args_id;
CREATE VIEW busy AS SELECT gpuId, sum(end - start) AS GpuTime FROM rocpd_op GROUP BY gpuId;
CREATE INDEX by_string ON rocpd_string (string);
"""


class Trace:
    """The trace of one process."""

    def __init__(self, path, schema, page):
        path.unlink(missing_ok=True)
        self.out = sqlite3.connect(path)
        self.out.execute(f"PRAGMA page_size = {page}")
        self.arguments = "rocpd_ustring" if schema == 3 else "rocpd_string"
        words = {"i": "bigint" if schema == 3 else "integer", "domain": "", "signal": "completionSignal varchar(18) NOT NULL, "}
        if schema == 3:
            words |= {"domain": "category_id bigint NOT NULL, domain_id bigint NOT NULL, ", "signal": ""}
        for name, columns in (TABLES | (NEWER if schema == 3 else {})).items():
            self.out.execute(f"CREATE TABLE {name} ({columns.format(**words)})")
        self.out.executescript(VIEWS.format(arguments=self.arguments))
        self.schema = schema
        self.texts = {}
        # A tracer numbers the rows of its n-th session from n * 2^32 on, its marks from another 2^31 on.
        self.apis, self.marks, self.ops = 1 << 32, (1 << 32) + (1 << 31), 1 << 32
        for tag, value in [("schema_version", schema), ("session_count", 1)] + [("gpu_stride", 1000), ("pid_stride", 10_000_000)] * (schema == 3):
            self.put("rocpd_metadata", tag=tag, value=str(value))
        self.string("")

    def string(self, text, table="rocpd_string"):
        known = self.texts.setdefault(table, {})
        if text not in known:
            known[text] = len(known) + 1
            self.out.execute(f"INSERT INTO {table} (id, string) VALUES (?, ?)", (known[text], text))
        return known[text]

    def put(self, table, **row):
        self.out.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))

    def api(self, pid, start, end, name, args="", domain="hip"):
        if name == "UserMarker":
            self.marks += 1
            number = self.marks
        else:
            self.apis += 1
            number = self.apis
        more = {"category_id": self.string(""), "domain_id": self.string(domain)} if self.schema == 3 else {}
        self.put("rocpd_api", id=number, pid=pid, tid=pid, start=start, end=end, apiName_id=self.string(name), args_id=self.string(args, self.arguments), **more)
        return number

    def op(self, api, start, end, kind, description, queue=0):
        self.ops += 1
        more = {"completionSignal": ""} if self.schema == 2 else {}
        names = {"description_id": self.string(description), "opType_id": self.string(kind)}
        self.put("rocpd_op", id=self.ops, gpuId=2, queueId=queue, sequenceId=0, start=start, end=end, **names, **more)
        self.put("rocpd_api_ops", api_id=api, op_id=self.ops)

    def close(self):
        self.out.commit()
        self.out.close()


def local(rank, true_ns):
    """The time that a rank's system clock shows at a time of node 0's clock."""
    offset_ns, rate_ppm = CLOCKS[rank % len(CLOCKS)]
    return true_ns + offset_ns + (true_ns - BEGIN_NS) * rate_ppm // 1_000_000


def monotonic(rank, true_ns):
    return local(rank, true_ns) - BOOTS[rank % len(BOOTS)]


def make(path, rank, ranks, steps, schema, page=1024):
    """The trace of a rank; `steps`: when each began, when each rank was ready, and when the sum was done."""
    trace = Trace(path, schema, page)
    pid = 4000 + rank
    at = lambda true_ns: monotonic(rank, true_ns)  # noqa: E731
    first = at(BEGIN_NS) - 30_000_000
    trace.api(pid, first, first, "UserMarker", f"probe_sync.rank#{rank}/{ranks}", "roctx")
    trace.api(pid, first + 1_000_000, first + 9_000_000, "hipMalloc", "ptr=0x7f3ea0600000 | size=0x10000")

    def kernel(call, start, end, name, queue):
        trace.put("rocpd_kernelapi", api_ptr_id=call, stream="0x0", gridX=256, gridY=1, gridZ=1, workgroupX=64, workgroupY=1, workgroupZ=1, groupSegmentSize=0, privateSegmentSize=0, kernelName_id=trace.string(name))
        trace.op(call, start, end, "KernelExecution", name, queue)

    for step, (begin, ready, done) in enumerate(steps):
        t = at(begin)
        copy = trace.api(pid, t + 10_000, t + 18_000, "hipMemcpyWithStream", "dst=0x7f3ea0600000 | size=65536")
        trace.put("rocpd_copyapi", api_ptr_id=copy, stream="0x0", size=65_536, width=0, height=0, kind=1, dst="0x7f3ea0600000", src="0x7fff9d15d8ac", dstDevice=0, srcDevice=0, sync=0, pinned=0)
        trace.op(copy, t + 20_000, t + 60_000, "CopyHostToDevice", "")
        kernel(trace.api(pid, t + 30_000, t + 38_000, "hipLaunchKernel"), t + 70_000, at(ready[rank]) - 5_000, "gemm(float*, int)", 0)
        call = trace.api(pid, t + 50_000, t + 57_000, "hipExtLaunchKernel")
        # Ranks see the end a few microseconds apart.
        kernel(call, at(ready[rank]), at(done + 700 * rank), "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 1)
        trace.api(pid, t + 65_000, at(done) + 5_000, "hipStreamSynchronize")
        trace.api(pid, t, at(done) + 10_000, "UserMarker", f"step {step}", "roctx")
        trace.put("rocpd_monitor", deviceType="gpu", deviceId=2, monitorType="sclk", start=t, end=t + STEP_NS, value=str(800 + step % 7))
    trace.close()


def pairs(path, rank, end):
    with path.open("w") as out:
        for true_ns in range(BEGIN_NS - 1_000_000_000, end + 1_000_000_000, 100_000_000):
            now = local(rank, true_ns)
            line = {"sys_clock_ns": now, "tracer_clock_ns": now - BOOTS[rank % len(BOOTS)], "bracket_ns": 100, "tracer_clock": "monotonic"}
            out.write(json.dumps(line) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--late", type=int, default=2, help="the rank that is late to each third sum, by 2 ms")
    parser.add_argument("--schema", type=int, choices=[2, 3], default=3)
    parser.add_argument("--page", type=int, default=1024)
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
        make(asked.out / f"rank{rank}.rpd", rank, asked.ranks, steps, asked.schema, asked.page)
        pairs(asked.out / f"node{rank}.snapshot_pairs.jsonl", rank, begin)
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
