"""`python -m probe_sync`: runs the command installed by the wheel next to this interpreter, or else the first one in PATH."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig


def main() -> None:
    """Replaces this process with the command."""
    program = shutil.which("probe_sync", path=sysconfig.get_path("scripts")) or shutil.which("probe_sync")
    if program is None:
        sys.exit("the command probe_sync is not installed: install the wheel built by `cargo xtask package wheel`, or run `cargo install --locked --path crates/cli`")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
