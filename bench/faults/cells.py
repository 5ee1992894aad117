#!/usr/bin/env python3
"""The cells of the fault matrix: what is done to which rank, and what must hold then.

`run.py` asks for the fields of a cell's line; `ranks.py` starts and hurts processes.
It does not judge how long anything took. The time is in the table; a fault must be named before the run ends.
"""

import dataclasses
import json
import re
import signal
import subprocess
import time

from ranks import DURATION_S, LONG_S, MPIRUN_TIMEOUT_S, TCP_PORT, UDP_PORT, Ranks

# Over a tree of two rank 2 passes on for rank 3.
HURT = 2
# One side of a partition; rank 0's has more than half.
MINORITY = {"star": [4, 5, 6], "tree": [4, 5, 6], "mpi": [3, 4]}
SETTLED_ROUNDS, POLL_S = 5, 0.02
NO_NETWORK = {"ulfm": "the ranks are on one host, where no network can be hurt; mpirun's own daemons would be cut off as well"}
NO_RETURN = {"mpi": "a process cannot join a job of MPI that runs", "ulfm": "a process cannot join a job of MPI that runs"}
STEP_AT_S, STEP = 6.0, "1ms"
ULFM_S = {"loss": 11.0, "hang": 16.0, "master": 24.0}


@dataclasses.dataclass
class Cell:
    """`must`: by way of talking, what the others do: "named" (go on and name the hurt), "kept" (nobody is left out), "either", "ends" (the run ends and names), "refused" (no run), "disk" (all
    is measured, and rank 0 says at the end that not all was written), "unwritten" (the job fails, and says why). `says`: texts of the log, in their order."""

    name: str
    must: dict
    begin: object = None
    heal: object = None
    heal_after: float = 0.0
    hurt: object = None
    absent: dict = dataclasses.field(default_factory=dict)
    extra: tuple = ()
    mounted: bool = False
    proxied: bool = False
    late: float = 0.0
    says: tuple = ()
    # Over ULFM: the rank that leads at the end, and the rank whose place it took.
    leads: int = 0
    took_from: int = 0
    taken: str = ""
    restarts: bool = False

    def seconds(self, backend):
        """How long the run lasts. Over ULFM losses are noticed at once, hangs after a few seconds."""
        if backend == "ulfm" and "SIGCONT" not in self.name:
            return ULFM_S["master" if self.name.startswith("master SIGSTOP") else "hang" if "SIGSTOP" in self.name else "loss"]
        return LONG_S if self.restarts or self.heal_after > 6 else DURATION_S

    def hurt_ranks(self, backend):
        return self.hurt(backend) if self.hurt else [HURT]


def of_all(tcp, mpi, ulfm):
    return {"star": tcp, "tree": tcp, "mpi": mpi, "ulfm": ulfm}


def to_hurt(number, rank=HURT):
    return lambda ranks: ranks.signal(rank, number)


def kill_all(*hurt):
    return lambda ranks: [ranks.signal(rank, signal.SIGKILL) for rank in hurt]


def stop_and_spoil_report(ranks):
    """A folder lies where the report is to be written."""
    ranks.signal(HURT, signal.SIGSTOP)
    (ranks.run / "report.json").mkdir()


def slow(ranks):
    """For four seconds it runs a fifth of the time."""
    for _ in range(16):
        ranks.signal(HURT, signal.SIGSTOP)
        time.sleep(0.2)
        ranks.signal(HURT, signal.SIGCONT)
        time.sleep(0.05)


def half_open(ranks):
    """The host is gone before its process ends: nobody is sent a FIN."""
    ranks.link(HURT, "down")
    ranks.signal(HURT, signal.SIGKILL)


def cut_off(ranks):
    ranks.drop(HURT, ("input", "output"), "")


def joined_again(ranks):
    ranks.no_rules(HURT)


def partition(ranks):
    backend = ranks.launch.backend
    side = MINORITY[backend]
    others = ", ".join(f"10.78.0.{rank + 2}" for rank in range(ranks.size) if rank not in side)
    for rank in side:
        ranks.rules(rank, f"chain input {{ type filter hook input priority 0; ip saddr {{ {others} }} drop; }}\nchain output {{ type filter hook output priority 0; ip daddr {{ {others} }} drop; }}")


def partition_heals(ranks):
    [ranks.no_rules(rank) for rank in MINORITY[ranks.launch.backend]]


def hanging(rank):
    return f"the process of rank(s) {rank} still hangs"


HANGS = {way: "nothing ends a process that hangs; the cell with SIGCONT shows what the others do" for way in ("star", "tree", "mpi")}
ULFM_ONLY = {way: "`crates/cli/tests/it` has it over TCP; without ULFM the job ends" for way in ("star", "tree", "mpi")}
KEPT = of_all("kept", "kept", "kept")
NAMED = of_all("named", "ends", "named")
HUNG = of_all("named", "ends", "named")
ROOT = of_all("named", "ends", "named")
CELLS = [
    Cell("SIGKILL", NAMED, to_hurt(signal.SIGKILL)),
    Cell("SIGKILL, started again after 2 s", NAMED, to_hurt(signal.SIGKILL), lambda ranks: ranks.start_rank(HURT), 2.0, absent=NO_RETURN),
    # Over ULFM a late rank has 3 s more to answer before it is left out.
    Cell("SIGSTOP, SIGCONT after 8 s", HUNG, to_hurt(signal.SIGSTOP), to_hurt(signal.SIGCONT), 8.0, restarts=True),
    Cell("SIGSTOP for good", of_all("", "", "named"), to_hurt(signal.SIGSTOP), absent=HANGS, says=(hanging(HURT),)),
    Cell("SIGSTOP for good, report cannot be written", of_all("", "", "unwritten"), stop_and_spoil_report, absent=HANGS, says=("could not be written at times", hanging(HURT))),
    Cell("slow rank (runs a fifth of the time for 4 s)", of_all("either", "kept", "kept"), slow),
    Cell("20 % of packets dropped both ways for 5 s", of_all("either", "kept", ""), lambda ranks: ranks.drop(HURT, ("input", "output"), "numgen random mod 100 < 20"), joined_again, 5.0, absent=NO_NETWORK),
    Cell("all packets dropped both ways for 5 s", HUNG, cut_off, joined_again, 5.0, absent=NO_NETWORK, restarts=True),
    Cell("arriving packets dropped for 5 s", HUNG, lambda ranks: ranks.drop(HURT, ("input",), ""), joined_again, 5.0, absent=NO_NETWORK, restarts=True),
    Cell("half-open: its host is gone without a FIN", HUNG, half_open, absent=NO_NETWORK),
    Cell("corrupt frames (a bit flipped between ranks)", NAMED, lambda ranks: ranks.helpers[0].send_signal(signal.SIGUSR1), proxied=True, restarts=True,
         absent={"mpi": "MPI carries its messages itself; frames and tags are TCP's", "ulfm": "MPI carries its messages itself; frames and tags are TCP's"}),
    Cell("full disk", of_all("disk", "disk", "disk"), lambda ranks: ranks.fill(), mounted=True, hurt=lambda _: []),
    Cell("port conflict, TCP port of rank 0", of_all("refused", "", ""), taken="tcp", hurt=lambda _: [0], absent={"mpi": "MPI's ranks do not meet at a port of ours", "ulfm": "MPI's ranks do not meet at a port of ours"}),
    Cell("port conflict, UDP port of a rank", of_all("refused", "refused", ""), taken="udp", absent=NO_NETWORK),
    Cell(f"clock step of {STEP} (virtual clock)", KEPT, extra=("--inject-step", f"{HURT}@{int(STEP_AT_S)}s:{STEP}"), hurt=lambda _: []),
    Cell("master SIGKILL", ROOT, to_hurt(signal.SIGKILL, 0), hurt=lambda _: [0], leads=1),
    Cell("master and the next SIGKILL together", of_all("", "", "named"), kill_all(0, 1), hurt=lambda _: [0, 1], absent=ULFM_ONLY, leads=2),
    Cell("master SIGKILL, then the next", of_all("", "", "named"), to_hurt(signal.SIGKILL, 0), to_hurt(signal.SIGKILL, 1), 4.0, hurt=lambda _: [0, 1], absent=ULFM_ONLY, leads=2, took_from=1),
    Cell("master SIGSTOP for good", of_all("", "", "named"), to_hurt(signal.SIGSTOP, 0), hurt=lambda _: [0], absent=HANGS, says=(hanging(0),), leads=1),
    Cell("master SIGSTOP, SIGCONT after 14 s", ROOT, to_hurt(signal.SIGSTOP, 0), to_hurt(signal.SIGCONT, 0), 14.0, hurt=lambda _: [0]),
    Cell("partition for 5 s", HUNG, partition, partition_heals, 5.0, absent=NO_NETWORK, hurt=lambda backend: MINORITY[backend], restarts=True),
    Cell("late join: a rank starts 4 s after the others", KEPT, late=4.0, hurt=lambda _: [], absent={"mpi": "mpirun starts all ranks together", "ulfm": "mpirun starts all ranks together"}),
]


def cell_fields(cell, launch, options):
    """Runs a cell; the fields of its line."""
    words = "".join(letter if letter.isalnum() else "-" for letter in cell.name.split(",")[0].lower())[:28] + f"-{abs(hash_of(cell.name)) % 1000:03}"
    ranks = Ranks(launch, options.out / launch.backend / words, extra_of(cell), cell.seconds(launch.backend))
    try:
        seen = endure(cell, ranks)
    finally:
        ranks.end()
    return judged(cell, ranks, seen)


def hash_of(text):
    """The same on every run, which Python's is not."""
    return sum((place + 1) * byte for place, byte in enumerate(text.encode()))


def extra_of(cell):
    return [*cell.extra, *(["--port", str(UDP_PORT)] if cell.taken == "udp" else [])]


def holder(cell, ranks):
    """A process that has the port before the run begins."""
    kind, port = ("SOCK_STREAM", TCP_PORT) if cell.taken == "tcp" else ("SOCK_DGRAM", UDP_PORT)
    code = f"import socket, time; s = socket.socket(socket.AF_INET, socket.{kind}); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, s.type == socket.SOCK_STREAM); s.bind(('', {port})); s.type == socket.SOCK_STREAM and s.listen(); time.sleep(60)"
    ranks.helpers.append(subprocess.Popen(["ip", "netns", "exec", ranks.host(cell.hurt_ranks(ranks.launch.backend)[0]), "python3", "-c", code]))
    time.sleep(0.5)


def endure(cell, ranks):
    """Starts the ranks, hurts, heals, and waits for the end; what was seen meanwhile."""
    backend, begun = ranks.launch.backend, time.monotonic()
    lasts = cell.seconds(backend)
    hurt = cell.hurt_ranks(backend)
    others = [rank for rank in range(ranks.size) if rank not in hurt] if ranks.launch.tcp else [0]
    seen = {"at": None, "at_round": None, "detected": {}, "restarted": [], "hung": []}
    if cell.mounted:
        ranks.mount()
    if cell.proxied:
        ranks.proxy(HURT)
    if cell.taken:
        holder(cell, ranks)
    late = [HURT] if cell.late else []
    ranks.start(late)
    done, healed, waiting = cell.begin is None, cell.heal is None, list(late)
    if cell.begin is None:
        # From the start on: what the logs say of a healthy rank counts here, too.
        seen["at"] = begun
    while ranks.running() and time.monotonic() - begun < lasts + MPIRUN_TIMEOUT_S + 20:
        now = time.monotonic()
        if waiting and now - begun > cell.late:
            ranks.start_rank(waiting.pop())
        if not done and ranks.rounds_so_far() >= SETTLED_ROUNDS:
            seen["at"], seen["at_round"], done = time.monotonic(), ranks.rounds_so_far(), True
            cell.begin(ranks)
        # The second master has led for two rounds before it is killed as well.
        leads = cell.took_from == 0 or ranks.rounds_of(cell.took_from) >= 2
        if seen["at"] and not healed and now - seen["at"] > cell.heal_after and leads:
            cell.heal(ranks)
            healed = True
        if seen["at"]:
            for rank in ranks.named(others) - set(seen["detected"]):
                seen["detected"][rank] = time.monotonic() - seen["at"]
            if cell.mounted and "disk" not in seen["detected"] and "cannot write " in ranks.said([0]):
                seen["detected"]["disk"] = time.monotonic() - seen["at"]
        # As a launcher does that starts a rank again: after the fault, while the others run.
        if cell.restarts and ranks.launch.tcp and healed and seen["at"] and now - seen["at"] < lasts - 7:
            for rank in hurt:
                if ranks.processes[rank].poll() not in (None, 0) and len(ranks.earlier.get(rank, [])) < 3:
                    ranks.start_rank(rank)
                    seen["restarted"].append(rank)
        time.sleep(POLL_S)
    seen["hung"], seen["seconds"] = ranks.running(), time.monotonic() - begun
    return seen


def recordings(run):
    """The run's folder, and those of masters after the first."""
    return [run, *sorted((path for path in run.glob("rank*-from-round*") if path.is_dir()), key=lambda path: int(path.name.rsplit("round", 1)[1]))]


def read(run):
    """Rounds by number in the newest recording that has them, reports, and lines that cannot be read."""
    rounds, reports, unreadable = {}, [], []
    for folder in recordings(run):
        for path in sorted(folder.rglob("*.jsonl")):
            for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
                try:
                    value = json.loads(line) if line else None
                except ValueError:
                    unreadable.append(f"{path.relative_to(run)}:{number}")
                    continue
                if value and path == folder / "global_windows.jsonl":
                    rounds[value["round_id"]] = value
        if (folder / "report.json").is_file():
            reports.append(json.loads((folder / "report.json").read_text()))
    return rounds, reports, sorted(set(unreadable))


def solved_again(run, program):
    """What `probe_sync solve` says to the windows of the run: nothing where all is well."""
    windows = sorted(path for folder in recordings(run) for path in folder.glob("windows/node*.jsonl"))
    if not windows:
        return "no windows"
    commands = {"solve": ["--windows", *windows, "--out", run.parent / "solved.jsonl"]}
    if len(recordings(run)) > 1:
        # The recordings of two masters are read as one run.
        node, trace = trace_of_a_survivor(run)
        commands["align"] = ["--traces", trace, "--nodes", str(node), "--run-dir", run, "--output", run.parent / "aligned.json"]
        commands["export"] = ["--run-dir", run, "--out", run.parent / "run.pb"]
    for command, arguments in commands.items():
        done = subprocess.run([program, command, *arguments], capture_output=True, text=True, timeout=120)
        if done.returncode:
            return f"{command}: {done.stderr.strip()[:200]}"
    return ""


def trace_of_a_survivor(run):
    """A node that took a lost master's place, and a trace of it with a span in each round that was recorded."""
    node, spans = int(recordings(run)[-1].name.removeprefix("rank").split("-")[0]), []
    for folder in recordings(run):
        for line in (folder / "offsets.jsonl").read_text().splitlines():
            line = json.loads(line)
            if line.get("node_id") == node and line.get("offset_ns") is not None:
                # Within the round: `align` refuses times that were not measured.
                spans.append({"name": "step", "ph": "X", "ts": (line["window_start_ns"] + line["offset_ns"]) / 1e3 + 1e5, "dur": 10, "pid": 1, "tid": 1})
    path = run.parent / "trace.json"
    path.write_text(json.dumps({"traceEvents": spans}))
    return node, path


def true_offset(truth, node, at):
    """The virtual clock's lead over node 0's at a time of node 0's, ns; both clocks are lines and steps here."""
    of = truth["nodes"][str(node)]
    since = at - of["t0_ns"]
    return of["off_ns"] + of["ppm"] * 1e-6 * since + (of["step_ns"] if of["step_ns"] and since >= of["step_at_ns"] else 0)


def outside(run, reports, rounds):
    """True offsets outside of their hard intervals: as the reports say, and where a run left none that knows the truth, by the truth and the rounds on disk. None where nothing says it."""
    judged_by_run = [report["truth"]["outside_hard_interval"] for report in reports if report["truth"]]
    if judged_by_run:
        return sum(judged_by_run)
    if not (run / "truth.json").exists() or not rounds:
        return None
    truth, count = json.loads((run / "truth.json").read_text()), 0
    for window in rounds.values():
        middle = (window["window_start_ns"] + window["window_end_ns"]) / 2
        for node in window["all_nodes"]:
            if node["reachable"] and node["bound_lo_ns"] is not None:
                lead = true_offset(truth, node["node_id"], middle) - true_offset(truth, 0, middle)
                count += not node["bound_lo_ns"] <= lead <= node["bound_hi_ns"]
    return count


def statuses_of(ranks):
    """Exit statuses in order of ranks; those of a rank's earlier lives before a comma."""
    if not ranks.launch.tcp:
        return f"mpirun {ranks.processes[0].returncode}"
    return " ".join(",".join(str(status) for status in [*ranks.earlier.get(rank, []), ranks.processes[rank].returncode]) for rank in sorted(ranks.processes))


def judged(cell, ranks, seen):
    """The fields of a cell's line."""
    backend = ranks.launch.backend
    hurt, must = set(cell.hurt_ranks(backend)), cell.must[backend]
    rounds, reports, unreadable = read(ranks.run) if ranks.run.exists() else ({}, [], [])
    if 0 in hurt and len(reports) > 1:
        # A master that hung and wakes finds all others gone; what it says of them is no accusation.
        reports = reports[1:]
    named = {rank for rank in seen["detected"] if rank != "disk"} | {absence["rank"] for report in reports for absence in report["absences"]}
    numbers = sorted(rounds)
    missing = sorted(set(range(numbers[-1] + 1)) - set(numbers)) if numbers else []
    files = "; ".join([f"unreadable: {', '.join(unreadable[:3])}"] * bool(unreadable) + [text for text in [solved_again(ranks.run, ranks.launch.options.program) if rounds else ""] if text])
    beyond = outside(ranks.run, reports, rounds)
    wrong = []
    if named - hurt and must != "refused":
        wrong.append(f"rank(s) {sorted(named - hurt)} were named although nothing was done to them")
    if seen["hung"]:
        wrong.append(f"still running after {seen['seconds']:.0f} s: {seen['hung']}")
    if must != "refused" and seen["at"] is None and cell.begin:
        wrong.append(f"no {SETTLED_ROUNDS} rounds before the fault; see {ranks.log(0)}")
    if missing:
        wrong.append(f"rounds {missing} are lost")
    if files:
        wrong.append(files)
    if rounds and beyond is None:
        wrong.append("the clocks are virtual, and nothing in the files says what the true offsets were")
    if beyond:
        wrong.append(f"{beyond} true offsets are outside of their bounds")
    wrong += wrong_for(cell, must, ranks, seen, hurt, named, rounds, reports)
    shown = sorted(named) if must != "refused" else sorted(hurt)
    detected = detected_of(cell, seen, hurt, rounds, ranks)
    return {"detected_s": "" if detected is None else f"{detected:.2f}", "named": ", ".join(map(str, shown)) or "nobody", "rounds": len(numbers), "lost": len(missing) if numbers else "", "statuses": statuses_of(ranks),
            "files": "read back" if rounds and not files else files or "none", "outside": "" if beyond is None else beyond, "verdict": "FAILED: " + "; ".join(wrong) if wrong else "as it must"}


def stepped_round(rounds):
    """The first round whose watch names a step of the node that stepped."""
    return next((number for number in sorted(rounds) for fault in rounds[number]["watch"]["faults"] if fault["kind"] == "step" and fault["culprit"].get("node") == HURT), None)


def detected_of(cell, seen, hurt, rounds, ranks):
    """Seconds from the fault to its being named: of all that were hurt."""
    if cell.extra and (number := stepped_round(rounds)) is not None:
        truth = json.loads((ranks.run / "truth.json").read_text())["nodes"][str(HURT)]
        return (rounds[number]["window_end_ns"] - truth["t0_ns"] - truth["step_at_ns"]) * 1e-9
    if cell.taken:
        return seen["seconds"]
    times = [seconds for rank, seconds in seen["detected"].items() if rank in hurt or rank == "disk"]
    return max(times) if times else None


def wrong_for(cell, must, ranks, seen, hurt, named, rounds, reports):
    """What is not as this cell must be."""
    wrong, tcp = [], ranks.launch.tcp
    healthy = {rank: process.returncode for rank, process in ranks.processes.items() if rank not in hurt} if tcp else {0: ranks.processes[0].returncode}
    if must in ("named", "ends", "unwritten") and hurt - named:
        wrong.append(f"rank(s) {sorted(hurt - named)} were not named")
    if must in ("kept", "disk") and named:
        wrong.append(f"rank(s) {sorted(named)} were left out")
    bad = {rank: status for rank, status in healthy.items() if status != 0}
    # Over MPI mpirun itself says with its status that a process was killed; ranks that go on end
    # well. A rank that wakes, and without which they have gone on, ends with 1.
    if not tcp and must == "named" and "SIGCONT" in cell.name:
        bad = {} if bad == {0: 1} else {"mpirun": healthy[0]}
    if must in ("named", "kept", "either") and bad:
        wrong.append(f"exit statuses {bad}")
    if must == "disk" and set(bad) != {0}:
        wrong.append(f"exit statuses {bad}, where rank 0's alone is not 0")
    if must in ("ends", "refused", "unwritten") and not any(process.returncode for process in ranks.processes.values()):
        wrong.append("all ended with status 0")
    if must in ("named", "kept", "either") and seen["at_round"] and not cell.mounted and len(rounds) < seen["at_round"] + 6:
        wrong.append(f"only {len(rounds)} rounds: they did not go on after round {seen['at_round']}")
    if must == "refused":
        port = str(TCP_PORT if cell.taken == "tcp" else UDP_PORT)
        if not re.search(rf":{port}\b", ranks.said(range(ranks.size))):
            wrong.append(f"nobody says which port: {port}")
    if ranks.launch.backend == "ulfm" and must == "named" and "SIGCONT" not in cell.name:
        wrong += wrong_at_the_end(cell, ranks, hurt, rounds)
    places = [ranks.said(range(ranks.size)).find(text) for text in cell.says]
    if -1 in places or places != sorted(places):
        wrong.append(f"the log does not say {' and then '.join(cell.says)}")
    if cell.mounted:
        wrong += wrong_with_full_disk(ranks, seen)
    if cell.extra and stepped_round(rounds) is None:
        wrong.append(f"the step of node {HURT} was not named")
    if tcp and (cell.restarts or cell.heal and "started again" in cell.name):
        absences = [absence for report in reports for absence in report["absences"] if absence["rank"] in hurt]
        wrong += [f"rank {rank} is not back" for rank in sorted(hurt) if not any(absence["rank"] == rank and absence["back"] is not None for absence in absences)]
    return wrong


def wrong_at_the_end(cell, ranks, hurt, rounds):
    """What the last master must leave: its report with those who are away, whose place it took, and rounds that `solve` knows."""
    last = recordings(ranks.run)[-1]
    try:
        report = json.loads((last / "report.json").read_text())
    except (OSError, ValueError) as error:
        return [f"no report of the last master: {error}"]
    wrong = []
    # A report is of its master's rounds: it names who was lost in them.
    lost = {cell.took_from} if cell.took_from else hurt
    if (away := {absence["rank"] for absence in report["absences"]}) != lost:
        wrong.append(f"the report names {sorted(away)} as away, where {sorted(lost)} were lost")
    if cell.leads and not last.name.startswith(f"rank{cell.leads}-from-round"):
        wrong.append(f"{last.name} is of the last master, where rank {cell.leads} has to lead")
    if cell.leads and (report.get("taken_over") or {}).get("from_rank") != cell.took_from:
        wrong.append(f"the report says that the place was taken from {report.get('taken_over')}, where it was rank {cell.took_from}'s")
    solved = [json.loads(line) for line in (ranks.run.parent / "solved.jsonl").read_text().splitlines()]
    if max(line.get("round_id", 0) for line in solved) != max(rounds):
        wrong.append(f"solve knows nothing of round {max(rounds)}")
    return wrong


def wrong_with_full_disk(ranks, seen):
    """The run must say so and go on: rank 0 prints its report, since none fits on the disk."""
    wrong = [] if "disk" in seen["detected"] else ["nobody said that files are not written"]
    try:
        printed = json.loads((ranks.folder / "rank0.out").read_text())
    except ValueError:
        return [*wrong, "rank 0 printed no report"]
    if printed["rounds"] < DURATION_S - 4:
        wrong.append(f"only {printed['rounds']} rounds were measured")
    # The report itself may fit, where a file that was begun is gone again.
    if not any(file["reason"] for file in printed["files"]):
        wrong.append("the report does not say what was not written")
    return wrong
