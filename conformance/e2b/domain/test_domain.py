"""What only the domain and TLS give: host names of ports over HTTPS, and URLs of the domain."""

import os
import urllib.parse

import pyqwest
import pytest
from e2b import Sandbox

from support.waiting import until


@pytest.fixture(scope="module")
def client():
    """The HTTP library of E2B's client, which resolves names below localhost by itself."""
    return pyqwest.SyncClient(pyqwest.SyncHTTPTransport(tls_include_system_certs=True))


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox.create(timeout=600) as made:
        yield made


def test_the_variables_name_only_the_domain():
    assert not {"E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL"} & set(os.environ)
    assert os.environ["E2B_DOMAIN"].startswith("sandling.localhost:")


def test_a_port_has_a_name_below_the_domain_and_is_served_over_https(sandbox, client):
    sandbox.files.write("/srv/hello", "hello by name")
    sandbox.commands.run("cd /srv && exec python3 -m http.server 8000", background=True, user="root")
    host = sandbox.get_host(8000)
    assert host == f"8000-{sandbox.sandbox_id}.{os.environ['E2B_DOMAIN']}"

    def answer():
        response = client.get(f"https://{host}/hello")
        return response.status == 200 and response

    response = until("the server in the sandbox answers", answer)
    assert response.text() == "hello by name"


def test_signed_urls_of_files_are_of_the_domain(sandbox, client):
    url = sandbox.upload_url("/home/user/up")
    assert urllib.parse.urlsplit(url)[:2] == ("https", f"49983-{sandbox.sandbox_id}.{os.environ['E2B_DOMAIN']}")
    sandbox.files.write("/home/user/down", "signed")
    assert client.get(sandbox.download_url("/home/user/down")).text() == "signed"
