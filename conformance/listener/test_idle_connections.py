"""Thousands of connections without a request."""

import http.client
import resource
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

#: The attack goes on for so long after all connections were opened once.
SECONDS = 6
#: A request of a client with a token takes milliseconds. A shared machine may be slower, but not by much.
PROMPTLY = 5.0
#: The share of new connections that may be closed before their first request. The server reads what a new connection has
#: sent before it closes any. Only a client that is slow to send its request, or to answer in a TLS handshake, can become
#: one of the oldest. In eight runs, none did.
CLOSED = 0.02


def most():
    """The connections of the attack: 10,000, unless the system allows fewer."""
    return min(10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500)


class Customer:
    """A client with a token, and what its requests took."""

    def __init__(self, server, context):
        self.server, self.context, self.took, self.closed = server, context, [], 0
        self.kept = self.connect()

    def connect(self):
        if self.context:
            return http.client.HTTPSConnection("localhost", self.server.port, timeout=30, context=self.context)
        return http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)

    def ask(self, connection):
        begun = time.monotonic()
        connection.request("GET", "/v1/me", headers={"Authorization": f"Bearer {self.server.token}"})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (answer.status, body)
        self.took.append(time.monotonic() - begun)

    def work(self):
        """One request over a connection that is kept, and one over a new connection."""
        self.ask(self.kept)
        while True:
            fresh = self.connect()
            try:
                return self.ask(fresh)
            except (http.client.RemoteDisconnected, ConnectionResetError, ssl.SSLEOFError):
                self.closed += 1
            finally:
                fresh.close()


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_clients_with_a_token_do_not_notice(serve, tls):
    options = ["--listen", "127.0.0.1:0", *(["--tls", "self"] if tls else [])]
    server = serve(*options)
    context = ssl.create_default_context(cafile=str(server.home / "tls/ca.pem")) if tls else None
    customer = Customer(server, context)
    customer.work()
    kept = customer.kept.sock
    command = [sys.executable, "flood.py", str(server.port), str(most()), str(SECONDS), *(["tls"] if tls else [])]
    attack = subprocess.Popen(command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True)
    try:
        while attack.poll() is None:
            customer.work()
            time.sleep(0.02)
        said = attack.stdout.read().split()
    finally:
        attack.kill()
        attack.wait()
    assert said[0] == "ready" and int(said[1]) >= most(), said
    assert customer.kept.sock is kept, "the kept connection was closed"
    print(
        f"{len(customer.took)} requests, the slowest took {max(customer.took):.3f} s; {said[1]} idle connections; "
        f"{customer.closed} connections were closed before their request"
    )
    assert customer.closed <= max(2, CLOSED * len(customer.took)), customer.closed
    assert max(customer.took) < PROMPTLY
    assert len(customer.took) > 50, "the customer was held up"
