"""Judges what a tool showed of a job against the truth: times, happens-before edges, and the ranks that it called late.

Imported by run.py. Times are ns since the job's base. Truth and shown times are by rank and by an event's place in its file;
an operation is {"id", "members": {rank: event}}, and only operations in which every rank waits for all others are given. It knows no tool or format.
"""

import statistics

# What counts as the same time: HolisticTraceAnalysis keeps whole microseconds, so nothing finer would be fair.
CLOSE_NS = 1000
# The least lead of the last rank that makes an operation a late one.
LATE_NS = 50_000


def times(true, shown, hosts):
    """Returns how many events are within 1 µs of the truth at both ends, how many are shown, and the median error of their starts, ns.

    A tool may count from an origin of its own: the median error of starts and ends on the reference's host, host 0, is taken out of all errors. The
    events of that host are not counted, since they are right whatever the tool does.
    """
    errors = {
        rank: [(start - true[rank][event][0], end - true[rank][event][1]) for event, (start, end) in events.items() if true[rank][event]]
        for rank, events in shown.items()
    }
    reference = [error for rank, of_rank in errors.items() if hosts[rank] == 0 for pair in of_rank for error in pair]
    others = [pair for rank, of_rank in errors.items() if hosts[rank] != 0 for pair in of_rank]
    if not reference or not others:
        return None
    origin = statistics.median(reference)
    close = sum(all(abs(error - origin) <= CLOSE_NS for error in pair) for pair in others)
    return close, len(others), statistics.median(abs(start - origin) for start, _ in others)


def edges(operations, shown):
    """Counts the ranks that end an operation more than 1 µs before its last rank begins it, and all that could be examined."""
    broken = looked_at = 0
    for operation in operations:
        parts = [shown.get(rank, {}).get(event) for rank, event in operation["members"].items()]
        if None in parts:
            continue
        last = max(start for start, _ in parts)
        looked_at += len(parts)
        broken += sum(end < last - CLOSE_NS for _, end in parts)
    return broken, looked_at


def last_ranks(operations, true):
    """Returns the rank that truly came last to each operation, and its lead over the second-last, by the operation's id."""
    found = {}
    for operation in operations:
        starts = sorted((true[rank][event][0], rank) for rank, event in operation["members"].items())
        found[operation["id"]] = (starts[-1][1], starts[-1][0] - starts[-2][0])
    return found


def blame(last, named):
    """Counts the late operations whose last rank is named, the operations for which another rank is named, and the late operations.

    `named` may lack operations. A lead below 1 µs decides nothing: whoever is named in such an operation is neither right nor wrong.
    """
    late = [operation for operation, (_, lead) in last.items() if lead >= LATE_NS]
    right = sum(named.get(operation) == last[operation][0] for operation in late)
    wrong = sum(operation in named and lead >= CLOSE_NS and named[operation] != rank for operation, (rank, lead) in last.items())
    return right, wrong, len(late)
