"""Traces that Perfetto's own library records: builds bench/perfetto/record and runs it once for each kind of session.

    pip install perfetto; python3 bench/perfetto/record.py FOLDER [--rounds N]

Writes FOLDER/KIND.pftrace. The library cannot compress (COMPRESSION_TYPE_DEFLATE needs zlib, which it is built without), so
`deflated` packs the packets of `boottime` into compressed_packets as Perfetto's service does.
"""

import argparse
import os
import pathlib
import subprocess
import zlib

from google.protobuf import text_format
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRATE = ROOT / "bench/perfetto/record"
# Sessions of one process, by the name of the trace: what differs from the defaults.
RUNS = [
    {"boottime": ""},
    {"monotonic": "builtin_data_sources { primary_trace_clock: BUILTIN_CLOCK_MONOTONIC snapshot_interval_ms: 100 }"},
    {"realtime": "builtin_data_sources { primary_trace_clock: BUILTIN_CLOCK_REALTIME }"},
    {"cleared": "incremental_state_config { clear_period_ms: 40 } builtin_data_sources { snapshot_interval_ms: 50 }"},
    {"microseconds": "track: timestamp_unit_multiplier: 1000", "absolute": "track: disable_incremental_timestamps: true"},
    {"microseconds_absolute": "track: disable_incremental_timestamps: true timestamp_unit_multiplier: 1000", "ring": "ring"},
    {"without_snapshots": "builtin_data_sources { disable_clock_snapshotting: true }"},
]
PACKED_BYTES = 512 << 10


def config(settings):
    """The serialized configuration of a session."""
    text, track, buffer = settings, "", "size_kb: 65536"
    if settings.startswith("track:"):
        text, track = "", settings.removeprefix("track:")
    if settings == "ring":
        # So small that early packets are overwritten.
        text, buffer = "incremental_state_config { clear_period_ms: 40 }", "size_kb: 128 fill_policy: RING_BUFFER"
    whole = f"buffers {{ {buffer} }} data_sources {{ config {{ name: 'track_event' track_event_config {{ enabled_categories: '*' {track} }} }} }} {text}"
    return text_format.Parse(whole, schema.TraceConfig()).SerializeToString()


def deflated(content):
    """The trace with its packets packed, some hundred KiB at a time."""
    trace, packed = schema.Trace.FromString(content), schema.Trace()
    part, size = schema.Trace(), 0
    for packet in [*trace.packet, None]:
        if packet is not None:
            part.packet.append(packet)
            size += packet.ByteSize()
        if size > PACKED_BYTES or packet is None:
            packed.packet.add(compressed_packets=zlib.compress(part.SerializeToString()))
            part, size = schema.Trace(), 0
    return packed.SerializeToString()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    built = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target/perfetto"))
    subprocess.run(["cargo", "build", "--release", "--locked", "--manifest-path", CRATE / "Cargo.toml", "--target-dir", built], check=True)
    program = built / "release/probe-sync-bench-perfetto-record"
    for run in RUNS:
        command = [program, str(options.rounds)]
        for name, settings in run.items():
            wanted = options.folder / f"{name}.config"
            wanted.write_bytes(config(settings))
            command += [wanted, options.folder / f"{name}.pftrace"]
        subprocess.run(command, check=True)
    (options.folder / "deflated.pftrace").write_bytes(deflated((options.folder / "boottime.pftrace").read_bytes()))


if __name__ == "__main__":
    main()
