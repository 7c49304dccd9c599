"""A full disk: operations that need space fail with a clear error, others continue, and nothing is lost."""

import os
import shutil

import pytest

from support.processes import until

#: Enough for a few sandboxes, and quickly filled.
DISK_MIB = 200


@pytest.fixture
def disk(place, mounts):
    mounts.small_disk(place / "disk", DISK_MIB)
    return place / "disk"


def fill(disk, leaving_mib=0):
    """Fills the disk except for a rest, and returns the file that takes the space."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        try:
            while shutil.disk_usage(disk).free > leaving_mib << 20:
                file.write(b"\0" * (1 << 20))
                file.flush()
        except OSError:
            pass
    return filler


def test_on_a_full_disk_nothing_is_made_and_the_rest_goes_on(disk, serve):
    server, client = serve(disk / "home", "--standbys", "0")
    sandbox = client.create()
    before = server.directories()
    filler = fill(disk)
    refused = client.call("POST", "/v1/sandboxes", {"template": "base"}).expect(507)
    assert refused.code == "no_space" and str(disk) not in refused.json()["error"]

    def token_is_refused():
        answer = client.call("POST", "/v1/me/tokens", {"label": "x" * 60}).expect(201, 507)
        return answer.status == 507 and answer.code == "no_space"

    # The database may have had some free pages.
    until("a token is refused", token_is_refused)
    ran = []

    def command_is_refused():
        key = str(len(ran))
        request = {"cmd": f"echo {key} >> /run/keyed"}
        answer = client.call("POST", f"/v1/sandboxes/{sandbox}/exec", request, key=key).expect(200, 507)
        ran.extend([key] if answer.status == 200 else [])
        return answer.status == 507 and answer.code == "no_space"

    until("a command whose key cannot be kept is refused", command_is_refused)
    assert client.run(sandbox, "cat /run/keyed 2>/dev/null || true").split() == ran
    assert client.living() == {sandbox}
    assert server.directories() == before
    assert client.run(sandbox, "echo here") == "here\n"
    client.call("GET", f"/v1/sandboxes/{sandbox}/fs", query={"path": "/etc/hostname"}).expect(200)
    os.unlink(filler)
    other = client.create()
    for made in (sandbox, other):
        client.delete(made)


def test_a_sandbox_that_cannot_write_stands_still_and_goes_on_when_there_is_room(disk, serve):
    server, client = serve(disk / "home")
    sandbox = client.create()
    filler = fill(disk, leaving_mib=8)
    path = f"/v1/sandboxes/{sandbox}"
    text = "yes 0123456789abcdef | head -c 24M"
    line = f"{text} > /root/big && sync && sha256sum < /root/big"
    client.call("POST", f"{path}/exec", {"cmd": line, "id": "big", "detached": True}).expect(202)

    def stands_still():
        # A command that runs when the machine stops waits until its timeout.
        answer = client.call("POST", f"{path}/exec", {"cmd": "true", "timeout_seconds": 2}).expect(200, 504, 507)
        return answer.status == 507 and answer.code == "no_space"

    until("the sandbox stands still", stands_still)
    client.call("GET", path).expect(200)
    assert client.call("GET", f"{path}/metrics").expect(200).json()["guest"] is None
    os.unlink(filler)
    until("the sandbox goes on", lambda: not stands_still())
    result = client.call("GET", f"{path}/execs/big/result", query={"wait": "true"}).expect(200).json()
    expected = client.run(sandbox, f"{text} | sha256sum")
    assert (result["exit_code"], result["stdout"]) == (0, expected), result
    client.delete(sandbox)


def test_a_deadline_holds_for_the_caller_while_a_sandbox_stands_still(disk, serve):
    server, client = serve(disk / "home")
    sandbox = client.create()
    filler = fill(disk, leaving_mib=8)
    path = f"/v1/sandboxes/{sandbox}"
    request = {"cmd": "while yes 0123456789abcdef | head -c 24M > /root/big; do sync; done", "timeout_seconds": 10}
    late = client.call("POST", f"{path}/exec", request).expect(504)
    assert late.code == "command_timeout"
    os.unlink(filler)
    until("the sandbox goes on", lambda: client.call("POST", f"{path}/exec", {"cmd": "true"}).status == 200)
    client.delete(sandbox)


def test_a_start_on_a_full_disk_says_what_is_missing_or_works(disk, serve):
    server, client = serve(disk / "home")
    sandbox = client.create()
    server.stop()
    filler = fill(disk)
    try:
        client, _ = server.start()
        assert client.run(sandbox, "echo here") == "here\n"
        server.stop()
    except AssertionError as error:
        assert "full" in str(error), error
    os.unlink(filler)
    client, _ = server.start()
    assert client.run(sandbox, "echo here") == "here\n"
    client.delete(sandbox)


@pytest.mark.parametrize("what", ["snapshots", "fork", "hibernate"])
def test_a_save_for_which_there_is_no_room_is_refused_and_the_sandbox_goes_on(disk, serve, what):
    server, client = serve(disk / "home")
    sandbox = client.create(ttl_seconds=1800)
    client.run(sandbox, "head -c 40000000 /dev/urandom > /dev/shm/ballast; echo one > /root/file; sync")
    digest = client.run(sandbox, "cat /dev/shm/ballast /root/file | sha256sum")
    path = f"/v1/sandboxes/{sandbox}"
    filler = fill(disk, leaving_mib=20)
    refused = client.call("POST", f"{path}/{what}").expect(507)
    assert refused.code == "no_space" and str(disk) not in refused.json()["error"], refused.body
    assert client.living() == {sandbox}
    assert client.run(sandbox, "cat /dev/shm/ballast /root/file | sha256sum") == digest
    # Its disk may use an unfinished layer; nothing else is left.
    left = lambda: {file.name for file in (server.home / "snapshots").rglob("*") if file.is_file()}
    until("nothing is left of it", lambda: left() <= {"disk.qcow2"})
    os.unlink(filler)
    client.call("POST", f"{path}/{what}").expect(200, 201)
    assert client.run(sandbox, "cat /dev/shm/ballast /root/file | sha256sum") == digest
    for made in client.living():
        client.delete(made)


def test_a_volume_that_cannot_be_written_holds_its_sandbox_up_and_loses_nothing(disk, serve):
    server, client = serve(disk / "home")
    client.call("POST", "/v1/volumes", {"name": "data", "size_mb": 128}).expect(201)
    sandbox = client.create(volumes=[{"name": "data", "mount": "/data"}], ttl_seconds=1800)
    client.run(sandbox, "echo kept > /data/file; sync")
    filler = fill(disk, leaving_mib=8)
    path = f"/v1/sandboxes/{sandbox}"
    line = "head -c 24000000 /dev/urandom > /data/big && sync && sha256sum < /data/big"
    client.call("POST", f"{path}/exec", {"cmd": line, "id": "big", "detached": True}).expect(202)
    stopped = lambda: client.call("POST", f"{path}/exec", {"cmd": "true", "timeout_seconds": 2}).status == 507
    until("the sandbox stands still", stopped)
    os.unlink(filler)
    until("the sandbox goes on", lambda: not stopped())
    result = client.call("GET", f"{path}/execs/big/result", query={"wait": "true"}).expect(200).json()
    assert result["exit_code"] == 0, result
    client.delete(sandbox)
    reader = client.create(volumes=[{"name": "data", "mount": "/data", "read_only": True}])
    assert client.run(reader, "sha256sum < /data/big") == result["stdout"]
    assert client.run(reader, "cat /data/file") == "kept\n"
    client.delete(reader)


def test_a_disk_that_the_host_cannot_hold_is_refused_before_anything_is_made(disk, serve):
    server, client = serve(disk / "home")
    before = server.directories()
    refused = client.call("POST", "/v1/sandboxes", {"template": "base", "disk_mb": 1048576}).expect(507)
    assert refused.code == "no_space" and "smaller disk" in refused.json()["error"]
    assert (client.living(), server.directories()) == (set(), before)


def test_a_sandbox_that_fills_the_disk_stands_still_and_its_neighbour_goes_on(place, mounts, serve):
    mounts.small_disk(place / "disk", 360)
    server, client = serve(place / "disk" / "home")
    writer, neighbour = client.create(), client.create()
    path = f"/v1/sandboxes/{writer}"
    # Emulated machines copy a file much faster than they make text.
    chunk = "yes 0123456789abcdef | head -c 16M > /dev/shm/chunk"
    line = f"{chunk}; for each in $(seq 128); do cat /dev/shm/chunk; done > /root/big; sync"
    client.call("POST", f"{path}/exec", {"cmd": line, "id": "big", "detached": True}).expect(202)

    def stands_still():
        answer = client.call("POST", f"{path}/exec", {"cmd": "true", "timeout_seconds": 2}).expect(200, 504, 507)
        return answer.status == 507 and answer.code == "no_space"

    until("the writer stands still", stands_still)
    assert shutil.disk_usage(place / "disk").free > 8 << 20, "some of the reserve is left"
    # Its own share is there for the neighbour, which writes it out to the host.
    text = "yes fedcba9876543210 | head -c 8M"
    digest = client.run(neighbour, f"{text} > /root/own; sync; sha256sum < /root/own")
    assert digest == client.run(neighbour, f"{text} | sha256sum")
    stalls = [event for event in client.events(writer) if event["type"] == "sandbox.disk_full"]
    assert stalls and "more than is reserved" in stalls[-1]["payload"]["why"], stalls
    assert not [event for event in client.events(neighbour) if event["type"] == "sandbox.disk_full"]
    client.delete(writer)
    assert client.run(neighbour, "echo here") == "here\n"
    client.delete(neighbour)
