"""Files through the API."""

import hashlib
import os
import time

import pandastack
import pytest

from support.wire import call

ODD_NAMES = [
    "with space", "plus+and%20percent", "zoë ☃ 日本語 😀", "a&b=c?d#e", "quote'\"`$x", "-dash", "new\nline",
    "back\\slash",
]
CONTENTS = [b"", b"hello\n", bytes(range(256)) * 40, "zoë 😀".encode()]


@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: f"{len(content)} bytes")
def test_what_was_written_is_read(sandbox, scratch, content):
    answer = sandbox.filesystem.write(f"{scratch}/f", content)
    assert answer == {"path": f"{scratch}/f", "bytes": len(content)}
    assert sandbox.filesystem.read(f"{scratch}/f") == content


def test_text_is_written_as_utf8(sandbox, scratch):
    sandbox.filesystem.write(f"{scratch}/f", "zoë")
    assert sandbox.filesystem.read(f"{scratch}/f") == "zoë".encode()


def test_the_api_and_commands_see_the_same_files(sandbox, scratch):
    sandbox.filesystem.write(f"{scratch}/in", b"from the api\n")
    assert sandbox.exec(f"cat {scratch}/in").stdout == "from the api\n"
    sandbox.exec(f"echo from a command > {scratch}/out", check=True)
    assert sandbox.filesystem.read(f"{scratch}/out") == b"from a command\n"


def test_writing_replaces_the_whole_file(sandbox, scratch):
    sandbox.filesystem.write(f"{scratch}/f", b"x" * 100_000)
    sandbox.filesystem.write(f"{scratch}/f", b"short")
    assert sandbox.filesystem.read(f"{scratch}/f") == b"short"


def test_writing_makes_the_directories_above(sandbox, scratch):
    sandbox.filesystem.write(f"{scratch}/a/b/c/f", b"deep")
    assert sandbox.filesystem.stat(f"{scratch}/a/b").is_dir


def test_forty_mebibytes_go_there_and_back(sandbox, scratch):
    content = os.urandom(1 << 20) * 40
    assert sandbox.filesystem.write(f"{scratch}/big", content)["bytes"] == len(content)
    wanted = hashlib.sha256(content).hexdigest()
    assert sandbox.exec(f"sha256sum < {scratch}/big").stdout.split()[0] == wanted
    assert hashlib.sha256(sandbox.filesystem.read(f"{scratch}/big")).hexdigest() == wanted


def test_upload_and_download_carry_local_files(sandbox, scratch, tmp_path):
    content = bytes(range(256))
    (tmp_path / "here").write_bytes(content)
    sandbox.filesystem.upload(tmp_path / "here", f"{scratch}/there")
    sandbox.filesystem.download(f"{scratch}/there", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_any_name_works_everywhere(sandbox, scratch, name):
    path = f"{scratch}/{name}/{name}"
    assert sandbox.filesystem.write(path, name)["path"] == path
    assert sandbox.filesystem.read(path) == name.encode()
    assert sandbox.filesystem.exists(path)
    found = sandbox.filesystem.stat(path)
    assert (found.name, found.path, found.size) == (name, path, len(name.encode()))
    [entry] = sandbox.filesystem.listdir(f"{scratch}/{name}")
    assert (entry.name, entry.path) == (name, path)


def test_a_listing_tells_files_from_directories(sandbox, scratch):
    sandbox.exec(f"cd {scratch} && mkdir d && printf 12345 > f && ln -s f to-file && ln -s nowhere broken", check=True)
    for path in (scratch, f"{scratch}/"):
        entries = {entry.name: entry for entry in sandbox.filesystem.listdir(path)}
        assert set(entries) == {"d", "f", "to-file", "broken"}
        assert [name for name, entry in entries.items() if entry.is_dir] == ["d"]
        assert entries["f"].size == 5
        assert entries["f"].path == f"{scratch}/f"


def test_an_entry_has_the_types_the_clients_read(sandbox, scratch):
    sandbox.filesystem.write(f"{scratch}/f", b"1")
    listing = call("GET", f"/v1/sandboxes/{sandbox.id}/fs/dir", query={"path": scratch})
    assert listing.status == 200 and listing.json()["path"] == scratch
    [entry] = listing.json()["entries"]
    stat = call("GET", f"/v1/sandboxes/{sandbox.id}/fs/stat", query={"path": f"{scratch}/f"})
    assert stat.status == 200
    for found in (entry, stat.json()):
        assert found["name"] == "f" and found["is_dir"] is False and found["size"] == 1
        assert isinstance(found["mode"], str) and found["mode"]
        assert type(found["mtime"]) is int and abs(found["mtime"] - time.time()) < 60


def test_the_root_is_listed_by_default(sandbox):
    assert {"etc", "tmp", "usr"} <= {entry.name for entry in sandbox.filesystem.listdir()}


def test_an_empty_directory_is_an_empty_list(sandbox, scratch):
    assert sandbox.filesystem.listdir(scratch) == []


def test_stat_of_a_directory_says_so(sandbox, scratch):
    found = sandbox.filesystem.stat(scratch)
    assert found.is_dir and found.path == scratch and found.name == scratch.rsplit("/", 1)[-1]


def test_walk_goes_down_every_directory_and_no_link(sandbox, scratch):
    sandbox.exec(f"cd {scratch} && mkdir -p a/b c && touch a/1 a/b/2 3 && ln -s . loop && ln -s .. a/up", check=True)
    seen = {}
    for path, dirs, files in sandbox.filesystem.walk(scratch):
        assert path not in seen and len(seen) < 10, "it goes round in circles"
        seen[path] = (sorted(d.name for d in dirs), sorted(f.name for f in files))
    assert seen == {
        scratch: (["a", "c"], ["3", "loop"]),
        f"{scratch}/a": (["b"], ["1", "up"]),
        f"{scratch}/a/b": ([], ["2"]),
        f"{scratch}/c": ([], []),
    }


def test_what_is_missing_is_not_found(sandbox, scratch):
    files = sandbox.filesystem
    assert not files.exists(f"{scratch}/no")
    for attempt in (files.read, files.stat, files.listdir):
        with pytest.raises(pandastack.NotFoundError):
            attempt(f"{scratch}/no")
        with pytest.raises(pandastack.NotFoundError):
            attempt(f"{scratch}/no/deeper")


def test_a_file_read_as_a_directory_and_the_other_way_round_are_refused(sandbox, scratch):
    sandbox.filesystem.write(f"{scratch}/f", b"")
    for attempt in (
        lambda: sandbox.filesystem.read(scratch),
        lambda: sandbox.filesystem.listdir(f"{scratch}/f"),
        lambda: sandbox.filesystem.write(scratch, b"x"),
    ):
        with pytest.raises(pandastack.BadRequestError):
            attempt()


@pytest.mark.parametrize("query", [{"path": ""}, {"path": "relative/path"}, {"path": "/tmp/nul\0byte"},
                                   {"path": "/" + "x" * 5000}], ids=lambda query: repr(query)[:30])
@pytest.mark.parametrize("method, route", [("GET", "fs"), ("PUT", "fs"), ("GET", "fs/dir"), ("GET", "fs/stat")])
def test_a_path_that_cannot_be_one_is_a_400(sandbox, method, route, query):
    body = b"x" if method == "PUT" else None
    answer = call(method, f"/v1/sandboxes/{sandbox.id}/{route}", query=query, body=body)
    assert answer.status == 400 and answer.error


@pytest.mark.parametrize("method, route", [("GET", "fs"), ("PUT", "fs"), ("GET", "fs/stat")])
def test_a_path_that_is_left_out_is_a_400(sandbox, method, route):
    answer = call(method, f"/v1/sandboxes/{sandbox.id}/{route}", body=b"x" if method == "PUT" else None)
    assert answer.status == 400 and answer.error


def test_a_path_that_climbs_stays_in_the_sandbox(sandbox):
    climbing = "/tmp/" + "../" * 40 + "etc/debian_version"
    assert sandbox.filesystem.read(climbing) == sandbox.filesystem.read("/etc/debian_version")


def test_a_link_that_leads_out_leads_to_the_sandboxs_own(sandbox, scratch):
    for target, name in (("../../../../../../etc/hostname", "up"), ("/proc/1/root/etc/hostname", "root"), ("/", "all")):
        sandbox.exec(f"ln -s {target} {scratch}/{name}", check=True)
    own = sandbox.exec("cat /etc/hostname", check=True).stdout.encode()
    for way in ("up", "root", "all/etc/hostname"):
        assert sandbox.filesystem.read(f"{scratch}/{way}") == own
    assert call("DELETE", f"/v1/sandboxes/{sandbox.id}/fs", query={"path": f"{scratch}/all"}).status == 204
    assert sandbox.filesystem.exists("/etc/hostname"), "the link was to go, not what it led to"


@pytest.mark.parametrize("route, body", [
    ("mkdir", {"path": "/tmp/a\0b"}), ("mkdir", {"path": "tmp"}), ("mkdir", {"path": "/tmp/m", "mode": "rwx"}),
    ("move", {"from": "/tmp/a\0b", "to": "/tmp/c"}), ("move", {"from": "/tmp/a", "to": "c"}),
    ("chmod", {"path": "/tmp", "mode": "99999"}), ("chmod", {"path": "/tmp", "mode": "-1"}), ("chmod", {"path": 5}),
    ("mkdir", {"path": "/tmp/m", "who": "me"}),
], ids=lambda part: str(part)[:40])
def test_a_change_that_makes_no_sense_is_a_400(sandbox, route, body):
    answer = call("POST", f"/v1/sandboxes/{sandbox.id}/fs/{route}", body=body)
    assert answer.status == 400 and answer.error


def test_a_place_that_cannot_be_written_is_refused_not_a_fault(sandbox):
    with pytest.raises((pandastack.BadRequestError, pandastack.NotFoundError)):
        sandbox.filesystem.write("/proc/version", b"x")


def test_bytes_are_not_touched_on_the_way(sandbox, scratch):
    content = b'{"looks": "like json"}\r\n\xff\x00'
    put = call("PUT", f"/v1/sandboxes/{sandbox.id}/fs", query={"path": f"{scratch}/f"}, body=content,
               headers={"Content-Type": "application/octet-stream"})
    assert put.status in (200, 201)
    got = call("GET", f"/v1/sandboxes/{sandbox.id}/fs", query={"path": f"{scratch}/f"})
    assert (got.status, got.body) == (200, content)
