"""Measures images: the first and the second sandbox of an image, and builds of a Dockerfile, with podman alongside.

    bench/images.py --sandling SANDLING --templates DIRECTORY [--rounds N] [--creates N]

Makes an image of 150 MB and pushes it to Debian's docker-registry on loopback. Sandling and podman pull it from there in
turns, so that a busy moment affects both. DIRECTORY has the template `base`, which is copied. Needs root and the Debian
packages podman, runc, docker-registry, skopeo and mmdebstrap. Prints tables and writes all figures to
bench/out/images.json.
"""

import argparse
import contextlib
import json
import os
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT / "conformance/oci")
from images import entry, layer, write_layout

IMAGE_BYTES = 150_000_000
COMMAND = ["python3", "-c", "print(1)"]
#: How steps of a pull begin, and what they belong to. Unpacking writes the file system of the disk, too.
PHASES = {
    "asking": "network",
    "downloading": "network",
    "unpacking": "unpack",
    "computing": "file system",
    "storing": "file system",
    "packing": "file system",
    "another build": "file system",
    "booting": "bake",
    "warming": "bake",
    "exercising": "bake",
    "saving": "bake",
    "caching": "process cache",
}
STEPS = """\
FROM {image}
ENV STAGE=build
WORKDIR /srv/app
COPY one.txt two.txt ./
RUN cat one.txt two.txt >both.txt
RUN python3 -c 'open("squares", "w").write(str([n * n for n in range(1000)]))'
RUN mkdir -p data && for n in $(seq 50); do echo $n >data/$n; done
COPY three.txt data/
RUN sha256sum data/* >sums
RUN echo {ninth} >ninth.txt
RUN echo tenth >tenth.txt
"""


def timed(run):
    begun = time.perf_counter()
    result = run()
    return time.perf_counter() - begun, result


def quiet(*command, **options):
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stdout}")
    return done.stdout


def until_it_listens(port, process):
    while process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    sys.exit("the registry ended")


def start_registry(work):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "version": "0.1",
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(work / "registry")}},
        "http": {"addr": f"127.0.0.1:{port}", "secret": "x"},
    }
    (work / "registry.yml").write_text(json.dumps(settings))
    log = (work / "registry.log").open("w")
    process = subprocess.Popen(["docker-registry", "serve", work / "registry.yml"], stdout=log, stderr=log)
    until_it_listens(port, process)
    return process, f"localhost:{port}"


def make_image(work, registry):
    """Debian with Python, and files that do not compress, so that the layers have IMAGE_BYTES. Returns its name."""
    bootstrap = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3", "--format=tar", "bookworm", "-"]
    debian = subprocess.run(bootstrap, check=True, stdout=subprocess.PIPE).stdout
    write_layout(work / "layout", [debian], "gzip")
    stored = sum(file.stat().st_size for file in (work / "layout/blobs/sha256").iterdir())
    files = [entry(f"opt/{n}".encode(), content=secrets.token_bytes(100_000)) for n in range((IMAGE_BYTES - stored) // 100_000)]
    write_layout(work / "layout", [debian, layer(*files)], "gzip", {"Cmd": COMMAND})
    image = f"{registry}/bench/image:1"
    quiet("skopeo", "--insecure-policy", "copy", "--dest-tls-verify=false", f"oci:{work}/layout:test", f"docker://{image}")
    unpacked = len(debian) + sum(len(content) for _, content in files)
    shutil.rmtree(work / "layout")
    return image, unpacked


class Server:
    def __init__(self, sandling, templates, work):
        self.sandling, self.home, self.token = sandling, work / "home", secrets.token_hex(20)
        self.copy_base(Path(templates))
        self.environment = {**os.environ, "SANDLING_HOME": str(self.home), "SANDLING_TOKEN": self.token}
        self.environment |= {"SANDLING_TEMPLATES": str(self.home / "templates"), "DOCKER_CONFIG": str(work)}
        command = [sandling, "serve", "--listen", "127.0.0.1:0", "--standbys", "0"]
        self.process = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if "listens on " in line:
                self.url = line.split("listens on ")[1].strip()
                break
        else:
            sys.exit("the server ended before it said where it listens")
        self.environment |= {"SANDLING_API": self.url, "NO_PROXY": "127.0.0.1"}

    def copy_base(self, templates):
        """Only the template `base`, because a build changes the directory."""
        to = self.home / "templates"
        to.mkdir(parents=True, mode=0o700)
        self.home.chmod(0o700)
        base = json.loads((templates / "names/base.json").read_text())["image"]
        manifest = json.loads((templates / "images" / base / "manifest.json").read_text())
        parts = [f"images/{base}", "names/base.json"]
        parts += [f"{kind}s/{manifest[kind]['id']}" for kind in ("root", "kernel", "initrd")]
        for part in parts:
            (to / part).parent.mkdir(exist_ok=True, mode=0o700)
            quiet("cp", "-a", "--sparse=always", templates / part, to / part)

    def call(self, method, path, body=None):
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=1800) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def first_command(self, **source):
        """Creates a sandbox and runs the command. Returns the seconds until its output, and the template."""
        begun = time.perf_counter()
        made = self.call("POST", "/v1/sandboxes", source)
        answer = self.call("POST", f"/v1/sandboxes/{made['id']}/exec", {"args": COMMAND})
        took = time.perf_counter() - begun
        assert answer["stdout"] == "1\n", answer
        self.call("DELETE", f"/v1/sandboxes/{made['id']}")
        return took, made["template"]

    def first_use(self, image):
        """The same for an image that must be pulled, and the seconds of each phase."""
        phases, done = {}, threading.Event()

        def watch():
            last = time.perf_counter()
            while not done.wait(0.02):
                now = time.perf_counter()
                for pull in self.call("GET", "/v1/images/pulls")["pulls"]:
                    phase = next((phase for begin, phase in PHASES.items() if pull["step"].startswith(begin)), pull["step"])
                    phases[phase] = phases.get(phase, 0) + now - last
                last = now

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            took, template = self.first_command(image=image)
        finally:
            done.set()
            watcher.join()
        return took, phases, template

    def command(self, *arguments):
        return quiet(self.sandling, *arguments, env=self.environment)

    def forget(self, template):
        self.command("template", "rm", template)
        self.command("template", "gc")

    def build(self, dockerfile, context):
        return timed(lambda: self.command("template", "build", "bench", "-f", str(dockerfile), str(context)))[0]

    def close(self):
        self.process.terminate()
        self.process.wait(60)


class Podman:
    def __init__(self, work, driver):
        self.options = ["--root", work / "podman", "--runroot", work / "podman-run", "--storage-driver", driver]
        # Of Debian's runtimes, only runc also works where cgroups are of both versions.
        self.options += ["--runtime", "runc", "--cgroup-manager", "cgroupfs"]

    def __call__(self, *arguments):
        return quiet("podman", *self.options, *arguments)

    def run(self, image):
        limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
        said = self("run", "--rm", "--network=none", *limits, image, *COMMAND)
        assert said.endswith("1\n"), said

    def build(self, dockerfile, context):
        return timed(lambda: self("build", "--network=host", "--layers", "-t", "bench", "-f", dockerfile, context))[0]


def measure_pulls(server, podman, image, rounds):
    ours, phases, theirs, pulls = [], [], [], []
    for _ in range(rounds):
        took, found, template = server.first_use(image)
        ours.append(took)
        phases.append(found)
        pulls.append(timed(lambda: podman("pull", "--quiet", "--tls-verify=false", image))[0])
        theirs.append(pulls[-1] + timed(lambda: podman.run(image))[0])
        server.forget(template)
        podman("rmi", "--force", image)
    names = list(dict.fromkeys(name for found in phases for name in found))
    median = {name: statistics.median(found.get(name, 0) for found in phases) for name in names}
    return {"sandling": ours, "phases": median, "podman": theirs, "podman pull": pulls}


def measure_creates(server, podman, image, rounds):
    times = {"image": [], "base": [], "podman run": []}
    server.first_command(image=image)
    podman("pull", "--quiet", "--tls-verify=false", image)
    for _ in range(rounds):
        times["image"].append(server.first_command(image=image)[0])
        times["base"].append(server.first_command(template="base")[0])
        times["podman run"].append(timed(lambda: podman.run(image))[0])
    return times


def measure_builds(server, podman, image, work):
    """A Dockerfile of ten steps, built for the first time, again, and with another ninth step. The image is at hand."""
    context = work / "context"
    context.mkdir()
    for name in ("one", "two", "three"):
        (context / f"{name}.txt").write_text(f"{name}\n")
    files = {}
    for ninth in ("ninth", "changed"):
        files[ninth] = work / f"Dockerfile.{ninth}"
        files[ninth].write_text(STEPS.format(image=image, ninth=ninth))
    builds = {"cold": "ninth", "unchanged": "ninth", "ninth step changed": "changed"}
    times = {"sandling": {}, "podman": {}}
    for what, ninth in builds.items():
        times["sandling"][what] = server.build(files[ninth], context)
        times["podman"][what] = podman.build(files[ninth], context)
    return times


def print_report(report):
    pulls, creates, builds = report["pulls"], report["creates"], report["builds"]
    median = statistics.median
    print(f"{report['image_bytes'] / 1e6:.0f} MB in layers, {report['unpacked_bytes'] / 1e6:.0f} MB unpacked")
    print(f"\npull and first command, seconds (median of {len(pulls['sandling'])})")
    print(f"  sandling {median(pulls['sandling']):8.2f}   podman {median(pulls['podman']):8.2f}")
    for name, seconds in pulls["phases"].items():
        print(f"    {name:14} {seconds:8.2f}")
    print(f"    podman pull    {median(pulls['podman pull']):8.2f}")
    print(f"\ncreate and first command, milliseconds (median of {len(creates['image'])})")
    for name, taken in creates.items():
        print(f"  {name:12} {median(taken) * 1e3:8.1f}   {median(taken) / median(creates['base']):.2f} x base")
    print("\nDockerfile of ten steps, seconds")
    for what, seconds in builds["sandling"].items():
        theirs = builds["podman"][what]
        print(f"  {what:20} sandling {seconds:8.2f}   podman {theirs:8.2f}   {seconds / theirs:6.2f} x podman")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandling", default=str(ROOT / "target/release/sandling"))
    parser.add_argument("--templates", required=True)
    parser.add_argument("--rounds", type=int, default=3, help="how often the image is pulled")
    parser.add_argument("--creates", type=int, default=20)
    parser.add_argument("--driver", default="overlay", help="podman's storage driver, overlay or vfs")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/out/images.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        work = Path(folder)
        registry, address = start_registry(work)
        server = None
        podman = Podman(work, options.driver)
        try:
            image, unpacked = make_image(work, address)
            server = Server(options.sandling, options.templates, work)
            report = {
                "image_bytes": IMAGE_BYTES,
                "unpacked_bytes": unpacked,
                "podman_version": podman("--version").strip(),
                "podman_driver": options.driver,
                "pulls": measure_pulls(server, podman, image, options.rounds),
                "creates": measure_creates(server, podman, image, options.creates),
                "builds": measure_builds(server, podman, image, work),
            }
        finally:
            if server:
                server.close()
            podman("system", "reset", "--force")
            registry.terminate()
            registry.wait()
    print_report(report)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
