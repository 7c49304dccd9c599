"""Compares what umoci unpacks with what Sandling unpacks, path by path, and the file systems with e2fsck."""

import hashlib
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import time

import cases
import images

MIB = "128"


def describe(root, path, other_times):
    full = os.path.join(root, path)
    status = os.lstat(full)
    facts = {
        "mode": oct(status.st_mode),
        "owner": (status.st_uid, status.st_gid),
        "xattrs": {name: os.getxattr(full, name, follow_symlinks=False) for name in os.listxattr(full, follow_symlinks=False)},
    }
    if path not in other_times:
        facts["mtime"] = status.st_mtime_ns
    if not stat.S_ISDIR(status.st_mode):
        facts["links"] = status.st_nlink
    if stat.S_ISREG(status.st_mode):
        facts["size"] = status.st_size
        with open(full, "rb") as file:
            facts["content"] = hashlib.file_digest(file, "sha256").hexdigest()
    if stat.S_ISLNK(status.st_mode):
        facts["target"] = os.readlink(full)
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        facts["device"] = status.st_rdev
    return facts, (status.st_dev, status.st_ino)


def survey(root, other_times):
    """Facts about each path, and which paths are names of the same file."""
    root = os.fsencode(root)
    found, names = {}, {}
    for parent, directories, files in os.walk(root):
        for full in [parent, *[os.path.join(parent, name) for name in files], *[os.path.join(parent, name) for name in directories if os.path.islink(os.path.join(parent, name))]]:
            path = os.path.relpath(full, root)
            facts, identity = describe(root, path, other_times)
            found[path] = facts
            names.setdefault(identity, set()).add(path)
    groups = {path: group for group in names.values() for path in group}
    for path, facts in found.items():
        facts["same"] = sorted(groups[path]) if facts.get("links", 1) > 1 else []
    return found


def differences(theirs, ours):
    for path in sorted(theirs.keys() | ours.keys()):
        if path not in ours:
            yield f"{path!r} is missing"
        elif path not in theirs:
            yield f"{path!r} is not in umoci's tree"
        else:
            for fact in theirs[path]:
                if theirs[path][fact] != ours[path].get(fact):
                    yield f"{path!r}: {fact} is {ours[path].get(fact)!r}, and {theirs[path][fact]!r} in umoci's tree"


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        raise SystemExit(f"FAILED: {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


class Mounted:
    def __init__(self, disk, at):
        self.disk, self.at = disk, at

    def __enter__(self):
        self.at.mkdir(exist_ok=True)
        run("mount", "-o", "loop,ro", self.disk, self.at)
        return self.at

    def __exit__(self, *_):
        run("umount", self.at)


def main(unpack, work):
    work = pathlib.Path(work)
    os.umask(0o022)
    failed = 0
    for name, case in cases.CASES.items():
        started = time.monotonic()
        layers = case(work)
        layers, for_umoci = layers if isinstance(layers, tuple) else (layers, layers)
        reference = work / f"{name}.reference"
        images.write_layout(reference, for_umoci, "gzip")
        bundle = work / f"{name}.bundle"
        shutil.rmtree(bundle, ignore_errors=True)
        run("umoci", "unpack", "--image", f"{reference}:test", bundle)
        other_times = cases.OTHER_TIMES.get(name, set())
        theirs = survey(bundle / "rootfs", other_times)
        disks = []
        for how in ["plain", "gzip", "zstd"]:
            layout = work / f"{name}.{how}"
            images.write_layout(layout, layers, how)
            disk = work / f"{name}.{how}.img"
            run(unpack, layout, disk, MIB)
            run("e2fsck", "-fn", disk)
            disks.append(disk)
            shutil.rmtree(layout)
        if len({hashlib.sha256(disk.read_bytes()).digest() for disk in disks}) != 1:
            print(f"{name}: the compression changes the disk")
            failed += 1
        with Mounted(disks[0], work / "mounted") as ours:
            found = list(differences(theirs, survey(ours, other_times)))
        for line in found[:20]:
            print(f"{name}: {line}")
        failed += len(found)
        print(f"{name}: {len(theirs)} paths, {len(found)} differences, {time.monotonic() - started:.1f} s", flush=True)
        for path in [*disks, reference, bundle]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if failed:
        raise SystemExit(f"{failed} differences")


if __name__ == "__main__":
    main(*sys.argv[1:])
