"""The console of a sandbox."""

import threading
import uuid

import pandastack
import pytest

from support.server import PYTHON_AGENT
from support.waiting import until
from support.wire import call, listen, raw_request


def say(sandbox, text):
    """Writes a line to the guest's console."""
    sandbox.exec(f"printf '%s\\n' '{text}' > /dev/console", check=True)


@pytest.fixture
def mark():
    return f"mark-{uuid.uuid4().hex}"


def test_what_the_guest_says_is_in_the_logs(sandbox, mark):
    say(sandbox, f"{mark} zoë ☃")
    until("the line is in the logs", lambda: f"{mark} zoë ☃" in list(sandbox.logs()))


@pytest.mark.parametrize("stream", ["both", "stdout", "stderr"])
def test_every_stream_the_client_can_name_is_accepted(sandbox, stream):
    assert all("\n" not in line for line in sandbox.logs(stream=stream))


@pytest.mark.parametrize("query", [{}, {"follow": "false"}, {"follow": "0"}, {"stream": "both", "follow": "false"}],
                         ids=str)
def test_without_follow_the_logs_are_plain_text_that_says_its_character_set(sandbox, query):
    answer = call("GET", f"/v1/sandboxes/{sandbox.id}/logs", query=query)
    assert answer.status == 200
    assert answer.content_type == "text/plain;charset=utf-8"


def test_follow_yields_lines_as_they_are_said(sandbox, mark):
    heard, seen = [], threading.Event()

    def follow():
        for line in sandbox.logs(follow=True):
            heard.append(line)
            if line.startswith(f"{mark} last"):
                seen.set()
                return

    threading.Thread(target=follow, daemon=True).start()
    until("the follower is there", lambda: say(sandbox, f"{mark} zoë 1") or f"{mark} zoë 1" in heard)
    say(sandbox, f"{mark} last")
    assert seen.wait(20)
    assert not any("\r" in line or line.startswith("{") for line in heard), "bogus lines"


@pytest.mark.parametrize("spelling", ["true", "1"])
def test_both_spellings_of_follow_give_events(sandbox, mark, spelling):
    say(sandbox, mark)
    path = f"/v1/sandboxes/{sandbox.id}/logs?stream=both&follow={spelling}"
    headers = [("User-Agent", PYTHON_AGENT), ("Accept", "application/json")]
    speaker = threading.Timer(1.0, say, (sandbox, f"{mark} while following"))
    speaker.start()
    wanted = f"{mark} while following".encode()
    found = listen(raw_request("GET", path, headers=headers), 20, lambda heard: wanted in heard.bytes).bytes
    speaker.join()
    head, _, body = found.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"content-type: text/event-stream; charset=utf-8" in head.lower()
    assert wanted in body and b"data:" in body


def test_the_logs_of_an_unknown_sandbox_are_not_found(client):
    lost = pandastack.Sandbox.from_dict({"id": "00000000-0000-4000-8000-000000000000"}, client=client)
    for follow in (False, True):
        with pytest.raises(pandastack.NotFoundError):
            list(lost.logs(follow=follow))
