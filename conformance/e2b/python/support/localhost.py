"""Python asks the system's resolver, and not every system resolves names below localhost."""

import socket

resolve = socket.getaddrinfo


def resolve_localhost(host, *arguments, **options):
    is_local = isinstance(host, str) and host.endswith(".localhost")
    return resolve("127.0.0.1" if is_local else host, *arguments, **options)


socket.getaddrinfo = resolve_localhost
