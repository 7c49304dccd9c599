"""Snapshots, and sandboxes that start from them."""

import pandastack
import pytest

MISSING = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def snapshot_of(client):
    """Saves a sandbox. The snapshot is deleted with the test."""
    made = []

    def save(sandbox):
        made.append(sandbox.snapshot())
        return made[-1]

    yield save
    for snapshot in made:
        try:
            client.snapshots.delete(snapshot)
        except pandastack.NotFoundError:
            pass


def test_a_sandbox_from_a_snapshot_begins_where_it_was_saved(make, snapshot_of):
    saved = make()
    saved.exec("echo then > /root/file; setsid sleep 1000 </dev/null >/dev/null 2>&1 &", check=True)
    sleeper = saved.exec("pgrep -x sleep", check=True).stdout
    snapshot = snapshot_of(saved)
    assert isinstance(snapshot, str) and snapshot
    saved.exec("echo later > /root/file", check=True)
    begun = make(from_snapshot=snapshot)
    assert begun.id != saved.id and begun.from_snapshot == snapshot
    assert begun.exec("cat /root/file").stdout == "then\n"
    assert begun.exec("pgrep -x sleep").stdout == sleeper
    assert saved.exec("cat /root/file").stdout == "later\n"


def test_a_snapshot_outlives_its_sandbox_and_can_be_used_again(make, snapshot_of):
    saved = make()
    saved.filesystem.write("/root/file", b"kept")
    snapshot = snapshot_of(saved)
    saved.kill()
    names = set()
    for _ in range(2):
        begun = make(from_snapshot=snapshot)
        assert begun.filesystem.read("/root/file") == b"kept"
        names.add(begun.exec("cat /etc/hostname").stdout)
    assert len(names) == 2, "each has a name of its own"


def test_snapshots_are_listed_newest_first_and_by_their_sandbox(client, make, snapshot_of):
    saved, other = make(), make()
    first, second, third = snapshot_of(saved), snapshot_of(saved), snapshot_of(other)
    listed = [snapshot["id"] for snapshot in client.snapshots.list()]
    assert listed.index(third) < listed.index(second) < listed.index(first)
    assert [snapshot["id"] for snapshot in client.snapshots.list(sandbox_id=saved.id)] == [second, first]
    found = client.snapshots.get(first)
    assert found["sandbox_id"] == saved.id and found["template"] == "base"
    assert found["size_bytes"] > 0 and found["created_at"]


def test_a_deleted_snapshot_is_gone_and_what_stands_on_it_goes_on(client, make, snapshot_of):
    saved = make()
    saved.filesystem.write("/root/file", b"kept")
    snapshot = snapshot_of(saved)
    begun = make(from_snapshot=snapshot)
    client.snapshots.delete(snapshot)
    for attempt in (
        lambda: client.snapshots.get(snapshot),
        lambda: client.snapshots.delete(snapshot),
        lambda: make(from_snapshot=snapshot),
    ):
        with pytest.raises(pandastack.NotFoundError):
            attempt()
    assert begun.filesystem.read("/root/file") == b"kept"


def test_a_snapshot_that_is_not_there_is_not_found(client, make):
    for attempt in (lambda: client.snapshots.get(MISSING), lambda: make(from_snapshot=MISSING)):
        with pytest.raises(pandastack.NotFoundError):
            attempt()


def test_a_foreign_snapshot_does_not_exist(other_client, make, snapshot_of):
    snapshot = snapshot_of(make())
    assert snapshot not in [listed["id"] for listed in other_client.snapshots.list()]
    for attempt in (
        lambda: other_client.snapshots.get(snapshot),
        lambda: other_client.snapshots.delete(snapshot),
        lambda: make(by=other_client, from_snapshot=snapshot),
    ):
        with pytest.raises(pandastack.NotFoundError):
            attempt()
