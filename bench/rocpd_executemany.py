"""Regions into a rocpd database by Python's executemany, a commit per 10 000 events: the peer of bench/rocpd_writer.rs.
usage: rocpd_executemany.py FILE EVENTS; prints rows per second (an event and a region each)."""

import sqlite3
import sys
import time

GUID = "000003ce-5d4c-7a2f-9d08-acd3eb0a98a1"
BATCH = 10_000
TABLES = f"""
CREATE TABLE rocpd_event (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, guid TEXT DEFAULT "{GUID}" NOT NULL,
 category_id INTEGER, stack_id INTEGER, parent_stack_id INTEGER, correlation_id INTEGER,
 call_stack JSONB DEFAULT "{{}}" NOT NULL, line_info JSONB DEFAULT "{{}}" NOT NULL, extdata JSONB DEFAULT "{{}}" NOT NULL);
CREATE TABLE rocpd_region (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, guid TEXT DEFAULT "{GUID}" NOT NULL,
 nid INTEGER NOT NULL, pid INTEGER NOT NULL, tid INTEGER NOT NULL, start BIGINT NOT NULL, "end" BIGINT NOT NULL,
 name_id INTEGER NOT NULL, event_id INTEGER, extdata JSONB DEFAULT "{{}}" NOT NULL);
"""
EVENT = "INSERT INTO rocpd_event (id, category_id, stack_id, parent_stack_id, correlation_id) VALUES (?, ?, ?, ?, ?)"
REGION = 'INSERT INTO rocpd_region (nid, pid, tid, start, "end", name_id, event_id) VALUES (?, ?, ?, ?, ?, ?, ?)'


def main(path: str, events: int) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.executescript(TABLES)
    start = time.perf_counter()
    for first in range(0, events, BATCH):
        batch = range(first, min(first + BATCH, events))
        connection.execute("BEGIN")
        connection.executemany(EVENT, ((at + 1, 1, 0, 0, 0) for at in batch))
        connection.executemany(REGION, ((7, 100, 1, at * 1000, at * 1000 + 500, 2, at + 1) for at in batch))
        connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    print(2 * events / (time.perf_counter() - start))


main(sys.argv[1], int(sys.argv[2]))
