#!/usr/bin/env python3
"""`probe_sync query` must answer random statements as SQLite does over the same tables without us.

    python3 bench/rocpd/agree.py --program target/debug/probe_sync --databases ../shared/data/rocpd/b_4node_offset_drift/*.db --seed 1 --statements 250

SQLite's side attaches the databases (ten at most) and puts a temporary view with UNION ALL over the tables of each name. Statements count rows, cells and
extremes under conditions joined by AND, OR and NOT, with values of the data in their own type and in others, and join tables in all four ways: what
decides is which conditions our virtual tables take for themselves, and how SQLite tells their rows apart. Exit status 1: an answer differs, or is an error.
"""

import argparse
import json
import pathlib
import random
import re
import sqlite3
import subprocess
import sys

LIMIT_S = 60
USUAL = ("id", "guid", "nid", "pid", "tid", "event_id", "start", "end", "name_id", "string")


class Statements:
    """Random ones over the tables of some databases."""

    def __init__(self, databases, seed):
        self.random = random.Random(seed)
        self.connection = sqlite3.connect(":memory:")
        parts = {}
        for number, database in enumerate(databases):
            self.connection.execute(f"ATTACH ? AS d{number}", (f"{database}",))
            for (name,) in self.connection.execute(f"SELECT name FROM d{number}.sqlite_master WHERE type = 'table' AND name LIKE 'rocpd_%'"):
                base = re.sub(r"_[0-9a-f]{8}_[0-9a-f_]+$", "", name)
                parts.setdefault(base, []).append(f'SELECT * FROM d{number}."{name}"')
        for base, selects in parts.items():
            self.connection.execute(f'CREATE TEMP VIEW "{base}" AS {" UNION ALL ".join(selects)}')
        self.columns = {base: [name for (name,) in self.connection.execute("SELECT name FROM pragma_table_info(?)", (base,))] for base in parts}

    def value(self, table, column):
        """One of the data, as it is or as another type."""
        found = self.connection.execute(f'SELECT "{column}" FROM "{table}" LIMIT 1 OFFSET ?', (self.random.randrange(40),)).fetchone()
        value = found[0] if found and self.random.random() > 0.1 else None
        if value is None:
            return "NULL"
        if isinstance(value, (int, float)):
            return self.random.choice([f"{value}", f"'{value}'", f"{float(value)}"])
        return "'" + str(value).replace("'", "''") + "'"

    def condition(self, table, depth=0):
        """On the columns of a table."""
        chance = self.random.random()
        if depth < 2 and chance < 0.45:
            word = self.random.choice([" OR ", " AND "])
            return f"({self.condition(table, depth + 1)}{word}{self.condition(table, depth + 1)})"
        column = self.random.choice([name for name in self.columns[table] if name in USUAL] or self.columns[table])
        if chance < 0.6:
            return f'a."{column}" IN ({", ".join(self.value(table, column) for _ in range(3))})'
        if chance < 0.7:
            return f'NOT a."{column}" = {self.value(table, column)}'
        return f'a."{column}" {self.random.choice(["=", "=", "=", "<", ">=", "IS"])} {self.value(table, column)}'

    def next(self):
        """Another one."""
        table = self.random.choice(list(self.columns))
        column = self.random.choice(self.columns[table])
        if self.random.random() < 0.4:
            other = self.random.choice(list(self.columns))
            key = self.random.choice([name for name in self.columns[other] if name in ("id", "guid")] or self.columns[other])
            both = "guid" in self.columns[table] and "guid" in self.columns[other] and self.random.random() < 0.7
            joined = f'"{table}" a {self.random.choice(["", "LEFT ", "RIGHT ", "FULL "])}JOIN "{other}" c ON a."{column}" = c."{key}"'
            joined += " AND a.guid = c.guid" if both else ""
            return f'SELECT count(*) n, count(a."{column}") m, count(c."{key}") k FROM {joined} WHERE {self.condition(table)}'
        what = self.random.choice(['count(*) n, count(a."{0}") m, min(a."{0}") k', 'count(DISTINCT a."{0}") n, max(length(a."{0}")) m'])
        return f'SELECT {what.format(column)} FROM "{table}" a WHERE {self.condition(table)}'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--databases", type=pathlib.Path, nargs="+", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--statements", type=int, default=250)
    arguments = parser.parse_args()
    statements = Statements(arguments.databases, arguments.seed)
    command = [arguments.program, "query", "--no-correction", "--format", "json", "--traces", *arguments.databases, "--sql"]
    differ, found = 0, 0
    for _ in range(arguments.statements):
        sql = statements.next()
        expected = statements.connection.execute(sql).fetchall()
        done = subprocess.run([*command, sql], capture_output=True, text=True, timeout=LIMIT_S)
        answer = [tuple(row.values()) for row in json.loads(done.stdout)] if done.returncode == 0 else done.stderr.strip()[-300:]
        found += expected[0][0] != 0
        if answer != expected:
            differ += 1
            print(f"{sql}\n  SQLite {expected}\n  query  {answer}")
    print(f"{arguments.statements} statements, {found} of them find rows: {differ} answers differ")
    return 1 if differ or not found else 0


if __name__ == "__main__":
    sys.exit(main())
