"""Small Perfetto traces of track events, one for each way in which a writer states them.

    pip install perfetto; python3 bench/perfetto/events.py FOLDER

Made with the published protobuf classes; `cases.py` has the rules about time. Writes FOLDER/events_CASE.pftrace.
"""

import pathlib
import sys

from cases import BEGIN, BOOT, COUNTER, END, INSTANT, MS, NEEDED, US, Trace, CLEARED
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

LEGACY = schema.TrackEvent.LegacyEvent
PID = 40


class Events(Trace):
    """A trace with a process, two threads and a snapshot; `at` counts from its begin."""

    def __init__(self):
        super().__init__()
        self.all_clocks(0)
        descriptor = self.packet().track_descriptor
        descriptor.uuid, descriptor.process.pid, descriptor.process.process_name = 1, PID, "python"
        for uuid in (7, 8):
            self.track(uuid)
            self.trace.packet[-1].track_descriptor.parent_uuid = 1

    def track_of(self, uuid, name, parent=1, **counter):
        descriptor = self.packet().track_descriptor
        descriptor.uuid, descriptor.name = uuid, name
        if parent:
            descriptor.parent_uuid = parent
        if counter:
            descriptor.counter.SetInParent()
        for key, value in counter.items():
            setattr(descriptor.counter, key, value)

    def event(self, at, kind, name="", track=7, sequence=2, category="", **fields):
        packet = self.packet(sequence, timestamp=BOOT + at)
        event = packet.track_event
        if kind:
            event.type = kind
        if track is not None:
            event.track_uuid = track
        if name:
            event.name = name
        if category:
            event.categories.append(category)
        for key, value in fields.items():
            getattr(event, key).extend(value) if isinstance(value, list) else setattr(event, key, value)
        return event

    def slice(self, at, length, name, **fields):
        self.event(at, BEGIN, name, **fields)
        self.event(at + length, END, **{key: value for key, value in fields.items() if key in ("track", "sequence")})

    def legacy(self, at, phase, name="", **fields):
        event = self.packet(timestamp=BOOT + at).track_event
        event.categories.append("old")
        if name:
            event.name = name
        event.legacy_event.phase = ord(phase)
        for key, value in fields.items():
            setattr(event.legacy_event, key, value)
        return event


def nested():
    """Slices in slices, on two threads in turn; equal times; ends that no begin precedes; begins without end."""
    trace = Events()
    for number in range(5):
        at = number * 10 * MS
        trace.event(at, BEGIN, "outer", category="a")
        trace.event(at, BEGIN, "inner at the same time")
        trace.event(at + MS, BEGIN, "of thread 8", track=8)
        trace.event(at + 2 * MS, END)
        trace.event(at + 2 * MS, BEGIN, "next at once")
        trace.event(at + 3 * MS, END)
        trace.event(at + 4 * MS, END)
        trace.event(at + 9 * MS, END, track=8)
        trace.event(at + 5 * MS, BEGIN, "empty")
        trace.event(at + 5 * MS, END)
    trace.event(60 * MS, END)
    trace.event(61 * MS, BEGIN, "open outer")
    trace.event(62 * MS, BEGIN, "open inner")
    return trace


def unsorted():
    """Sequences one after the other, each in order; begins before all ends; a sequence that goes back."""
    trace = Events()
    for sequence, track in [(2, 7), (3, 8)]:
        for number in range(4):
            trace.slice((20 - 7 * sequence + number * 2) * MS, MS, f"sequence {sequence}", track=track, sequence=sequence)
    for number in range(4):
        trace.event((100 + number * 5) * MS, BEGIN, f"batch {number}")
    for number in range(4):
        trace.event((104 + number * 5) * MS, END)
    for number in reversed(range(4)):
        trace.slice((200 + number * 5) * MS, 3 * MS, f"backward {number}")
    # A track that two sequences write.
    trace.event(300 * MS, BEGIN, "begun by 2", sequence=2)
    trace.event(301 * MS, END, sequence=3)
    return trace


def tracks():
    """Tracks of their own, below threads, processes and each other; none; of a name that events give; defaults of a sequence."""
    trace = Events()
    trace.track_of(20, "lane", parent=7)
    trace.track_of(21, "below the lane", parent=20)
    trace.track_of(22, "of no process", parent=0)
    trace.track_of(23, "of the process")
    for number, track in enumerate((20, 21, 22, 23, 99, 0)):
        trace.slice(number * MS, MS // 2, f"on {track}", track=track)
    packet = trace.packet(4, sequence_flags=CLEARED)
    packet.trace_packet_defaults.track_event_defaults.track_uuid = 8
    for number in range(3):
        trace.slice((20 + number * 2) * MS, MS, "by default", track=None, sequence=4)
    # A descriptor after the events.
    trace.slice(30 * MS, MS, "told later", track=24)
    trace.track_of(24, "told later")
    # The descriptor of a thread changes its name.
    trace.track(7)
    trace.trace.packet[-1].track_descriptor.thread.thread_name = "renamed"
    trace.slice(40 * MS, MS, "after")
    return trace


def counters():
    """Counters of whole numbers and fractions; of differences, in units; and those that other events carry."""
    trace = Events()
    trace.track_of(30, "whole", unit=schema.CounterDescriptor.UNIT_SIZE_BYTES)
    trace.track_of(31, "fraction", unit_name="W")
    trace.track_of(32, "added", is_incremental=True, unit_multiplier=1000)
    trace.track_of(33, "carried", parent=7, unit_multiplier=1)
    trace.track_of(34, "carried fraction", parent=7, unit_multiplier=1)
    trace.track_of(35, "scaled", unit_multiplier=1_000_000)
    for number in range(6):
        at = number * 10 * MS
        trace.event(at, COUNTER, track=30, counter_value=(number - 2) << 40)
        trace.event(at, COUNTER, track=31, double_counter_value=number / 3)
        trace.event(at, COUNTER, track=32, counter_value=number - 3)
        trace.event(at, COUNTER, track=35, counter_value=number)
        carried = {"extra_counter_track_uuids": [33], "extra_counter_values": [number * 5], "extra_double_counter_track_uuids": [34], "extra_double_counter_values": [number / 8]}
        trace.event(at + MS, BEGIN, "carries", **carried)
        trace.event(at + 2 * MS, END, **(carried | {"extra_counter_values": [number * 5 + 1]}))
    packet = trace.packet(5, sequence_flags=CLEARED)
    packet.trace_packet_defaults.track_event_defaults.track_uuid = 8
    packet.trace_packet_defaults.track_event_defaults.extra_counter_track_uuids.append(33)
    for number in range(3):
        trace.event((70 + number) * MS, BEGIN, "by default", track=None, sequence=5, extra_counter_values=[number])
        trace.event((70 + number) * MS + US, END, track=None, sequence=5)
    return trace


def flows():
    """Flows by both fields of each kind, from slices and instants, over several slices; numbers of 64 bits; ends that begin none."""
    trace = Events()
    large = 0xFFFF_FFFF_FFFF_FFF0
    for number, (starts, ends) in enumerate([("flow_ids", "terminating_flow_ids"), ("flow_ids_old", "terminating_flow_ids_old")]):
        at = number * 50 * MS
        trace.slice(at, MS, "sends", **{starts: [large + number, 5 + number]})
        trace.slice(at + 2 * MS, MS, "passes on", track=8, **{starts: [large + number]})
        trace.slice(at + 4 * MS, MS, "receives", **{ends: [large + number]})
        trace.event(at + 6 * MS, INSTANT, "receives at once", track=8, **{ends: [5 + number]})
        trace.slice(at + 8 * MS, MS, "uses the number again", **{starts: [5 + number]})
        trace.slice(at + 10 * MS, MS, "ends it", track=8, **{ends: [5 + number]})
    # On the end of a slice; and two at once.
    trace.event(200 * MS, BEGIN, "sends at its end")
    trace.event(201 * MS, END, flow_ids=[77])
    trace.slice(202 * MS, MS, "receives both", track=8, terminating_flow_ids=[77, 78])
    return trace


def arguments():
    """Arguments of each type; interned names and texts; at the end of a slice; a name twice."""
    trace = Events()
    packet = trace.packet(sequence_flags=CLEARED)
    interned = packet.interned_data
    interned.event_names.add(iid=1, name="interned name")
    interned.event_categories.add(iid=1, name="interned category")
    interned.event_categories.add(iid=2, name="second category")
    interned.debug_annotation_names.add(iid=1, name="interned key")
    interned.debug_annotation_names.add(iid=2, name="dict.key")
    interned.debug_annotation_string_values.add(iid=1, str=b"interned text")
    interned.source_locations.add(iid=1, file_name="train.py", function_name="step", line_number=12)
    for number in range(3):
        event = trace.event(number * 10 * MS, BEGIN, name_iid=1, category_iids=[1, 2], source_location_iid=1)
        trace.trace.packet[-1].sequence_flags = NEEDED
        add = event.debug_annotations.add
        add(name="bool", bool_value=number == 1)
        add(name="uint", uint_value=2**64 - 1 - number)
        add(name="int", int_value=-(2**63) + number)
        add(name="double", double_value=0.1 * number - 1e300)
        add(name="pointer", pointer_value=0xDEADBEEF0000 + number)
        add(name="text", string_value='é "quoted" \\ \n')
        add(name="json", legacy_json_value='{"a": [1, 2.5, "x"], "b": {"c": true}}')
        add(name_iid=1, string_value_iid=1)
        add(name="twice", int_value=1)
        add(name="twice", int_value=2)
        tensor = add(name_iid=2)
        shape = tensor.dict_entries.add(name="shape")
        for size in (4, 256, number):
            shape.array_values.add(int_value=size)
        tensor.dict_entries.add(name="dtype", string_value="f32")
        empty = add(name="nested")
        empty.nested_value.nested_type = 1
        empty.nested_value.dict_keys.append("k")
        empty.nested_value.dict_values.add(int_value=3)
        end = trace.event(number * 10 * MS + MS, END)
        end.debug_annotations.add(name="at the end", int_value=number)
        instant = trace.event(number * 10 * MS + 2 * MS, INSTANT, "instant")
        instant.debug_annotations.add(name="Collective name", string_value="allreduce")
    return trace


def old_phases():
    """Events as Chrome's tracing stated them: complete ones, asynchronous ones, flows."""
    trace = Events()
    packet = trace.packet(sequence_flags=CLEARED)
    packet.thread_descriptor.pid, packet.thread_descriptor.tid = PID, 47
    packet.trace_packet_defaults.track_event_defaults.track_uuid = 7
    for number in range(3):
        at = number * 100 * MS
        trace.legacy(at, "X", "complete", duration_us=1500)
        trace.legacy(at + 5 * MS, "B", "begun")
        trace.legacy(at + 6 * MS, "E")
        trace.legacy(at + 7 * MS, "I", "instant")
        trace.legacy(at + 10 * MS, "b", "async", unscoped_id=number)
        trace.legacy(at + 12 * MS, "n", "async instant", unscoped_id=number)
        trace.legacy(at + 20 * MS, "e", "async", unscoped_id=number)
        trace.legacy(at + 30 * MS, "S", "async old", global_id=5)
        trace.legacy(at + 32 * MS, "F", "async old", global_id=5)
        trace.legacy(at + 40 * MS, "b", "of the process", local_id=6)
        trace.legacy(at + 41 * MS, "e", "of the process", local_id=6)
        trace.legacy(at + 50 * MS, "X", "sends", duration_us=100, bind_id=9 + number, flow_direction=LEGACY.FLOW_OUT)
        trace.legacy(at + 60 * MS, "X", "receives", duration_us=100, bind_id=9 + number, flow_direction=LEGACY.FLOW_IN)
    return trace


def old_times():
    """Events without a time in their packet: microseconds since the thread's descriptor, and in full."""
    trace = Events()
    packet = trace.packet(sequence_flags=CLEARED)
    packet.thread_descriptor.pid, packet.thread_descriptor.tid = PID, 47
    packet.thread_descriptor.reference_timestamp_us = (BOOT + 10 * MS) // US
    for number in range(4):
        for kind in (BEGIN, END):
            event = trace.packet(sequence_flags=NEEDED).track_event
            event.type, event.timestamp_delta_us = kind, 250
            if kind == BEGIN:
                event.name = "counted"
    event = trace.packet(sequence_flags=NEEDED).track_event
    event.type, event.timestamp_absolute_us, event.name = INSTANT, (BOOT + 50 * MS) // US, "in full"
    return trace


def gpu():
    """What GPUs did, by both ways to state queue and stage; counters by both ways to describe them."""
    trace = Events()
    packet = trace.packet(sequence_flags=CLEARED)
    for iid, name in [(1, "kernel"), (2, "queue A"), (3, "queue B")]:
        packet.interned_data.gpu_specifications.add(iid=iid, name=name)
    packet.interned_data.event_names.add(iid=1, name="gemm")
    old = trace.packet(timestamp=BOOT).gpu_render_stage_event
    old.specifications.hw_queue.add(name="old queue")
    old.specifications.stage.add(name="old stage")
    for number in range(5):
        for queue in (2, 3):
            packet = trace.packet(sequence_flags=NEEDED, timestamp=BOOT + (number * 10 + queue) * MS)
            done = packet.gpu_render_stage_event
            done.event_id, done.duration, done.hw_queue_iid, done.stage_iid, done.gpu_id = number, 2 * MS + 1, queue, 1, queue - 2
            done.extra_data.add(name="stream", value=str(queue))
            if number % 2:
                done.name_iid = 1
        done = trace.packet(timestamp=BOOT + (number * 10 + 6) * MS).gpu_render_stage_event
        done.event_id, done.duration, done.hw_queue_id, done.stage_id = 50 + number, MS, 0, 0
    described = trace.packet(timestamp=BOOT).gpu_counter_event
    described.gpu_id = 0
    described.counter_descriptor.specs.add(counter_id=1, name="power", description="W")
    described.counter_descriptor.specs.add(counter_id=2, name="clock")
    for number in range(5):
        packet = trace.packet(timestamp=BOOT + number * 10 * MS)
        packet.gpu_counter_event.gpu_id = 0
        packet.gpu_counter_event.counters.add(counter_id=1, double_value=100.5 + number)
        packet.gpu_counter_event.counters.add(counter_id=2, int_value=1400 + number)
    return trace


CASES = [nested, unsorted, tracks, counters, flows, arguments, old_phases, old_times, gpu]


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        (folder / f"events_{case.__name__}.pftrace").write_bytes(case().trace.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
