"""Runs one peer's tool on one job, as its documentation says, and writes what it showed and what that took.

    python peers.py TOOL JOB.json RESULT.json

run.py starts it in the environment of that tool. Time and memory are those from the start of this program to the end of the tool's own work; what is taken from the
tool's tables for the judgement comes after. Times in the result are ns from any origin. An exception of the tool is a result, too.
"""

import time

BEGUN = time.perf_counter()

import json  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import sys  # noqa: E402


class Meter:
    """Time, processor time and memory of the tool's own parts, one after the other."""

    def __init__(self):
        self.parts = []
        self.begun, self.cpu_s = BEGUN, 0.0

    def part(self, what):
        """Ends a part."""
        wall, before = time.perf_counter() - self.begun, self.cpu_s
        self.resume()
        with open("/proc/self/status") as file:
            own_kib = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
        # Children that run at once are together larger than the largest, which is a lower bound.
        memory = max(own_kib, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024
        self.parts.append({"what": what, "wall_s": wall, "cpu_s": self.cpu_s - before, "memory_mib": memory})

    def resume(self):
        """Begins a part; what this program did since the last one belongs to none."""
        own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        self.begun, self.cpu_s = time.perf_counter(), own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def hta(job, meter, result):
    """Loads all ranks into HolisticTraceAnalysis, and asks it for potential stragglers."""
    from hta.trace_analysis import TraceAnalysis

    files = dict(enumerate(job["files"]))
    analysis = TraceAnalysis(trace_files=files, trace_dir="")
    meter.part("load")
    shown = {}
    for rank in files:
        frame = analysis.t.get_trace(rank)
        shown[rank] = {int(at): [1000 * float(start), 1000 * float(start + length)] for at, start, length in zip(frame["index"], frame["ts"], frame["dur"])}
    result["times"] = shown
    meter.resume()
    try:
        # One candidate: the rank that is late.
        result["job"] = [int(rank) for rank in analysis.get_potential_stragglers(num_candidates=1)]
        meter.part("stragglers")
        steps = analysis.get_profiler_steps()
        result["steps"] = {}
        for step in steps:
            try:
                named = analysis.get_potential_stragglers(profiler_steps=[step], num_candidates=1)
                result["steps"][int(step)] = int(named[0])
            except Exception as error:
                result["step_error"] = f"{type(error).__name__}: {error}"
    except Exception as error:
        result["blame_error"] = f"{type(error).__name__}: {error}"


def tracelens(job, meter, result):
    """Has TraceLens fuse the traces, and build its table of collectives and its summary of stragglers; for JAX it has a table of collectives only."""
    from TraceLens import JaxNcclAnalyser, NcclAnalyser, TraceFuse

    if job["kind"] == "xspace":
        analyser = JaxNcclAnalyser(os.path.dirname(job["files"][0]), dict(enumerate(job["files"])), len(job["files"]))
        analyser.build_df_long()
        meter.part("collectives")
        return
    fuse = TraceFuse(dict(enumerate(job["files"])))
    merged = fuse.merge_and_save(os.path.join(os.path.dirname(sys.argv[3]), "fused.json"))
    meter.part("merge")
    import gzip

    with gzip.open(merged) as file:
        events = json.load(file)["traceEvents"]
    result["times"] = in_order(events)
    del events
    meter.resume()
    analyser = NcclAnalyser(job["files"], len(job["files"]))
    table = analyser.build_df_nccl_implicit_sync_cat(detailed=True)
    meter.part("stragglers")
    if table.empty:
        result["blame_error"] = "finds no collectives"
        return
    summary = analyser.build_df_straggler_summary()
    # Sorted by how often a rank arrived last.
    result["job"] = [int(summary.iloc[0]["rank"])]
    ids = {f"{operation.get('group')}_{operation.get('index')}": operation["id"] for operation in job["operations"]}
    waits = [column for column in table.columns if column.startswith("rank_") and column.endswith("_wait_time")]
    named = {}
    for _, row in table.iterrows():
        if row["collective_id"] in ids:
            present = row[waits].dropna()
            named[ids[row["collective_id"]]] = int(present.astype(float).idxmin().split("_")[1])
    result["named"] = named


def recorded():
    """Reads the job's events; only when they are needed, so that they do not count as the tool's memory."""
    with open(sys.argv[2].removesuffix(".json") + ".shown.json") as file:
        return json.load(file)


def in_order(events):
    """Finds the event of each merged event: a merged trace keeps their order."""
    shown, known = {}, recorded()
    by_rank = {}
    for event in events:
        if event.get("ph") != "M" and "ts" in event:
            by_rank.setdefault(event["args"]["rank"], []).append(event)
    for rank, of_rank in by_rank.items():
        places = iter(enumerate(known[str(rank)]))
        found = shown.setdefault(rank, {})
        for event in of_rank:
            at = next((at for at, (name, category, when) in places if when and name == event["name"] and category == event.get("cat")), None)
            if at is not None:
                found[at] = [1000 * event["ts"], 1000 * (event["ts"] + event.get("dur", 0))]
    return shown


def nsys_jax(job, meter, result):
    """Aligns devices by the ends of collectives, as nsys-jax does. Its loader reads reports of its own wrapper only, so it is given the tables that the loader would make."""
    import pandas
    from nsys_jax.analysis import align_profiler_data_timestamps
    from nsys_jax.utils import ProfilerData

    levels = ["ProgramId", "ProgramExecution", "Name", "ThunkExecution", "Device"]
    shown, rows, thunks = recorded(), [], []
    for operation in job["operations"]:
        for rank, place in operation["members"].items():
            start, end = shown[rank][place][2]
            row = [0, operation["id"], operation["name"], 0, int(rank), start / 1e6, (end - start) / 1e6, 0.0, len(operation["members"])]
            rows.append(row)
    for rank, events in shown.items():
        thunks += [[0, 0, str(place), 0, int(rank), at[0] / 1e6, (at[1] - at[0]) / 1e6] for place, (_, _, at) in enumerate(events) if at]
    communication = pandas.DataFrame(rows, columns=[*levels, "ProjStartMs", "ProjDurMs", "ProjDurHiddenMs", "CollectiveSize"]).set_index(levels)
    thunk = pandas.DataFrame(thunks, columns=[*levels, "ProjStartMs", "ProjDurMs"]).set_index(levels)
    meter.resume()
    aligned, _ = align_profiler_data_timestamps(ProfilerData(communication=communication, thunk=thunk))
    meter.part("align")
    found = {}
    for (_, _, place, _, rank), start, length in zip(aligned.thunk.index, aligned.thunk["ProjStartMs"], aligned.thunk["ProjDurMs"]):
        found.setdefault(rank, {})[int(place)] = [1e6 * start, 1e6 * (start + length)]
    result["times"] = found


def xprof(job, meter, result):
    """Converts the traces to what xprof's timeline of all hosts sends to the browser."""
    from xprof.convert import raw_to_tool_data

    options = {"tqx": "", "use_saved_result": False, "host": "", "trace_viewer_options": {}}
    text, _ = raw_to_tool_data.xspace_to_tool_data(job["files"], "trace_viewer@", options)
    meter.part("convert")
    events = json.loads(text)["traceEvents"]
    hosts = {event["pid"]: event["args"]["name"].split()[0] for event in events if event.get("name") == "process_name"}
    names = [os.path.basename(path).removesuffix(".xplane.pb") for path in job["files"]]
    found, known = {}, {}
    for event in events:
        if event.get("ph") == "X":
            key = (names.index(hosts[event["pid"]]), event["name"])
            found.setdefault(key, []).append([1000 * event["ts"], 1000 * (event["ts"] + event["dur"])])
    for rank, of_rank in recorded().items():
        for place, (name, _, at) in enumerate(of_rank):
            known.setdefault((int(rank), name), []).append([at, place])
    result["times"] = {rank: {} for rank in range(len(names))}
    for (rank, name), of_name in known.items():
        # It adds lines of its own, with some of the names.
        if len(of_name) == len(found.get((rank, name), [])):
            result["times"][rank] |= {place: at for (_, place), at in zip(sorted(of_name), sorted(found[rank, name]))}


def perfetto(job, meter, result):
    """Opens all traces together, as an archive, by Perfetto's Python package."""
    import tarfile

    from perfetto.trace_processor import TraceProcessor

    archive = sys.argv[3] + ".tar"
    with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as tar:
        for path in job["files"]:
            tar.add(path, os.path.basename(path))
    meter.resume()
    processor = TraceProcessor(trace=archive)
    meter.part("load")
    rows = processor.query(
        "select s.name, s.ts, s.dur, p.pid from slice s join thread_track tt on tt.id = s.track_id join thread th using (utid) join process p using (upid) order by s.ts"
    )
    result["slices"] = [[row.name, row.ts, row.dur, row.pid] for row in rows]


TOOLS = {"hta": hta, "tracelens": tracelens, "nsys_jax": nsys_jax, "xprof": xprof, "perfetto": perfetto}


def main():
    tool, job, out = sys.argv[1:]
    with open(job) as file:
        job = json.load(file)
    meter, result = Meter(), {}
    try:
        TOOLS[tool](job, meter, result)
    except Exception as error:
        result["error"] = f"{type(error).__name__}: {error}"
    result["parts"] = meter.parts
    with open(out, "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
