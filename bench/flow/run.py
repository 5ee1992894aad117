#!/usr/bin/env python3
"""Tests the whole path from a job to its corrected traces against known truth: `cargo xtask flow`.

    python run.py --program PROBE_SYNC --out FOLDER [--model sinusoid] [--runs 5] [--seed 1] [--loaded] [--seconds 12]
    python run.py --program PROBE_SYNC --out FOLDER --record

A JAX job of four ranks (job.py) is traced while `probe_sync run --inject-skew` measures beside it. The traces are bent by that run's virtual
clocks (bend.py), aligned with its directory, and every time is compared with the true one (judge.py). Rank k of the job is node k of the
measurement: all ranks share the machine's host name, so the rank that a trace states decides its node. The job prepares first and waits,
because a program that imports JAX and compiles is silent for seconds; it is traced from the first packets until shortly before the last.

With --record this is done for all clocks, with the machine as it is and with all cores busy, and the table in bench/LOG.md and the picture of
the docs are written. The exit status is 1 if a run misses what it must show. Needs JAX, and matplotlib for the picture.
"""

import argparse
import dataclasses
import itertools
import json
import multiprocessing
import os
import pathlib
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
RANKS = 4
WINDOW_S = 2
# The last step's end and the profiler's stop must still be measured.
BEFORE_END_NS = 800_000_000
# Two bursts of a node: four exchanges each, one per 800 µs and host of four ranks.
AROUND_STEP_NS = 2 * 4 * RANKS * 800_000
# A loaded machine needs half a minute to import JAX four times.
PREPARATION_S = 120
# No time of an aligned trace may be further from the true one, ns; nothing is asked about a step.
BARS_NS = {"constant": 100, "sinusoid": 200, "steps": 300}
# The times of `steps` do not tell before from after about a step; there the stated uncertainty says
# so.
MAY_BREAK = ("steps",)


class Failed(Exception):
    """A program failed or was late."""


@dataclasses.dataclass(frozen=True)
class Case:
    """The conditions of a run."""

    model: str
    loaded: bool
    seed: int
    seconds: int

    @property
    def machine(self):
        return "all cores busy" if self.loaded else "as it was"


class Processes:
    """Programs that run side by side, each with a log of its own; those that still run at the end are ended."""

    def __init__(self, folder):
        self.folder, self.running = folder, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.running.values():
            process.kill()
            process.wait()

    def start(self, name, *command):
        with (self.folder / f"{name}.log").open("w") as log:
            self.running[name] = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_for(self, what, limit_s, there):
        """Waits until `there` returns something other than None."""
        end = time.monotonic() + limit_s
        while (found := there()) is None:
            self.look()
            if time.monotonic() > end:
                raise Failed(f"no {what} within {limit_s} s; logs: {self.folder}/*.log")
            time.sleep(0.005)
        return found

    def look(self):
        """Raises if a process has failed; true when all have ended."""
        for name, process in list(self.running.items()):
            if process.poll() is not None:
                del self.running[name]
                if process.returncode != 0:
                    raise Failed(f"{name} ended with status {process.returncode}:\n{tail(self.folder / f'{name}.log')}")
        return not self.running

    def finish(self, limit_s):
        self.wait_for(f"end of {', '.join(self.running)}", limit_s, lambda: self.look() or None)


def tail(log):
    return "\n".join(log.read_text(errors="replace").splitlines()[-60:])


def succeeds(log, *command):
    with log.open("w") as output:
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=PREPARATION_S)
    if done.returncode != 0:
        raise Failed(f"{command[0]} {command[1]} ended with status {done.returncode}:\n{tail(log)}")


def free_port():
    """A port that is free now, below those that Linux gives to outgoing connections."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Failed("no free port on loopback")


def traces(folder):
    return [folder / f"rank{rank}.xplane.pb" for rank in range(RANKS)]


def measure(program, case, folder):
    """Runs the ranks of the job, and probe_sync beside them."""
    with Processes(folder) as processes:
        port = free_port()
        for rank in range(RANKS):
            processes.start(f"job{rank}", sys.executable, HERE / "job.py", rank, RANKS, port, folder)
        ready = [folder / f"rank{rank}.ready" for rank in range(RANKS)]
        processes.wait_for("job that is ready", PREPARATION_S, lambda: all(file.exists() for file in ready) or None)
        clocks = ["--inject-skew", case.seed, "--skew-model", case.model]
        length = ["--duration", f"{case.seconds}s", "--fixed", "--window", f"{WINDOW_S}s"]
        processes.start("run", program, "run", "--local", RANKS, *length, *clocks, "--out", folder / "run")

        def started():
            try:
                return json.loads((folder / "run/run.json").read_text()).get("start_ns")
            except (OSError, ValueError):
                return None

        start_ns = processes.wait_for("start of the measurement", PREPARATION_S, started)
        # It must appear whole.
        fresh = folder / "go.tmp"
        fresh.write_text(json.dumps({"from_ns": start_ns, "until_ns": start_ns + case.seconds * 10**9 - BEFORE_END_NS}))
        fresh.rename(folder / "go.json")
        processes.finish(case.seconds + PREPARATION_S)


def check(program, folder, name, files, *options):
    """The verdict of `probe_sync check` on traces as they are, or seen through a run."""
    verdict, log = folder / f"{name}.json", folder / f"{name}.log"
    command = [program, "check", "--traces", *files, "--json", verdict, *options]
    with log.open("w") as output:
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=PREPARATION_S).returncode
    try:
        result = json.loads(verdict.read_text())["result"]
        found = {key: result[key] for key in ("edges", "broken", "explained", "worst_ns")}
    except (OSError, ValueError, KeyError) as error:
        raise Failed(f"check ended with status {status} and no verdict ({error!r}):\n{tail(log)}") from error
    found["violations"] = found["broken"] - found["explained"]
    if (status == 0) != (found["violations"] == 0):
        raise Failed(f"check ended with status {status}, but {found['violations']} of {found['edges']} edges are violated; see {log}")
    return found


def perform(program, case, folder):
    """Runs one case; returns what it showed."""
    measure(program, case, folder)
    succeeds(folder / "bend.log", sys.executable, HERE / "bend.py", folder / "run/truth.json", folder / "recorded", *traces(folder))
    recorded, run = traces(folder / "recorded"), ["--run-dir", folder / "run"]
    shown = {"true": check(program, folder, "true", traces(folder)), "recorded": check(program, folder, "recorded", recorded)}
    shown["through_run"] = check(program, folder, "through_run", recorded, *run)
    succeeds(folder / "align.log", program, "align", "--traces", *recorded, *run, "--output", folder / "aligned")
    shown["aligned"] = check(program, folder, "aligned", traces(folder / "aligned"))
    judged = folder / "judged.json"
    succeeds(folder / "judge.log", sys.executable, HERE / "judge.py", folder, AROUND_STEP_NS, WINDOW_S * 10**9, judged)
    return {**json.loads(judged.read_text()), **shown}


def problems(case, found):
    """What a run must show and does not."""
    bar, stated = BARS_NS[case.model], found["stated_ns"]
    edges = [found[which]["edges"] for which in ("true", "recorded", "through_run", "aligned")]
    broken = {which: found[which]["broken"] for which in ("true", "recorded", "aligned")}
    violations, worst_ns = found["through_run"]["violations"], found["error_ns"]["worst"]
    rules = [
        (broken["true"] == 0, f"{broken['true']} edges are broken in true time: no sound job"),
        (broken["recorded"] > 0, "no edge is broken as recorded: there was nothing to mend"),
        (violations == 0, f"{violations} edges are violated by what the run measured"),
        (broken["aligned"] == 0 or case.model in MAY_BREAK, f"{broken['aligned']} edges are broken after align"),
        (len(set(edges)) == 1, "the traces do not have the same edges before and after"),
        (worst_ns <= bar, f"worst error {worst_ns:.0f} ns, above {bar}"),
        (stated is not None, "the stated uncertainty is unknown"),
        (found["outside"] == 0, f"{found['outside']} times are outside 4 × the stated uncertainty + 100 ns"),
        (found["last_s"] <= case.seconds, f"the trace outlived the measurement: {found['last_s']:.2f} s"),
    ]
    return [problem for holds, problem in rules if not holds]


def told(case, found, folder):
    """The result for people."""
    recorded, aligned, error = found["recorded"], found["aligned"], found["error_ns"]
    stated = "unknown" if found["stated_ns"] is None else f"{found['stated_ns']:.0f} ns"
    covered = 100 * found["covered_95"] / max(found["times"], 1)
    lines = [
        f"as recorded     {recorded['broken']} of {recorded['edges']} happens-before edges broken, by up to {recorded['worst_ns'] / 1e6:.1f} ms",
        f"after align     {aligned['broken']} of {aligned['edges']}",
        f"true times      {found['times']} times of {found['events']} events: error median {error['median']:.0f} ns, p99 {error['p99']:.0f} ns,"
        f" worst {error['worst']:.0f} ns (limit {BARS_NS[case.model]})",
        f"stated          standard deviation up to {stated}; {covered:.1f} % of the times within 1.96 of them",
        f"trace           {found['first_s']:.2f} to {found['last_s']:.2f} s of the {case.seconds} s measured;"
        f" worst at {found['worst_at']['at_s']:.2f} s on node {found['worst_at']['node']}",
        f"left out        {found['left_out']} times about a step of their clock" if found["left_out"] else "",
        f"files           {folder}",
        *(f"MISSED          {problem}" for problem in problems(case, found)),
    ]
    return "\n".join(f"  {line}" for line in lines if line)


def table(runs):
    """A row per clocks and load: ranges from the smallest to the largest run, or the worst of all runs. No run is left out."""
    lines = [
        "| clocks | machine | edges broken as recorded | after `align` | violations by `check --run-dir` | times judged "
        "| error: median / p99 / worst | worst allowed | stated sigma, largest | outside 4 × stated + 100 ns | runs as they must be |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (model, machine), of_row in itertools.groupby(runs, lambda run: (run[0].model, run[0].machine)):
        of_row = list(of_row)
        ended = [found for _, found, _ in of_row if found is not None]
        good = sum(not missed for _, _, missed in of_row)
        row = [model, machine, *(figures(model, ended) if ended else ["–"] * 8), f"{good} of {len(of_row)}"]
        lines.append(f"| {' | '.join(row)} |")
    missed = [f"\nMissed by {case.model} clocks, {case.machine}, seed {case.seed}: {problem}." for case, _, all_ in runs for problem in all_]
    return "\n".join(lines + missed)


def figures(model, ended):
    def spread(which):
        values = [found["recorded"][which] for found in ended]
        return f"{min(values)}" if min(values) == max(values) else f"{min(values)}–{max(values)}"

    errors = " / ".join(f"{max(found['error_ns'][which] for found in ended):.0f}" for which in ("median", "p99", "worst"))
    stated = [found["stated_ns"] for found in ended]
    return [
        f"{spread('broken')} of {spread('edges')} by up to {max(found['recorded']['worst_ns'] for found in ended) / 1e6:.1f} ms",
        str(sum(found["aligned"]["broken"] for found in ended)),
        str(sum(found["through_run"]["violations"] for found in ended)),
        str(sum(found["times"] for found in ended)),
        f"{errors} ns",
        f"{BARS_NS[model]} ns",
        "unknown" if None in stated else f"{max(stated):.0f} ns",
        str(sum(found["outside"] for found in ended)),
    ]


def draw(shown, file):
    """Draws the collectives of one step, as recorded and after align; red lines are broken edges, from an end to a start that came later."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "probe_sync", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10})
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(2, 1, sharex=True, figsize=(10, 4.2), layout="constrained")
    instances = [shown["recorded"], shown["aligned"]]
    origin_ns = min(part[0] for panel in instances for instance in panel for part in instance["parts"])
    order = sorted(shown["recorded"], key=lambda instance: instance["parts"][0][0])
    # `psum_invariant.7` is a psum to people.
    names = list(dict.fromkeys(plain(instance["name"]) for instance in order))
    titles = ["as the ranks' clocks recorded them", "the same after probe_sync align"]
    for panel, title, found in zip(panels, titles, instances):
        edges = sum(len(one["parts"]) * (len(one["parts"]) - 1) for one in found)
        lines = [edge for one in found for edge in broken(one["parts"])]
        panel.set_title(f"{title}: {len(lines)} of {edges} happens-before edges are broken", loc="left")
        for instance in found:
            name = plain(instance["name"])
            for rank, (start, end) in enumerate(instance["parts"]):
                colour = COLOURS[names.index(name) % len(COLOURS)]
                panel.barh(rank, (end - start) / 1e6, 0.6, (start - origin_ns) / 1e6, color=colour, edgecolor="white", linewidth=0.5)
        for end, ended, start, started in lines:
            panel.plot([(end - origin_ns) / 1e6, (start - origin_ns) / 1e6], [ended, started], color=RED, linewidth=0.9, alpha=0.8)
        panel.set_yticks(range(RANKS), [f"rank {rank}" for rank in range(RANKS)])
        panel.invert_yaxis()
        panel.spines[["top", "right", "left"]].set_visible(False)
    panels[1].set_xlabel("ms")
    keys = [pyplot.Rectangle((0, 0), 1, 1, color=COLOURS[index % len(COLOURS)]) for index in range(len(names))]
    keys.append(pyplot.Line2D([], [], color=RED))
    figure.legend(keys, [*names, "broken: ended before the other began"], loc="outside lower left", ncols=len(keys), frameon=False)
    figure.savefig(file, metadata={"Date": None, "Title": f"Collectives of {RANKS} ranks before and after probe_sync align"})
    pyplot.close(figure)


def plain(name):
    return name.split(".")[0].removesuffix("_invariant")


def broken(parts):
    """Ends that precede a start that they must follow: (end, rank, start, rank)."""
    pairs = itertools.product(enumerate(parts), repeat=2)
    return [(end, ended, start, started) for (ended, (_, end)), (started, (start, _)) in pairs if end < start]


# Okabe and Ito's, which the colour-blind can tell apart; red is kept for what is broken.
COLOURS = ["#0072b2", "#56b4e9", "#009e73", "#e69f00", "#cc79a7", "#999999"]
RED = "#d00000"


def spin():
    while True:
        pass


def attempt(options, case):
    """One run: its conditions, what it showed (None if it did not come to its end), what it missed."""
    folder = next(path for number in itertools.count(1) if not (path := options.out / f"run{number}").exists())
    folder.mkdir(parents=True)
    print(
        f"\n{case.model} clocks, machine {case.machine}, seed {case.seed}: a JAX job of {RANKS} ranks is traced while probe_sync measures"
        f" for {case.seconds} s",
        flush=True,
    )
    load = [multiprocessing.Process(target=spin, daemon=True) for _ in range(os.cpu_count() if case.loaded else 0)]
    for process in load:
        process.start()
    try:
        found = perform(options.program, case, folder)
        draw(found["picture"], folder / "before_after.svg")
    except (Failed, OSError, subprocess.TimeoutExpired) as error:
        print(f"  FAILED          {error}", flush=True)
        return case, None, [str(error).splitlines()[0]]
    finally:
        for process in load:
            process.kill()
    print(told(case, found, folder), flush=True)
    return case, found, problems(case, found)


def record(runs, log, picture):
    """Puts the table between its marks in the log, and the picture of the first run where the docs show it."""
    import jax

    begin, end = "<!-- flow: begin -->", "<!-- flow: end -->"
    text = log.read_text()
    if begin not in text or end not in text:
        sys.exit(f"{log} lacks the marks of the table flow")
    first = next((found for _, found, _ in runs[:1]), None)
    if first is None:
        sys.exit("the first run failed: no picture")
    machine = f"{os.cpu_count()} cores, load average of the last 15 minutes {os.getloadavg()[2]:.2f}, JAX {jax.__version__}."
    before, after = text.split(begin)[0], text.split(end)[1]
    log.write_text(f"{before}{begin}\n\n{machine}\n\n{table(runs)}\n\n{end}{after}")
    draw(first["picture"], picture)
    print(f"\nwritten: {log}, {picture}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, required=True, help="probe_sync")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the runs' files")
    parser.add_argument("--model", choices=BARS_NS, default="constant", help="what the virtual clocks do")
    parser.add_argument("--runs", type=int, default=1, help="runs, each with clocks and ports of its own")
    parser.add_argument("--seed", type=int, default=1, help="the first run's clocks; the others follow")
    parser.add_argument("--seconds", type=int, default=12, help="how long a run measures")
    parser.add_argument("--loaded", action="store_true", help="keep all cores busy meanwhile")
    parser.add_argument("--record", action="store_true", help="all clocks and loads; write table and picture")
    options = parser.parse_args()
    cases = itertools.product([False, True], BARS_NS) if options.record else [(options.loaded, options.model)]
    seeds = range(options.seed, options.seed + options.runs)
    runs = [attempt(options, Case(model, loaded, seed, options.seconds)) for loaded, model in cases for seed in seeds]
    if options.record:
        record(runs, HERE.parent / "LOG.md", HERE.parents[1] / "docs/before_after.svg")
    missed = sum(bool(problems_) for _, _, problems_ in runs)
    if missed:
        sys.exit(f"{missed} of {len(runs)} runs miss what they must show")


if __name__ == "__main__":
    main()
