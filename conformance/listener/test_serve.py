"""How `sandling serve` listens: TLS, domains, and addresses that other machines can reach."""

import os
import socket
import ssl
import subprocess

import pytest


def run(server, *command, **environment):
    """A command of the CLI, with this server."""
    return subprocess.run(
        [os.environ["SANDLING"], *command], capture_output=True, text=True, timeout=30,
        env={**server.environment, **environment},
    )


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    home = str(tmp_path_factory.mktemp("refused") / "home")

    def attempt(*options, token="secret"):
        done = subprocess.run(
            [os.environ["SANDLING"], "serve", *options], capture_output=True, text=True, timeout=30,
            env={**os.environ, "SANDLING_HOME": home, "SANDLING_TOKEN": token},
        )
        assert done.returncode == 2, done
        return done.stderr

    return attempt


def test_other_machines_need_tls_and_a_token(refused, serve):
    assert "set SANDLING_TOKEN" in refused("--listen", "0.0.0.0:0", "--tls", "self", token="")
    said = refused("--listen", "0.0.0.0:0")
    assert "without TLS anybody on the network can read your token" in said and "--insecure" in said
    assert "not encrypted" in serve("--listen", "0.0.0.0:0", "--insecure").said()


def test_contradictory_options_are_refused(refused):
    assert "--tls-key" in refused("--tls-cert", "x.pem")
    assert "cannot be used with" in refused("--tls", "self", "--tls-cert", "x.pem", "--tls-key", "y.pem")
    assert "cannot read x.pem" in refused("--listen", "127.0.0.1:0", "--tls-cert", "x.pem", "--tls-key", "y.pem")
    assert "domain name" in refused("--domain", "localhost:8443")


def test_the_certificate_is_for_the_domain_and_everything_below_it(serve):
    server = serve("--listen", "127.0.0.1:0", "--tls", "self", "--domain", "vm.example.org")
    assert f"https://api.vm.example.org:{server.port}" in server.said()
    context = ssl.create_default_context(cafile=str(server.home / "tls/ca.pem"))
    for name in ["vm.example.org", "api.vm.example.org", "3000-abc.vm.example.org", "localhost", "127.0.0.1"]:
        with socket.create_connection(("127.0.0.1", server.port)) as plain:
            context.wrap_socket(plain, server_hostname=name).close()
    with socket.create_connection(("127.0.0.1", server.port)) as plain, pytest.raises(ssl.SSLCertVerificationError):
        context.wrap_socket(plain, server_hostname="example.org")
    for file in (server.home / "tls").iterdir():
        assert file.stat().st_mode & 0o777 == 0o600, file


def test_commands_find_the_server_with_and_without_variables(serve):
    server = serve("--listen", "127.0.0.1:0", "--tls", "self")
    assert run(server, "ls", "-q").returncode == 0
    address = f"https://localhost:{server.port}"
    trusted = {"SSL_CERT_FILE": str(server.home / "tls/trust.pem")}
    named = run(server, "quota", SANDLING_API=address, **trusted)
    assert named.returncode == 0 and "requests_per_second" in named.stdout, named
    distrusted = run(server, "quota", SANDLING_API=address, SSL_CERT_FILE="/dev/null")
    assert distrusted.returncode != 0
