"""The images of the comparison with umoci. Each case is a list of layers, from bottom to top.

A case may have a second list, for umoci.
"""

import os
import pathlib
import random
import shutil
import struct
import subprocess
import tarfile

from images import TIME, capability, directory, entry, hardlink, layer, symlink, tar_of, xattrs

ROOT = directory(b"./", mode=0o755)


def busybox(work):
    tree = pathlib.Path(work) / "busybox"
    shutil.rmtree(tree, ignore_errors=True)
    (tree / "bin").mkdir(parents=True)
    shutil.copy("/bin/busybox", tree / "bin" / "busybox")
    subprocess.run([tree / "bin" / "busybox", "--install", tree / "bin"], check=True)
    for name in ["etc", "proc", "sys", "dev", "tmp", "root"]:
        (tree / name).mkdir()
    (tree / "tmp").chmod(0o1777)
    (tree / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    return [tar_of(tree, "--numeric-owner", "--format=posix")]


def single_static_binary(work):
    return [layer(entry(b"app", content=pathlib.Path("/bin/busybox").read_bytes(), mode=0o755))]


def whiteouts(work):
    return [
        layer(
            ROOT,
            directory(b"a"), entry(b"a/keep", content=b"1"), entry(b"a/gone", content=b"2"), entry(b"a/replaced", content=b"old"),
            directory(b"b"), directory(b"b/deep"), entry(b"b/deep/file", content=b"3"),
            directory(b"c"), entry(b"c/lower", content=b"4"), directory(b"c/sub"), entry(b"c/sub/lower", content=b"5"),
            directory(b"d"), entry(b"d/lower", content=b"6"),
            entry(b"to-directory", content=b"7"), directory(b"to-file"), entry(b"to-file/x", content=b"8"),
            directory(b"to-link"), entry(b"to-link/x", content=b"9"),
            symlink(b"link-to-directory", b"a"),
            directory(b"same"), entry(b"same/lower", content=b"l"),
        ),
        layer(
            entry(b"a/.wh.gone"), entry(b"a/replaced", content=b"new", mode=0o600),
            entry(b".wh.b"),
            # Opaque after its new content, and before it.
            directory(b"c"), entry(b"c/upper", content=b"u"), directory(b"c/sub"), entry(b"c/sub/upper", content=b"v"),
            entry(b"c/.wh..wh..opq"),
            entry(b"d/.wh..wh..opq"), entry(b"d/upper", content=b"w"),
            directory(b"to-directory", mode=0o700), entry(b"to-directory/y", content=b"y"),
            entry(b"to-file", content=b"z"),
            symlink(b"to-link", b"a"),
            directory(b"link-to-directory", mode=0o711),
            # A whiteout after the new entry of the same layer keeps the new entry.
            entry(b"same/lower", content=b"new"), entry(b"same/.wh.lower"),
            entry(b".wh.does-not-exist"), entry(b"nowhere/.wh.x"),
        ),
        layer(entry(b"c/third", content=b"3"), entry(b"a/gone", content=b"back")),
    ]


def links(work):
    return [
        layer(
            ROOT,
            directory(b"dir"), entry(b"dir/file", content=b"shared" * 1000),
            hardlink(b"other", b"dir/file"), hardlink(b"absolute", b"/dir/file"),
            symlink(b"short", b"dir/file"), symlink(b"fifty-nine", b"x" * 59), symlink(b"sixty", b"y" * 60), symlink(b"long", b"z/" * 500),
            symlink(b"out", b"../../../../etc"), symlink(b"absolute-link", b"/dir"), hardlink(b"link-of-link", b"short"),
            entry(b"will-be-replaced", content=b"first"), hardlink(b"keeps-first", b"will-be-replaced"),
        ),
        layer(
            hardlink(b"across", b"dir/file"), entry(b"will-be-replaced", content=b"second"),
            # Parents that are symbolic links: resolved inside of the root.
            entry(b"absolute-link/through", content=b"t"), entry(b"out/inside", content=b"i"),
            hardlink(b"through-link", b"absolute-link/file"),
        ),
        layer(entry(b".wh.other"), entry(b"dir/.wh.file")),
    ]


def metadata(work):
    fields = dict(uid=70_000, gid=4_000_000_000, uname="", gname="")
    attributes = xattrs(user__text=b"value", security__capability=capability(0x0A0A | 1 << 36), trusted__bytes=bytes(range(1, 40)))
    acl = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", *one)
        for one in [(1, 6, 0xFFFFFFFF), (2, 4, 1000), (4, 4, 0xFFFFFFFF), (8, 5, 2000), (16, 7, 0xFFFFFFFF), (32, 4, 0xFFFFFFFF)]
    )
    return [
        layer(
            directory(b"./", mode=0o751, mtime=TIME + 5, uid=3, gid=4),
            entry(b"setuid", content=b"#!", mode=0o4755), entry(b"setgid", mode=0o2755), directory(b"sticky", mode=0o1777),
            entry(b"owner", content=b"o", **fields), entry(b"nanoseconds", pax_headers={"mtime": "1600000000.123456789"}),
            entry(b"before-1970", pax_headers={"mtime": "-86400.5"}), entry(b"after-2038", pax_headers={"mtime": "5000000000.25"}),
            entry(b"capability", content=b"c" * 5000, mode=0o755, pax_headers=attributes),
            entry(b"one-capability", content=b"c", mode=0o755, pax_headers=xattrs(security__capability=capability(0x0A00))),
            entry(b"large-attribute", pax_headers=xattrs(user__large=b"L" * 3000, user__small=b"s", user__empty=b"e")),
            directory(b"attributes", pax_headers=xattrs(user__directory=b"d")),
            entry(b"acl", mode=0o674, pax_headers=xattrs(system__posix_acl_access=acl)),
            directory(b"default-acl", mode=0o755, pax_headers=xattrs(system__posix_acl_default=acl)),
            symlink(b"owned-link", b"owner", uid=5, gid=6),
            entry(b"no-permissions", mode=0), directory(b"changed", mode=0o700), entry(b"changed/file"),
            entry(b"selinux", pax_headers=xattrs(security__selinux=b"system_u:object_r:etc_t:s0\0")),
        ),
        layer(
            directory(b"changed", mode=0o2775, mtime=TIME + 99, uid=12, gid=13),
            directory(b"attributes", pax_headers=xattrs(user__other=b"o")),
        ),
    ]


def devices(work):
    return [
        layer(
            ROOT, directory(b"dev"),
            entry(b"dev/null", tarfile.CHRTYPE, mode=0o666, devmajor=1, devminor=3),
            entry(b"dev/disk", tarfile.BLKTYPE, mode=0o660, devmajor=8, devminor=1, gid=6),
            entry(b"dev/large", tarfile.CHRTYPE, mode=0o600, devmajor=300, devminor=70_000),
            entry(b"dev/fifo", tarfile.FIFOTYPE, mode=0o622),
        )
    ]


def names(work):
    long = b"/".join([b"d" * 100] * 6)
    parents = [directory(b"/".join([b"d" * 100] * count)) for count in range(1, 7)]
    special = [b"n" * 255, b"caf\xe9", b"\xff\xfe", "ünïcödé".encode(), b"new\nline", b" space ", b"-dash", b"back\\slash", b"...", b"..x", b".wh"]
    posix = layer(
        ROOT, *parents, entry(long + b"/file", content=b"deep"), symlink(b"deep", long), hardlink(b"hard", long + b"/file"),
        *[entry(name, content=name) for name in special],
    )
    gnu = layer(entry(b"gnu-" + b"g" * 200, content=b"g"), symlink(b"gnu-link", b"t" * 300), format=tarfile.GNU_FORMAT)
    ustar = layer(entry(b"u" * 80 + b"/" + b"v" * 80, content=b"u"), format=tarfile.USTAR_FORMAT)
    return [posix, gnu, ustar]


def dots(work):
    return [
        layer(
            entry(b"./a/../b", content=b"b"), entry(b"/absolute", content=b"a"), entry(b"x//y/./z", content=b"z"),
            directory(b"slash/"), entry(b"slash/./file"),
        )
    ]


def sparse(work):
    tree = pathlib.Path(work) / "sparse"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir()
    numbers = random.Random(1)
    with open(tree / "holes", "wb") as file:
        for at in range(0, 64 << 20, 3 << 20):
            file.seek(at)
            file.write(numbers.randbytes(5000))
        file.truncate(80 << 20)
    with open(tree / "only-a-hole", "wb") as file:
        file.truncate(1 << 20)
    with open(tree / "odd", "wb") as file:
        file.seek(12_345)
        file.write(b"odd")
    (tree / "zeros").write_bytes(bytes(100_000) + b"end")
    # Every other block is a hole: thousands of extents.
    (tree / "striped").write_bytes((b"x" * 4096 + bytes(4096)) * 4000)
    (tree / "empty").write_bytes(b"")
    for path in tree.iterdir():
        os.utime(path, (TIME, TIME))
    formats = [["--format=gnu"], *[["--format=posix", f"--sparse-version={version}"] for version in ["0.0", "0.1", "1.0"]]]
    layers, plain = [], []
    for number, options in enumerate(formats):
        common = ["--numeric-owner", f"--transform=s,^\\./,./{number}-,"]
        layers.append(tar_of(tree, "-S", *common, *options))
        # umoci refuses the old format, so it gets the same files without holes.
        plain.append(tar_of(tree, *common, "--format=posix"))
    return layers, plain


def many(work):
    """A large directory, deep directories, and a file with all bytes."""
    numbers = random.Random(2)
    return [
        layer(
            ROOT, directory(b"large"), *[entry(b"large/%06d-some-name" % number, content=b"%d" % number) for number in range(12_000)],
            *[directory(b"/".join([b"deep"] * count)) for count in range(1, 100)],
            entry(b"random", content=numbers.randbytes(9_000_001)),
            directory(b"subdirectories"), *[directory(b"subdirectories/%d" % number) for number in range(3000)],
        )
    ]


def implied_parents(work):
    return [layer(entry(b"a/b/c/file", content=b"x"), entry(b"a/b/other", content=b"y")), layer(entry(b"a/n/file", content=b"z"))]


CASES = {
    case.__name__: case
    for case in [busybox, single_static_binary, whiteouts, links, metadata, devices, names, dots, sparse, many, implied_parents]
}

# umoci gives some directories the time of unpacking: those that no layer describes, which have the time 0 here, and those
# in which it creates or removes an entry on the way to another.
OTHER_TIMES = {
    "single_static_binary": {b"."},
    "whiteouts": {b"c/sub"},
    "links": {b".", b"etc"},
    "names": {b".", b"u" * 80},
    "dots": {b".", b"x", b"x/y"},
    "implied_parents": {b".", b"a", b"a/b", b"a/b/c", b"a/n"},
}
