"""The tables of run.py's results, in Markdown.

    python3 bench/truth/tables.py

Alone it prints them from results.json. It judges nothing.
"""

import json
import os
import pathlib
import platform
import re

NAMES = {
    "as recorded": "as recorded",
    "probe_sync": "**probe_sync**",
    "probe_sync --from-collectives": "**probe_sync** without measured clocks",
    "hta": "HTA",
    "tracelens": "TraceLens",
    "hta after align": "HTA on what `align` wrote",
    "tracelens after align": "TraceLens on what `align` wrote",
    "nsys_jax": "nsys-jax, alignment only",
    "xprof": "xprof",
    "perfetto": "Perfetto",
    "perfetto_52": "Perfetto v52 (WebAssembly)",
}
HEAD = "| job | tool | events within 1 µs; median error | broken edges left | right blame | false blame | job's late rank | time (processor time), memory |\n|---|---|---|---|---|---|---|---|"


def machine():
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    model = next((line.split(": ")[1] for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} cores, {model}, {memory_gib:.0f} GiB, Linux {platform.release()}, load {os.getloadavg()[2]:.1f}"


def share(figures):
    if not figures:
        return "–"
    close, all_, median_ns = figures
    return f"{100 * close / all_:.1f} % of {all_}; {length(median_ns)}"


def length(ns):
    """Formats a time in a readable unit."""
    unit, size = next((unit, size) for unit, size in [("ns", 1), ("µs", 1e3), ("ms", 1e6)] if ns < 1000 * size or size == 1e6)
    return f"{ns / size:.3g} {unit}" if ns < 1e9 else f"{ns / size:.0f} {unit}"


def takes(parts):
    return "; ".join(f"{part['what']} {cost(part)}" for part in parts) or "–"


def cost(part):
    wall, cpu = (f"{part[key]:.2g}" if part[key] < 10 else f"{part[key]:.0f}" for key in ("wall_s", "cpu_s"))
    return f"{wall} s ({cpu} s), {part['memory_mib']:.0f} MiB"


def blames(row):
    """Returns the cells of right and false blame."""
    if row["blame"]:
        right, wrong, late = row["blame"]
        return f"{right} of {late}", str(wrong)
    if row["steps"]:
        right, wrong, late = row["steps"]
        return f"{right} of {late} steps", f"{wrong} steps"
    return "–", "–"


def of_job(about, notes):
    lines = []
    for tool, row in about["tools"].items():
        said = [text for text in (row["error"], row["blame_error"], row["step_error"], *(row["errors"] or {}).values()) if text]
        marks = "".join(f"[^{note(notes, text)}]" for text in dict.fromkeys(said))
        right, wrong = blames(row)
        edges = f"{row['edges'][0]} of {row['edges'][1]}" if row["edges"] and row["edges"][1] else "–"
        named = "–" if row["job"] is None else ", ".join(map(str, row["job"])) or "none"
        what = ""
        if tool == "as recorded":
            what, right = f"{about['about']}; {about['ranks']} ranks", f"{row['late']} late"
            named = f"truth: {', '.join(map(str, about['late']['ranks'])) or 'none arranged'}"
        lines.append(f"| {what} | {NAMES[tool]}{marks} | {share(row['within'])} | {edges} | {right} | {wrong} | {named} | {takes(row['parts'])} |")
    return lines


def note(notes, text):
    """Returns the number of a note; the same text has one number."""
    if text not in notes:
        notes.append(text)
    return notes.index(text) + 1


def plain(text):
    """Removes folders of this machine and numbers of processes from a tool's error."""
    return re.sub(r"(?<![:/\w])/(?:[^\s'/]+/)+|(?<=[0-9a-f])\.\d+(?=\.tmp)", "", " ".join(text.split()))[:400]


def of_hangs(rows):
    lines = ["| hang | guilty | probe_sync names | other candidates | torchfrtrace calls missing | probe_sync | torchfrtrace |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        ranks = lambda found: found if isinstance(found, str) else ", ".join(map(str, found)) or "none"  # noqa: E731
        costs = [cost(row[tool + "_takes"]) for tool in ("probe_sync", "torchfrtrace")]
        names = [ranks(row[key]) for key in ("guilty", "named", "candidates", "torchfrtrace")]
        lines.append(f"| {row['set']} | {' | '.join([*names, *costs])} |")
    return lines


def all_of(results):
    notes = []
    lines = [f"{results['machine']}. Versions: {'; '.join(results['versions'].values())}.", "", HEAD]
    for about in results["jobs"]:
        lines += of_job(about, notes)
    lines += ["", *(f"[^{number}]: {text}" for number, text in enumerate(notes, 1))]
    return "\n".join([*lines, "", *(of_hangs(results["hangs"]) if results["hangs"] else [])])


if __name__ == "__main__":
    print(all_of(json.loads((pathlib.Path(__file__).resolve().parent / "results.json").read_text())))
