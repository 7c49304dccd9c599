"""Archives of directories: what goes in comes out, and nothing is written outside."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any, Dict

import pytest

from sandling.archives import pack, unpack
from sandling.dockerignore import DockerIgnore

#: The same file and names as in the tests of ``sandling template build`` and of the TypeScript SDK.
IGNORE = "# comment\n*.log\n/build\n**/cache\n!keep.log\ndocs/*.md\n!docs/README.md\n./tmp/\n[^a]?x\n\\*\n"


def archive_of(*members: Dict[str, Any]) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for member in members:
            content = member.pop("content", b"")
            info = tarfile.TarInfo(member.pop("name"))
            info.size = len(content)
            for name, value in member.items():
                setattr(info, name, value)
            tar.addfile(info, io.BytesIO(content))
    file.seek(0)
    return file


def test_a_directory_survives_the_way_there_and_back(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep" / ("long" * 30)).mkdir(parents=True)
    (source / "deep" / ("long" * 30) / "file").write_bytes(b"\xff\x00" * 1000)
    (source / "run").write_text("run")
    (source / "run").chmod(0o777)
    (source / "link").symlink_to("run")
    os.mkfifo(source / "pipe")
    file = io.BytesIO()
    pack(str(source), file)
    file.seek(0)
    target = tmp_path / "new" / "target"
    target.mkdir(parents=True)
    (target / "kept").write_text("kept")
    unpack(file, str(target))
    assert (target / "deep" / ("long" * 30) / "file").read_bytes() == b"\xff\x00" * 1000
    assert (target / "run").stat().st_mode & 0o777 == 0o755
    assert os.readlink(target / "link") == "run"
    assert sorted(os.listdir(target)) == ["deep", "kept", "link", "run"]


def test_patterns_of_dockerignore_work_as_in_docker() -> None:
    ignore = DockerIgnore(IGNORE)
    for path in ("x.log", "build/a/b", "cache", "a/b/cache", "a/cache/x", "docs/a.md", "tmp/x", "bbx", "*"):
        assert ignore.ignores(path), path
    for path in ("a/x.log", "keep.log", "builder", "docs/README.md", "docs/deep/a.md", "src", "abx", "b/x", "y"):
        assert not ignore.ignores(path), path
    assert ignore.has_exceptions and not DockerIgnore("*.log").has_exceptions


def test_the_line_of_dockerignore_that_is_no_pattern_is_named() -> None:
    with pytest.raises(ValueError, match=r"'\[z-a\]' of .dockerignore is no pattern"):
        DockerIgnore("*.log\n[z-a]\n")


def test_an_archive_leaves_out_what_is_ignored_but_not_its_exceptions(tmp_path: Path) -> None:
    for name in ("a.txt", "b.log", "deep/c.log", "deep/kept/d.txt", "src/e.c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / ".dockerignore").write_text("*.log\ndeep\n!deep/kept\n")
    file = io.BytesIO()
    pack(str(tmp_path), file, DockerIgnore.of(str(tmp_path)))
    file.seek(0)
    with tarfile.open(fileobj=file) as tar:
        assert tar.getnames() == [
            ".",
            "./.dockerignore",
            "./a.txt",
            "./deep/kept",
            "./deep/kept/d.txt",
            "./src",
            "./src/e.c",
        ]


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out"])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="leads out"):
        unpack(archive_of({"name": name, "content": b"x"}), str(tmp_path / "in"))
    assert not (tmp_path / "out").exists()


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    link = {"name": "dir", "type": tarfile.SYMTYPE, "linkname": str(outside)}
    file = {"name": "dir/file", "content": b"x"}
    with pytest.raises((ValueError, OSError)):
        unpack(archive_of(link, file), str(tmp_path / "in"))
    there = tmp_path / "there"
    there.mkdir()
    (there / "dir").symlink_to(outside)
    with pytest.raises(ValueError, match="in the way"):
        unpack(archive_of({"name": "dir/file", "content": b"x"}), str(there))
    assert not os.listdir(outside)


def test_a_hard_link_becomes_a_copy(tmp_path: Path) -> None:
    first = {"name": "./a", "content": b"1"}
    second = {"name": "./b", "type": tarfile.LNKTYPE, "linkname": "./a"}
    outside = {"name": "./c", "type": tarfile.LNKTYPE, "linkname": "./missing"}
    unpack(archive_of(first, second, outside), str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["a", "b"] and (tmp_path / "b").read_bytes() == b"1"
