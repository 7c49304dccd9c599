"""Dockerfiles: what `conformance/oci/sandboxes.sh` builds, on an image with busybox and nothing else.

    dockerfiles.py SANDLING FOLDER PORT
"""

import io
import json
import os
import sys
import tarfile
import time

from images import compress, directory, entry, layer, symlink, write_layout
from support import api, busybox, check, command, failures, folder, push, registry, templates

TOOLS = "sh cat echo env id pwd stat find sort ls touch true false sleep mkdir test grep wc cp rm chmod date seq tr head wget ip"
BASE = [
    directory(b"bin"),
    entry(b"bin/busybox", content=busybox, mode=0o755),
    *[symlink(b"bin/" + tool.encode(), b"busybox") for tool in TOOLS.split()],
    directory(b"etc"),
    entry(b"etc/passwd", content=b"root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\n"),
    entry(b"etc/group", content=b"root:x:0:\napp:x:1000:\nstaff:x:50:\n"),
    directory(b"root"),
]
CONFIG = {"Env": ["PATH=/bin", "FROM_BASE=yes"], "OnBuild": ["RUN echo triggered >/etc/triggered"]}

command("registry", "login", registry, "--username", "me", stdin="pw\n")
layout = folder / "dockerfile-base"
write_layout(layout, [layer(*BASE)], "gzip", CONFIG)
push(layout, "team/base:1")
base = f"{registry}/team/base:1"
plain_layout = folder / "dockerfile-plain"
write_layout(plain_layout, [layer(*BASE)], "gzip", {"Env": ["PATH=/bin"]})
push(plain_layout, "team/plain:1")
plain = f"{registry}/team/plain:1"
context = folder / "context"


def write(name, content, mode=0o644):
    path = context / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)


def archive(how, **files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{how}") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"inside/{name}")
            info.size, info.mode, info.uid, info.gid = len(content), 0o640, 1000, 50
            tar.addfile(info, io.BytesIO(content.encode()))
    return out.getvalue()


def build(name, dockerfile, *more, expect=0):
    """Builds the Dockerfile with the directory `context`, and returns what was printed and how long it took."""
    (folder / "Dockerfile").write_text(dockerfile)
    started = time.monotonic()
    done = command("template", "build", name, "-f", str(folder / "Dockerfile"), str(context), *more, expect=expect)
    return done.stdout + done.stderr, time.monotonic() - started


class Running:
    """A sandbox of a template."""

    def __init__(self, template):
        self.id = api("POST", "/v1/sandboxes", {"template": template})["id"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        api("DELETE", f"/v1/sandboxes/{self.id}")

    def says(self, line, **more):
        answer = api("POST", f"/v1/sandboxes/{self.id}/exec", {"cmd": line, **more})
        assert answer["exit_code"] == 0, (line, answer)
        return answer["stdout"]


write("a.txt", "one\n")
write("run.sh", "#!/bin/sh\necho from a script\n", 0o755)
write("src/main.c", "int main;\n")
write("src/main.h", "extern int main;\n")
write("src/secret.key", "not for the image\n")
write("app.tar.xz", archive("xz", file="in the archive\n"))
write("app.tar.bz2", archive("bz2", bzip2="bzip2\n"))
write("app.tar.zst", compress(archive("", zstd="zstd\n"), "zstd")[0])
write(".dockerignore", "**/*.key\n")
os.symlink("a.txt", context / "link")

COMPLETE = f"""# syntax=docker/dockerfile:1
ARG BASE={base}
FROM $BASE AS builder
ARG GREETING=hello
WORKDIR /work
COPY --chown=app:staff --chmod=0750 run.sh src/*.c ./
RUN <<EOF
./run.sh >built
echo $GREETING >>built
ln -s built linked 2>/dev/null || cp built linked
EOF
RUN --mount=type=cache,target=/cache echo kept >/cache/file
RUN --mount=type=cache,target=/cache cat /cache/file >from-cache
RUN --mount=type=secret,id=token --mount=type=secret,id=token,env=TOKEN cat /run/secrets/token | wc -c >length && test "${{#TOKEN}}" = 12
RUN --mount=type=bind,source=src,target=/src,rw cat /src/main.c >bound && ! test -e /src/secret.key && echo x >/src/new
RUN --mount=type=tmpfs,target=/scratch --network=none ip link | grep -c eth0 >cards || true

FROM scratch AS unused
RUN this is never built

FROM $BASE
ENV APP=/srv/app MODE=fast
COPY --from=builder /work /srv/app
COPY --link --from={base} /bin/busybox /opt/
COPY --exclude=*.c src /opt/src/
COPY <<one.conf <<"two.conf" /etc/app/
mode=$MODE
one.conf
mode=$MODE
two.conf
ADD app.tar.xz app.tar.bz2 app.tar.zst /opt/
ADD link /opt/followed
USER app:staff
WORKDIR $APP
SHELL ["/bin/sh", "-e", "-c"]
RUN id -u >/tmp/user; id -g >>/tmp/user
LABEL org.example.kind="a test"
EXPOSE 8080
VOLUME /data
STOPSIGNAL SIGINT
HEALTHCHECK --interval=10s CMD true
ENTRYPOINT ["/bin/sh"]
CMD ["-c", "echo started"]
"""


@check("a Dockerfile with stages, mounts, here-documents and archives")
def _():
    (folder / "token").write_text("secret-value")
    log, _ = build("complete", COMPLETE, "--secret", f"id=token,src={folder / 'token'}", "--build-arg", "GREETING=bye")
    assert "never built" not in log and "secret-value" not in log, log
    with Running("complete") as sandbox:
        assert sandbox.says("id") == "uid=1000(app) gid=50(staff) groups=50(staff)\n", sandbox.says("id")
        assert sandbox.says("pwd; echo $MODE $FROM_BASE") == "/srv/app\nfast yes\n"
        assert sandbox.says("cat built linked from-cache length bound cards") == "from a script\nbye\n" * 2 + "kept\n12\nint main;\n0\n"
        assert sandbox.says("stat -c '%a %u %g' run.sh main.c") == "750 1000 50\n" * 2
        assert sandbox.says("cat /etc/app/one.conf /etc/app/two.conf") == "mode=fast\nmode=$MODE\n"
        assert sandbox.says("cat /opt/followed /opt/inside/file", user="root") == "one\nin the archive\n"
        assert sandbox.says("cat /opt/inside/bzip2 /opt/inside/zstd; ls /opt/src", user="root") == "bzip2\nzstd\nmain.h\n"
        assert sandbox.says("stat -c '%a %u %g' /opt/inside/file /opt/busybox") == "640 1000 50\n755 0 0\n"
        assert sandbox.says("cat /tmp/user /etc/triggered") == "1000\n50\ntriggered\n"
        missing = "for path in /cache /src /scratch /run/secrets /.sandling-build /run/.sandling-builder; do test ! -e $path || echo $path; done"
        assert sandbox.says(missing, user="root") == ""
    meta = api("GET", "/v1/templates/complete")["meta"]
    assert json.loads(meta["oci.cmd"]) == ["-c", "echo started"] and meta["oci.stop_signal"] == "SIGINT", meta
    assert json.loads(meta["oci.labels"]) == {"org.example.kind": "a test"} and "10000000000" in meta["oci.healthcheck"], meta
    assert "/data" in meta["oci.volumes"], meta


TEN = "\n".join([f"FROM {plain}", *[f"RUN echo {step} >/step-{step}" for step in range(1, 9)], "COPY a.txt /copied", "RUN cat /copied"])


@check("a build continues after the last step that did not change")
def _():
    _, cold = build("ten", TEN)
    log, unchanged = build("ten", TEN)
    assert unchanged <= 2 and log.count("CACHED") == 10, (unchanged, log)
    write("a.txt", "two\n")
    log, changed = build("ten", TEN)
    assert log.count("CACHED") == 8 and "two" in log, log
    with Running("ten") as sandbox:
        assert sandbox.says("cat /step-8 /copied") == "8\ntwo\n"
    log, _ = build("ten", TEN, "--no-cache")
    assert "CACHED" not in log, log
    print(f"    cold {cold:.1f} s, unchanged {unchanged:.1f} s, the ninth step changed {changed:.1f} s")


@check("an image of one static binary, without a shell")
def _():
    build("tiny", f"FROM scratch\nCOPY --from={plain} /bin/busybox /\nENV A=b\n")
    made = api("POST", "/v1/sandboxes", {"template": "tiny"})["id"]
    answer = api("POST", f"/v1/sandboxes/{made}/exec", {"args": ["/busybox", "ls", "/"]})
    api("DELETE", f"/v1/sandboxes/{made}")
    assert answer["exit_code"] == 0 and "busybox" in answer["stdout"].split(), answer


@check("what is wrong is said with its line, and a failed step with its command")
def _():
    for dockerfile, words in [
        (f"FROM {plain}\nRUN --mount=type=ssh true", "line 2 of the Dockerfile: RUN cannot have --mount=type=ssh"),
        (f"FROM --platform=linux/arm64 {plain}", "the platform linux/arm64"),
        (f"FROM {plain}\nCOPY missing /x", "there is no missing"),
        (f"FROM {plain}\nRUN echo before; false", "RUN echo before; false: the command ended with the exit code 1"),
        (f"FROM {plain}\nRUN --mount=type=secret,id=x,required=true true", "the secret x is required"),
        (f"FROM {plain}\nCOPY --chown=nobody a.txt /x", "no user"),
    ]:
        log, _ = build("wrong", dockerfile, expect=2)
        assert words in log, (dockerfile, log)
    assert "wrong" not in templates()


@check("a name has tags and versions, and a digest pins one")
def _():
    for text in ["old", "new"]:
        build("tagged", f"FROM {plain}\nRUN echo {text} >/text")
    build("tagged:other", f"FROM {plain}\nRUN echo old >/text")
    versions = json.loads(command("template", "history", "tagged", "--json").stdout)
    assert [version["current"] for version in versions] == [True, False], versions
    pinned = f"tagged@{versions[1]['digest']}"
    for name, text in [("tagged", "new"), ("tagged:latest", "new"), ("tagged:other", "old"), (pinned, "old")]:
        with Running(name) as sandbox:
            assert sandbox.says("cat /text") == text + "\n", name
    listed = command("template", "ls").stdout
    assert "tagged:other" in listed, listed
    assert "freed" in command("template", "rm", "tagged").stdout
    assert api("POST", "/v1/sandboxes", {"template": pinned}, status=400)
    command("template", "rm", "tagged:other")


@check("the cache is emptied, and says what that freed")
def _():
    freed = json.loads(command("template", "gc", "--json").stdout)
    assert freed["steps"] > 10 and freed["bytes"] > 1 << 20, freed
    with Running("ten") as sandbox:
        assert sandbox.says("cat /copied") == "two\n"
    for name in ["complete", "ten", "tiny"]:
        command("template", "rm", name)


assert api("GET", "/v1/sandboxes") == [], "sandboxes were left behind"
print(f"{len(failures)} failed", flush=True)
sys.exit(bool(failures))
