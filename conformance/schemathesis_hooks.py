"""What schemathesis changes about a request before it is sent.

A create of a size that nobody has asked for bakes a template of that size, which takes a minute of the host; what lives
for long keeps others from being made; and no schema knows which templates, snapshots and volumes there are, or that one
field needs another.
"""

import schemathesis
from schemathesis import GenerationMode

UNKNOWN = {"from_snapshot", "volumes", "network", "egress_allowlist", "checkpoints_kept"}
COSTLY = {"cpu", "memory_mb", "disk_mb", "disk_gb", "persistent", "idle_seconds"}


@schemathesis.hook.apply_to(method="POST", path="/v1/sandboxes")
def before_call(context, case, kwargs):
    if case.meta.generation.mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
        kept = {name: value for name, value in case.body.items() if name not in UNKNOWN | COSTLY}
        case.body = {**kept, "template": "base", "ttl_seconds": 20}
