"""The client's git, which runs commands in the sandbox."""


def test_a_repository_is_made_changed_and_cloned(sandbox, place):
    git, path = sandbox.git, f"{place}/repository"
    git.init(path, initial_branch="main")
    git.configure_user("A", "a@example.org", scope="local", path=path)
    sandbox.files.write(f"{path}/file", "one\n")
    assert [entry.name for entry in git.status(path).file_status] == ["file"]
    git.add(path)
    git.commit(path, "first")
    git.create_branch(path, "other")
    assert set(git.branches(path).branches) == {"main", "other"}
    sandbox.files.write(f"{path}/file", "two\n")
    git.restore(path, paths=["file"])
    assert sandbox.files.read(f"{path}/file") == "one\n"
    git.checkout_branch(path, "main")
    git.delete_branch(path, "other", force=True)
    assert git.branches(path).current_branch == "main"
    git.remote_add(path, "origin", path)
    assert git.remote_get(path, "origin") == path
    assert git.get_config("user.name", scope="local", path=path) == "A"
    git.clone(path, f"{place}/clone")
    assert sandbox.files.read(f"{place}/clone/file") == "one\n"


def test_commits_go_to_another_repository_and_come_back(sandbox, place):
    git, shared, mine, theirs = sandbox.git, f"{place}/shared", f"{place}/mine", f"{place}/theirs"
    git.init(shared, bare=True, initial_branch="main")
    git.clone(shared, mine)
    git.set_config("user.name", "A", scope="local", path=mine)
    git.set_config("user.email", "a@example.org", scope="local", path=mine)
    sandbox.files.write(f"{mine}/file", "one\n")
    git.add(mine)
    git.commit(mine, "first")
    git.push(mine, remote="origin", branch="main")
    git.clone(shared, theirs)
    sandbox.files.write(f"{mine}/file", "two\n")
    git.add(mine)
    git.reset(mine)
    assert not git.status(mine).has_staged
    git.add(mine)
    git.commit(mine, "second")
    git.push(mine)
    git.pull(theirs)
    assert sandbox.files.read(f"{theirs}/file") == "two\n"
    git.dangerously_authenticate("user", "password", host="example.org")
    assert "user:password@example.org" in sandbox.files.read("~/.git-credentials")
