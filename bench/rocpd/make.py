"""Databases as rocprofv3 writes them, of any size: for benchmarks and tests of memory.

The tables are those of an existing database (`--like`), under another guid; the rows are made up: every step launches a kernel, so that
there are as many regions as dispatches, twice as many events, and two arguments per region. One process per file, on hosts
that may share their machine-id, nid and pids, as cloned images and containers do.

python3 make.py --like node0_results.db --out FOLDER --files 4 --regions 300000
"""

import argparse
import pathlib
import sqlite3

STEP_NS = 40_000


def tables(like):
    """Definitions of the tables of a database, and what their names end in."""
    source = sqlite3.connect(f"file:{like}?mode=ro", uri=True)
    [uuid] = [row[0] for row in source.execute("SELECT value FROM rocpd_metadata WHERE tag = 'uuid'")]
    rows = source.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'").fetchall()
    return uuid, [(kind, name, sql) for kind, name, sql in rows]


def fill(out, suffix, guid, host, rank, world, regions, start_ns, pid):
    """The rows of one process."""

    def put(base, columns, rows):
        marks = ", ".join("?" * len(columns))
        names = ", ".join(f'"{column}"' for column in columns)
        out.executemany(f"INSERT INTO rocpd_{base}{suffix} ({names}) VALUES ({marks})", rows)

    end_ns = start_ns + regions * STEP_NS
    put("metadata", ["tag", "value"], [("schema_version", "3"), ("uuid", suffix), ("guid", guid)])
    names = ["", "HIP_API", "hipLaunchKernel", "KERNEL_DISPATCH", *(f"kernel_{k}" for k in range(40))]
    put("string", ["id", "guid", "string"], [(k + 1, guid, name) for k, name in enumerate(names)])
    put("info_node", ["id", "guid", "hash", "machine_id", "system_name", "hostname"], [(7, guid, 7, "0" * 32, "Linux", host)])
    environment = f'{{"RANK": "{rank}", "WORLD_SIZE": "{world}"}}'
    process = ["id", "guid", "nid", "ppid", "pid", "init", "fini", "start", "end", "command", "environment"]
    put("info_process", process, [(pid, guid, 7, 1, pid, start_ns, end_ns, start_ns, end_ns, "train", environment)])
    put("info_thread", ["id", "guid", "nid", "ppid", "pid", "tid"], [(pid, guid, 7, 1, pid, pid)])
    agents = [(k, guid, 7, pid, kind, k, k, 0, 0, kind) for k, kind in enumerate(["CPU", "GPU"])]
    agent = ["id", "guid", "nid", "pid", "type", "absolute_index", "logical_index", "type_index", "uuid", "name"]
    put("info_agent", agent, agents)
    put("info_queue", ["id", "guid", "nid", "pid", "name"], [(0, guid, 7, pid, "Queue 0")])
    put("info_stream", ["id", "guid", "nid", "pid", "name"], [(0, guid, 7, pid, "Stream 0")])
    put("info_code_object", ["id", "guid", "nid", "pid", "agent_id", "uri"], [(1, guid, 7, pid, 1, "file://k")])
    symbol = ["id", "guid", "nid", "pid", "code_object_id", "kernel_name", "display_name"]
    put("info_kernel_symbol", symbol, [(k + 1, guid, 7, pid, 1, f"kernel_{k}.kd", f"kernel_{k}") for k in range(40)])
    event = ["id", "guid", "category_id", "stack_id", "parent_stack_id", "correlation_id"]
    put("event", event, ((k + 1, guid, 2 if k % 2 == 0 else 4, k // 2 + 1, 0, 0) for k in range(2 * regions)))
    argument = ["guid", "event_id", "position", "type", "name", "value"]
    both = [(0, "const void*", "function_address"), (1, "dim3", "numBlocks")]
    put(
        "arg",
        argument,
        ((guid, 2 * k + 1, place, kind, name, hex(0x7F0000 + k)) for k in range(regions) for place, kind, name in both),
    )
    region = ["guid", "nid", "pid", "tid", "start", "end", "name_id", "event_id"]
    at = lambda k: start_ns + k * STEP_NS  # noqa: E731
    put("region", region, ((guid, 7, pid, pid, at(k), at(k) + 9_000 + k % 977, 3, 2 * k + 1) for k in range(regions)))
    dispatch = ["guid", "nid", "pid", "tid", "agent_id", "kernel_id", "dispatch_id", "queue_id", "stream_id", "start", "end"]
    dispatch += ["workgroup_size_x", "workgroup_size_y", "workgroup_size_z", "grid_size_x", "grid_size_y", "grid_size_z"]
    dispatch += ["region_name_id", "event_id"]
    put(
        "kernel_dispatch",
        dispatch,
        (
            (guid, 7, pid, pid, 1, k % 40 + 1, k + 1, 0, 0, at(k) + 12_000, at(k) + 31_000 + k % 1999, 256, 1, 1, 4096, 1, 1, 3, 2 * k + 2)
            for k in range(regions)
        ),
    )


def make(path, definitions, like_uuid, number, files, regions):
    """One file; an earlier one of that name is replaced."""
    path.unlink(missing_ok=True)
    guid = f"{0x1000 + number:08x}-0000-7000-8000-{number:012x}"
    suffix = "_" + guid.replace("-", "_")
    like_guid = like_uuid.strip("_").replace("_", "-")
    out = sqlite3.connect(path)
    out.execute("PRAGMA journal_mode = OFF")
    out.execute("PRAGMA synchronous = OFF")
    for _, _, sql in sorted(definitions, key=lambda entry: entry[0] != "table"):
        out.execute(sql.replace(like_uuid, suffix).replace(like_guid, guid))
    start_ns = 90_000_000_000_000 + number * 5_000_000_000_000
    fill(out, suffix, guid, f"node{number}", number, files, regions, start_ns, 4242)
    out.commit()
    out.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--like", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--files", type=int, default=2)
    parser.add_argument("--regions", type=int, default=300_000)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    uuid, definitions = tables(options.like)
    for number in range(options.files):
        make(options.out / f"node{number}_results.db", definitions, uuid, number, options.files, options.regions)


if __name__ == "__main__":
    main()
