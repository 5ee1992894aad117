"""A long trace of a short recording: its packets again and again, later each time. For measuring speed.

    pip install perfetto; python3 bench/perfetto/repeat.py RECORDING OUTPUT --megabytes 200
"""

import argparse
import pathlib

from clocks import Clocks
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

BETWEEN_NS = 1_000_000_000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--megabytes", type=int, default=200)
    options = parser.parse_args()
    trace, clocks, moving = schema.Trace.FromString(options.recording.read_bytes()), Clocks(), []
    for packet in trace.packet:
        clocks.tell(packet)
        located = clocks.time(packet)
        # Times that count from the packet before follow the snapshot.
        if packet.HasField("clock_snapshot") or located and not isinstance(located[0], tuple):
            moving.append(packet)
    written = 0
    with options.output.open("wb") as out:
        while written < options.megabytes << 20:
            content = trace.SerializeToString()
            written += out.write(content)
            for packet in moving:
                for clock in packet.clock_snapshot.clocks:
                    clock.timestamp += BETWEEN_NS // (clock.unit_multiplier_ns or 1)
                if packet.HasField("timestamp") and (packet.timestamp_clock_id or not packet.HasField("clock_snapshot")):
                    packet.timestamp += BETWEEN_NS


if __name__ == "__main__":
    main()
