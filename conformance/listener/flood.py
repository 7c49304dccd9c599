"""Holds connections open and sends no request: `flood.py PORT COUNT SECONDS [tls]`.

Half of the connections send a part of a head, or of a TLS handshake. Those that the server closes are opened again.
Prints `ready` when all were opened once, and at the end how many connections it opened.
"""

import os
import select
import socket
import sys
import time

port, count, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
part = b"\x16\x03\x01\x02\x00\x01" if sys.argv[4:] == ["tls"] else b"GET /healthz HTTP/1.1\r\nHost: loc"
# An attacker has a machine of its own, so the attack gives way to the server's processor.
os.nice(10)


def connect(number):
    connection = socket.socket()
    connection.settimeout(10)
    try:
        connection.connect(("127.0.0.1", port))
        if number % 2:
            connection.send(part)
    except OSError:
        # The server has closed it already.
        pass
    connection.setblocking(False)
    return connection


poll = select.poll()
held = {}
opened = 0
while opened < count:
    connection = connect(opened)
    held[connection.fileno()] = connection
    poll.register(connection, select.POLLIN)
    opened += 1
print("ready", flush=True)
until = time.monotonic() + seconds
while time.monotonic() < until:
    # At most so many at once, so that the attack is steady.
    for descriptor, _ in poll.poll(100)[:500]:
        poll.unregister(descriptor)
        held.pop(descriptor).close()
        connection = connect(opened)
        held[connection.fileno()] = connection
        poll.register(connection, select.POLLIN)
        opened += 1
print(opened, flush=True)
