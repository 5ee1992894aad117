#!/usr/bin/env python3
"""Passes on TCP connections that nft redirects to it, and flips a bit in each when it is told to.

    ip netns exec HOST python3 proxy.py PORT

SIGUSR1: the next bytes that each connection carries away from this host have one bit flipped. The kernel knows where a redirected connection was going
(SO_ORIGINAL_DST); the proxy's own sockets carry mark 7, by which nft leaves them alone. `run.py` starts it for the cell of corrupt frames. A proxy, not the
network emulator, because the kernel's checksums would drop what that corrupts.
It does not know frames.
"""

import signal
import socket
import struct
import sys
import threading

SO_ORIGINAL_DST = 80
MARK = 7
flips = 0


def pass_on(source, sink, away):
    """Until either end closes."""
    # Whoever connects later is left alone until the next signal.
    flipped = flips
    try:
        while data := source.recv(65536):
            if away and flipped < flips:
                flipped, at = flips, len(data) // 2
                data = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
            sink.sendall(data)
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def serve(inner):
    """Connects to where the connection was going."""
    port, address = struct.unpack("!2xH4s8x", inner.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16))
    outer = socket.socket()
    outer.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
    try:
        outer.connect((socket.inet_ntoa(address), port))
    except OSError:
        return inner.close()
    for end in (inner, outer):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=pass_on, args=(outer, inner, False), daemon=True).start()
    pass_on(inner, outer, True)


def flip(*_):
    global flips
    flips += 1


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: proxy.py PORT")
    signal.signal(signal.SIGUSR1, flip)
    listener = socket.create_server(("", int(sys.argv[1])), backlog=64)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    main()
