"""``sandling agent`` with a scripted model and real sandboxes.

cases.py SANDLING
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse
import urllib.request
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "sdk" / "python" / "tests" / "frameworks"))
import model_server  # noqa: E402
from model_server import Counted, Drop, ModelServer, Refusal, Script, Turn, strings  # noqa: E402

SANDLING = sys.argv[1]
KEY = "key-that-nobody-may-see"
#: Writes a file, reads it with code, gets something wrong, and answers.
SCRIPT: List[Turn] = [
    [("write_file", {"path": "/workspace/n.txt", "content": "6 7"})],
    [("run_code", {"code": "a, b = map(int, open('n.txt').read().split())\na * b"})],
    [("run_command", {"command": "cat /nowhere; exit 3"}), ("run_code", {"code": "a + b"})],
    "It is 42.",
]


class Ran(NamedTuple):
    code: int
    stdout: str
    stderr: str
    lines: List[Dict[str, Any]]

    def end(self) -> Dict[str, Any]:
        return self.lines[-1]


@contextmanager
def model(script: Script) -> Iterator[ModelServer]:
    server = ModelServer(script)
    try:
        yield server
    finally:
        server.close()


def agent(server: ModelServer, *arguments: str, api: str = "anthropic", cwd: Optional[Path] = None) -> Ran:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "OPENAI"))}
    if api == "anthropic":
        environment.update(ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=server.url, ANTHROPIC_MODEL="scripted")
    else:
        environment.update(OPENAI_API_KEY=KEY, OPENAI_BASE_URL=f"{server.url}/v1", OPENAI_MODEL="scripted")
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as transcript:
        command = [SANDLING, "agent", "--template", "base", "--api", api, "--transcript", transcript.name, *arguments]
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL, cwd=cwd
        )
        text = transcript.read()
    assert KEY not in text + ran.stdout + ran.stderr, "the key was told"
    assert all(KEY in key for key in server.keys), server.keys
    return Ran(ran.returncode, ran.stdout, ran.stderr, [json.loads(line) for line in text.splitlines()])


def the_three_apis_streamed_and_not() -> None:
    for api in ("anthropic", "chat", "responses"):
        for streamed in (True, False):
            with model(list(SCRIPT)) as server:
                ran = agent(server, *([] if streamed else ["--no-stream"]), "What is the product?", api=api)
                assert ran.code == 0 and ran.stdout == "It is 42.\n", (api, streamed, ran)
                assert bool(server.requests[0].get("stream")) == streamed
                assert len(server.requests) == 4
                assert "wrote 3 bytes" in strings(server.requests[1])
                assert re.search(r"result:\\+n42", strings(server.requests[2]))
                last = strings(server.requests[3])
                assert "exit code: 3" in last and "No such file or directory" in last and re.search(r"n13", last)
                kinds = [line["type"] for line in ran.lines]
                assert kinds.count("call") == kinds.count("result") == 4 and kinds.count("reply") == 4, kinds
                assert (ran.end()["input_tokens"], ran.end()["output_tokens"]) == (40, 20), ran.end()
                results = [line for line in ran.lines if line["type"] == "result"]
                assert [line["exit_code"] for line in results] == [None, 0, 3, 0]


def malformed_calls_are_answered() -> None:
    nonsense = [("run_code", '{"code": '), ("fly", {}), ("run_command", {"cmd": "x"}), ("read_file", {"path": 1})]
    for api in ("anthropic", "chat", "responses"):
        with model([nonsense, "Sorry."]) as server:
            ran = agent(server, "Try.", api=api)
            assert ran.code == 0, ran
            told = strings(server.requests[1])
            for why in ("not JSON", "there is no tool", "unknown field", "invalid type"):
                assert why in told, (api, why, told)


def what_cannot_be_read_or_written_is_told() -> None:
    prepare = "truncate -s 20M /tmp/large; mkfifo /tmp/pipe; ln -s /dev/zero /tmp/link; ln -s /nowhere /tmp/dangling"
    known = {
        "/dev/zero": "is a device, a pipe or a socket",
        "/tmp/link": "is a device, a pipe or a socket",
        "/tmp/pipe": "is a device, a pipe or a socket",
        "/tmp/large": "has more than",
        "/tmp/dangling": "does not exist",
        "/tmp": "is a directory",
        "/proc/self/mem": "error:",
        "/proc/version": "Linux version",
    }
    reads = [("read_file", {"path": path}) for path in known]
    writes = [("write_file", {"path": "/proc/x", "content": "x"})]
    with model([[("run_command", {"command": prepare})], reads, writes, "Done."]) as server:
        ran = agent(server, "Read.")
    assert ran.code == 0 and ran.stdout == "Done.\n", ran
    _, *told, written = [line["text"] for line in ran.lines if line["type"] == "result"]
    for path, why, text in zip(known, known.values(), told):
        assert why in text, (path, text)
    assert written.startswith("error:"), written


def many_calls_at_once_all_have_answers() -> None:
    for api in ("anthropic", "chat", "responses"):
        for flags in ([], ["--no-stream"]):
            with model([[("list_files", {"path": f"/{number}"}) for number in range(70)], "Done."]) as server:
                ran = agent(server, *flags, "List.", api=api)
            assert ran.code == 0, (api, flags, ran)
            items = server.requests[1].get("messages") or server.requests[1]["input"]
            assert answered(items) == called(items) != set(), (api, flags)


def blocks(items: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    inner = [item["content"] for item in items if isinstance(item.get("content"), list)]
    return items + [block for content in inner for block in content]


def called(items: List[Dict[str, Any]]) -> Set[str]:
    uses = {block["id"] for block in blocks(items) if block.get("type") == "tool_use"}
    functions = {item["call_id"] for item in items if item.get("type") == "function_call"}
    return uses | functions | {call["id"] for item in items for call in item.get("tool_calls") or ()}


def answered(items: List[Dict[str, Any]]) -> Set[str]:
    names = ("tool_use_id", "tool_call_id")
    results = {block[name] for block in blocks(items) for name in names if name in block}
    return results | {item["call_id"] for item in items if item.get("type") == "function_call_output"}


def endless_loops_end() -> None:
    with model(lambda body, number: [("run_command", {"command": "true"})]) as server:
        ran = agent(server, "Loop.")
        assert ran.code == 1 and "repeated the same call" in ran.end()["why"] and len(server.requests) == 6, ran
        assert "3 times in a row" in strings(server.requests[3])
    with model(lambda body, number: [("run_command", {"command": f"echo {number}"})]) as server:
        ran = agent(server, "--max-steps", "5", "Loop.")
        assert ran.code == 1 and "step budget" in ran.end()["why"] and len(server.requests) == 5, ran
    with model(lambda body, number: "") as server:
        ran = agent(server, "Say nothing.", api="chat")
        assert ran.code == 1 and "empty answers" in ran.end()["why"], ran


def size(body: Dict[str, Any]) -> int:
    """The number of tokens of a request, as a server might count it."""
    return len(strings(body)) // 4


def budgets_hold() -> None:
    def verbose(body: Dict[str, Any], number: int) -> Turn:
        return Counted([("run_command", {"command": f"seq {number} 4000"})], size(body), 20)

    with model(verbose) as server:
        ran = agent(server, "--max-tokens", "30000", "Go on.")
        assert "token budget" in ran.end()["why"] and 1 < len(server.requests) < 6, ran
        before = 0
        for body in server.requests:
            assert before + size(body) + body["max_tokens"] <= 30_000, "the longest answer would not have been paid for"
            before += size(body) + 20
        assert ran.end()["input_tokens"] + ran.end()["output_tokens"] == before <= 30_000
    with model(verbose) as server:
        ran = agent(server, "--max-cost", "0.3", "--price", "10,20", "Go on.")
        assert "cost budget" in ran.end()["why"] and 1 < len(server.requests) and 0.05 < ran.end()["cost"] <= 0.3, ran
    with model(verbose) as server:
        ran = agent(server, "--max-tokens", "60", "Go on.")
        assert "first request" in ran.end()["why"] and server.requests == [], "the first request alone is too large"
    with model([[("run_command", {"command": "echo started; sleep 300"})], "never"]) as server:
        started = time.monotonic()
        ran = agent(server, "--max-time", "8s", "Sleep.")
        assert "time" in ran.end()["why"] and time.monotonic() - started < 120, ran


def answers_that_break_off_are_charged() -> None:
    for api in ("anthropic", "chat", "responses"):
        for flags, heard in ([], 500), (["--no-stream"], 0):
            with model([Drop("x" * 6000), "Done."]) as server:
                ran = agent(server, *flags, "Be patient.", api=api)
            assert ran.code == 0 and len(server.requests) == 2, (api, flags, ran)
            assert ran.end()["input_tokens"] > 500 and ran.end()["output_tokens"] >= heard, (api, flags, ran.end())
    with model(lambda body, number: Drop("x" * 100)) as server:
        ran = agent(server, "--max-tokens", "2500", "Be patient.")
        spent = ran.end()["input_tokens"] + ran.end()["output_tokens"]
        assert "token budget" in ran.end()["why"] and 1 < len(server.requests) < 6 and spent <= 2500, ran


def stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: stripped(inner) for name, inner in value.items() if name != "usage"}
    return [stripped(inner) for inner in value] if isinstance(value, list) else value


def silent(event: str) -> str:
    """An event of a server that reports no token counts."""
    name, _, data = event.rpartition("data: ")
    return event if data.startswith("[DONE]") else f"{name}data: {json.dumps(stripped(json.loads(data)))}\n\n"


def servers_that_do_not_count_are_counted_for() -> None:
    whole = {name: lambda *turn, make=make: stripped(make(*turn)) for name, make in model_server.DIALECTS.items()}
    streamed = {name: lambda it, make=make: map(silent, make(it)) for name, make in model_server.STREAMS.items()}
    for table, patched, flags in (("DIALECTS", whole, ["--no-stream"]), ("STREAMS", streamed, [])):
        for api in ("anthropic", "chat", "responses"):
            with mock.patch.object(model_server, table, patched):
                with model(lambda body, number: [("run_command", {"command": f"echo {number}"})]) as server:
                    ran = agent(server, *flags, "--max-tokens", "9000", "Go on.", api=api)
            spent = ran.end()["input_tokens"] + ran.end()["output_tokens"]
            assert "token budget" in ran.end()["why"] and 1000 < spent <= 9000, (api, flags, ran.end())
            assert 1 < len(server.requests) < 20, (api, flags, len(server.requests))


def api(method: str, path: str, body: Any = None) -> Any:
    request = urllib.request.Request(os.environ["SANDLING_API"] + path, method=method)
    request.add_header("Authorization", f"Bearer {os.environ['SANDLING_TOKEN']}")
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    return json.load(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30))


def sandboxes() -> List[Dict[str, Any]]:
    return api("GET", "/v1/sandboxes")


def signalled(asked: signal.Signals) -> int:
    """Sends an agent a signal during a command, and returns how it ends."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "OPENAI"))}
    with model([[("run_command", {"command": "sleep 300"})], "never"]) as server, tempfile.TemporaryDirectory() as at:
        environment.update(ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=server.url, ANTHROPIC_MODEL="scripted")
        options = ["--template", "base", "--max-time", "5m", "--transcript", f"{at}/transcript.jsonl"]
        command = [SANDLING, "agent", *options, "Sleep."]
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: server.requests and sandboxes() and process.poll() is None)
        process.send_signal(asked)
        return process.wait(60)


def until(comes_true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not comes_true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def signals_leave_nothing() -> None:
    for asked in (signal.SIGINT, signal.SIGTERM):
        assert signalled(asked) != 0 and sandboxes() == [], asked


def what_a_killed_agent_leaves_ends_by_itself() -> None:
    assert signalled(signal.SIGKILL) == -signal.SIGKILL
    (left,) = sandboxes()
    lifecycle = f"/v1/sandboxes/{left['id']}/lifecycle"
    assert 300 <= api("GET", lifecycle)["ttl_seconds"] <= 3600, "the loop's own time, and some to clean up"
    api("PATCH", lifecycle, {"ttl_seconds": 1})
    until(lambda: sandboxes() == [])


def commands_have_deadlines() -> None:
    with model([[("run_command", {"command": "echo before; sleep 300"})], "Too slow."]) as server:
        ran = agent(server, "--command-timeout", "2s", "Sleep.")
        told = strings(server.requests[1])
        assert ran.code == 0 and "its deadline" in told and "before" in told, ran


def busy_servers_are_asked_again() -> None:
    for api in ("anthropic", "chat", "responses"):
        with model([Refusal(429, "slow down"), Refusal(503), Drop(), "Done."]) as server:
            ran = agent(server, "Be patient.", api=api)
            assert ran.code == 0 and ran.stdout == "Done.\n" and len(server.requests) == 4, ran
            assert [line["type"] for line in ran.lines].count("retry") == 3, ran.lines
    with model([Drop(), "Done."]) as server:
        assert agent(server, "--no-stream", "Be patient.").code == 0
    with model(lambda body, number: Refusal(529, "overloaded")) as server:
        ran = agent(server, "Be patient.")
        assert ran.code == 1 and "overloaded" in ran.end()["why"] and len(server.requests) == 6, ran
    with model(lambda body, number: Refusal(401, "who are you")) as server:
        ran = agent(server, "Who am I?")
        assert ran.code == 1 and "who are you" in ran.end()["why"] and len(server.requests) == 1, ran
    for later in ("3600", formatdate(time.time() + 3600, usegmt=True)):
        with model(lambda body, number: Refusal(429, "later", (("retry-after", later),))) as server:
            ran = agent(server, "--max-time", "1m", "Be patient.")
            assert ran.code == 1 and "time" in ran.end()["why"] and len(server.requests) == 1, (later, ran)


def project(directory: Path) -> None:
    (directory / "src").mkdir()
    (directory / "src" / "add.py").write_text("def add(a, b):\n    return a - b\n")
    (directory / "old.txt").write_text("old\n")
    (directory / ".gitignore").write_text(".env\n")
    (directory / ".env").write_text("SECRET=1\n")
    (directory / ".git").mkdir()
    (directory / ".git" / "config").write_text("[core]\n")


#: Fixes the project, and tries to do harm.
MEND = (
    "ls -A; sed -i 's/a - b/a + b/' src/add.py && rm old.txt && echo new >new.txt && mkdir -p .git/hooks && "
    "echo evil >.git/hooks/pre-commit && ln -s /etc/passwd link && mkdir __pycache__ && touch __pycache__/x.pyc"
)


def a_project_goes_in_and_its_diff_comes_back() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        project(directory)
        with model([[("run_command", {"command": MEND})], "Mended."]) as server:
            ran = agent(server, "--files", scratch, "Mend it.")
        seen = strings(server.requests[1])
        assert ran.code == 0 and "add.py" not in seen.partition("stdout")[2].partition("src")[0]
        assert ".env" not in seen.replace(".envrc", "") and "SECRET" not in seen, seen
        assert "-    return a - b\n+    return a + b\n" in ran.stderr, ran.stderr
        assert "a - b" in (directory / "src" / "add.py").read_text(), "nothing is written without --apply"
        with model([[("run_command", {"command": MEND})], "Mended."]) as server:
            ran = agent(server, "--files", scratch, "--apply", "Mend it.")
        assert ran.code == 2 and "--yes" in ran.stderr and server.requests == [], ran
        with model([[("run_command", {"command": MEND})], "Mended."]) as server:
            ran = agent(server, "--files", ".", "--apply", "--yes", "Mend it.", cwd=directory)
        assert ran.code == 0, ran
        assert (directory / "src" / "add.py").read_text() == "def add(a, b):\n    return a + b\n"
        assert (directory / "new.txt").read_text() == "new\n" and not (directory / "old.txt").exists()
        assert not (directory / ".git" / "hooks").exists() and not (directory / "link").is_symlink()
        assert (directory / ".env").exists() and not (directory / "__pycache__").exists()
        assert "link leads out" in ran.stderr, ran.stderr


def the_best_of_three_is_taken() -> None:
    def attempts(body: Dict[str, Any], number: int) -> Turn:
        said = strings(body)
        attempt = int(re.search(r"attempt (\d) of 3", said)[1])
        if "tool_result" in said:
            return f"Attempt {attempt} is done."
        wrong = {1: "a * b", 2: "a + b", 3: "a / b"}[attempt]
        return [("run_command", {"command": f"sed -i 's/a - b/{wrong.replace('/', chr(92) + '/')}/' src/add.py"})]

    check = "cd src && python3 -c 'from add import add; assert add(2, 3) == 5'"
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        project(directory)
        arguments = ["--files", scratch, "--apply", "--yes", "--best-of", "3", "--check", check, "--setup", "touch warm"]
        with model(attempts) as server:
            ran = agent(server, *arguments, "Mend it.")
        assert ran.code == 0 and ran.stdout == "Attempt 2 is done.\n", ran
        assert re.search(r"2 ◀\s+passed", ran.stderr) and ran.stderr.count("failed (1)") == 2, ran.stderr
        assert "a + b" in (directory / "src" / "add.py").read_text()
        checks = {line["attempt"]: line["exit_code"] for line in ran.lines if line["type"] == "check"}
        assert checks == {1: 1, 2: 0, 3: 1}, checks


@contextmanager
def fewer_forks() -> Iterator[str]:
    """The URL of a proxy that turns a request for three forks into one for two."""
    there = urllib.parse.urlsplit(os.environ["SANDLING_API"])

    def carry(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                target.sendall(data.replace(b'"count":3', b'"count":2'))
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    class Way(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((there.hostname, there.port)) as server:
                back = threading.Thread(target=carry, args=(server, self.request))
                back.start()
                carry(self.request, server)
                back.join()

    class Ways(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Ways(("127.0.0.1", 0), Way) as ways:
        threading.Thread(target=ways.serve_forever).start()
        yield f"http://127.0.0.1:{ways.server_address[1]}"
        ways.shutdown()


def fewer_forks_than_wanted_are_told() -> None:
    with fewer_forks() as address, mock.patch.dict(os.environ, SANDLING_API=address):
        with model(lambda body, number: "Done.") as server:
            ran = agent(server, "--best-of", "3", "--check", "true", "Try.")
    assert ran.code == 0 and "only 2 of 3 forks could be created" in ran.stderr, ran
    (forks,) = [line for line in ran.lines if line["type"] == "forks"]
    assert (forks["wanted"], forks["made"]) == (3, 2), forks
    told = {re.search(r"attempt (\d of \d)", strings(body))[1] for body in server.requests}
    assert told == {"1 of 2", "2 of 2"}, told


def without_a_key_nothing_begins() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "OPENAI"))}
    ran = subprocess.run([SANDLING, "agent", "x"], env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2 and "ANTHROPIC_API_KEY" in ran.stderr, ran


def a_check_that_cannot_run_is_said_before_the_model_is_asked() -> None:
    with model(SCRIPT) as server:
        ran = agent(server, "--check", "no-such-program --now", "Multiply.")
        assert ran.code == 2 and not server.requests, (ran, server.requests)
    assert "the check cannot run in the sandbox (exit code 127)" in ran.stderr, ran.stderr


CASES = [
    without_a_key_nothing_begins,
    a_check_that_cannot_run_is_said_before_the_model_is_asked,
    the_three_apis_streamed_and_not,
    malformed_calls_are_answered,
    what_cannot_be_read_or_written_is_told,
    many_calls_at_once_all_have_answers,
    endless_loops_end,
    budgets_hold,
    answers_that_break_off_are_charged,
    servers_that_do_not_count_are_counted_for,
    signals_leave_nothing,
    what_a_killed_agent_leaves_ends_by_itself,
    commands_have_deadlines,
    busy_servers_are_asked_again,
    a_project_goes_in_and_its_diff_comes_back,
    the_best_of_three_is_taken,
    fewer_forks_than_wanted_are_told,
]


def run_cases(cases: List[Callable[[], None]]) -> int:
    failed = 0
    wanted = sys.argv[2:]
    for case in cases:
        if wanted and case.__name__ not in wanted:
            continue
        started = time.monotonic()
        try:
            case()
            print(f"passed   {case.__name__} ({time.monotonic() - started:.0f} s)", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"FAILED   {case.__name__}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run_cases(CASES))
