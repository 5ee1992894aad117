#!/usr/bin/env python3
"""Records what the dashboard shows over consecutive runs under MPI, and judges it.

    python3 bench/soak/panels.py PROGRAM OUT [--runs 3] [--minutes 10] [--ranks 8]

Each run measures clocks with injected errors at default settings. Its metrics endpoint is read every few seconds: OUT/runN.csv holds every sample of
the metrics that the panels of docs/grafana/dashboard.json query. A Prometheus server (found as in bench/metrics.py) scrapes the same endpoint with our
alert rules, and must find data for every panel and no alert. `probe-sync-testbed verify`, next to PROGRAM, judges the errors of the offsets, and
resident memory and open files of all ranks must not grow. Prints a table, and exits with 1 if a run fails.
"""

import argparse
import csv
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/soak")]
import judge  # noqa: E402
import metrics  # noqa: E402

EVERY_S = 5
LIMIT_S = 60
# Metrics that a healthy run without `arrive` does not have; their queries fall back to zeros of another metric, or count what never happened.
ABSENT = {
    "probe_sync_lost_exchanges_total": "no exchange was lost",
    "probe_sync_late_seconds_total": "no operation was reported with `arrive`",
    "probe_sync_waiting_seconds": "no operation was reported with `arrive`",
    "probe_sync_faults_total": "no fault was found",
    "probe_sync_clock_events_total": "no clock was set",
}
# Of exchanges, as in the alert.
LOSS_MAX = 0.01
# Open files that may come and go: a scraper's connections.
FILES_GROWTH = 3
VERIFY = ["--worst-ns", "2000", "--median-ns", "200"]
CONFIG = """\
global: {{ scrape_interval: {every}s, evaluation_interval: {every}s }}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: probe_sync
    static_configs: [{{ targets: ["{target}"] }}]
"""
SAMPLE = re.compile(r"^(?P<name>[a-z_]+)(?P<labels>\{.*\})? (?P<value>\S+)")


def panels():
    """The dashboard's queries, by panel."""
    document = json.loads((metrics.GRAFANA / "dashboard.json").read_text())
    return {panel["title"]: [target["expr"].replace("$instance", ".*") for target in panel["targets"]] for panel in document["panels"] if panel.get("targets")}


def names(queries):
    """The metrics in queries."""
    return sorted({name for query in queries for name in re.findall(r"probe_sync_\w+", query)})


def scraped(address):
    """Samples of an endpoint: name, labels, value."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=LIMIT_S) as answer:
            found = map(SAMPLE.match, answer.read().decode().splitlines())
    except OSError:
        return []
    return [(sample["name"], sample["labels"] or "", float(sample["value"])) for sample in found if sample]


def ranks_of(launcher):
    """Resident memory in kB and open files of each process that mpirun has started."""
    rows = subprocess.run(["ps", "-o", "pid=,rss=", "--ppid", str(launcher)], capture_output=True, text=True, timeout=LIMIT_S).stdout.split()
    found = {}
    for pid, resident in zip(rows[::2], rows[1::2]):
        try:
            found[pid] = (int(resident), len(os.listdir(f"/proc/{pid}/fd")))
        except OSError:
            pass  # It has ended.
    return found


def thirds(values):
    """Medians of the first and the last third, after a tenth in which everything is set up."""
    values = values[len(values) // 10 :]
    part = max(1, len(values) // 3)
    return statistics.median(values[:part]), statistics.median(values[-part:])


class Run:
    """One run and what was seen of it."""

    def __init__(self, number, options, programs):
        self.out = options.out / f"run{number}"
        self.number, self.options = number, options
        self.promtool, self.prometheus = programs
        self.samples, self.processes, self.faults, self.load = [], {}, [], []

    def measure(self):
        address, server = metrics.free_address(), metrics.free_address()
        config = self.options.out / f"prometheus{self.number}.yml"
        config.write_text(CONFIG.format(every=EVERY_S, rules=metrics.GRAFANA / "alerts.yaml", target=address))
        seconds = self.options.minutes * 60
        program = [self.options.program, "run", "--inject-skew", str(self.number), "--duration", f"{seconds}s", "--metrics-listen", address, "--out", self.out]
        launcher = ["mpirun", "--timeout", str(seconds + 2 * LIMIT_S), "--oversubscribe", "-n", str(self.options.ranks), *program]
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        serve = [self.prometheus, f"--config.file={config}", f"--web.listen-address={server}", f"--storage.tsdb.path={self.options.out / f'data{self.number}'}"]
        metrics.FOLDER = self.options.out
        names_of_panels = set(names(sum(panels().values(), [])))
        with metrics.running(f"prometheus{self.number}", *serve), (self.options.out / f"run{self.number}.log").open("w") as log:
            began = time.time()
            job = subprocess.Popen(launcher, env=os.environ | allowed, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            while job.poll() is None:
                now = time.time() - began
                self.samples += [(now, *sample) for sample in scraped(address) if sample[0] in names_of_panels]
                for pid, figures in ranks_of(job.pid).items():
                    self.processes.setdefault(pid, []).append(figures)
                self.load.append(os.getloadavg()[0])
                time.sleep(EVERY_S)
            if job.returncode != 0:
                self.faults.append(f"mpirun ended with {job.returncode}")
            # The last seconds are after the end: an alert about rounds that come no more is right then.
            self.ask(server, began, time.time() - 3 * EVERY_S)
        with (self.options.out / f"run{self.number}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["seconds", "metric", "labels", "value"])
            rows.writerows([f"{at:.1f}", *rest] for at, *rest in self.samples)

    def ask(self, server, began, ended):
        """Panels without data, and alerts that fired."""

        def points(query):
            span = [f"--start={began:.0f}", f"--end={ended:.0f}", "--step=15s"]
            asked = subprocess.run([self.promtool, "query", "range", *span, f"http://{server}", query], capture_output=True, text=True, timeout=LIMIT_S)
            if asked.returncode != 0:
                raise RuntimeError(f"{query}: {asked.stderr}")
            return asked.stdout

        found = {query: sum(" @[" in line and not line.startswith("NaN") for line in points(query).splitlines()) for query in sum(panels().values(), [])}
        self.panels = {title: sum(found[query] for query in queries) for title, queries in panels().items()}
        self.faults += [f"no data for {query}" for query, count in found.items() if count == 0 and not set(names([query])) <= set(ABSENT)]
        self.alerts = sorted(set(re.findall(r'alertname="(\w+)"', points('ALERTS{alertstate="firing"}'))))
        self.faults += [f"alert {alert}" for alert in self.alerts]

    def judge(self):
        """The run's column of the table."""
        seen = {name for _, name, _, _ in self.samples}
        wanted = names(sum(panels().values(), []))
        absent = [name for name in wanted if name not in seen]
        self.faults += [f"no sample of {name}" for name in absent if name not in ABSENT]
        last = {(name, labels): value for _, name, labels, value in self.samples}
        total = lambda name: sum(value for (of, _), value in last.items() if of == name)  # noqa: E731
        exchanges = total("probe_sync_timestamps_total") / 8
        loss = total("probe_sync_lost_exchanges_total") / max(1, exchanges)
        if loss > LOSS_MAX:
            self.faults.append(f"{loss:.2%} of the exchanges were lost")
        growth_kb, growth_files = 0, 0
        for figures in self.processes.values():
            (before, after), (files_before, files_after) = thirds([kb for kb, _ in figures]), thirds([files for _, files in figures])
            growth_kb, growth_files = max(growth_kb, after - before, key=abs), max(growth_files, files_after - files_before, key=abs)
            if after - before > judge.GROWTH_KB + judge.GROWTH_SHARE * before:
                self.faults.append(f"memory grew from {before:.0f} to {after:.0f} kB")
            if files_after - files_before > FILES_GROWTH:
                self.faults.append(f"open files grew from {files_before:.0f} to {files_after:.0f}")
        testbed = self.options.program.with_name("probe-sync-testbed")
        verified = subprocess.run([testbed, "verify", "--nodes", str(self.options.ranks), *VERIFY, self.out], capture_output=True, text=True, timeout=LIMIT_S)
        if verified.returncode != 0:
            self.faults.append(f"errors of the offsets: {verified.stderr.strip()}")
        print(verified.stdout)
        resident = statistics.median(kb for figures in self.processes.values() for kb, _ in figures)
        return {
            "load of the machine (two cores)": f"{min(self.load):.1f} to {max(self.load):.1f}",
            "rounds; exchanges; lost": f"{total('probe_sync_rounds_total'):.0f}; {exchanges:.0f}; {loss:.3%}",
            "errors of the offsets": verified.stdout.strip().replace("\n", "; ").replace("|error|", "error") or "not judged",
            "metrics of the panels with samples": f"{len(wanted) - len(absent)} of {len(wanted)}, {len(self.samples)} samples",
            "metrics without samples": "; ".join(f"`{name}` ({ABSENT.get(name, 'unexpected')})" for name in absent) or "none",
            "panels with data": f"{sum(count > 0 for count in self.panels.values())} of {len(self.panels)}",
            "memory of a rank; largest change of any": f"{resident / 1024:.1f} MiB; {growth_kb / 1024:+.2f} MiB",
            "largest change of a rank's open files": f"{growth_files:+.0f}",
            "alerts": ", ".join(self.alerts) or "none",
            "verdict": "; ".join(self.faults) or "passed",
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("out", type=lambda text: pathlib.Path(text).resolve())
    for name, value in [("runs", 3), ("minutes", 10), ("ranks", 8)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    programs = metrics.programs()
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    columns, failed = [], False
    for number in range(1, options.runs + 1):
        run = Run(number, options, programs)
        run.measure()
        columns.append(run.judge())
        failed |= bool(run.faults)
        print(f"run {number}: {columns[-1]['verdict']}", flush=True)
    print("| |" + "".join(f" run {number} |" for number in range(1, options.runs + 1)))
    print("|---|" + "---|" * options.runs)
    for row in columns[0]:
        print(f"| {row} | " + " | ".join(column[row] for column in columns) + " |")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
