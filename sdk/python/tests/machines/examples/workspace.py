"""A persistent workspace: it outlives the block and the process, sleeps, and is found again."""

from pandastack import Sandbox, templates

assert "base" in [template.name for template in templates.list()]
with Sandbox.create(template="base", persistent=True, metadata={"user": "ada"}) as sandbox:
    sandbox.filesystem.write("/workspace/notes.md", "day one\n")
    known = sandbox.id

try:
    again = Sandbox.get(known)
    assert again.persistent, "the block did not end it"
    again.hibernate()
    assert known in [one.id for one in Sandbox.list()]
    again.wake()
    assert again.exec("cat /workspace/notes.md").stdout == "day one\n"
    assert [entry.name for entry in again.filesystem.listdir("/workspace")] == ["notes.md"]
    assert again.lifecycle()["persistent"] is True
    again.set_persistent(False)
    assert again.set_ttl(900)["ttl_seconds"] == 900
finally:
    Sandbox.get(known).kill()
