#!/usr/bin/env python3
"""Checks our metrics, alert rules and dashboard with Prometheus' own programs.

    python3 bench/metrics.py PROBE_SYNC
    python3 bench/metrics.py --fetch        # only fetches the programs

promtool reads the metrics.prom of a run of four ranks and the rules of docs/grafana, and tests the rules with their own samples. Then a Prometheus
server scrapes a run over HTTP, and every query of the dashboard must return data; Grafana itself is not started. Both programs are taken from PATH,
or from Debian's package prometheus, which is unpacked under target/ and not installed; where that cannot be fetched the exit status is 77. The
output ends with a tally as `cargo xtask` counts it.
"""

import contextlib
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "target/xtask/metrics"
GRAFANA = ROOT / "docs/grafana"
SKIPPED = 77
LIMIT_S = 60
CONFIG = """\
global: { scrape_interval: 1s, evaluation_interval: 1s }
scrape_configs:
  - job_name: probe_sync
    static_configs: [{ targets: ['@TARGET@'] }]
"""


def programs():
    """promtool and the server, from where they can be had."""
    names = ["promtool", "prometheus"]
    if all(map(shutil.which, names)):
        return names
    folder = ROOT / "target/xtask/prometheus"
    found = [folder / "usr/bin" / name for name in names]
    if not all(program.exists() for program in found):
        if shutil.which("apt-get") is None:
            skip("not installed, and no apt-get to fetch Debian's package prometheus")
        folder.mkdir(parents=True, exist_ok=True)
        fetched = subprocess.run(["apt-get", "--quiet", "-o", "Acquire::http::Timeout=30", "download", "prometheus"], cwd=folder, timeout=2 * LIMIT_S)
        packages = list(folder.glob("*.deb"))
        if fetched.returncode != 0 or not packages:
            skip("Debian's package prometheus cannot be fetched")
        subprocess.run(["dpkg-deb", "-x", packages[0], folder], check=True, timeout=2 * LIMIT_S)
    return found


def skip(reason):
    print(f"no Prometheus: {reason}")
    sys.exit(SKIPPED)


def measuring(program, out, *arguments):
    """A run of four ranks with short windows, which measures for some time."""
    return [program, "run", "--local", "4", "--window", "500ms", "--out", out, *arguments]


@contextlib.contextmanager
def running(name, *command):
    with (FOLDER / f"{name}.log").open("w") as log, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process:
        try:
            yield
        finally:
            process.terminate()


def free_address():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


def metrics(program, promtool):
    subprocess.run(measuring(program, FOLDER / "out", "--per-rank", "--duration", "2s"), check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S)
    with (FOLDER / "out/metrics.prom").open() as text:
        subprocess.run([promtool, "check", "metrics"], check=True, stdin=text, timeout=LIMIT_S)


def dashboard(program, promtool, prometheus):
    """Asks again and again until all queries find something."""
    panels = json.loads((GRAFANA / "dashboard.json").read_text())["panels"]
    queries = [target["expr"].replace("$instance", ".*") for panel in panels for target in panel.get("targets", [])]
    assert len(queries) > 20, f"only {len(queries)} queries"
    scraped, server = free_address(), free_address()
    config = FOLDER / "prometheus.yml"
    config.write_text(CONFIG.replace("@TARGET@", scraped))
    # Clocks that step, so that there is something to tell.
    steps = ["--duration", "5min", "--inject-skew", "3", "--skew-model", "steps", "--metrics-listen", scraped]
    serve = [prometheus, f"--config.file={config}", f"--web.listen-address={server}", f"--storage.tsdb.path={FOLDER / 'data'}"]
    with running("run", *measuring(program, FOLDER / "scraped", *steps)), running("prometheus", *serve):
        end, left = time.monotonic() + LIMIT_S, queries
        while left := [query for query in left if not finds(promtool, server, query)]:
            assert time.monotonic() < end, f"{len(left)} of {len(queries)} queries found nothing, the first: {left[0]}; logs are in {FOLDER}"
            time.sleep(1)
    print(f"{len(queries)} queries of the dashboard found something")


def finds(promtool, server, query):
    asked = subprocess.run([promtool, "query", "instant", f"http://{server}", query], capture_output=True, text=True, timeout=LIMIT_S)
    # "{labels} => value @[time]"; a quantile of nothing is no number.
    return asked.returncode == 0 and any("=>" in line and "=> NaN" not in line for line in asked.stdout.splitlines())


def main(argument):
    promtool, prometheus = programs()
    if argument == "--fetch":
        return 0
    program = pathlib.Path(argument).resolve()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    checks = {
        "alert rules": lambda: subprocess.run([promtool, "check", "rules", GRAFANA / "alerts.yaml"], check=True, timeout=LIMIT_S),
        "alert rules on samples": lambda: subprocess.run([promtool, "test", "rules", GRAFANA / "alerts_test.yaml"], check=True, timeout=LIMIT_S),
        "metrics": lambda: metrics(program, promtool),
        "queries of the dashboard": lambda: dashboard(program, promtool, prometheus),
    }
    failed = 0
    for name, check in checks.items():
        try:
            check()
            print(f"ok {name}", flush=True)
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            failed += 1
            print(f"FAIL: {name}: {error}", flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
