"""Adapts schemathesis' requests before they are sent.

- A create with a new size bakes a template of that size, which takes a minute, so sizes are removed.
- Long-lived sandboxes use up the host, and others need sandboxes that still exist, so TTLs are short but not too short.
- No schema knows which templates, snapshots, volumes and checkpoints exist, or that one field needs another.
"""

import schemathesis
from schemathesis import GenerationMode

UNKNOWN = {"from_snapshot", "volumes", "network", "checkpoints_kept", "inherit_secrets"}
COSTLY = {"cpu", "memory_mb", "disk_mb", "persistent", "idle_seconds"}

SETTLED = {
    "/v1/sandboxes": {"template": "base", "ttl_seconds": 20},
    "/v1/sandboxes/{id}/fork": {"count": 1, "ttl_seconds": 20},
    "/v1/sandboxes/{id}/fork-tree": {"count": 2, "ttl_seconds": 20},
    "/v1/sandboxes/{id}/contexts/{context}/fork": {"count": 1, "ttl_seconds": 20},
    "/v1/sandboxes/{id}/repl/sessions/{session}/fork": {"count": 1, "ttl_seconds": 20},
    "/v1/sandboxes/{id}/lifecycle": {"ttl_seconds": 86400},
    "/v1/sandboxes/{id}/rewind": {"to": "1"},
}


@schemathesis.serializer("application/x-tar")
def archive(context, value):
    """Schemathesis knows no archives. Any bytes will do: most of them are refused."""
    return value if isinstance(value, bytes) else str(value).encode()


@schemathesis.hook
def before_call(context, case, kwargs):
    settled = SETTLED.get(case.operation.path)
    if settled and case.method in ("POST", "PATCH") and case.meta.generation.mode is GenerationMode.POSITIVE:
        # A missing body means an object without fields.
        said = case.body if isinstance(case.body, dict) else {}
        case.body = {name: value for name, value in said.items() if name not in UNKNOWN | COSTLY} | settled
        case.media_type = "application/json"
