#!/usr/bin/env python3
"""Installs the readers of traces that people use, so that the other scripts of this folder can try them on our output.

    python3 bench/readers/install.py FOLDER

First; `cargo xtask test` calls it. Makes FOLDER/venv and puts into it what `PACKAGES` names. A package
that cannot be had (no network, no wheel for this machine, out of time) is named with its reason, and that reason is left in
FOLDER/PACKAGE.missing for the script that needs it, which then skips. Exit status 0 when something is there, else 77.

All waiting is bounded: `DEADLINE_S` in total, one retry per download. It does not pin versions; what must
hold is that today's readers accept our files, and a run says which version it tried.
"""

import pathlib
import subprocess
import sys
import time

from common import SKIPPED, python_of

# By the name to install, which is also how `importlib.metadata` knows it.
PACKAGES = ["viztracer", "HolisticTraceAnalysis", "xprof", "perfetto"]
DEADLINE_S = 240


def run(command, end):
    """None when the command succeeds before `end`, otherwise the reason in one line."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(1.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return f"not done within {DEADLINE_S} s for all packages"
    except OSError as error:
        return str(error)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return None if done.returncode == 0 else next((line for line in reversed(lines) if "ERROR" in line), lines[-1] if lines else "failed")


def main(folder):
    end = time.monotonic() + DEADLINE_S
    folder.mkdir(parents=True, exist_ok=True)
    python = python_of(folder)
    # A venv that was ended while being made has an interpreter but no pip.
    usable = python.exists() and run([python, "-m", "pip", "--version"], end) is None
    reason = None if usable else run([sys.executable, "-m", "venv", "--clear", folder / "venv"], end)
    if reason is not None:
        print(f"no virtual environment: {reason}")
        return SKIPPED
    present = 0
    for package in PACKAGES:
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--timeout", "15", "--retries", "1"]
        show = [python, "-c", f"import importlib.metadata as m; m.version('{package}')"]
        reason = run(show, end) and run([*pip, "--only-binary", ":all:", package], end) and run([*pip, package], end)
        note = folder / f"{package}.missing"
        if reason is None:
            note.unlink(missing_ok=True)
            present += 1
            print(f"{package}: installed")
        else:
            note.write_text(reason + "\n")
            print(f"{package}: skipped, {reason}")
    return 0 if present else SKIPPED


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
