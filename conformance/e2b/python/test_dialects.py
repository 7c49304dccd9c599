"""One sandbox, seen through both dialects; and its servers, seen from outside."""

import os
import urllib.error
import urllib.request

import pytest
from e2b import Sandbox
from support import native
from support.waiting import until


def test_a_sandbox_is_the_same_in_both(make):
    made = make(metadata={"from": "e2b"})
    own = native.call("GET", f"/v1/sandboxes/{made.sandbox_id}")
    assert own["id"].replace("-", "") == made.sandbox_id and own["metadata"] == {"from": "e2b"}
    native.call("POST", f"/v1/sandboxes/{own['id']}/exec", {"cmd": "echo native >/tmp/from"})
    assert made.files.read("/tmp/from") == "native\n"
    audited = native.call("GET", "/v1/audit?limit=1000")["items"]
    assert any(e["action"] == "sandbox.create" and e["object"] == own["id"] for e in audited)


def test_a_sandbox_of_the_other_dialect_is_connected_to():
    own = native.call("POST", "/v1/sandboxes", {"template": "base", "ttl_seconds": 300})
    connected = Sandbox.connect(own["id"].replace("-", ""))
    try:
        assert connected.commands.run("echo here").stdout == "here\n"
    finally:
        connected.kill()


def test_a_server_is_seen_at_its_host(make):
    made = make()
    made.commands.run("mkdir s && cd s && echo seen >f && python3 -m http.server 3000", background=True, timeout=0)
    assert made.get_host(3000).startswith(f"3000-{made.sandbox_id}.")

    def fetch(port):
        request = urllib.request.Request(os.environ["SANDLING_API"] + "/f", headers={"Host": made.get_host(port)})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()

    def seen():
        try:
            return fetch(3000) == b"seen\n"
        except urllib.error.HTTPError as error:
            assert error.code == 502 and b"port is not open" in error.read()

    until("the server", seen)
    with pytest.raises(urllib.error.HTTPError) as caught:
        fetch(3001)
    assert caught.value.code == 502
