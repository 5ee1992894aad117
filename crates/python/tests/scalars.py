"""Reads the scalars that examples/late_scalars.py has written: `scalars.py FOLDER`.

TensorBoard's by its own reader. Weights & Biases has none in Python: its offline file is a log of LevelDB (blocks of 32 KiB, records of CRC, length, kind)
of its own protobuf messages.
"""

import json
import pathlib
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto import wandb_internal_pb2

HEADER, BLOCK, RECORD, FULL, LAST = 7, 32 << 10, 7, 1, 4


def of_tensorboard(folder):
    events = EventAccumulator(str(folder))
    events.Reload()
    return {name: [event.value for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def records(data):
    at, whole = HEADER, b""
    while at + RECORD <= len(data):
        if BLOCK - at % BLOCK < RECORD:
            at += BLOCK - at % BLOCK
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + RECORD : at + RECORD + length]
        at += RECORD + length
        if kind in (FULL, LAST):
            yield whole
            whole = b""


def of_wandb(folder):
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    curves = {}
    for data in records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        for item in record.history.item:
            curves.setdefault(item.key or "/".join(item.nested_key), []).append(json.loads(item.value_json))
    return curves


folder = pathlib.Path(sys.argv[1])
print(json.dumps({"tensorboard": of_tensorboard(folder), "wandb": of_wandb(folder)}))
