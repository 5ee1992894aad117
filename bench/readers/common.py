"""What the checks of this folder share: skipping, failing, running our program, finding the data.

Imported by the scripts beside it. A check ends with 77 when it cannot run here, 1 when a reader sees
something else than it must, and 0 otherwise. It does not know any reader.
"""

import importlib.metadata
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
READERS = ROOT / "target" / "readers"
PROGRAM = ROOT / "target" / "debug" / "probe_sync"
# By automake's custom; the last line printed is the reason.
SKIPPED = 77
LIMIT_S = 60


def python_of(folder):
    """The interpreter of the virtual environment in `folder`."""
    return folder / "venv" / "bin" / "python"


def skip(reason):
    print(reason)
    sys.exit(SKIPPED)


def require(holds, what):
    """Ends the check when what must hold does not."""
    if not holds:
        print(f"mismatch: {what}")
        sys.exit(1)


def need(package):
    """Skips unless `package` is installed; prints the version tried."""
    try:
        print(f"{package} {importlib.metadata.version(package)}")
    except importlib.metadata.PackageNotFoundError:
        note = READERS / f"{package}.missing"
        skip(f"{package} is not installed: {note.read_text().strip() if note.exists() else 'bench/readers/install.py was not run'}")


def traces_of(name, pattern):
    """The traces of a data set in order of node, and its exact offsets; skips where they are not."""
    folder = DATA / name
    traces = sorted(folder.glob(pattern))
    if not traces:
        skip("the data of real traces (../shared/data) is not here")
    require(PROGRAM.exists(), f"{PROGRAM.name} is not built")
    return traces, folder / "offsets.csv"


def fresh_folder():
    """A folder that is gone with its last reference; readers leave caches beside what they read."""
    READERS.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=READERS, prefix="work-")


def probe_sync(verb, traces, offsets, output):
    """Runs `probe_sync align` or `probe_sync merge` on traces in the order of their nodes."""
    command = [PROGRAM, verb, "--traces", *traces, "--assume-order", "--offsets", offsets, "--output", output]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    require(done.returncode == 0, f"probe_sync {verb} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
