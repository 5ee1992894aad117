#!/usr/bin/env python3
"""Foreign clients of one listener, until SIGTERM.

    python3 attacker.py tcp HOST PORT COUNT | unix PATH COUNT | udp COUNT_PER_SECOND HOST:PORT...

A third of the connections says nothing, a third says one byte at a time, a third says garbage and comes again; whoever is closed comes again. Nobody waits for another: connections are begun
together. Over UDP: random packets of the size of a probe, to all addresses in turn. At the end a line of JSON says what came of it: "reached", how many clients had a connection; "standing", the median over time of those that had
one; or "sent", packets. `listeners.py` starts it on a host that has no rank.
It does not know the run's key.
"""

import errno
import json
import os
import random
import select
import signal
import socket
import statistics
import sys
import time

TICK_S = 0.05
PACKET_BYTES = 80


class Client:
    """One of those who hold a connection."""

    def __init__(self, place, number):
        self.place, self.number, self.stream, self.stands, self.reached = place, number, None, False, False
        self.connect()

    def connect(self):
        """Begins a connection; the next tick says what came of it."""
        self.close()
        stream = socket.socket(socket.AF_UNIX if isinstance(self.place, str) else socket.AF_INET)
        stream.setblocking(False)
        code = stream.connect_ex(self.place)
        if code in (0, errno.EINPROGRESS):
            self.stream, self.stands = stream, code == 0
            self.reached |= self.stands
        else:
            # A full queue of a Unix-domain socket, say.
            stream.close()

    def settled(self):
        """The connection that was begun has come about, or has not."""
        if self.stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.close()
        else:
            self.stands = self.reached = True

    def close(self):
        if self.stream is not None:
            self.stream.close()
        self.stream, self.stands = None, False

    def keeps(self, tick):
        """Says its part; whether its connection is to stay."""
        try:
            if self.stream.recv(1024) == b"":
                return False
        except BlockingIOError:
            pass
        except OSError:
            return False
        try:
            if self.number % 3 == 1:
                self.stream.send(random.randbytes(1))
            elif self.number % 3 == 2 and tick % 4 == 0:
                self.stream.send(b"garbage" * 100)
                return tick % 16 != 0
        except OSError:
            return False
        return True


def hold(place, count, ended):
    """Holds so many connections; what came of it."""
    clients, tick, standing = [Client(place, number) for number in range(count)], 0, []
    while not ended:
        tick += 1
        begun = {client.stream.fileno(): client for client in clients if client.stream and not client.stands}
        poll = select.poll()
        for number in begun:
            poll.register(number, select.POLLOUT)
        for number, _ in poll.poll(0):
            begun[number].settled()
        for client in clients:
            if client.stream is None or (client.stands and not client.keeps(tick)):
                client.connect()
        standing.append(sum(client.stands for client in clients))
        time.sleep(TICK_S)
    return {"reached": sum(client.reached for client in clients), "standing": statistics.median(standing or [0])}


def flood(rate, places, ended):
    """Packets at about this rate; what came of it."""
    sender, sent, begun = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0, time.monotonic()
    while not ended:
        while sent < (time.monotonic() - begun) * rate:
            sender.sendto(random.randbytes(PACKET_BYTES), places[sent % len(places)])
            sent += 1
        time.sleep(0.001)
    return {"sent": sent, "wanted": (time.monotonic() - begun) * rate}


def main():
    os.nice(10)
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    address = lambda text: (text.rsplit(":", 1)[0], int(text.rsplit(":", 1)[1]))
    match sys.argv[1:]:
        case ["tcp", host, port, count]:
            done = hold((host, int(port)), int(count), ended)
        case ["unix", path, count]:
            done = hold(path, int(count), ended)
        case ["udp", rate, *places]:
            done = flood(int(rate), [address(place) for place in places], ended)
        case _:
            sys.exit(__doc__)
    print(json.dumps(done))


if __name__ == "__main__":
    main()
