"""Snapshots, forks, promotion, exploration, hibernation."""

import pandastack
import pytest

from support.server import call


@pytest.fixture
def furnished(make):
    """A sandbox with a file, a process and a variable."""
    sandbox = make()
    sandbox.exec("echo parent > /root/file; setsid sleep 1000 >/dev/null 2>&1 </dev/null &", check=True)
    return sandbox


def kill_all(sandboxes):
    for sandbox in sandboxes:
        try:
            sandbox.kill()
        except pandastack.NotFoundError:
            pass


def test_a_fork_has_everything_and_shares_nothing_later(furnished):
    child = furnished.fork(metadata={"note": "mine"})
    try:
        assert child.id != furnished.id
        assert child.metadata["note"] == "mine"
        assert child.metadata["fork_parent_id"] == furnished.id
        assert child.exec("cat /root/file; pgrep -c sleep").stdout == "parent\n1\n"
        child.exec("echo child > /root/file", check=True)
        assert furnished.exec("cat /root/file").stdout == "parent\n"
        names = [box.exec("hostname; head -c 8 /dev/urandom | od -An -tx1").stdout for box in (furnished, child)]
        assert names[0] != names[1]
    finally:
        child.kill()


def test_a_tree_has_as_many_children_as_asked_and_one_is_promoted(furnished, client):
    children = furnished.fork_tree(3, metadata={"explore": "1"})
    try:
        assert len({child.id for child in children}) == 3
        assert len({child.metadata["fork_tree_id"] for child in children}) == 1
        assert [child.metadata["fork_index"] for child in children] == ["0", "1", "2"]
        answer = children[1].promote(cleanup_siblings=True)
        assert sorted(answer["deleted"]) == sorted([children[0].id, children[2].id])
        assert answer["failures"] == {}
        with pytest.raises(pandastack.NotFoundError):
            client.sandboxes.get(children[0].id)
        assert children[1].exec("cat /root/file").stdout == "parent\n"
    finally:
        kill_all(children)


def test_explore_ttl_is_how_long_a_child_lives(furnished):
    (child,) = furnished.fork_tree(1, metadata={"explore_ttl": "77"})
    try:
        assert child.lifecycle()["ttl_seconds"] == 77
    finally:
        child.kill()


def test_explore_keeps_the_best(furnished):
    outcome = furnished.explore(
        ["echo 1", "echo 3", "echo 2"], score_fn=lambda _, result: float(result.stdout), max_concurrency=2
    )
    try:
        assert outcome.winner.stdout.strip() == "3"
    finally:
        kill_all([outcome.winner.sandbox] if getattr(outcome.winner, "sandbox", None) else [])


def test_no_sandbox_of_another_is_forked_or_promoted(furnished, other_client):
    from support import server

    for verb in ("fork", "fork-tree", "promote", "snapshots", "hibernate", "wake"):
        answer = call("POST", f"/v1/sandboxes/{furnished.id}/{verb}", token=server.TOKEN_OTHER)
        assert answer.status == 404, (verb, answer.body)


@pytest.mark.parametrize("count", [0, 65, -1, "three"])
def test_a_tree_without_or_with_too_many_children_is_refused(furnished, count):
    answer = call("POST", f"/v1/sandboxes/{furnished.id}/fork-tree", json={"count": count})
    assert answer.status == 400, answer.body


def test_a_snapshot_is_listed_and_is_where_others_begin(furnished, client, make):
    snapshot = furnished.snapshot()
    furnished.exec("echo later > /root/file", check=True)
    listed = client.snapshots.list()
    assert snapshot in [item["id"] if isinstance(item, dict) else item.id for item in listed]
    again = make(from_snapshot=snapshot)
    assert again.exec("cat /root/file; pgrep -c sleep").stdout == "parent\n1\n"
    client.snapshots.delete(snapshot)
    with pytest.raises(pandastack.NotFoundError):
        client.snapshots.get(snapshot)
    assert again.exec("cat /root/file").stdout == "parent\n"


def test_hibernation_keeps_what_runs_and_any_use_ends_it(furnished):
    furnished.hibernate()
    furnished.hibernate()
    assert furnished.refresh().status == "hibernated"
    assert furnished.exec("cat /root/file; pgrep -c sleep").stdout == "parent\n1\n"
    assert furnished.refresh().status == "running"
    furnished.hibernate()
    furnished.wake()
    furnished.wake()
    assert furnished.refresh().status == "running"
