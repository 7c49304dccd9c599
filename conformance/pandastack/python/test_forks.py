"""Forks: copies of the whole machine that are independent afterwards."""

import pandastack
import pytest

from support import workspaces
from support.wire import call


@pytest.fixture
def adopt():
    """Ends sandboxes that a test did not get from a create."""
    adopted = []

    def keep(*children):
        adopted.extend(children)
        return children[0] if len(children) == 1 else list(children)

    yield keep
    for child in adopted:
        try:
            child.kill()
        except pandastack.NotFoundError:
            pass


def test_a_child_has_the_files_processes_and_variables_of_its_parent(make, adopt):
    parent = make()
    context = parent.create_code_context()
    context.run_code("x = 41")
    parent.exec("echo before > /root/file; setsid sleep 1000 </dev/null >/dev/null 2>&1 &", check=True)
    sleeper = parent.exec("pgrep -x sleep", check=True).stdout
    child = adopt(parent.fork())
    assert child.id != parent.id and child.status == "running"
    assert child.exec("cat /root/file").stdout == "before\n"
    assert child.exec("pgrep -x sleep").stdout == sleeper
    answer = call("POST", f"/v1/sandboxes/{child.id}/repl/sessions/{context.id}/run", body={"code": "print(x + 1)"})
    assert (answer.status, answer.json()["stdout"]) == (200, "42\n")


def test_parent_and_child_do_not_see_what_the_other_does_afterwards(make, adopt):
    parent = make()
    child = adopt(parent.fork())
    parent.filesystem.write("/root/who", b"parent")
    child.filesystem.write("/root/who", b"child")
    assert parent.filesystem.read("/root/who") == b"parent"
    assert child.filesystem.read("/root/who") == b"child"
    child.kill()
    assert parent.exec("cat /root/who").stdout == "parent"


def test_children_have_randomness_and_names_of_their_own(make, adopt):
    parent = make()
    children = adopt(*parent.fork_tree(2))
    for line in ("head -c 16 /dev/urandom | base64", "cat /etc/hostname", "cat /etc/machine-id"):
        said = [sandbox.exec(line, check=True).stdout for sandbox in (parent, *children)]
        assert len(set(said)) == 3, f"{line}: {said}"


def test_a_child_knows_whose_it_is_and_keeps_what_it_was_given(make, adopt):
    parent = make(metadata={"family": "smith"})
    child = adopt(parent.fork(metadata={"role": "heir"}))
    assert child.metadata["fork_parent_id"] == parent.id
    assert child.metadata["role"] == "heir"
    found = child.refresh()
    assert found.metadata["fork_parent_id"] == parent.id and found.metadata["role"] == "heir"


def test_a_tree_has_one_id_and_as_many_children_as_were_asked_for(client, make, adopt):
    parent = make()
    children = adopt(*parent.fork_tree(3, metadata={"a": "b"}))
    assert len({child.id for child in children}) == 3
    assert len({child.metadata["fork_tree_id"] for child in children}) == 1
    assert sorted(child.metadata["fork_index"] for child in children) == ["0", "1", "2"]
    assert {child.id for child in children} <= {listed.id for listed in client.sandboxes.list()}


def test_the_wire_is_as_both_clients_read_it(make):
    parent = make()
    answer = call("POST", f"/v1/sandboxes/{parent.id}/fork-tree", body={"count": 2})
    assert answer.status == 201
    found = answer.json()
    assert found["parent_id"] == parent.id and found["tree_id"]
    for child in found["children"]:
        assert {"id", "status", "template", "cpu", "memory_mb", "metadata", "persistent"} <= child.keys()
        assert call("DELETE", f"/v1/sandboxes/{child['id']}").status == 204


@pytest.mark.parametrize("cleanup", [True, False])
def test_the_promoted_child_stays_and_its_siblings_go_if_that_is_wanted(make, adopt, cleanup):
    parent = make()
    winner, *losers = adopt(*parent.fork_tree(3))
    told = winner.promote(cleanup_siblings=cleanup)
    assert told["winner"] == winner.id and told["failures"] == {}
    assert sorted(told["deleted"]) == (sorted(loser.id for loser in losers) if cleanup else [])
    assert winner.exec("echo here").stdout == "here\n"
    for loser in losers:
        assert call("GET", f"/v1/sandboxes/{loser.id}").status == (404 if cleanup else 200)
    assert parent.refresh().status == "running"


def test_a_sandbox_of_no_tree_cannot_be_promoted(make):
    with pytest.raises(pandastack.BadRequestError):
        make().promote(cleanup_siblings=True)


def test_metadata_makes_no_sandbox_a_child_of_a_fork(make, adopt):
    parent = make()
    winner, loser = adopt(*parent.fork_tree(2))
    forger = make(metadata={"fork_tree_id": winner.metadata["fork_tree_id"], "fork_index": "1"})
    with pytest.raises(pandastack.BadRequestError):
        forger.promote(cleanup_siblings=True)
    assert winner.promote(cleanup_siblings=True)["deleted"] == [loser.id]
    assert forger.refresh().status == "running"


def test_another_tree_is_not_touched(make, adopt):
    parent = make()
    first, second = adopt(*parent.fork_tree(1)), adopt(*parent.fork_tree(1))
    with pytest.raises(pandastack.BadRequestError):
        first.promote(cleanup_siblings=True, tree_id=second.metadata["fork_tree_id"])
    assert second.refresh().status == "running"


def test_explore_tries_scores_and_keeps_the_best(client, make, adopt):
    parent = make()
    parent.exec("mkdir -p /work && echo 10 > /work/base", check=True)
    result = parent.explore(
        [f"echo $(($(cat /work/base) * {factor})) | tee /work/result" for factor in (2, 5, 3)],
        score_fn=lambda _, outcome: float(outcome.stdout_tail),
    )
    winner = adopt(result.winner)
    assert winner.exec("cat /work/result").stdout == "50\n"
    assert len(result.outcomes) == 3 and not result.errors
    left = {listed.id for listed in client.sandboxes.list()}
    losers = {outcome.sandbox_id for outcome in result.outcomes} - {winner.id}
    assert len(losers) == 2 and not losers & left


def test_children_of_explore_go_by_themselves(make, adopt):
    parent = make()
    child = adopt(*parent.fork_tree(1, metadata={"explore": "1", "explore_ttl": "300"}))
    assert child.lifecycle()["ttl_seconds"] == 300


@pytest.mark.parametrize("count", [0, -1, 1000, "two", 1.5])
def test_a_number_of_children_that_makes_no_sense_is_a_400(sandbox, count):
    answer = call("POST", f"/v1/sandboxes/{sandbox.id}/fork-tree", body={"count": count})
    assert answer.status == 400 and answer.error


def test_a_fork_beyond_the_quota_is_refused_before_anything_is_made(make):
    by = pandastack.Client(api_key=workspaces.make(sandboxes=2))
    parent = make(by=by)
    with pytest.raises(pandastack.BadRequestError):
        parent.fork_tree(2)
    assert [listed.id for listed in by.sandboxes.list()] == [parent.id]


def test_a_foreign_sandbox_cannot_be_forked(other_client, sandbox):
    foreign = other_client.sandboxes
    for attempt in (lambda: foreign.fork(sandbox.id), lambda: foreign.fork_tree(sandbox.id, count=2)):
        with pytest.raises(pandastack.NotFoundError):
            attempt()
