"""Makes the seeds of the targets write_perfetto, write_chrome, write_kineto, write_xspace and write_rocpd in corpus/.

Each seed is what `src/writers.rs` reads as calls of a program. Run in this folder: python3 make_writer_seeds.py
"""

import pathlib
import random

HERE = pathlib.Path(__file__).parent / "corpus"


def text(content):
    return bytes([len(content)]) + content.encode()


def track(kind, content, parent=None):
    above = b"\x01" if parent is None else bytes([0, parent])
    own = {0: bytes([77]) + text("host") + b"\x03" + text("guid"), 1: b"\x05", 5: text("B")}.get(kind, b"")
    return b"\x00" + above + bytes([kind]) + own + text(content)


def slice_of(on, start, length, name=1):
    return bytes([7, start, 1, length, on, name, 2, 0, 0, 0, 1])


def chunk(*parts):
    return bytes([len(parts)]) + b"".join(parts)


NAMES = b"\x02" + text("kernel"), b"\x02" + text("a\"\\\n\x01"), b"\x03\x01\x04" + text("x\ny")
TRACKS = track(0, "train"), track(1, "main", 0), track(2, "GPU 0", 0), track(4, "stream", 2), track(5, "bytes", 2)
EVENTS = (
    slice_of(1, 10, 15),
    slice_of(1, 12, 15),
    slice_of(3, 5, 3),
    bytes([4, 1, 20, 1, 2, 0, 1]),
    bytes([5, 4, 21]),
    bytes([6, 1, 10, 0, 1]),
)
META = b"\x00" + text("tool") + text("probe")
CHUNKS = META + chunk(*NAMES, *TRACKS, *EVENTS) + chunk(*NAMES, *EVENTS, *EVENTS)
REGION = text("hipMalloc") + text("HIP_API") + b"\x00\x01" + text("size_t") + text("size") + text("64") + bytes([5, 9, 3, 0]) + text("{}")
CALLS = b"\x03\x00" + text("node7") + text("./train") + REGION * 5


def main():
    generator = random.Random(7)
    chunks = dict.fromkeys(["write_perfetto", "write_chrome"], CHUNKS)
    for target, seed in {**chunks, "write_rocpd": CALLS, **dict.fromkeys(["write_kineto", "write_xspace"], CHUNKS)}.items():
        folder = HERE / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "calls").write_bytes(seed)
        (folder / "random").write_bytes(generator.randbytes(400))
        (folder / "empty").write_bytes(b"")


if __name__ == "__main__":
    main()
