"""Makes small Perfetto traces and a job in PyTorch's layout, and judges what the program makes of them: exactness, then the truth.

    target/readers/venv/bin/python bench/perfetto/run.py [PROGRAM]

Needs `perfetto` (PyPI). Recordings of Perfetto's own library (`record.py`) need a compiler and are judged by hand with `exact.py` and
`readers.py`.
"""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77


def main():
    program = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parents[1] / "target/debug/probe_sync").resolve()
    if importlib.util.find_spec("perfetto") is None:
        print("skipped: the package perfetto is not installed")
        return SKIPPED
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        cases, job = folder / "cases", folder / "job"
        script = lambda name, *arguments: subprocess.run([sys.executable, HERE / name, *arguments], check=False, timeout=300).returncode  # noqa: E731
        made = script("cases.py", cases) or script("torch_like.py", "--out", job, "--events")
        if made:
            return made
        files = [*sorted(cases.glob("*.pftrace")), *sorted(job.glob("*.pftrace.gz"))]
        return script("exact.py", program, *files) or script("truth.py", program, job)


if __name__ == "__main__":
    sys.exit(main())
