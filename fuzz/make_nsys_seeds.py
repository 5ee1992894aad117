"""Makes corpus/nsys: small exports of one rank, made by bench/nsys/make.py, in pages of 512 bytes.

python3 make_nsys_seeds.py
"""

import importlib.util
import pathlib
import sqlite3

HERE = pathlib.Path(__file__).parent
spec = importlib.util.spec_from_file_location("make", HERE.parent / "bench/nsys/make.py")
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)


def main():
    corpus = HERE / "corpus" / "nsys"
    corpus.mkdir(parents=True, exist_ok=True)
    begin = made.BEGIN_NS
    steps = [(begin, [begin + 3_000_000], begin + 4_000_000)]
    for name, schema in [("report", 2026), ("old", 2021), ("aligned", 2021), ("hostile", 2021)]:
        made.make(corpus / name, 0, 1, steps, schema, page=512)
    with sqlite3.connect(corpus / "aligned") as out:
        out.execute("CREATE TABLE probe_sync_metadata (name TEXT NOT NULL, value TEXT)")
        out.execute("INSERT INTO probe_sync_metadata VALUES ('probe_sync_timeline', 'x')")
    with sqlite3.connect(corpus / "hostile") as out:
        out.executescript("CREATE TABLE mine (start INTEGER, b); CREATE TRIGGER t AFTER INSERT ON mine BEGIN SELECT 1; END;")


if __name__ == "__main__":
    main()
