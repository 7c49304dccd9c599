"""What schemathesis changes about a request before it is sent.

A create of a size that nobody has asked for bakes a template of that size, which takes a minute of the host; and what
lives for long keeps others from being made.
"""

import schemathesis


@schemathesis.hook.apply_to(method="POST", path="/v1/sandboxes")
def map_body(context, body):
    if not isinstance(body, dict):
        return body
    sized = {"cpu", "memory_mb", "disk_mb", "disk_gb", "from_snapshot", "persistent", "idle_seconds"}
    return {name: value for name, value in body.items() if name not in sized} | {"ttl_seconds": 20}
