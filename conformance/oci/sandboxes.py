"""Sandboxes from images: what `conformance/oci/sandboxes.sh` runs.

    sandboxes.py SANDLING FOLDER PORT

FOLDER has the server's home and the registry's storage. The registry is at localhost:PORT, with the user `me` and the
password `pw`.
"""

import hashlib
import json
import os
import stat
import subprocess
import sys
import time

from images import directory, entry, layer, symlink, tar_of, write_layout
from support import (
    Sandbox,
    api,
    busybox,
    check,
    command,
    failures,
    folder,
    home,
    layers_of,
    manifest_digest,
    operator,
    port,
    push,
    registry,
    sandling,
    stored_layers,
    templates,
)

TOOLS = ["sh", "cat", "echo", "env", "id", "pwd", "sha256sum", "stat", "find", "sort", "ls", "touch", "true", "sleep", "ln", "rm", "readlink"]
APP = [
    [
        directory(b"bin"),
        entry(b"bin/busybox", content=busybox, mode=0o755),
        *[symlink(b"bin/" + tool.encode(), b"busybox") for tool in TOOLS],
        directory(b"etc"),
        entry(b"etc/passwd", content=b"root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\n"),
        entry(b"etc/group", content=b"root:x:0:\napp:x:1000:\nstaff:x:50:\n"),
        directory(b"data"),
        entry(b"data/kept", content=b"kept\n", mode=0o640, uid=1000, gid=50),
        entry(b"data/removed", content=b"removed\n"),
    ],
    [
        entry(b"data/.wh.removed"),
        entry("data/zoë".encode(), content=b"named\n", mode=0o4755, uid=7, gid=8),
        symlink(b"data/link", b"kept"),
    ],
]
CONFIG = {
    "Env": ["PATH=/opt/bin:/bin", "GREETING=hello from the image"],
    "User": "app:staff",
    "WorkingDir": "/srv/app",
    "Entrypoint": ["/bin/echo"],
    "Cmd": ["entry"],
}

app = folder / "app"
write_layout(app, [layer(*entries) for entries in APP], "gzip", CONFIG)
push(app, "team/app:1")
bare = folder / "bare"
write_layout(bare, [layer(entry(b"busybox", content=busybox, mode=0o755))], "zstd", {"Cmd": ["/busybox"]})
push(bare, "team/bare:1")

api("POST", "/v1/workspaces", {"name": "team"})
team = api("POST", "/v1/workspaces/team/tokens", {"name": "team", "scope": "admin"})["token"]


@check("a private image is refused without credentials, in a sentence that says what to do")
def _():
    answer = api("POST", "/v1/sandboxes", {"image": f"{registry}/team/app:1"}, status=403)
    assert answer["code"] == "image_denied", answer
    assert f"sandling registry login {registry}" in answer["error"], answer
    assert stored_layers() == [] if (home / "layers").exists() else True


@check("credentials are stored, listed without the password, and used")
def _():
    refused = command("registry", "login", registry, "--username", "me", stdin="wrong\n", expect=2)
    assert f"{registry} refuses this username and password" in refused.stderr, refused
    assert registry not in command("registry", "ls").stdout
    command("registry", "login", registry, "--username", "me", stdin="pw\n")
    listed = command("registry", "ls").stdout
    assert registry in listed and "me" in listed and "pw" not in listed.split(), listed


@check("create --image gives a sandbox with the image's files, user, directory and environment")
def _():
    made = command("create", "--image", f"{registry}/team/app:1", "--json")
    info = json.loads(made.stdout)
    assert info["template"].startswith("app-1-"), info
    says = lambda *args: command("exec", info["id"], *args).stdout  # noqa: E731
    assert says("id") == "uid=1000(app) gid=50(staff) groups=50(staff)\n"
    assert says("pwd") == "/srv/app\n"
    assert says("sh", "-c", "echo $GREETING; echo $PATH") == "hello from the image\n/opt/bin:/bin\n"
    found = command("exec", "--user", "root", info["id"], "find", "/data", "-exec", "stat", "-c", "%n %a %u %g %s", "{}", "+")
    assert sorted(found.stdout.splitlines())[1:] == [
        "/data/kept 640 1000 50 5",
        "/data/link 777 0 0 4",
        "/data/zoë 4755 7 8 6",
    ], found.stdout
    assert says("sha256sum", "/bin/busybox").split()[0] == hashlib.sha256(busybox).hexdigest()
    command("rm", info["id"])


@check("the template shows what Docker would run")
def _():
    name = next(name for name in templates() if name.startswith("app-1-"))
    meta = api("GET", f"/v1/templates/{name}")["meta"]
    assert meta["oci.reference"] == f"{registry}/team/app:1" and meta["oci.digest"] == manifest_digest(app), meta
    assert (json.loads(meta["oci.entrypoint"]), json.loads(meta["oci.cmd"])) == (["/bin/echo"], ["entry"]), meta


@check("a second create pulls nothing and is as fast as one from any template")
def _():
    before = time.monotonic()
    with Sandbox(f"{registry}/team/app:1") as sandbox:
        took = time.monotonic() - before
        assert sandbox.says("echo", "again") == "again\n"
    template = sandbox.info["template"]
    before = time.monotonic()
    other = api("POST", "/v1/sandboxes", {"template": template})
    plain = time.monotonic() - before
    api("DELETE", f"/v1/sandboxes/{other['id']}")
    assert took < 2 * plain + 1, (took, plain)


@check("a digest pins the image")
def _():
    with Sandbox(f"{registry}/team/app@{manifest_digest(app)}") as sandbox:
        assert sandbox.says("cat", "/data/kept") == "kept\n"


@check("an image with one static binary runs it, and errors name what it lacks")
def _():
    with Sandbox(f"{registry}/team/bare:1") as sandbox:
        assert sandbox.says("/busybox", "echo", "bare") == "bare\n"
        assert sandbox.says("/busybox", "id", "-u") == "0\n"
        for request, error in [
            ({"cmd": "echo hi"}, "this image has no shell"),
            ({"code": "print(1)", "language": "python"}, "this image has no python3"),
            ({"code": "1", "language": "node"}, "this image has no node"),
        ]:
            answer = sandbox.run(status=400, **request)
            assert error in answer["error"], answer
        missing = sandbox.run(args=["/no/such/program"], status=400)
        assert "/no/such/program" in missing["error"], missing


@check("run --image runs a script in the image")
def _():
    done = command("run", "--image", f"{registry}/team/app:1", "--language", "bash", "-c", "echo ran as $(id -un)")
    assert done.stdout == "ran as app\n", done
    refused = command("run", "--image", f"{registry}/team/app:1", "-c", "print(1)", expect=2)
    assert "this image has no python3" in refused.stderr, refused


@check("another workspace gets an image only with credentials of its own")
def _():
    stored = stored_layers()
    answer = api("POST", "/v1/sandboxes", {"image": f"{registry}/team/app:1"}, token=team, status=403)
    assert answer["code"] == "image_denied", answer
    assert not any(name.startswith("app-") for name in templates(team))
    assert api("GET", "/v1/registries", token=team) == {"registries": []}
    path = f"/v1/registries/{registry.replace(':', '%3A')}"
    answer = api("PUT", path, {"username": "me", "password": "wrong"}, token=team, status=400)
    assert "refuses this username and password" in answer["error"], answer
    api("POST", "/v1/sandboxes", {"image": f"{registry}/team/app:1"}, token=team, status=403)
    api("PUT", path, {"username": "me", "password": "pw"}, token=team)
    with Sandbox(f"{registry}/team/app:1", token=team) as sandbox:
        assert sandbox.says("cat", "/data/kept") == "kept\n"
    assert stored_layers() == stored, "shared layers are stored once"
    api("DELETE", path, token=team)


@check("a workspace other than the operator's cannot reach a registry on loopback that the operator did not allow")
def _():
    answer = api("POST", "/v1/sandboxes", {"image": f"127.0.0.1:{port}/team/app:1"}, token=team, status=403)
    assert answer["code"] == "registry_refused" and "ask the operator" in answer["error"], answer


@check("an image beyond the quota is refused before it is fetched")
def _():
    large = folder / "large"
    write_layout(large, [layer(entry(b"large", content=os.urandom(8 << 20)))], "gzip", {})
    push(large, "team/large:1")
    command("quota", "--workspace", "team", "--set", "disk_mb=1040")
    path = f"/v1/registries/{registry.replace(':', '%3A')}"
    api("PUT", path, {"username": "me", "password": "pw"}, token=team)
    answer = api("POST", "/v1/sandboxes", {"image": f"{registry}/team/large:1"}, token=team, status=429)
    assert answer["code"] == "quota_exceeded", answer
    assert layers_of(large)[0].removeprefix("sha256:") not in stored_layers()
    command("quota", "--workspace", "team", "--set", "disk_mb=none")


@check("a layer that does not have its digest is refused, and nothing is left behind")
def _():
    damaged = folder / "damaged"
    write_layout(damaged, [layer(entry(b"file", content=os.urandom(1 << 20)))], "gzip", {})
    push(damaged, "team/damaged:1")
    digest = layers_of(damaged)[0]
    blob = folder / "registry/docker/registry/v2/blobs/sha256" / digest[7:9] / digest[7:] / "data"
    content = bytearray(blob.read_bytes())
    content[1000] ^= 1
    blob.write_bytes(content)
    before = templates()
    answer = api("POST", "/v1/sandboxes", {"image": f"{registry}/team/damaged:1"}, status=502)
    assert digest in answer["error"] and "\n" not in answer["error"], answer
    assert templates() == before
    left = [path.name for path in (home / "layers").iterdir() if path.name.startswith(("new-", digest[7:]))]
    assert left == [], left


@check("wrong references and missing images are refused in one sentence")
def _():
    for image, status, error in [
        ("Not A Reference", 400, "is not an image reference"),
        (f"{registry}/team/none:1", 400, "has no image"),
        (f"{registry}/team/app:none", 400, "has no image"),
        ("localhost:1/x", 502, "cannot reach localhost"),
    ]:
        answer = api("POST", "/v1/sandboxes", {"image": image}, status=status)
        assert error in answer["error"], answer
    both = {"image": f"{registry}/team/app:1", "template": "base"}
    assert "one of template, image" in api("POST", "/v1/sandboxes", both, status=400)["error"]


@check("a Dockerfile builds on an image")
def _():
    dockerfile = f"FROM {registry}/team/app:1\nUSER root\nRUN echo $GREETING >/data/built\nUSER app\n"
    build = api("POST", "/v1/templates/build", {"name": "on-image", "dockerfile": dockerfile})
    while (state := api("GET", f"/v1/templates/builds/{build['id']}"))["status"] not in ("done", "failed", "error"):
        time.sleep(0.5)
    assert state["status"] == "done", state
    made = api("POST", "/v1/sandboxes", {"template": "on-image"})
    done = api("POST", f"/v1/sandboxes/{made['id']}/exec", {"cmd": "cat /data/built; id -un; pwd"})
    api("DELETE", f"/v1/sandboxes/{made['id']}")
    assert done["stdout"] == "hello from the image\napp\n/srv/app\n", done


BUILT = f"""\
FROM {registry}/team/app:1
USER root
COPY --chown=1000:50 note /data/
RUN echo $GREETING >/data/built && ln /data/built /data/again && rm /data/kept && touch -d @1000000000 /data/built
USER app
"""


#: Every runtime writes these files and mounts something at these directories.
OF_THE_RUNTIME = {"etc/hostname", "etc/hosts", "etc/resolv.conf", "dev", "proc", "sys"}


def facts(root, path):
    """What `stat`, `sha256sum` and `readlink` say about a path, without times of directories, which any write changes."""
    status = os.lstat(root / path)
    found = [f"{status.st_mode:x}", str(status.st_uid), str(status.st_gid)]
    if stat.S_ISREG(status.st_mode):
        digest = hashlib.sha256((root / path).read_bytes()).hexdigest()
        found += [str(int(status.st_mtime)), str(status.st_nlink), digest]
    if stat.S_ISLNK(status.st_mode):
        found += [os.readlink(root / path)]
    return found


@check("an image that buildah built and pushed runs, and has the files that umoci unpacks")
def _():
    context, layout, bundle = folder / "buildah", folder / "buildah-layout", folder / "buildah-bundle"
    context.mkdir()
    (context / "note").write_text("from the context\n")
    (context / "Containerfile").write_text(BUILT)
    name = f"{registry}/team/buildah:1"
    storage = ["--root", folder / "buildah-root", "--runroot", folder / "buildah-run", "--storage-driver", "vfs"]
    access = ["--creds", "me:pw", "--tls-verify=false"]
    # buildah insists on the file of credentials in the directory that this variable names.
    env = {name: value for name, value in os.environ.items() if name != "DOCKER_CONFIG"}
    for arguments in [["bud", "--isolation", "chroot", *access, "-t", name, context], ["push", *access, name]]:
        done = subprocess.run(["buildah", *storage, *arguments], check=False, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done
    pull = ["skopeo", "--insecure-policy", "copy", "--quiet", "--src-creds", "me:pw", "--src-tls-verify=false"]
    subprocess.run([*pull, f"docker://{name}", f"oci:{layout}:test"], check=True)
    subprocess.run(["umoci", "unpack", "--image", f"{layout}:test", bundle], check=True, capture_output=True)
    root = bundle / "rootfs"
    theirs = {str(path.relative_to(root)): facts(root, path.relative_to(root)) for path in root.rglob("*")}
    assert {"data/note", "data/built", "data/again"} <= theirs.keys() and "data/kept" not in theirs, sorted(theirs)
    with Sandbox(name) as sandbox:
        said = sandbox.says("sh", "-c", "id -un; cat /data/note /data/built")
        assert said == "app\nfrom the context\nhello from the image\n", said
        root_says = lambda *args: sandbox.run(args=list(args), user="root")["stdout"].splitlines()  # noqa: E731
        paths = sorted(theirs.keys() - OF_THE_RUNTIME)
        lines = root_says("stat", "-c", "%f %u %g %Y %h", *(f"/{path}" for path in paths))
        ours = {}
        for path, line in zip(paths, lines, strict=True):
            mode, uid, gid, mtime, links = line.split()
            ours[path] = [mode, uid, gid]
            if stat.S_ISREG(int(mode, 16)):
                ours[path] += [mtime, links, root_says("sha256sum", f"/{path}")[0].split()[0]]
            if stat.S_ISLNK(int(mode, 16)):
                ours[path] += root_says("readlink", f"/{path}")
    different = {path: (theirs[path], ours[path]) for path in paths if theirs[path] != ours[path]}
    assert not different, different


@check("a template that was not used for weeks is evicted, unless something stands on it, and made again when it is used")
def _():
    weeks_ago = time.time() - 15 * 24 * 3600
    for name in (home / "templates/names").glob("*-1-*.json"):
        os.utime(name, (weeks_ago, weeks_ago))
    freed = json.loads(command("template", "gc", "--json").stdout)
    assert freed["templates"] >= 1 and freed["layers"] >= 2 and freed["bytes"] > 1 << 20, freed
    assert stored_layers() == []
    left = templates()
    assert not any(name.startswith("bare-1-") for name in left), left
    assert any(name.startswith("app-1-") for name in left), "the template `on-image` stands on it"
    with Sandbox(f"{registry}/team/bare:1") as sandbox:
        assert sandbox.says("/busybox", "echo", "again") == "again\n"
        refused = command("template", "rm", sandbox.info["template"], expect=2)
        assert "in use" in refused.stderr, refused
    removed = command("template", "rm", sandbox.info["template"]).stdout
    assert removed.endswith(" freed\n") and ": 0 B" not in removed, removed


@check("images in files: docker save, an OCI layout, and an archive of a root file system")
def _():
    saved = folder / "saved.tar"
    subprocess.run(["skopeo", "--insecure-policy", "copy", "--quiet", f"oci:{app}:test", f"docker-archive:{saved}"], check=True)
    exported = folder / "exported.tar"
    exported.write_bytes(layer(*APP[0]))
    for image, user in [(f"docker-archive:{saved}", "app"), (f"oci:{app}", "app"), (str(exported), "root")]:
        done = command("run", "--image", image, "--language", "bash", "-c", "id -un; cat /data/kept", local=True)
        assert done.stdout == f"{user}\nkept\n", (image, done)


@check("an image with Python has a warm interpreter")
def _():
    tree = folder / "debian"
    mmdebstrap = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3", "--format=tar", "bookworm"]
    rootfs = subprocess.run([*mmdebstrap, "-"], check=True, stdout=subprocess.PIPE).stdout
    write_layout(tree, [rootfs], "gzip", {"Env": ["PYTHON_VERSION=3.11", "PATH=/usr/local/bin:/usr/bin:/bin"]})
    push(tree, "team/python:3")
    with Sandbox(f"{registry}/team/python:3") as sandbox:
        code = "import sys, os; print(sys.version_info[:2], os.environ['PYTHON_VERSION'])"
        times = []
        for _ in range(2):
            before = time.monotonic()
            answer = sandbox.run(code=code, language="python")
            times.append(time.monotonic() - before)
            assert answer["stdout"] == "(3, 11) 3.11\n", answer
        print(f"    python took {times[0]:.2f} s, then {times[1]:.2f} s")


assert api("GET", "/v1/sandboxes") == [], "sandboxes were left behind"
print(f"{len(failures)} failed", flush=True)
sys.exit(bool(failures))
