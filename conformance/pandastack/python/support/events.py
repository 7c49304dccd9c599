"""Server-sent events as bytes, read by the letter of what both clients can parse."""

import json


def blocks(body):
    """The events of a stream, each as its lines. Both clients need LF, and a blank line after every event."""
    assert b"\r" not in body, "the TypeScript client splits events at LF LF only"
    assert body.endswith(b"\n\n"), "the last event is not ended by a blank line"
    return [block.split(b"\n") for block in body.split(b"\n\n") if block]


def parse(body):
    """`(event, data)` of every event; comments are dropped."""
    found = []
    for lines in blocks(body):
        lines = [line for line in lines if not line.startswith(b":")]
        if not lines:
            continue
        names = [line for line in lines if line.startswith(b"event:")]
        data = [line for line in lines if line.startswith(b"data:")]
        assert len(names) <= 1 and len(data) == 1, f"one `event:` and one `data:` line, not {lines}"
        name = names[0][len(b"event:"):].strip().decode() if names else ""
        found.append((name, json.loads(data[0][len(b"data:"):])))
    return found
