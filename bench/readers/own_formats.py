#!/usr/bin/env python3
"""What convert writes in the formats of profilers, Kineto's JSON and XSpace, must be to their readers what its source was.

    target/readers/venv/bin/python bench/readers/own_formats.py perfetto | hta | xprof

Steps of `cargo xtask test`, after install.py. `perfetto`: its trace processor must find in the Kineto JSON and in Perfetto's protobuf of the
same traces the same slices with their starts, lengths and depths, none dropped; the traces are real ones of all formats, and a made one of random nested scopes.
`hta`: HolisticTraceAnalysis must load all ranks with the rows of their sources, as many on streams, and find the ranks in the folder by itself.
`xprof`: it must show every host, on one clock.

It does not look at merged files; the other scripts do.
"""

import collections
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys

import hta_ranks
import perfetto_counts
import xprof_hosts
from common import DATA, LIMIT_S, PROGRAM, fresh_folder, need, require, skip

# Of the made trace; the depth is that of a deep recursion.
SCOPES, DEPTH_MAX = 30_000, 200
# With four ranks on the host alone, and with one that has a device.
TORCH = ["b_4node_offset_drift", "x_real_nccl_2gpu_rank0"]
START_NS = 1_795_187_183_203_286_272


def convert(traces, folder, *arguments):
    command = [PROGRAM, "convert", "-d", folder, "-o", "job", *arguments, "-i", *traces]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    require(done.returncode == 0, f"convert ended with {done.returncode}: {done.stderr.strip()[-500:]}")


def sets(kind, pattern, names):
    """Data of real traces, set by set: those of these names, or the first."""
    folders = [DATA / kind / name for name in names] if names else sorted((DATA / kind).glob("*"))
    found = [traces for folder in folders if (traces := sorted(folder.glob(pattern)))]
    return (found if names else found[:1]) or skip("the data of real traces (../shared/data) is not here")


def tree(folder, trace, base_ns=0):
    """Name, start, length and depth of each slice, and the errors and losses that the trace processor counted; it does not add the base of a JSON."""
    script = pathlib.Path(__file__).with_name("perfetto.cjs")
    done = subprocess.run(["node", script, folder, trace, "--tree"], capture_output=True, text=True, timeout=LIMIT_S)
    require(done.returncode == 0, f"the trace processor refuses {trace.name}: {done.stderr.strip()[-500:]}")
    answer = json.loads(done.stdout)
    cells = answer["tree"]
    names, starts, lengths, depths = (cells[column::4] for column in range(4))
    # Of what begins where another event without length begins, JSON cannot say whether it is within
    # it.
    depths = (depth if length != "0" else None for length, depth in zip(lengths, depths, strict=True))
    return collections.Counter(zip(names, (int(start) + base_ns for start in starts), lengths, depths, strict=True)), answer["errors"]


def nested(path):
    """A trace of random scopes on two threads: equal times, no length, deep recursion, and counters, moments and flows beside them."""
    generator = random.Random(5)
    events = [{"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "made"}}]
    micro = lambda ns: f"{ns // 1000}.{ns % 1000:03}"
    for tid in (7, 8):
        at, open_ends = 0, []
        for scope in range(SCOPES // 2):
            while open_ends and (at >= open_ends[-1] or len(open_ends) == DEPTH_MAX or generator.random() < 0.3):
                at = max(at, open_ends.pop())
            at += generator.choice([0, 0, 1, 17, 999, 123_457])
            room = open_ends[-1] - at if open_ends else 50_000_000
            if room < 0:
                continue
            length = generator.choice([0, room, room // 2, min(room, 1)]) if generator.random() < 0.5 else generator.randint(0, room)
            events.append(f'{{"ph":"X","cat":"cpu_op","name":"f{scope % 50}","pid":7,"tid":{tid},"ts":{micro(at)},"dur":{micro(length)}}}')
            open_ends.append(at + length)
            if scope % 100 == 0:
                flow = f'"cat":"fwdbwd","name":"fwdbwd","id":{scope},"pid":7,"tid":{tid},"ts":{micro(at)}'
                events += [f'{{"ph":"{"s" if tid == 7 else "f"}",{flow},"bp":"e"}}', f'{{"ph":"i","s":"t","name":"m","pid":7,"tid":{tid},"ts":{micro(at)}}}']
    rows = ",\n".join(event if isinstance(event, str) else json.dumps(event) for event in events)
    path.write_text(f'{{"baseTimeNanoseconds": {START_NS}, "traceEvents": [{rows}]}}')
    return [path]


def perfetto():
    perfetto_counts.need_processor()
    folder = perfetto_counts.processor()
    with fresh_folder() as work:
        work = pathlib.Path(work)
        made = nested(work / "nested.json")
        real = [traces[:1] for kind, pattern, few in [("torch", "*.json.gz", TORCH), ("rocpd", "*.db", None), ("jax", "*.pb", None)] for traces in sets(kind, pattern, few)]
        for traces in [made, *real]:
            out = work / "out"
            convert(traces, out, "-f", "pftrace", "kineto")
            expected, errors = tree(folder, out / "job_results.pftrace")
            (kineto,) = out.glob("job_*.pt.trace.json")
            found, json_errors = tree(folder, kineto, int(re.search(r'"baseTimeNanoseconds": (\d+)', kineto.read_text()).group(1)))
            print(f"{traces[0].parent.name}/{traces[0].name}: {expected.total()} slices in the protobuf, {found.total()} in Kineto's JSON")
            require(expected.total() > 0, "no slices, so this shows nothing")
            missing, more = expected - found, found - expected
            require(not missing and not more, f"of the protobuf alone {missing.total()}: {list(missing)[:3]}, of the JSON alone {more.total()}: {list(more)[:3]}")
            lost = {name: count for name, count in (errors | json_errors).items() if "flow" not in name}
            require(not lost, f"errors: {lost}")
            shutil.rmtree(out)


def hta():
    need("HolisticTraceAnalysis")
    with fresh_folder() as work:
        work = pathlib.Path(work)
        for traces in sets("torch", "*.json.gz", TORCH):
            name = traces[0].parent.name
            out = work / name
            offsets = traces[0].with_name("offsets.csv")
            convert(traces, out, "-f", "kineto.gz", *(["--assume-order", "--offsets", offsets] if offsets.exists() else []))
            written = sorted(out.glob("*.pt.trace.json.gz"))
            require(len(written) == len(traces), f"{len(written)} files of {len(traces)} traces")
            tables = hta_ranks.loaded(written)
            before = hta_ranks.loaded(traces)
            count = lambda tables: {rank: (len(frame), int((frame["stream"] >= 0).sum())) for rank, (frame, _) in sorted(tables.items())}
            print(f"{name}: HTA's rows, and those on streams, by rank {count(tables)}, of the sources {count(before)}")
            require(all(rows for rows, _ in count(tables).values()), "a rank is empty")
            require(count(tables) == count(before), "HTA reads other rows than of the sources")
            require(hta_ranks.ranks_of_folder(out) == len(traces), "HTA finds other ranks in the folder")
            shutil.rmtree(out)


def xprof():
    need("xprof")
    traces = sorted((DATA / "jax/b_4node_offset_drift").glob("node*.xplane.pb")) or skip("the data of real traces (../shared/data) is not here")
    with fresh_folder() as work:
        raw = [shutil.copy(trace, work) for trace in traces]
        truth = [xprof_hosts.true_times(path) for path in raw]
        convert(traces, f"{work}/out", "-f", "xspace", "--assume-order", "--offsets", traces[0].with_name("offsets.csv"))
        written = sorted(pathlib.Path(work, "out").glob("*.xplane.pb"))
        require(len(written) == len(traces), f"{len(written)} files of {len(traces)} traces")
        spread = xprof_hosts.spread_ns("converted files", written, truth)
        require(spread <= xprof_hosts.AGREE_NS, f"hosts disagree by {spread} ns, more than {xprof_hosts.AGREE_NS}")
        # What xprof draws of each host must be what it draws of the source.
        for before, after in zip(raw, written, strict=True):
            drawn = [collections.Counter(event["name"] for event in xprof_hosts.converted([path], "trace_viewer") if event.get("ph") == "X") for path in (before, after)]
            require(drawn[0] == drawn[1], f"{after.name}: xprof draws {(drawn[0] - drawn[1]).total()} fewer and {(drawn[1] - drawn[0]).total()} more events than of the source")
            print(f"{after.name}: {drawn[1].total()} events, as in the source")


if __name__ == "__main__":
    sys.exit({"perfetto": perfetto, "hta": hta, "xprof": xprof}[sys.argv[1]]())
