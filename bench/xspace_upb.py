#!/usr/bin/env python3
"""Rewrites every event of an XSpace with Python's protobuf runtime (upb): what the Rust rewrite is compared with.

    python3 bench/xspace_upb.py INPUT.xplane.pb OUTPUT.xplane.pb

`cargo bench -p probe-sync-formats --bench xspace -- --python python3` runs it on the same file
in the same minute. It does what a script of a user would: parse the whole file, put start and end of each event through
one straight line, write the whole file. Prints MB/s of input and the peak of resident memory.

The schema below is stated in this project's own words, by field numbers. Needs the `protobuf` package. What it does not do:
knots, steps, sessions, anything that a correct alignment needs beyond this.
"""

import resource
import sys
import time

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import api_implementation

# Message: fields as (name, number, type, repeated). Only what is rewritten is named; the runtime
# keeps the rest as unknown.
MESSAGES = {
    "Space": [("planes", 1, "Plane", True)],
    "Plane": [("lines", 3, "Line", True), ("event_metadata", 4, "Entry", True), ("stat_metadata", 5, "Entry", True)],
    "Entry": [("key", 1, "int64", False)],
    "Line": [("start_ns", 3, "int64", False), ("events", 4, "Event", True)],
    "Event": [
        ("name", 1, "int64", False),
        ("offset_ps", 2, "int64", False),
        ("duration_ps", 3, "int64", False),
        ("stats", 4, "Stat", True),
    ],
    "Stat": [("name", 1, "int64", False), ("unsigned", 3, "uint64", False), ("signed", 4, "int64", False), ("named", 7, "uint64", False)],
}
KNOT_PS = 1_000_000_000_000
SLOPE_NUMERATOR, SLOPE_DENOMINATOR = 50, 1_000_000


def space_class():
    """The class of the outermost message, made from MESSAGES."""
    file = descriptor_pb2.FileDescriptorProto(name="trace.proto", package="trace", syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    for message, fields in MESSAGES.items():
        description = file.message_type.add(name=message)
        for name, number, kind, repeated in fields:
            field = description.field.add(name=name, number=number)
            field.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in MESSAGES:
                field.type, field.type_name = kinds.TYPE_MESSAGE, ".trace." + kind
            else:
                field.type = kinds.TYPE_UINT64 if kind == "uint64" else kinds.TYPE_INT64
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("trace.Space"))


def mapped(at_ps):
    """A time through a straight line, in exact integers."""
    return at_ps - (at_ps - KNOT_PS) * SLOPE_NUMERATOR // SLOPE_DENOMINATOR


def rewrite(space):
    """Puts every event's start and end through the line; the number of events."""
    count = 0
    for plane in space.planes:
        for line in plane.lines:
            line_ps = line.start_ns * 1000
            new_ns = mapped(line_ps) // 1000
            line.start_ns = new_ns
            for event in line.events:
                start_ps = line_ps + event.offset_ps
                duration_ps = event.duration_ps
                new_ps = mapped(start_ps)
                event.offset_ps = new_ps - new_ns * 1000
                if duration_ps:
                    event.duration_ps = mapped(start_ps + duration_ps) - new_ps
                count += 1
    return count


def main():
    """Reads, rewrites, writes, and prints how long that took."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    begin, cpu_begin = time.perf_counter(), time.process_time()
    with open(sys.argv[1], "rb") as file:
        bytes_in = file.read()
    space = space_class().FromString(bytes_in)
    count = rewrite(space)
    with open(sys.argv[2], "wb") as file:
        file.write(space.SerializeToString())
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu_begin
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    runtime = "Python, " + api_implementation.Type() + ", per event"
    megabytes = len(bytes_in) / 1e6
    print(f"{runtime:<34} {seconds:>8.3f} {megabytes / seconds:>9.0f} {megabytes / cpu:>9.0f} {peak_mib:>9.1f}   {count} events")


if __name__ == "__main__":
    main()
