"""Volumes: named disks that outlive sandboxes, written by one or read by many."""

import uuid

import pandastack
import pytest

from support.wire import call


@pytest.fixture
def volume(client):
    """Creates a volume that is deleted with the test."""
    made = []

    def create(size_mb=64, by=client):
        made.append((by, f"conformance-{uuid.uuid4().hex[:12]}"))
        by.volumes.create(made[-1][1], size_mb=size_mb)
        return made[-1][1]

    yield create
    for by, name in made:
        try:
            by.volumes.delete(name)
        except pandastack.NotFoundError:
            pass


def test_a_volume_is_made_listed_looked_at_and_deleted(client, volume):
    name = volume()
    found = client.volumes.get(name)
    assert found["name"] == name and found["size_mb"] == 64 and found["size_bytes"] == 64 << 20
    assert name in [listed["name"] for listed in client.volumes.list()]
    client.volumes.delete(name)
    for attempt in (lambda: client.volumes.get(name), lambda: client.volumes.delete(name)):
        with pytest.raises(pandastack.NotFoundError):
            attempt()


def test_a_name_is_given_once_and_odd_ones_never(client, volume):
    name = volume()
    answer = call("POST", "/v1/volumes", body={"name": name, "size_mb": 64})
    assert answer.status == 409, answer
    for bad in ["", "..", "a/b", "-x", "a b", "x" * 65]:
        assert call("POST", "/v1/volumes", body={"name": bad, "size_mb": 64}).status == 400, bad
    for size in [1, 65537]:
        assert call("POST", "/v1/volumes", body={"name": "odd-size", "size_mb": size}).status == 400, size


def test_what_is_written_to_a_volume_outlives_the_sandbox(volume, make):
    name = volume()
    writer = make(volumes=[{"name": name, "read_only": False}])
    writer.exec(f"echo kept > /mnt/{name}/file", check=True)
    # PandaStack's clients mount it themselves, by its device name.
    assert writer.exec("mkdir /data && mount /dev/vdb /data && cat /data/file").stdout == "kept\n"
    writer.kill()
    readers = [make(volumes=[{"name": name, "readOnly": True}]) for _ in range(2)]
    for reader in readers:
        assert reader.exec(f"cat /mnt/{name}/file").stdout == "kept\n"
        assert reader.exec(f"touch /mnt/{name}/new").exit_code != 0


def test_one_writes_or_many_read_and_nobody_deletes_what_is_in_use(client, volume, make):
    name = volume()
    make(volumes=[{"name": name, "read_only": False}])
    for read_only in (False, True):
        with pytest.raises(pandastack.PandastackError, match="in use"):
            make(volumes=[{"name": name, "read_only": read_only}])
    with pytest.raises(pandastack.PandastackError, match="in use"):
        client.volumes.delete(name)


def test_a_fork_must_say_what_becomes_of_the_volumes(client, volume, make):
    name = volume()
    parent = make(volumes=[{"name": name, "read_only": False}])
    with pytest.raises(pandastack.BadRequestError, match="volumes"):
        parent.fork()
    forked = call("POST", f"/v1/sandboxes/{parent.id}/fork", body={"volumes": "detach"})
    assert forked.status == 201, forked
    child = client.sandboxes.get(forked.json()["children"][0]["id"])
    assert child.exec(f"mountpoint -q /mnt/{name}").exit_code != 0
    child.kill()


def test_a_foreign_volume_does_not_exist(other_client, volume, make):
    name = volume()
    for attempt in (
        lambda: other_client.volumes.get(name),
        lambda: other_client.volumes.delete(name),
        lambda: make(by=other_client, volumes=[{"name": name, "read_only": True}]),
    ):
        with pytest.raises(pandastack.NotFoundError):
            attempt()
