#!/usr/bin/env python3
"""Restates every time of the traces as their nodes' virtual clocks would have shown it.

    python bend.py TRUTH_JSON OUTPUT_FOLDER rank0.xplane.pb rank1.xplane.pb …

`cargo xtask flow` calls it after the job. All ranks ran on one machine, so the recorded times are the
true ones, t. The run of `probe_sync` beside the job measured virtual clocks, which its truth.json states; trace k becomes
what node k's profiler would have written under its own: node_k(t) in place of t, to the picosecond. Without virtual clocks
all nodes of one machine agree, and there would be nothing to align.

It shares no code with what `probe_sync align` does afterwards. It does not judge (judge.py).
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from made_clock import Clock
from xspace import XSpace


def main(truth, output, traces):
    nodes = json.loads(truth.read_text())["nodes"]
    if sorted(nodes, key=int) != [str(node) for node in range(len(traces))]:
        sys.exit(f"{truth} states nodes {', '.join(sorted(nodes))}, but there are {len(traces)} traces")
    output.mkdir()
    for node, trace in enumerate(traces):
        clock = Clock(nodes[str(node)])
        XSpace(trace).write(output, clock.shows, clock.shows)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), [pathlib.Path(trace) for trace in sys.argv[3:]])
