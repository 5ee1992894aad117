"""Jobs whose true times are known: their files as the ranks' clocks showed them, what truly happened, and the flags that give our command the clocks.

Imported by run.py. Recorded jobs of gloo and a made one are moved into the time of a run of `probe_sync` that measures virtual clocks with real packets, and bent by these
clocks; recorded jobs of NCCL were bent by the clocks of the session next to them (crates/analysis/fixtures/gpu). So our command gets measured offsets, not the truth.
Only bench/nsys/make.py's job comes with exact offsets.
"""

import bisect
import csv
import dataclasses
import decimal
import gzip
import json
import pathlib
import shutil
import sqlite3
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path += [str(HERE.parent), str(HERE.parent / "flow"), str(HERE.parent / "nsys")]

import make as nsys  # noqa: E402
import parallel  # noqa: E402
import torch_truth  # noqa: E402
import xspace  # noqa: E402
from made_clock import Clock  # noqa: E402

PS = xspace.PS
# From the start of the run to that of a job that is moved into it.
BEFORE_NS = 4_000_000_000


@dataclasses.dataclass
class Job:
    name: str
    about: str
    kind: str
    files: list
    hosts: list
    base_ns: int
    true: dict
    operations: list
    clocks: list
    # Ranks that are late in numbered steps, and over the whole job, if that was arranged.
    late_steps: dict = dataclasses.field(default_factory=dict)
    late_ranks: list = dataclasses.field(default_factory=list)

    def read(self, files=None):
        """Reads names, categories and times by rank, from these files or those of the job."""
        return {rank: READERS[self.kind](path, self.base_ns) for rank, path in enumerate(files or self.files)}

    def write(self, folder):
        """Writes what peers.py reads; returns the path."""
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps({"kind": self.kind, "files": [str(file) for file in self.files], "operations": self.operations}))
        (folder / f"{self.name}.shown.json").write_text(json.dumps(self.read()))
        return path


def kineto(path, base_ns):
    """Reads the events of Kineto's JSON: name, category, and start and end in ns since the base."""
    found = []
    for event, at in torch_truth.times(torch_truth.loaded(path)):
        timed = at is not None and event.get("ph") != "M"
        found.append((event.get("name"), event.get("cat"), since(at, base_ns) if timed else None))
    return found


def since(at_ps, base_ns):
    return tuple((time - base_ns * PS) / PS for time in at_ps)


def xplane(path, base_ns):
    """Reads the events of an XSpace; the category is the name of the plane."""
    space, found = xspace.XSpace(path), []
    for plane in space.planes():
        called, event_names = xspace.first(plane, 2, b"").decode(), xspace.names(plane, xspace.EVENT_NAMES)
        for line in (xspace.parse(value) for number, _, value in plane if number == xspace.LINES):
            at = space.start + xspace.signed(xspace.first(line, xspace.LINE_TIMESTAMP, 0)) * PS
            for event in (xspace.parse(value) for number, _, value in line if number == xspace.LINE_EVENTS):
                if xspace.first(event, xspace.EVENT_OCCURRENCES) is None:
                    start = at + xspace.signed(xspace.first(event, xspace.EVENT_OFFSET, 0))
                    end = start + xspace.signed(xspace.first(event, xspace.EVENT_DURATION, 0))
                    found.append((event_names.get(xspace.first(event, xspace.EVENT_NAME)), called, since((start, end), base_ns)))
    return found


def nsys_export(path, base_ns):
    """Reads the rows with a start and an end; the category is the name of the table."""
    found = []
    with sqlite3.connect(path) as database:
        [start_ns] = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
        strings = dict(database.execute("SELECT id, value FROM StringIds"))
        for table, name in [("CUPTI_ACTIVITY_KIND_KERNEL", "shortName"), ("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId"), ("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind")]:
            for start, end, called in database.execute(f"SELECT start, end, {name} FROM {table} ORDER BY rowid"):
                found.append((strings.get(called), table, (start_ns + start - base_ns, start_ns + end - base_ns)))
    return found


READERS = {"kineto": kineto, "xspace": xplane, "nsys": nsys_export}


def paired(shown, is_part):
    """Finds the operations: the k-th part of a name is the k-th on every rank, for names that all ranks show equally often."""
    parts = {}
    for rank, events in shown.items():
        timed = sorted((at[0], place, name) for place, (name, category, at) in enumerate(events) if at is not None and is_part(name or "", category))
        for _, place, name in timed:
            parts.setdefault(name, {}).setdefault(rank, []).append(place)
    return [
        {"id": f"{name}/{number}", "name": name, "members": dict(zip(by_rank, places))}
        for name, by_rank in parts.items()
        if len(by_rank) == len(shown) and len({len(of_rank) for of_rank in by_rank.values()}) == 1
        for number, places in enumerate(zip(*by_rank.values()))
    ]


def numbered(operations, shown):
    """Adds to each operation its group and its place among the operations of that group, as NCCL counts them."""
    order = sorted(operations, key=lambda operation: min(shown[rank][event][2][0] for rank, event in operation["members"].items()))
    for number, operation in enumerate(order):
        operation["group"], operation["index"] = "0", number
    return order


class Table:
    """A node's clock by a table of its offsets; times in picoseconds."""

    def __init__(self, path, node):
        rows = csv.DictReader(path.open())
        self.rows = [(int(row["node_realtime_ns"]), int(row["offset_vs_node0_ns"])) for row in rows if int(row["node"]) == node]

    def true_time(self, shown_ps):
        first = min(max(bisect.bisect(self.rows, (shown_ps // PS, 0)) - 1, 0), len(self.rows) - 2)
        (at, offset), (next_at, next_offset) = self.rows[first : first + 2]
        slope = (next_offset - offset) / (next_at - at)
        return shown_ps - offset * PS - round(slope * (shown_ps - at * PS))


class Run:
    """A run of our command that has measured virtual clocks."""

    def __init__(self, folder):
        self.folder = folder
        self.clocks = {int(node): Clock(clock) for node, clock in json.loads((folder / "truth.json").read_text())["nodes"].items()}
        self.start_ns = json.loads((folder / "run.json").read_text())["start_ns"]


def bent(kind, folder, tables, sources, run):
    """Writes recorded files as the run's clocks would have shown them, a host for each. Returns their paths, the true times by rank and these times' base."""
    folder.mkdir(parents=True)
    base_ns, near_ns = run.start_ns + BEFORE_NS, tables[-1].rows[0][0]
    recorded = [READERS[kind](path, near_ns) for path in sources]
    to_true = lambda table, at: [table.true_time(round(time * PS) + near_ns * PS) for time in at]  # noqa: E731
    true_ps = [[at and to_true(table, at) for _, _, at in events] for table, events in zip(tables, recorded)]
    move_ps = base_ns * PS - min(at[0] for events in true_ps for at in events if at)
    for table, path, clock in zip(tables, sources, run.clocks.values()):
        shows = lambda at_ps, table=table, clock=clock: clock.shows(table.true_time(at_ps) + move_ps)  # noqa: E731
        if kind == "kineto":
            torch_truth.restate(path, folder / path.name, shows)
        else:
            xspace.XSpace(path).write(folder, shows, shows)
    true = {rank: [at and since([time + move_ps for time in at], base_ns) for at in events] for rank, events in enumerate(true_ps)}
    return [folder / path.name for path in sources], true, base_ns


def recorded_gloo(work, run, kind):
    """Returns a recorded job of PyTorch or JAX with gloo, on four hosts."""
    source = ROOT / "examples/traces" / ("torch" if kind == "kineto" else "jax")
    pattern = "node*.json.gz" if kind == "kineto" else "node*.xplane.pb"
    sources, hosts = sorted(source.glob(pattern)), [0, 1, 2, 3]
    tables = [Table(source / "offsets.csv", node) for node in hosts]
    name = "torch_gloo" if kind == "kineto" else "jax_gloo"
    files, true, base_ns = bent(kind, work / name, tables, sources, run)
    about = "PyTorch, gloo, recorded" if kind == "kineto" else "JAX, gloo, recorded"
    # The markers of PyTorch's job still say what the clocks of its recording showed.
    job = Job(name, about, kind, files, hosts, base_ns, true, [], ["--run-dir", run.folder, "--nodes", *hosts, "--realtime-only"])
    all_wait = {"kineto": ("gloo:all_gather", "gloo:all_to_all", "gloo:barrier", "gloo:all_reduce"), "xspace": ("psum", "all_gather", "all-gather")}[kind]
    job.operations = paired(job.read(), lambda name, category: name.startswith(all_wait))
    return job


def recorded_nccl(work, name):
    """Returns a recorded job of NCCL on an H100, which was bent when it was recorded."""
    source, folder = ROOT / "crates/analysis/fixtures/gpu" / name, work / name
    folder.mkdir(parents=True)
    kind = "kineto" if name.startswith("torch") else "xspace"
    files = []
    for path in sorted(source.glob("rank*.gz")):
        files.append(folder / (path.name if kind == "kineto" else path.stem))
        shutil.copy(path, files[-1]) if kind == "kineto" else files[-1].write_bytes(gzip.decompress(path.read_bytes()))
    hosts = list(range(len(files)))
    clocks = {int(node): Clock(clock) for node, clock in json.loads((source / "run/truth.json").read_text())["nodes"].items()}
    start_ns = clocks[0].p["t0_ns"]
    about = "PyTorch, NCCL on H100, recorded" if kind == "kineto" else "JAX, NCCL on H100, recorded"
    job = Job(name, about, kind, files, hosts, start_ns, {}, [], ["--run-dir", source / "run", "--nodes", *hosts], late_ranks=[2])
    shown = job.read()
    for rank, events in shown.items():
        maps = clocks[hosts[rank]].true_time
        job.true[rank] = [None if at is None else since([maps(round(time * PS) + start_ns * PS) for time in at], start_ns) for _, _, at in events]
    is_kernel = lambda name, category: name.startswith("ncclDevKernel") and category in ("kernel", "/device:GPU:0")  # noqa: E731
    job.operations = numbered(paired(shown, is_kernel), shown)
    return job


def made_parallel(work, run, naming, steps):
    """Returns the made job of parallel.py, as Kineto's JSON."""
    name, base_ns = f"parallel_{naming}", run.start_ns + BEFORE_NS
    folder = work / name
    (folder / "true").mkdir(parents=True)
    made = parallel.Job(base_ns, steps, naming)
    files, hosts = [], [rank // parallel.TENSOR for rank in range(parallel.RANKS)]
    for rank in made.ranks:
        path = folder / "true" / f"rank{rank.number:02}.pt.trace.json.gz"
        path.write_bytes(gzip.compress(json.dumps(as_kineto(made, rank, base_ns), default=torch_truth.Number).encode(), 1))
        files.append(folder / path.name)
        torch_truth.restate(path, files[-1], run.clocks[hosts[rank.number]].shows)
    for operation in made.operations:
        operation["name"] = parallel.KERNELS[naming]["allreduce"]
    counts = {}
    for operation in made.operations:
        operation["index"] = counts[operation["group"]] = counts.get(operation["group"], -1) + 1
    true = {rank.number: [None, *((start - base_ns, end - base_ns) for _, (start, end) in rank.events)] for rank in made.ranks}
    # The first event of each file only names the process.
    operations = [{**operation, "members": {rank: event + 1 for rank, event in operation["members"].items()}} for operation in made.operations]
    clocks = ["--run-dir", run.folder, "--nodes", *hosts]
    about = f"16 ranks on 4 hosts, tensor, pipeline and data parallel, {'kernels named as before NCCL 2.19' if naming == 'old' else 'NCCL'}, made"
    return Job(name, about, "kineto", files, hosts, base_ns, true, operations, clocks, made.late_steps, [parallel.LATE_TO_ALL])


def as_kineto(made, rank, base_ns):
    described = {"pg_desc": "undefined", "backend_config": "cuda:nccl"}
    groups = [{"pg_name": name, **described, "pg_size": len(ranks), "ranks": ranks} for name, ranks in made.groups_of(rank.number)]
    header = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], "displayTimeUnit": "ms", "baseTimeNanoseconds": base_ns // 10**15 * 10**15}
    header["distributedInfo"] = {"backend": "nccl", "rank": rank.number, "world_size": parallel.RANKS, "pg_count": len(groups), "pg_config": groups}
    micros = lambda ns: decimal.Decimal(ns) / 1000  # noqa: E731
    names = {"ph": "M", "name": "process_name", "pid": 4000 + rank.number, "tid": 0, "ts": micros(0), "args": {"name": "python"}}
    events = [{**event, "ts": micros(start - header["baseTimeNanoseconds"]), "dur": micros(end - start)} for event, (start, end) in rank.events]
    return {**header, "traceEvents": [names, *events]}


def made_nsys(work):
    """Returns the job of bench/nsys/make.py, whose offsets are exact."""
    source = ROOT / "examples/traces/nsys"
    files, hosts = sorted(source.glob("rank*.sqlite")), [0, 1, 2]
    clocks = ["--offsets", source / "offsets.csv", "--nodes", *hosts]
    job = Job("nsys", "NCCL in exports of Nsight Systems, made", "nsys", files, hosts, nsys.BEGIN_NS, {}, [], clocks, late_ranks=[2])
    shown = job.read()
    for rank, events in shown.items():
        offset_ns, rate_ppm = nsys.CLOCKS[rank]
        job.true[rank] = [tuple((time - offset_ns) / (1 + rate_ppm * 1e-6) for time in at) for _, _, at in events]
    job.operations = numbered(paired(shown, lambda name, category: name.startswith("ncclDevKernel")), shown)
    return job
