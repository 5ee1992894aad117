"""XSpace files (`*.xplane.pb`) with every time restated, for made clocks.

Imported by wander_sets.py and by flow/bend.py, which lay clocks of known error over recorded traces. It
shares nothing with the Rust code that takes such errors out again, so that neither hides the other's mistakes. Times are
integers in picoseconds. The protobuf is taken apart only as far as times lie; all other fields are carried as they are.

It does not know clocks (made_clock.py) or read files larger than memory.
"""

PS = 1000  # picoseconds in a nanosecond


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def as_varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def signed(value):
    return value - (1 << 64) if value >> 63 else value


def parse(data):
    """The fields of a message: [number, wire type, value]; a value is an int or bytes."""
    fields, at = [], 0
    while at < len(data):
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, at = data[at:at + size], at + size
        else:
            raise ValueError(f"wire type {wire} in an XSpace")
        fields.append([number, wire, value])
    return fields


def build(fields):
    out = bytearray()
    for number, wire, value in fields:
        out += as_varint(number << 3 | wire)
        if wire == 0:
            out += as_varint(value)
        else:
            out += as_varint(len(value)) + value if wire == 2 else value
    return bytes(out)


def first(fields, number, default=None):
    return next((value for n, _, value in fields if n == number), default)


def put(fields, number, value):
    """Sets a varint field; a proto3 zero is left out where it was."""
    for field in fields:
        if field[0] == number:
            field[2] = value
            return
    if value:
        fields.append([number, 0, value])


def names(plane, number):
    """Metadata id -> name, of the map field `number`."""
    found = {}
    for n, _, entry in plane:
        if n == number:
            value = parse(first(parse(entry), 2, b""))
            found[first(value, 1, 0)] = first(value, 2, b"").decode()
    return found


PLANES, LINES, EVENT_NAMES, STAT_NAMES, PLANE_STATS = 1, 3, 4, 5, 6
LINE_TIMESTAMP, LINE_EVENTS = 3, 4
EVENT_NAME, EVENT_OFFSET, EVENT_DURATION, EVENT_STATS, EVENT_OCCURRENCES = 1, 2, 3, 4, 5
STAT_NAME, STAT_UINT, STAT_INT, STAT_TEXT = 1, 3, 4, 5


class XSpace:
    def __init__(self, path):
        self.path = path
        self.space = parse(path.read_bytes())
        self.start = next(
            self.number(stat) * PS
            for plane in self.planes()
            for stat in self.stats(plane, PLANE_STATS, names(plane, STAT_NAMES), "profile_start_time")
        )

    def planes(self):
        return [parse(value) for number, _, value in self.space if number == PLANES]

    @staticmethod
    def stats(owner, number, stat_names, wanted):
        for n, _, value in owner:
            if n == number:
                stat = parse(value)
                if stat_names.get(first(stat, STAT_NAME)) == wanted:
                    yield stat

    @staticmethod
    def number(stat):
        text = first(stat, STAT_TEXT)
        return int(text) if text is not None else signed(first(stat, STAT_INT, first(stat, STAT_UINT, 0)))

    @staticmethod
    def set_number(stat, value):
        for field in stat:
            if field[0] in (STAT_UINT, STAT_INT):
                field[2] = value
            elif field[0] == STAT_TEXT:
                field[2] = str(value).encode()

    def instants(self):
        for plane in self.planes():
            for n, _, line in plane:
                if n != LINES:
                    continue
                line = parse(line)
                at = self.start + signed(first(line, LINE_TIMESTAMP, 0)) * PS
                for m, _, event in line:
                    if m == LINE_EVENTS:
                        event = parse(event)
                        if first(event, EVENT_OCCURRENCES) is None:
                            start = at + signed(first(event, EVENT_OFFSET, 0))
                            yield start
                            yield start + signed(first(event, EVENT_DURATION, 0))

    def write(self, directory, restamp, restate):
        new_start = restamp(self.start) // PS * PS
        for field in self.space:
            if field[0] == PLANES:
                field[2] = build(self.plane(parse(field[2]), restamp, restate, new_start))
        (directory / self.path.name).write_bytes(build(self.space))

    def plane(self, plane, restamp, restate, new_start):
        event_names, stat_names = names(plane, EVENT_NAMES), names(plane, STAT_NAMES)
        for field in plane:
            if field[0] == PLANE_STATS:
                stat = parse(field[2])
                if stat_names.get(first(stat, STAT_NAME)) in ("profile_start_time", "profile_stop_time"):
                    self.set_number(stat, restamp(self.number(stat) * PS) // PS)
                field[2] = build(stat)
            elif field[0] == LINES:
                line = parse(field[2])
                old = self.start + signed(first(line, LINE_TIMESTAMP, 0)) * PS
                new = restamp(old) // PS * PS
                put(line, LINE_TIMESTAMP, (new - new_start) // PS)
                for event in line:
                    if event[0] == LINE_EVENTS:
                        event[2] = build(self.event(parse(event[2]), (old, new), restamp))
                        self.marker(event, restate, event_names, stat_names)
                field[2] = build(line)
        return plane

    def event(self, event, base, restamp):
        old, new = base
        if first(event, EVENT_OCCURRENCES) is None:
            start = old + signed(first(event, EVENT_OFFSET, 0))
            end = start + signed(first(event, EVENT_DURATION, 0))
            put(event, EVENT_OFFSET, restamp(start) - new)
            put(event, EVENT_DURATION, max(restamp(end) - restamp(start), 0))
        return event

    def marker(self, field, restate, event_names, stat_names):
        event = parse(field[2])
        if event_names.get(first(event, EVENT_NAME)) != "clkmark":
            return
        for part in event:
            stat = parse(part[2]) if part[0] == EVENT_STATS else []
            if stat_names.get(first(stat, STAT_NAME)) == "node_ns":
                self.set_number(stat, restate(self.number(stat) * PS) // PS)
                part[2] = build(stat)
        field[2] = build(event)
