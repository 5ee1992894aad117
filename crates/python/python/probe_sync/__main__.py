"""`python -m probe_sync`: the command that the wheel installs next to this interpreter, else the first in PATH."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig


def main() -> None:
    """Runs the command in place of this process."""
    program = shutil.which("probe_sync", path=sysconfig.get_path("scripts")) or shutil.which("probe_sync")
    if program is None:
        sys.exit("the command probe_sync is not installed: install the wheel that `cargo xtask package wheel` makes, or `cargo install --locked --path crates/cli`")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
