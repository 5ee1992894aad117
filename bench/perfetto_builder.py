#!/usr/bin/env python3
"""Perfetto's own Python builder on the slices of crates/writers/benches/write.rs: slices per second and bytes a slice.

    python bench/perfetto_builder.py [SLICES]

The peer of `cargo bench -p probe-sync-writers --bench write`; needs `pip install perfetto`. It is used as its
documentation shows: a packet for each begin and each end, with the name and the time in full.
It does not write a file.
"""

import sys
import time

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor, TrackEvent
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

SLICES = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
RANKS, START_NS = 8, 1_795_187_183_203_286_272
TIMES = [(0, 1400, "forward", 7), (100, 400, "aten::mm", 90), (500, 300, "hipLaunchKernel", 1), (1000, 450, "Cijk_Ailk_Bljk_HHS", 40)]
CATEGORIES = ["cpu_op", "cpu_op", "hip_runtime", "kernel"]


def descriptors(builder):
    for rank in range(RANKS):
        for row in range(2):
            packet = builder.add_packet()
            packet.track_descriptor.uuid = 1 + rank * 2 + row
            packet.track_descriptor.name = f"gpu-{rank} {'stream 7' if row else 'main'}"


def event(builder, kind, at, track, name=None, category=None, flow=None):
    packet = builder.add_packet()
    packet.timestamp = at
    packet.trusted_packet_sequence_id = 1
    packet.track_event.type = kind
    packet.track_event.track_uuid = track
    if name:
        packet.track_event.name = name
        packet.track_event.categories.append(category)
    if flow:
        packet.track_event.flow_ids.append(flow)


def main():
    assert TrackDescriptor
    begun = time.perf_counter()
    builder = TraceProtoBuilder()
    descriptors(builder)
    for group in range(SLICES // 4):
        rank, at = group % RANKS, START_NS + group * 1500
        for index, (start, length, name, variants) in enumerate(TIMES):
            track = 1 + rank * 2 + (index == 3)
            flow = group + 1 if index >= 2 else None
            event(builder, TrackEvent.TYPE_SLICE_BEGIN, at + start, track, f"{name}_{group % variants}", CATEGORIES[index], flow)
            event(builder, TrackEvent.TYPE_SLICE_END, at + start + length, track)
    size = len(builder.serialize())
    took = time.perf_counter() - begun
    print(f"perfetto.trace_builder: {SLICES / took:.0f} slices/s, {size / SLICES:.1f} bytes a slice")


if __name__ == "__main__":
    main()
