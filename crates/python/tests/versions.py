#!/usr/bin/env python3
"""One wheel for every Python that it is for: versions.py FOLDER [--any-size]

Looks at the wheel in FOLDER/wheel (its size, what it needs of the system), and has every Python from 3.10 to 3.13 that is here install it, measure
alone for a moment and align a made trace. A Python that is not here, or gets no numpy, is named; none at all is a failure.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

VERSIONS = ["3.10", "3.11", "3.12", "3.13"]
SIZE_MAX = 6_000_000
# The C library's own parts, and the compiler's for unwinding.
NEEDED = re.compile(r"lib(c|m)\.so\.6|libgcc_s\.so\.1|ld-linux-.*")
LIMIT_S = 120
USE = """
import probe_sync, sys
with probe_sync.start(window="250ms", tracer_clock="none", out=sys.argv[1] + "/out") as session:
    assert session.wait_until_bound(1000, timeout=20).reachable.all()
    assert session.next_round(timeout=20).number >= 0
assert probe_sync.Offsets(sys.argv[1] + "/offsets.csv").to_reference([10_000_000], 1) == [7_500_000]
"""


def interpreter(version):
    """A Python of that version, by name or among pyenv's."""
    root = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    found = [shutil.which(f"python{version}"), *root.glob(f"versions/{version}.*/bin/python{version}")]
    return next((path for path in found if path and works([path, "-c", "import venv"]) is None), None)


def works(command):
    """None, or the last line of what went wrong."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip().rpartition("\n")[2] or "failed"


def use(version, folder, wheel):
    """None when that Python uses the wheel, a reason to skip, or a failure."""
    python = interpreter(version)
    if python is None:
        return "skip", "not installed"
    venv = folder / f"venv{version}"
    own = venv / "bin/python"
    pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--timeout", "15", "--retries", "1"]
    if works([own, "-m", "pip", "--version"]) is not None:
        reason = works([python, "-m", "venv", "--clear", venv])
        if reason is not None:
            return "skip", reason
    if works([own, "-c", "import numpy"]) is not None:
        reason = works([*pip, "--only-binary", ":all:", "numpy"])
        if reason is not None:
            return "skip", reason
    with tempfile.TemporaryDirectory() as directory:
        rows = "node,node_realtime_ns,offset_vs_node0_ns\n1,0,2500000\n1,90000000,2500000\n"
        pathlib.Path(directory, "offsets.csv").write_text(rows)
        reason = works([*pip, "--force-reinstall", "--no-deps", wheel]) or works([own, "-c", USE, directory])
    return ("ok", None) if reason is None else ("failed", reason)


def look(wheel, any_size):
    """What is wrong with the file itself."""
    if "-cp310-abi3-" not in wheel.name:
        yield f"{wheel.name} is not for all versions"
    size = wheel.stat().st_size
    bound = "not judged: built for tests" if any_size else f"at most {SIZE_MAX / 1e6:.0f}"
    print(f"{wheel.name}: {size / 1e6:.1f} MB ({bound})")
    if size > SIZE_MAX and not any_size:
        yield f"{size} bytes"
    if shutil.which("readelf") is None:
        print("readelf is not installed: what the library needs is not looked at")
        return
    with tempfile.TemporaryDirectory() as directory, zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".so"))
        told = subprocess.run(["readelf", "-d", archive.extract(name, directory)], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"NEEDED.*\[(.*)\]", told)
    print(f"needs {', '.join(needed)}")
    yield from (f"it needs {name}" for name in needed if not NEEDED.fullmatch(name))


def main(folder, wheel, any_size):
    complaints = list(look(wheel, any_size))
    told = {version: use(version, folder, wheel) for version in VERSIONS}
    for version, (how, reason) in told.items():
        print(f"Python {version}: {how}" + (f", {reason}" if reason else ""))
    complaints += [f"Python {version}: {reason}" for version, (how, reason) in told.items() if how == "failed"]
    if not any(how == "ok" for how, _ in told.values()):
        complaints.append("no Python used it")
    print("\n".join(complaints), end="")
    return 1 if complaints else 0


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1]).resolve()
    sys.exit(main(folder, next(folder.glob("wheel/*.whl")), "--any-size" in sys.argv[2:]))
