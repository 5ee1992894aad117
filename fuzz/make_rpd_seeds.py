"""Makes corpus/rpd: small traces of one rank, made by bench/rpd/make.py, in pages of 512 bytes.

python3 make_rpd_seeds.py
"""

import importlib.util
import pathlib
import sqlite3

HERE = pathlib.Path(__file__).parent
spec = importlib.util.spec_from_file_location("make", HERE.parent / "bench/rpd/make.py")
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)


def main():
    corpus = HERE / "corpus" / "rpd"
    corpus.mkdir(parents=True, exist_ok=True)
    begin = made.BEGIN_NS
    steps = [(begin, [begin + 3_000_000], begin + 4_000_000)]
    for name, schema in [("trace", 3), ("old", 2), ("aligned", 2), ("odd", 3)]:
        made.make(corpus / name, 0, 1, steps, schema, page=512)
    with sqlite3.connect(corpus / "aligned") as out:
        out.execute("CREATE TABLE probe_sync_metadata (name TEXT NOT NULL, value TEXT)")
        out.execute("INSERT INTO probe_sync_metadata VALUES ('probe_sync_timeline', 'x')")
    with sqlite3.connect(corpus / "odd") as out:
        out.executescript("CREATE VIEW v AS SELECT * FROM nowhere; UPDATE rocpd_api SET start = 0; UPDATE rocpd_op SET gpuId = 5002 WHERE id % 2 = 0;")


if __name__ == "__main__":
    main()
