"""Fork to explore: a risky step is tried in copies of a warm machine, and the original does not notice."""

from pandastack import Sandbox

with Sandbox.create(template="base", ttl_seconds=900) as parent:
    parent.exec("mkdir -p /work && echo original >/work/config", check=True)
    child = parent.fork(metadata={"why": "risky"})
    try:
        child.exec("rm -rf /work /usr/share", check=True)
        assert not child.filesystem.exists("/work/config")
        assert child.metadata["fork_parent_id"] == parent.id
    finally:
        child.kill()
    assert parent.filesystem.read("/work/config") == b"original\n"

    children = parent.fork_tree(2)
    for number, one in enumerate(children):
        one.exec(f"echo {number} >/work/config", check=True)
    told = children[1].promote(cleanup_siblings=True)
    assert told["winner"] == children[1].id and told["deleted"] == [children[0].id]
    assert children[1].exec("cat /work/config").stdout == "1\n"
    children[1].kill()

    snapshot = parent.snapshot()
    with Sandbox.create(from_snapshot=snapshot, ttl_seconds=300) as copy:
        assert copy.exec("cat /work/config").stdout == "original\n"
