"""What the program says about jobs of torch_like.py against the truth that the script wrote down.

    pip install perfetto; python3 bench/perfetto/torch_like.py --out FOLDER --events; python3 bench/perfetto/truth.py PROGRAM FOLDER

With the true offsets, every slice and stage of every rank must begin and end within a nanosecond of its true time, `check` must
find no broken edge, and `stragglers` must name the late rank of each collective and its lead.
"""

import collections
import json
import pathlib
import subprocess
import sys
import tempfile

from exact import read


def run(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{arguments[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def events(path):
    """Names, begins and ends of slices and stages."""
    names, open_slices, found = {}, collections.defaultdict(list), []
    packets = read(path)
    for packet in packets:
        names |= {entry.iid: entry.name for entry in packet.interned_data.event_names}
        if packet.HasField("gpu_render_stage_event"):
            done = packet.gpu_render_stage_event
            found.append((names[done.name_iid], packet.timestamp, packet.timestamp + done.duration))
    # As a reader does: by time, ends first.
    slices = [packet for packet in packets if packet.HasField("track_event")]
    for packet in sorted(slices, key=lambda packet: (packet.timestamp, packet.track_event.type == 1)):
        track = open_slices[packet.track_event.track_uuid]
        if packet.track_event.type == 1:
            track.append((names[packet.track_event.name_iid], packet.timestamp))
        else:
            found.append((*track.pop(), packet.timestamp))
    return found


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    truth = json.loads((folder / "truth.json").read_text())
    traces = sorted(folder.glob("rank*.pftrace*"))
    common = [*traces, "--assume-order", "--offsets", folder / "offsets.csv"]
    with tempfile.TemporaryDirectory() as out:
        run(program, "align", *common, "--output", out)
        count, largest = 0, 0
        for trace in traces:
            true = sorted(tuple(event) for event in json.loads((folder / f"{trace.name.split('.')[0]}.events.json").read_text()))
            # In the earlier layout kernels are slices and stages.
            found = sorted(set(events(pathlib.Path(out) / trace.name)))
            if [event[0] for event in found] != [event[0] for event in true]:
                raise SystemExit(f"{trace.name}: {len(found)} events, {len(true)} are true")
            largest = max(largest, *(abs(seen - wanted) for before, after in zip(true, found) for wanted, seen in zip(before[1:], after[1:])))
            count += 2 * len(true)
        print(f"align: {count} times, at most {largest} ns from the truth")
        report = pathlib.Path(out) / "late.json"
        run(program, "stragglers", *common, f"--json={report}")
        late = json.loads(report.read_text())
    bad = largest > 1
    print(next(line for line in run(program, "check", *common).splitlines()))
    instances = late["instances"]
    print(f"stragglers: {len(instances)} operations of {len(truth['steps'])}; {late['stragglers']}")
    bad |= len(instances) != len(truth["steps"])
    bad |= [straggler["rank"] for straggler in late["stragglers"]] != [truth["late"]]
    # In the order of their last arrivals.
    pairs = list(zip(sorted(instances, key=lambda instance: instance["last_arrival_ns"]), truth["steps"]))
    named = sum(instance["last_rank"] == step["ready_ns"].index(max(step["ready_ns"])) for instance, step in pairs)
    off = max(abs(instance["lead_ns"] - step["lead_ns"]) for instance, step in pairs)
    launched = sum(arrival["launch_ns"] is not None for instance in instances for arrival in instance["arrivals"])
    print(f"the last rank is right in {named} of {len(pairs)}, leads within {off} ns; {launched} launches known")
    return bad or named < len(pairs) or off > 2


if __name__ == "__main__":
    sys.exit(main())
