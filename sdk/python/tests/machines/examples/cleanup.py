"""Cleaning up: the block ends it whatever happens, and a time to live if the block does not."""

import time

from pandastack import CommandFailed, NotFoundError, Sandbox


def is_gone(sandbox_id: str) -> bool:
    try:
        Sandbox.get(sandbox_id)
    except NotFoundError:
        return True
    return False


try:
    with Sandbox.create(template="base", ttl_seconds=300) as broken:
        broken.exec("exit 3", check=True)
except CommandFailed as error:
    assert error.exit_code == 3
assert is_gone(broken.id)

forgotten = Sandbox.create(template="base", ttl_seconds=3)
deadline = time.monotonic() + 60
while not is_gone(forgotten.id):
    assert time.monotonic() < deadline, "its time to live is over and it is still there"
    time.sleep(0.5)
