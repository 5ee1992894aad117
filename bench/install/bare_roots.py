#!/usr/bin/env python3
"""Installs the packages as a newcomer would, in bare roots of Debian and Ubuntu without a compiler, and runs the demo.

    cargo xtask package --check                            # makes the packages first
    python3 bench/install/bare_roots.py target/package     # again, of packages that are there

debootstrap makes the roots (Debian 11 with glibc 2.31, Debian 12, Ubuntu 22.04 with glibc 2.35); it needs root. In each the tarball is
unpacked and its command runs; roots with Python 3.10 or later, which the wheel serves, also get `pip install WHEEL`. Each time from the
install to the end of `probe_sync demo` is printed. Roots are removed at the end. Fedora and Alma need dnf and mirrors of their own: not here.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

DEBIAN = "http://deb.debian.org/debian"
UBUNTU = "http://archive.ubuntu.com/ubuntu"
WITH_PYTHON = ["ca-certificates", "python3-pip", "python3-venv"]
# Suites, where each comes from, and what is in the root.
ROOTS = {"bullseye": (DEBIAN, ["ca-certificates"]), "bookworm": (DEBIAN, WITH_PYTHON), "jammy": (UBUNTU, WITH_PYTHON)}
UBUNTU_KEYS = pathlib.Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")
LIMIT_S = 600


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def within(root, script):
    """Runs lines of the shell in the root, and prints what the demo says first of all."""
    begun = time.monotonic()
    said = run("chroot", root, "/bin/sh", "-ec", script)
    print(f"{time.monotonic() - begun:.1f} s: {script.splitlines()[0]}")
    if "3. WHICH RANKS WERE LATE" not in said or "0 of 92 happens-before edges are broken" not in said:
        sys.exit(f"the demo does not say what README shows:\n{said}")


def source(mirror):
    """What debootstrap needs to know of a mirror. Debian has no package with Ubuntu's keys: without them a root for a trial is not verified."""
    if mirror == DEBIAN:
        return []
    return ["--components=main,universe", f"--keyring={UBUNTU_KEYS}" if UBUNTU_KEYS.exists() else "--no-check-gpg"]


def newest(folder, pattern):
    found = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else sys.exit(f"no {pattern} in {folder}: cargo xtask package")


def main(folder):
    tarball, wheel = newest(folder, "probe_sync-*.tar.gz"), newest(folder, "probe_sync-*.whl")
    run("sha256sum", "--check", "SHA256SUMS", cwd=folder)
    if shutil.which("debootstrap") is None:
        sys.exit("debootstrap is not installed: apt-get install debootstrap")
    for suite, (mirror, packages) in ROOTS.items():
        with tempfile.TemporaryDirectory(prefix="bare-root-") as root:
            run("debootstrap", "--variant=minbase", *source(mirror), f"--include={','.join(packages)}", suite, root, mirror)
            # As this machine reaches its registries.
            for path in ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf"):
                if pathlib.Path(path).exists():
                    shutil.copy(path, f"{root}{path}")
            for package in (tarball, wheel):
                shutil.copy(package, f"{root}/{package.name}")
            mounted = f"{root}/proc"
            run("mount", "-t", "proc", "proc", mounted)
            try:
                within(root, f"tar -xzf /{tarball.name} --strip-components=1 -C /usr/local\ncd /tmp\nprobe_sync demo\n")
                if "python3-pip" in packages:
                    run("chroot", root, "rm", "/usr/local/bin/probe_sync")
                    install = f"python3 -m venv /opt/probe\n/opt/probe/bin/pip install --quiet /{wheel.name}\n"
                    within(root, f"{install}cd /root\n/opt/probe/bin/probe_sync demo\n")
                    run("chroot", root, "/opt/probe/bin/python", "-m", "probe_sync", "--version")
            finally:
                run("umount", mounted)
            print(f"{suite}: {tarball.name}{' and ' + wheel.name if 'python3-pip' in packages else ''} run")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve())
