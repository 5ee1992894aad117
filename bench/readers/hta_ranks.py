#!/usr/bin/env python3
"""HolisticTraceAnalysis must load the aligned traces of all ranks, losing nothing that it reads from the raw ones.

    target/readers/venv/bin/python bench/readers/hta_ranks.py

A step of `cargo xtask test`, after install.py. HTA reads a file per rank; it is told the files by rank.
Both the raw and the aligned files are loaded, and every rank must have as many rows. HTA keeps whole microseconds, so of
times it is only checked that the ranks' markers, whose names hold the true time, have come together.

It does not run HTA's analyses; they need GPU kernels, which these traces have none of.
"""

import gzip
import json
import logging
import pathlib
import statistics
import sys

from common import fresh_folder, need, probe_sync, require, traces_of

MARKER = "clkmark#"
# 10 for torch, and one more for HTA's rounding.
AGREE_US = 11
APART_US = 1_000


def loaded(paths):
    """HTA's tables by rank."""
    from hta.trace_analysis import TraceAnalysis

    logging.disable(logging.WARNING)
    by_rank = {}
    for path in paths:
        with gzip.open(path) as file:
            by_rank[json.load(file)["distributedInfo"]["rank"]] = str(path)
    require(len(by_rank) == len(paths), f"{len(paths)} files hold only the ranks {sorted(by_rank)}")
    trace = TraceAnalysis(trace_files=by_rank, trace_dir="").t
    return {rank: (trace.get_trace(rank), trace.symbol_table.get_sym_table()) for rank in by_rank}


def ranks_of_folder(folder):
    """How many ranks HTA finds in the folder as a whole, whose files it tells by their endings alone."""
    from hta.trace_analysis import TraceAnalysis

    return len(TraceAnalysis(trace_dir=str(folder)).t.get_all_traces())


def spread_us(tables):
    """By how much (marker's start − its true time) differs between the ranks' medians."""
    epoch_ns, medians = None, []
    for frame, names in tables.values():
        delays = []
        for name, start_us in zip(frame["name"], frame["ts"]):
            if names[name].startswith(MARKER):
                true_ns = int(names[name].split("#")[1])
                epoch_ns = epoch_ns or true_ns
                delays.append(int(start_us) - (true_ns - epoch_ns) / 1000)
        require(delays, "HTA shows a rank without markers")
        medians.append(statistics.median(delays))
    return max(medians) - min(medians)


def main():
    need("HolisticTraceAnalysis")
    traces, offsets = traces_of("torch/b_4node_offset_drift", "node*.pt.trace.json.gz")
    with fresh_folder() as work:
        probe_sync("align", traces, offsets, f"{work}/aligned")
        raw, aligned = loaded(traces), loaded([f"{work}/aligned/{trace.name}" for trace in traces])
        before, after = ({rank: len(frame) for rank, (frame, _) in sorted(tables.items())} for tables in (raw, aligned))
        print(f"rows by rank: raw {before}, aligned {after}")
        ranks = ranks_of_folder(pathlib.Path(work, "aligned"))
        print(f"the aligned folder as a whole: {ranks} ranks")
        require(ranks == len(before), "HTA takes other files of the aligned folder for traces")
        require(before == after, "HTA reads other rows from the aligned files")
        apart, together = spread_us(raw), spread_us(aligned)
        print(f"markers of {len(after)} ranks: raw {apart:.1f} us apart, aligned {together:.1f} us")
        require(apart > APART_US, "the raw files agree already, so this check shows nothing")
        require(together <= AGREE_US, f"the ranks' markers are {together:.1f} us apart, more than {AGREE_US}")


if __name__ == "__main__":
    sys.exit(main())
