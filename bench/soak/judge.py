#!/usr/bin/env python3
"""What a soak must satisfy, from its files and what was done to it.

`run.py` hurts ranks, writes down what it did and saw, and asks here. `python3 bench/soak/judge.py FOLDER` judges the same files again.
It does not start or stop anything.
"""

import json
import pathlib
import statistics
import sys

# Resident memory may grow by so much between the first and the last third of a life, for what is
# learnt once and for the allocator.
GROWTH_KB = 4096
GROWTH_SHARE = 0.15
# What rank 0 keeps of a node's round: fits to some ten peers and its own estimate, each in so many
# bytes.
FITS_PER_NODE = 11
FIT_BYTES = 100
# A life shorter than this tells nothing of leaks.
LIFE_S = 90.0
# What a fault may still show for, after it has ended.
AFTER_S = 20.0
# Faults after which a rank may be left out of rounds; all others must not cost a place.
MAY_BE_LEFT_OUT = {"kill", "long_stop", "cut", "slow"}
# Of them, those that must be noticed.
MUST_BE_LEFT_OUT = {"kill", "long_stop"}


def lines(path, unreadable):
    """Objects of a file of JSON lines; complaints about lines that are none."""
    found = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line:
            continue
        try:
            found.append(json.loads(line))
        except ValueError:
            unreadable.append(f"{path.name}, line {number}")
    return found


def every_file(run, unreadable):
    """All JSON of the run can be read."""
    for path in sorted(run.rglob("*.jsonl")):
        lines(path, unreadable)
    for path in sorted(run.rglob("*.json")):
        try:
            json.loads(path.read_text())
        except ValueError as error:
            unreadable.append(f"{path.name}: {error}")


def rounds_of(run, unreadable):
    """When each round's window began and ended, s; segments of long recordings are read in their order."""
    windows = []
    for path in sorted(run.glob("global_windows*.jsonl")):
        windows += lines(path, unreadable)
    windows.sort(key=lambda window: window["round_id"])
    return {window["round_id"]: (window["window_start_ns"] * 1e-9, window["window_end_ns"] * 1e-9) for window in windows}


def covers(fault, rank, begin, end):
    """Whether a fault may show in a span of time at this rank."""
    return fault["rank"] == rank and fault["from"] <= end and begin <= fault.get("ended", fault["until"]) + AFTER_S


def absences_of(report, rounds, faults, noticed_s):
    """Ranks left out that had no reason to be, and faults that nobody noticed."""
    false, seen = [], []
    for absence in report["absences"]:
        begin, end = rounds.get(absence["from"], (None, None))
        if begin is None:
            # The round in which it was noticed was the last.
            begin = end = max(after for _, after in rounds.values())
        # A round waits for those who are late, and others may be hurt meanwhile.
        causes = [fault for fault in faults if fault["kind"] in MAY_BE_LEFT_OUT and covers(fault, absence["rank"], begin - noticed_s, end + noticed_s)]
        (seen if causes else false).append(absence)
    missed = [fault for fault in faults if fault["kind"] in MUST_BE_LEFT_OUT and not any(
        absence["rank"] == fault["rank"] and absence["from"] in rounds
        and fault["from"] - noticed_s <= rounds[absence["from"]][1] <= fault["until"] + AFTER_S for absence in report["absences"])]
    # A round that waits for another rank has its frame already, or gives it more time: the next
    # window begins later.
    held_up = [rounds[absence["from"] + step] for absence in report["absences"] for step in (0, 1) if absence["from"] + step in rounds]
    def excused(fault):
        return fault["kind"] != "kill" and any(begin <= fault["until"] and fault["from"] <= end for begin, end in held_up)
    return false, [fault for fault in missed if not excused(fault)], len(seen)


def culprits(fault):
    """The nodes that a fault of the watch names."""
    culprit = fault["culprit"]
    if "node" in culprit:
        return [culprit["node"]]
    if "nodes" in culprit:
        return culprit["nodes"]
    if "edge" in culprit:
        return [culprit["edge"]["src"], culprit["edge"]["dst"]]
    return []


def accusations_of(report, rounds, faults, stepped):
    """Faults that the watch names although none of the named was hurt. Rank and node are the same number here."""
    false = []
    for fault in report["faults"]:
        if not {fault["began"], fault["round"]} <= set(rounds):
            continue
        # The round before may have lost a packet by chance.
        begin, end = rounds[fault["began"]][0], rounds[fault["round"]][1]
        named = culprits(fault)
        hurt = any(covers(done, node, begin - 2, end) for node in named for done in faults)
        if not hurt and not (stepped in named and fault["kind"] == "step"):
            false.append({key: fault[key] for key in ("kind", "culprit", "size", "began", "round")})
    return false


def growth_of(nodes, rounds):
    """Processes that grew: memory or open files, between the first and the last third of a life. Rank 0 keeps the fits of all rounds, up to a bound, to smooth them."""
    kept_kb = len(rounds) * len(nodes) * FITS_PER_NODE * FIT_BYTES / 1024
    leaks, lives = [], 0
    for node in nodes:
        for begun in sorted({sample[1] for sample in node["samples"]}):
            # What a process learns at its start is no leak.
            of_life = [sample for sample in node["samples"] if sample[1] == begun and sample[0] > begun + 20.0]
            if not of_life or of_life[-1][0] - of_life[0][0] < LIFE_S:
                continue
            lives += 1
            third = max(len(of_life) // 3, 1)
            median = lambda part, place: statistics.median(sample[place] for sample in part)
            memory = [median(part, 2) for part in (of_life[:third], of_life[-third:])]
            files = [median(part, 3) for part in (of_life[:third], of_life[-third:])]
            allowed = max(GROWTH_KB, GROWTH_SHARE * memory[0]) + (kept_kb if node["rank"] == 0 else 0)
            if memory[1] > memory[0] + allowed or files[1] > files[0] + 2:
                leaks.append({"rank": node["rank"], "kilobytes": memory, "open_files": files, "seconds": of_life[-1][0] - of_life[0][0]})
    return leaks, lives


def exits_of(nodes, faults):
    """Processes that ended although nothing was done to them that ends a process."""
    return [{"rank": node["rank"], **ended} for node in nodes for ended in node["exits"]
            if not any(fault["kind"] in MAY_BE_LEFT_OUT and covers(fault, node["rank"], ended["at"], ended["at"]) for fault in faults)]


def verdict(folder):
    """What was found; `passed` is true when nothing is wrong."""
    run, observed = folder / "run", json.loads((folder / "observed.json").read_text())
    nodes, faults, ended = observed["nodes"], observed["faults"], observed["ended"]
    unreadable = []
    every_file(run, unreadable)
    rounds = rounds_of(run, [])
    numbers = sorted(rounds)
    missing = sorted(set(range(numbers[0], numbers[-1] + 1)) - set(numbers)) if numbers else []
    report = json.loads((run / "report.json").read_text()) if (run / "report.json").exists() else None
    wrong = {
        "files_unreadable": unreadable,
        "rounds_missing": missing if numbers else ["all"],
        "exits_without_a_cause": exits_of(nodes, faults),
        "status_not_zero": [end for end in ended if end["status"] != 0],
    }
    text = {"rounds": len(numbers), "faults": {kind: sum(fault["kind"] == kind for fault in faults) for kind in sorted({fault["kind"] for fault in faults})}}
    if report is None:
        wrong["report"] = ["there is none: the master did not end well"]
    else:
        settings = json.loads((run / "run.json").read_text())["configuration"]
        stepped = int(str(settings["inject_step"]).split("@")[0])
        wrong["absences_without_a_cause"], wrong["faults_not_noticed"], text["absences_with_a_cause"] = absences_of(report, rounds, faults, observed["noticed_s"])
        wrong["watch_without_a_cause"] = accusations_of(report, rounds, faults, stepped)
        wrong["outside_hard_interval"] = [report["truth"]["outside_hard_interval"]] if report["truth"]["outside_hard_interval"] else []
        text["truth"] = {key: report["truth"][key] for key in ("judged", "not_judged", "worst_error_ns", "median_error_ns", "outside_hard_interval")}
        text["watch_named"] = report["faults_by_kind"]
    wrong["grew"], text["lives_judged_for_growth"] = growth_of(nodes, rounds)
    text |= {key: observed[key] for key in ("seed", "seconds", "load")}
    return {"passed": not any(wrong.values()), "wrong": {key: value for key, value in wrong.items() if value}, **text}


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: judge.py FOLDER, where run.py has put a soak")
    found = verdict(pathlib.Path(sys.argv[1]))
    print(json.dumps(found, indent=1))
    sys.exit(0 if found["passed"] else 1)


if __name__ == "__main__":
    main()
