"""An HTTP proxy, to which every name is at the same address: proxy.py PORT ADDRESS. Prints the first line of each request."""

import socket
import sys
import threading

PORT, ADDRESS = int(sys.argv[1]), sys.argv[2]


def copy(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def serve(client):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += client.recv(1)
    line = head.split(b"\r\n")[0].decode()
    print(line, flush=True)
    method, target, _ = line.split(" ")
    tunnel = method == "CONNECT"
    server = socket.create_connection((ADDRESS, int(target.rsplit(":", 1)[1]) if tunnel else 80))
    if tunnel:
        client.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
    else:
        server.sendall(head)
    threading.Thread(target=copy, args=(server, client), daemon=True).start()
    copy(client, server)


listener = socket.create_server(("127.0.0.1", PORT))
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
