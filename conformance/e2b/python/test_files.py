"""Files and directories."""

import io
import urllib.error
import urllib.request

import pytest
from e2b import FileType, InvalidArgumentException, NotFoundException
from support.waiting import until


def test_bytes_go_both_ways_unchanged(sandbox, place):
    bytes_ = bytes(range(256)) * 20000
    written = sandbox.files.write(f"{place}/deep/er/file.bin", bytes_)
    assert written.path == f"{place}/deep/er/file.bin" and written.name == "file.bin"
    assert sandbox.files.read(written.path, format="bytes") == bytes_
    assert b"".join(sandbox.files.read(written.path, format="stream")) == bytes_
    sandbox.files.write(f"{place}/é 'x'.txt", io.StringIO("text ü"))
    assert sandbox.files.read(f"{place}/é 'x'.txt") == "text ü"
    assert sandbox.commands.run(f"stat -c '%U %a' {place}/deep").stdout == "user 755\n"


def test_several_files_at_once_and_below_the_home(sandbox, place):
    files = [{"path": f"{place}/{name}", "data": name.encode() * 10} for name in "abc"]
    assert [entry.name for entry in sandbox.files.write_files(files)] == ["a", "b", "c"]
    assert sandbox.files.read(f"{place}/b") == "b" * 10
    sandbox.files.write("relative.txt", "here")
    assert sandbox.files.read("/home/user/relative.txt") == "here" and sandbox.files.read("~/relative.txt") == "here"


def test_a_directory_is_listed_with_what_there_is_to_say(sandbox, place):
    sandbox.commands.run(f"cd {place} && mkdir -p d/e && echo hello >f && ln -s f l && ln -s nowhere n && touch d/e/g")
    entries = {entry.name: entry for entry in sandbox.files.list(place)}
    assert set(entries) == {"d", "f", "l", "n"}
    assert entries["d"].type == FileType.DIR and entries["f"].type == FileType.FILE and entries["f"].size == 6
    assert entries["l"].symlink_target == f"{place}/f" and entries["f"].owner == "user"
    assert entries["f"].permissions == "-rw-r--r--" and entries["f"].mode == 0o644
    assert f"{place}/d/e/g" in [entry.path for entry in sandbox.files.list(place, depth=3)]
    info = sandbox.files.get_info(f"{place}/f")
    assert (info.path, info.size) == (f"{place}/f", 6)


def test_metadata_is_stored_with_a_file(sandbox, place):
    path = f"{place}/report.csv"
    written = sandbox.files.write(path, "1,2", metadata={"Author": "a b", "kind": "x=y"})
    assert written.metadata == {"author": "a b", "kind": "x=y"}
    assert sandbox.files.get_info(path).metadata == written.metadata
    assert [entry.metadata for entry in sandbox.files.list(place)] == [written.metadata]
    inside = sandbox.commands.run(f"python3 -c \"import os; print(os.getxattr('{path}', 'user.e2b.author'))\"")
    assert inside.stdout == "b'a b'\n"
    sandbox.files.write(path, io.BytesIO(b"3"), metadata={"kind": "z"})
    assert sandbox.files.get_info(path).metadata == {"kind": "z"} and sandbox.files.read(path) == "3"
    sandbox.files.write(path, "4")
    assert sandbox.files.get_info(path).metadata is None
    several = [{"path": f"{place}/{name}", "data": name} for name in "ab"]
    assert [entry.metadata for entry in sandbox.files.write_files(several, metadata={"n": "1"})] == [{"n": "1"}] * 2
    sandbox.files.write(f"{place}/plain", "5")
    assert sandbox.files.get_info(f"{place}/plain").metadata is None
    with pytest.raises(InvalidArgumentException, match="4096"):
        sandbox.files.write(path, "6", metadata={"long": "x" * 5000})


def test_what_is_there_and_what_is_not(sandbox, place):
    assert sandbox.files.make_dir(f"{place}/new/er") and not sandbox.files.make_dir(f"{place}/new/er")
    assert sandbox.files.exists(f"{place}/new") and not sandbox.files.exists(f"{place}/old")
    assert sandbox.files.rename(f"{place}/new", f"{place}/old").path == f"{place}/old"
    sandbox.files.remove(f"{place}/old")
    sandbox.files.remove(f"{place}/old")
    assert not sandbox.files.exists(f"{place}/old")
    for missing in (sandbox.files.read, sandbox.files.list, sandbox.files.get_info):
        with pytest.raises(NotFoundException):
            missing(f"{place}/nothing")
    with pytest.raises(NotFoundException, match=f"path '{place}/nothing' does not exist"):
        sandbox.files.read(f"{place}/nothing")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.read(place)
    with pytest.raises(InvalidArgumentException):
        sandbox.files.list("/etc/passwd")


def test_changes_are_seen(sandbox, place):
    watch = sandbox.files.watch_dir(place, recursive=True)
    seen = set()

    def sees(*changes):
        seen.update((event.name, event.type.value) for event in watch.get_new_events())
        return set(changes) <= seen

    # Changes in a new directory before its watch starts are not reported, so make them one after the other.
    sandbox.commands.run(f"mkdir {place}/sub")
    until("the directory", lambda: sees(("sub", "create")))
    sandbox.commands.run(f"echo x >{place}/sub/file && rm {place}/sub/file")
    until("the file", lambda: sees(("sub/file", "write"), ("sub/file", "remove")))
    watch.stop()


def test_a_file_that_is_written_is_the_only_change_and_keeps_its_links(sandbox, place):
    watch = sandbox.files.watch_dir(place)
    seen = []

    def sees(*changes):
        seen.extend((event.name, event.type.value) for event in watch.get_new_events())
        return all(change in seen for change in changes)

    sandbox.files.write(f"{place}/file", "one")
    assert [event.type.value for event in watch.get_new_events()] == ["create", "chmod", "write"]
    sandbox.commands.run(f"ln {place}/file /tmp/linked")
    seen.clear()
    sandbox.files.write(f"{place}/file", "two")
    until("the write", lambda: sees(("file", "write")))
    assert {name for name, _ in seen} == {"file"}
    assert sandbox.files.read("/tmp/linked") == "two"
    watch.stop()


def test_an_address_of_a_file_is_enough(sandbox, place):
    path = f"{place}/signed.txt"
    sandbox.files.write(path, "by address")
    with urllib.request.urlopen(sandbox.download_url(path, use_signature_expiration=60), timeout=30) as answer:
        assert answer.read() == b"by address"
    wrong = sandbox.download_url(path).replace("signature=v1_", "signature=v1_x")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(wrong, timeout=30)
    assert caught.value.code == 401
    boundary = "b0"
    body = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nsent\r\n--{boundary}--\r\n'
    upload = urllib.request.Request(sandbox.upload_url(path), data=body.encode(), method="POST")
    upload.add_header("Content-Type", f"multipart/form-data; boundary={boundary}")
    urllib.request.urlopen(upload, timeout=30).close()
    assert sandbox.files.read(path) == "sent"
