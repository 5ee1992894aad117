"""Makes corpus/recording: small recordings of the recorder, as docs/recorder_format.md has it, with most words zero.

A seed is so many zero words (16 bits), so many words (16 bits), the words, and so on; see src/recordings.rs.

python3 make_recording_seeds.py
"""

import json
import pathlib
import struct

MAGIC = int.from_bytes(b"PSREC\0\0\2", "little")
WORD = 8
CHUNK, CHUNKS, PAIRS, DEFINITIONS, SLOTS, SLOT = 4096, 2, 4, 4096, 1, 2048 * WORD
PAIRS_AT = 8192
DEFINITIONS_AT = PAIRS_AT + PAIRS * 4 * WORD
SLOTS_AT = DEFINITIONS_AT + DEFINITIONS
CHUNKS_AT = (SLOTS_AT + SLOTS * SLOT + 4095) // 4096 * 4096
BYTES = CHUNKS_AT + CHUNKS * CHUNK
CHUNK_HEADER = 32
DROP_NEWEST, FLIGHT, STREAM = 1, 2, 3


def text(words, value):
    data = value.encode()
    words.append(len(data))
    data += bytes(-len(data) % WORD)
    words += struct.unpack(f"<{len(data) // WORD}Q", data)


def definition(kind, number, word, texts):
    words = [0, number, word]
    for value in texts:
        text(words, value)
    words[0] = 0x50534446 << 32 | kind << 16 | len(words)
    return words


def record(site, kind, depth, words):
    return [site | kind << 32 | (len(words) + 1) << 40 | depth << 48, *words]


def records():
    argument = [0x80000000 | 2 << 32 | 2 << 40 | 8 << 48, 5]
    cut = [0x80000001 | 0x85 << 32 | 2 << 40 | 8 << 48, int.from_bytes(b"some txt", "little")]
    named = [3 | 6 << 32 | 2 << 40 | 3 << 48, int.from_bytes(b"[1]\0\0\0\0\0", "little")]
    return [
        record(1, 1, 1, [200, 300, 1 << 40, *argument, *cut]),
        record(1, 2, 1, [310, 400, 2 << 40]),
        record(2, 3, 1, [410, 7, *named]),
        record(2, 4, 0, [420, struct.unpack("<Q", struct.pack("<d", 0.5))[0]]),
        record(2, 5, 0, [430, 9]),
        record(2, 8, 0, [440, 10]),
        record(0, 10, 0, [450, 460, 3]),
        record(1, 1, 0, [100, 500, 3 << 40]),
    ]


def chunk(sequence, segments, body, generation=2):
    words = [generation, sequence, (CHUNK_HEADER + len(body)) * WORD, CHUNK_HEADER * WORD, len(segments)]
    for serial, at, part, before in segments:
        words += [serial << 32 | at * WORD, part, before * WORD]
    return words + [0] * (CHUNK_HEADER - len(words)) + body


def make(policy, state):
    file = {}

    def put(at, words):
        file.update({at // WORD + place: word for place, word in enumerate(words)})

    facts = json.dumps({"host": "node-1", "pid": 7, "policy": "flight", "kinds": ["user"]}).encode()
    header = [MAGIC, BYTES, CHUNK, CHUNKS, PAIRS, DEFINITIONS, SLOTS, state, 2, 0, 0, 1, 90, 95, 80, 0, 2, policy, 0, 2]
    definitions = definition(1, 1, 2 | 10 << 32, ["step", "train.rs", "bytes", "text"])
    definitions += definition(1, 2, 5, ["moment", ""]) + definition(2, 3, 0, ["key"])
    definitions += definition(3, 1, 4711, ["main"]) + [0x50534446 << 32 | 5 << 16 | 8, 1, 4, 85, 99, 1, 2, 3]
    header[9] = len(definitions)
    put(4096, [len(facts)])
    put(4096 + WORD, struct.unpack(f"<{-(-len(facts) // WORD)}Q", facts + bytes(-len(facts) % WORD)))
    for place, pair in enumerate([[50, 1_700_000_000_000_000_000, 30], [600, 1_700_000_000_000_000_550, 40]]):
        put(PAIRS_AT + place * 4 * WORD, [*pair, pair[0] ^ pair[1] ^ pair[2] ^ MAGIC])
    put(DEFINITIONS_AT, definitions)
    inner = record(1, 1, 1, [560, 16, 5 << 40, 0x80000000 | 1 << 32 | 2 << 40 | 8 << 48, 6])
    put(SLOTS_AT, [1, 4711, 20, 2, 520, 530, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0])
    put(SLOTS_AT + 16 * WORD, record(1, 1, 0, [550, 0, 4 << 40]) + inner)
    parts = records()
    first, second = sum(parts[:4], []), sum(parts[4:], [])
    begin = CHUNK_HEADER
    blocks = []
    if policy == STREAM:
        words = [0x5053424C << 32 | len(first) * WORD, 1 << 32 | begin * WORD, 0, 0, 0]
        blocks = [*words, words[0] ^ words[1] ^ words[2] ^ words[3] ^ words[4] ^ MAGIC, *first]
        header[18] = len(blocks) * WORD
    put(0, header)
    put(CHUNKS_AT, chunk(0, [(1, begin, 0, 0), (2, begin + len(first), 1, 0)], first + second))
    put(CHUNKS_AT + CHUNK, chunk(1, [(1, begin, 0, len(first))], second))
    put(BYTES, blocks)
    return [file.get(at, 0) for at in range(max(max(file) + 1, BYTES // WORD))]


def pack(words):
    data, at = b"", 0
    while at < len(words):
        begin = at
        while at < len(words) and words[at] == 0:
            at += 1
        zeros, begin = at - begin, at
        while at < len(words) and words[at : at + 2] != [0, 0] and not (words[at] == 0 and at + 1 == len(words)):
            at += 1
        data += struct.pack("<HH", zeros, at - begin) + struct.pack(f"<{at - begin}Q", *words[begin:at])
    return data


folder = pathlib.Path(__file__).parent / "corpus" / "recording"
folder.mkdir(parents=True, exist_ok=True)
for name, policy, state in [("finished", DROP_NEWEST, 2), ("killed", FLIGHT, 1), ("streamed", STREAM, 1)]:
    (folder / name).write_bytes(pack(make(policy, state)))
(folder / "cut").write_bytes(pack(make(DROP_NEWEST, 2)[: (CHUNKS_AT + 300) // WORD]))
(folder / "none").write_bytes(b"no recording")
