"""Makes corpus/rocpd and corpus/write_csv: small databases of one process with the tables and rows at which the reader looks, in pages of 512 bytes.

python3 make_rocpd_seeds.py
"""

import pathlib
import sqlite3

GUID = "00000001-0000-7000-8000-000000000001"
SUFFIX = "_" + GUID.replace("-", "_")
TABLES = """
CREATE TABLE rocpd_metadata{} (id INTEGER PRIMARY KEY AUTOINCREMENT, tag TEXT NOT NULL, value TEXT NOT NULL);
CREATE TABLE rocpd_string{} (id INTEGER PRIMARY KEY, guid TEXT, string TEXT NOT NULL UNIQUE);
CREATE TABLE rocpd_info_node{} (id INTEGER PRIMARY KEY, guid TEXT, machine_id TEXT, hostname TEXT);
CREATE TABLE rocpd_info_process{} (id INTEGER PRIMARY KEY, guid TEXT, pid INT, init BIGINT, fini BIGINT, environment JSONB);
CREATE TABLE rocpd_event{} (id INTEGER PRIMARY KEY, guid TEXT, category_id INT, extdata JSONB, FOREIGN KEY (category_id) REFERENCES rocpd_string{} (id));
CREATE TABLE rocpd_arg{} (id INTEGER PRIMARY KEY, guid TEXT, event_id INT, position INT, type TEXT, name TEXT, value TEXT);
CREATE TABLE rocpd_region{} (id INTEGER PRIMARY KEY, guid TEXT, start BIGINT, end BIGINT, name_id INT, event_id INT);
CREATE TABLE rocpd_sample{} (id INTEGER PRIMARY KEY, guid TEXT, timestamp BIGINT, event_id INT);
CREATE TABLE rocpd_kernel_dispatch{} (id INTEGER PRIMARY KEY, guid TEXT, start BIGINT, end BIGINT);
CREATE VIEW rocpd_region AS SELECT * FROM rocpd_region{};
"""
ROWS = """
INSERT INTO rocpd_metadata{} (tag, value) VALUES ('schema_version', '3'), ('guid', '@'), ('uuid', '{}');
INSERT INTO rocpd_string{} VALUES (1, '@', 'ncclAllReduce'), (2, '@', 'probe_sync.clock#1700000000000000000'), (3, '@', 'probe_sync.rank#1/2');
INSERT INTO rocpd_info_node{} VALUES (1, '@', '0', 'gpu-1');
INSERT INTO rocpd_info_process{} VALUES (1, '@', 7, 90000, 0, '{"RANK": "1", "WORLD_SIZE": "2"}');
INSERT INTO rocpd_event{} VALUES (1, '@', 1, '{}'), (2, '@', 2, '{"message": "clkmark#5#6"}');
INSERT INTO rocpd_arg{} VALUES (1, '@', 1, 2, 'size_t', 'count', '4096'), (2, '@', 1, 5, 'ncclComm_t', 'comm', '0x55d0'), (3, '@', 1, 7, 'int', 'root', '0');
INSERT INTO rocpd_region{} VALUES (1, '@', 90000, 91000, 1, 1), (2, '@', 92000, 0, 2, 2), (3, '@', 93000, 93500, 3, NULL);
INSERT INTO rocpd_sample{} VALUES (1, '@', 94000, 2);
INSERT INTO rocpd_kernel_dispatch{} VALUES (1, '@', 95000, 96000);
"""


def make(path, tables, rows):
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    database.execute("PRAGMA page_size = 512")
    fill = lambda text: text.replace("{}", SUFFIX).replace("@", GUID)  # noqa: E731
    # Braces that are JSON stay.
    database.executescript(fill(tables) + fill(rows.replace("'{}'", "'{ }'").replace("('uuid', '{ }')", f"('uuid', '{SUFFIX}')")))
    database.close()


def main():
    for folder in ("rocpd", "write_csv"):
        corpus = pathlib.Path(__file__).parent / "corpus" / folder
        corpus.mkdir(parents=True, exist_ok=True)
        make(corpus / "process", TABLES, ROWS)
        make(corpus / "empty", TABLES, "INSERT INTO rocpd_metadata{} (tag, value) VALUES ('schema_version', '3');")
        make(corpus / "aligned", TABLES, ROWS + "INSERT INTO rocpd_metadata{} (tag, value) VALUES ('probe_sync_timeline', 'x');")
        make(corpus / "foreign", TABLES + "CREATE TABLE mine (a, b); CREATE TRIGGER t AFTER INSERT ON mine BEGIN SELECT 1; END;", ROWS)


if __name__ == "__main__":
    main()
