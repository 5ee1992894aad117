#!/usr/bin/env python3
"""Installs what building and testing the package takes into FOLDER/venv, and the package itself, as its users receive it.

    python3 crates/python/tests/install.py FOLDER [PROFILE]

First step of `cargo xtask python`. maturin builds the wheel in a profile of cargo into FOLDER/wheel; without a profile only the tools are installed.
Where the registry cannot be reached, or there is no venv, it ends with 77 and the reason as its last line, and the step is a skip. Downloads are
bounded by `DEADLINE_S`.
"""

import pathlib
import shutil
import subprocess
import sys
import time

REQUIRED = ["maturin>=1.9,<2", "mypy", "numpy"]
# One test needs it, and says so.
WELCOME = ["mpi4py"]
DEADLINE_S = 180
SKIPPED = 77


def run(command, end):
    """None when the command succeeds before `end`, otherwise the reason in one line."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(1.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return f"not done within {DEADLINE_S} s"
    except OSError as error:
        return str(error)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line]
    return None if done.returncode == 0 else (errors or lines or ["failed"])[-1]


def build(folder, profile):
    """Builds the wheel and installs it."""
    python, wheels = folder / "venv/bin/python", folder / "wheel"
    shutil.rmtree(wheels, ignore_errors=True)
    manifest = ["--manifest-path", "crates/python/Cargo.toml", "--interpreter", python]
    subprocess.run([folder / "venv/bin/maturin", "build", "--profile", profile, *manifest, "--out", wheels], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall"]
    subprocess.run([*pip, *wheels.glob("*.whl")], check=True)


def main(folder, profile=None):
    end = time.monotonic() + DEADLINE_S
    python = folder / "venv/bin/python"
    # One that was ended while being made has an interpreter but no pip.
    reason = None
    if run([python, "-m", "pip", "--version"], end) is not None:
        reason = run([sys.executable, "-m", "venv", "--clear", folder / "venv"], end)
    if reason is not None:
        print(f"no virtual environment: {reason}; on Debian: apt-get install python3-venv")
        return SKIPPED
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--timeout", "15", "--retries", "1"]
    there = run([python, "-c", "import maturin, mypy, numpy"], end) is None
    reason = None if there else run([*pip, "--only-binary", ":all:", *REQUIRED], end)
    if reason is not None:
        print(f"the package registry does not give {', '.join(REQUIRED)}: {reason}")
        return SKIPPED
    for package in WELCOME:
        reason = run([python, "-c", f"import {package}"], end) and run([*pip, "--only-binary", ":all:", package], end)
        print(f"{package}: {'there' if reason is None else reason}", flush=True)
    if profile is not None:
        build(folder, profile)
    return 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), *sys.argv[2:]))
