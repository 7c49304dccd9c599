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
