"""One rank of `test_life.py`: `life.py HOW RANK FOLDER`; rank 2 comes to its end in the way that is asked for, the others train on.

What is "trained" is a sum over all ranks that are still there, by files: the job's own collective, which must not depend on the session.
"""

import json
import multiprocessing
import os
import pathlib
import signal
import sys
import time

import probe_sync

RANKS = 4
LEAVER = 2
STEPS = 40


def sockets():
    """The sockets that this process holds, by their inodes."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue
    return sorted(link for link in links if link.startswith("socket:"))


def forked(folder, session):
    """A child that outlives its parent: what it holds, and what it may do."""
    found = {"inherited": sockets()}
    try:
        session.wait_until_bound(1_000, timeout=5)
    except probe_sync.SessionEnded as error:
        found["session"] = str(error)
    found["now_ns"] = probe_sync.clock().now_ns()
    (folder / "child.json").write_text(json.dumps(found))
    time.sleep(20)


def spawned(folder):
    """A child that has a session of its own."""
    with probe_sync.start(window="250ms", tracer_clock="none", out=folder / "child") as session:
        session.wait_until_bound(1_000_000, timeout=30)
    (folder / "spawned.json").write_text(json.dumps({"rounds": session.round.number}))


def leave(how, folder, session):
    """How rank 2 ends."""
    if how == "kill_with_child":
        if os.fork() == 0:
            forked(folder, session)
            os._exit(0)
        while not (folder / "child.json").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        sys.exit(0)
    if how == "raise":
        raise RuntimeError("the loop has failed")
    if how == "spawn":
        child = multiprocessing.get_context("spawn").Process(target=spawned, args=(folder,))
        child.start()
        child.join(60)
        assert child.exitcode == 0, child.exitcode


def main(how, rank, folder):
    meeting = folder / "id"
    if rank == 0:
        opened = probe_sync.Meeting(["127.0.0.1"])
        meeting.with_suffix(".part").write_bytes(opened.unique_id)
        meeting.with_suffix(".part").rename(meeting)
        group = probe_sync.Group(0, RANKS, opened.unique_id, opened)
    else:
        while not meeting.exists():
            time.sleep(0.01)
        group = probe_sync.Group(rank, RANKS, meeting.read_bytes())
    handled = []
    signal.signal(signal.SIGTERM, lambda *_: handled.append("SIGTERM"))
    session = probe_sync.start(window="250ms", tracer_clock="none", inject_skew=7, group=group, out=folder / "out", round_timeout="2s")
    session.wait_until_bound(1_000_000, timeout=60)
    for step in range(STEPS):
        if rank == LEAVER and step == STEPS // 4:
            leave(how, folder, session)
        if step == STEPS // 2:
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)
    # The session goes on for the others, who measure each other after it.
    later = session.round.number + 2
    for seen in session.rounds(timeout=60):
        if seen.number >= later:
            break
    report = session.stop(timeout=60)
    told = {"rank": rank, "steps": STEPS, "handled": handled, "reachable": seen.reachable.tolist(), "report": report}
    (folder / f"rank{rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]))
