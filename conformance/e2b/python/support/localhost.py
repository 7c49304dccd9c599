"""Python asks the system's resolver, and not every system resolves names below localhost."""

import socket

resolve = socket.getaddrinfo


def resolve_localhost(host, *arguments, **options):
    name = host.decode() if isinstance(host, bytes) else host or ""
    return resolve("127.0.0.1" if name.endswith(".localhost") else host, *arguments, **options)


socket.getaddrinfo = resolve_localhost
