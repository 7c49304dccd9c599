"""Volumes, and their files from outside of a sandbox."""

import uuid

import pytest
from e2b import Sandbox, SandboxException, Volume, VolumeException, VolumeNotFoundException, VolumePathNotFoundException
from support import native


@pytest.fixture
def volume():
    made = Volume.create(f"conformance-{uuid.uuid4().hex[:8]}")
    yield made
    Volume.destroy(made.volume_id)


def test_a_volume_outlives_its_sandboxes(volume, make):
    first = make(volume_mounts={"/data": volume})
    assert first.get_info().volume_mounts == [{"name": volume.name, "path": "/data"}]
    assert first.commands.run("echo kept >/data/file && id -un").stdout == "user\n"
    # A sandbox's writes are visible from outside while it has the volume.
    assert volume.read_file("/file") == "kept\n"
    with pytest.raises(SandboxException, match=first.sandbox_id[:8]):
        Sandbox.create(volume_mounts={"/data": volume.name})
    first.kill()
    second = make(volume_mounts={"/elsewhere": volume.name})
    assert second.files.read("/elsewhere/file") == "kept\n"


def test_files_of_a_volume_that_nobody_has(volume, make):
    assert volume.list("/") == [] or [entry.name for entry in volume.list("/")] == ["lost+found"]
    bytes_ = bytes(range(256)) * 4000
    written = volume.write_file("/a/b/c.bin", bytes_, uid=1000, gid=1000, mode=0o600)
    assert (written.path, written.size, written.mode, written.uid) == ("/a/b/c.bin", len(bytes_), 0o600, 1000)
    assert volume.read_file("/a/b/c.bin", format="bytes") == bytes_
    assert b"".join(volume.read_file("/a/b/c.bin", format="stream")) == bytes_
    volume.write_file("/empty", "")
    assert volume.read_file("/empty") == ""
    for force in (None, False):
        with pytest.raises(VolumeException, match="path '/empty' exists already"):
            volume.write_file("/empty", "text", force=force)
    volume.write_file("/empty", "", force=True)
    made = volume.make_dir("/d/e", force=True, mode=0o750)
    assert (made.type.value, made.mode, made.uid, made.gid) == ("directory", 0o750, 1000, 1000)
    assert {entry.path for entry in volume.list("/a", depth=2)} == {"/a/b", "/a/b/c.bin"}
    assert volume.update_metadata("/d/e", gid=5).gid == 5
    assert volume.exists("/empty")
    volume.remove("/empty")
    assert not volume.exists("/empty")
    for call in (volume.get_info, volume.read_file, volume.list, volume.remove):
        with pytest.raises(VolumePathNotFoundException):
            call("/nothing")
    with pytest.raises(VolumePathNotFoundException):
        volume.make_dir("/x/y/z")
    # A sandbox that wants the volume gets it at once.
    assert make(volume_mounts={"/data": volume}).commands.run("stat -c '%a %u' /data/a/b/c.bin").stdout == "600 1000\n"


def test_volumes_are_found_and_are_everybodys(volume):
    assert volume.volume_id in [known.volume_id for known in Volume.list()]
    assert Volume.connect(volume.volume_id).name == volume.name == Volume.get_info(volume.volume_id).name
    assert native.call("GET", f"/v1/volumes/{volume.name}")["size_mb"] == 1024
    stranger = Volume(volume.volume_id, volume.name, token="default.wrong")
    with pytest.raises(Exception, match="token"):
        stranger.read_file("/x")
    assert Volume.destroy(volume.volume_id) and not Volume.destroy(volume.volume_id)
    with pytest.raises(VolumeNotFoundException):
        Volume.get_info(volume.volume_id)
