"""What the tests of images share: the server's API, the command line, and the registry.

The tests get the arguments SANDLING FOLDER PORT. FOLDER has the server's home and the registry's storage. The registry is
at localhost:PORT, with the user `me` and the password `pw`.
"""

import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request

sandling, folder, port = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
registry = f"localhost:{port}"
home = folder / "home"
operator = os.environ["SANDLING_TOKEN"]
busybox = pathlib.Path("/usr/bin/busybox").read_bytes()
failures = []


def check(name):
    """Runs a test and reports it. All of them run, so that one run shows everything."""

    def run(test):
        started = time.monotonic()
        try:
            test()
            print(f"ok: {name} ({time.monotonic() - started:.1f} s)", flush=True)
        except Exception as error:  # noqa: BLE001
            failures.append(name)
            print(f"FAILED: {name}: {error!r}", flush=True)

    return run


def api(method, path, body=None, token=operator, status=None):
    """The answer, which must have this status; otherwise any that is good."""
    request = urllib.request.Request(os.environ["SANDLING_API"] + path, method=method)
    request.add_header("Authorization", f"Bearer {token}")
    data = None
    if body is not None:
        request.add_header("Content-Type", "application/json")
        data = json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request, data, timeout=900) as answer:
            found, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        found, text = error.code, error.read()
    if found != status if status else found >= 300:
        raise AssertionError(f"{method} {path}: {found} {text[:600]!r}")
    return json.loads(text) if text else None


class Sandbox:
    def __init__(self, image, token=operator, **more):
        self.token = token
        self.info = api("POST", "/v1/sandboxes", {"image": image, **more}, token)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        api("DELETE", f"/v1/sandboxes/{self.info['id']}", token=self.token)

    def run(self, status=None, **request):
        return api("POST", f"/v1/sandboxes/{self.info['id']}/exec", request, self.token, status)

    def says(self, *args):
        answer = self.run(args=list(args))
        assert answer["exit_code"] == 0, answer
        return answer["stdout"]


def command(*args, expect=0, stdin=None, local=False):
    """Runs the command line. `local`: it finds the server by the home, as on the server's own machine."""
    env = dict(os.environ, SANDLING_HOME=str(home))
    if local:
        del env["SANDLING_API"], env["SANDLING_TOKEN"]
    done = subprocess.run([sandling, *args], env=env, input=stdin, capture_output=True, text=True, timeout=900)
    assert done.returncode == expect, (args, done)
    return done


def push(layout, name):
    target = f"docker://{registry}/{name}"
    options = ["--quiet", "--dest-creds", "me:pw", "--dest-tls-verify=false"]
    subprocess.run(["skopeo", "--insecure-policy", "copy", *options, f"oci:{layout}:test", target], check=True)


def manifest_digest(layout):
    index = json.loads((layout / "index.json").read_text())
    return index["manifests"][0]["digest"]


def layers_of(layout):
    manifest = layout / "blobs/sha256" / manifest_digest(layout).removeprefix("sha256:")
    return [layer["digest"] for layer in json.loads(manifest.read_text())["layers"]]


def stored_layers():
    return sorted(path.name for path in (home / "layers").iterdir() if len(path.name) == 64)


def templates(token=operator):
    return [template["name"] for template in api("GET", "/v1/templates", token=token)]
