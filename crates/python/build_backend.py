"""Builds the wheel: maturin makes the module, and the command probe_sync travels beside it.

Pip and other front ends call it, as pyproject.toml names it. maturin puts what it
finds in wheel_data/scripts next to the interpreter, so the command is compiled into there first, in
the same profile. Sources without the command's crate, as in an sdist, give the module alone.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import maturin
from maturin import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_wheel",
]

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE / "wheel_data/scripts"


def build_wheel(directory: str, settings: dict[str, Any] | None = None, metadata: str | None = None) -> str:
    """The wheel's file name."""
    if not (HERE.parent / "cli/Cargo.toml").exists():
        print("the sources of the command are not here: the wheel has the module alone", file=sys.stderr)
        return str(maturin.build_wheel(directory, settings, metadata))
    workspace = HERE.parent.parent
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", workspace / "target"))
    build = ["cargo", "build", "--locked", "--profile", "wheel", "--package", "probe-sync-cli"]
    subprocess.run([*build, "--target-dir", target], cwd=workspace, check=True)
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copy2(target / "wheel/probe_sync", SCRIPTS / "probe_sync")
        return str(maturin.build_wheel(directory, settings, metadata))
    finally:
        shutil.rmtree(SCRIPTS)
