#!/usr/bin/env python3
"""Foreign clients of one listener, until it is ended.

    python3 attacker.py tcp HOST PORT COUNT | unix PATH COUNT | udp COUNT_PER_SECOND HOST:PORT...

A third of the connections says nothing, a third says one byte at a time, a third says garbage and comes again; whoever is closed comes again. Over UDP: random
packets of the size of a probe, to all addresses in turn. Place in the flow: `listeners.py` starts it on a host that has no rank.
What it does not do: know the run's key.
"""

import os
import random
import socket
import sys
import time

TICK_S = 0.05
PACKET_BYTES = 80


def connect(place):
    """A connection; none where none is to be had now."""
    stream = socket.socket(socket.AF_UNIX if isinstance(place, str) else socket.AF_INET)
    stream.settimeout(0.1)
    try:
        stream.connect(place)
    except OSError:
        stream.close()
        return None
    stream.setblocking(False)
    return stream


def closed(stream):
    """Whether the other side has ended it."""
    try:
        return stream.recv(1024) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def hold(place, count):
    """Holds so many connections."""
    streams, tick = [connect(place) for _ in range(count)], 0
    while True:
        tick += 1
        for number, stream in enumerate(streams):
            keep = stream is not None and not closed(stream)
            try:
                if keep and number % 3 == 1:
                    stream.send(random.randbytes(1))
                elif keep and number % 3 == 2 and tick % 4 == 0:
                    stream.send(b"garbage" * 100)
                    keep = tick % 16 != 0
            except OSError:
                keep = False
            if not keep:
                if stream is not None:
                    stream.close()
                streams[number] = connect(place)
        time.sleep(TICK_S)


def flood(rate, places):
    """Packets at about this rate."""
    sender, sent, begun = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0, time.monotonic()
    while True:
        while sent < (time.monotonic() - begun) * rate:
            sender.sendto(random.randbytes(PACKET_BYTES), places[sent % len(places)])
            sent += 1
        time.sleep(0.001)


def main():
    os.nice(10)
    address = lambda text: (text.rsplit(":", 1)[0], int(text.rsplit(":", 1)[1]))
    match sys.argv[1:]:
        case ["tcp", host, port, count]:
            hold((host, int(port)), int(count))
        case ["unix", path, count]:
            hold(path, int(count))
        case ["udp", rate, *places]:
            flood(int(rate), [address(place) for place in places])
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
