"""Runs every block of README.md and docs/, in the order of its page, as a reader pastes it into a terminal.

    docs.py PROJECT [slow] [PAGE…]

PROJECT is the npm project that install.sh made. A page is one session: its blocks share a shell, a directory with the
files in `examples`, a home and a server. If the page starts no server, it finds one that runs. Models are scripted.

| block | |
|---|---|
| indented, or ``sh`` | runs in the shell of the page; every command must succeed |
| ``python`` | runs with the environment of that shell |
| ``ts`` | is checked by TypeScript's compiler, and runs as pasted with each Node in the variable NODES |
| ``json``, ``toml`` | is parsed |
| ``text``, ``ini``, ``nft``, ``nginx``, ``caddy`` | is shown to the reader only |

A comment in the line before a block can exclude it:

| comment | the block runs |
|---|---|
| ``<!-- not run: REASON -->`` | never |
| ``<!-- slow: REASON -->`` | with ``slow``, which skips pages without such blocks |
| ``<!-- network: REASON -->`` | on hosts from which sandboxes reach the internet |
| ``<!-- new server -->`` | after the page's server has ended |
"""

from __future__ import annotations

import ipaddress
import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
#: Its examples need the frameworks, and conformance/frameworks runs them.
ELSEWHERE = ROOT / "docs/frameworks.md"
FOLDERS = ("docs", "docs/guides", "docs/migrate")
PAGES = [
    ROOT / "README.md",
    *(page for folder in FOLDERS for page in sorted(ROOT.glob(f"{folder}/*.md")) if page != ELSEWHERE),
]
PAGE_SECONDS = 900
RUN = ("sh", "python", "ts")
SHOWN = ("text", "ini", "nft", "nginx", "caddy")
PARSED = {"json": json.loads, "toml": tomllib.loads}
MARK = re.compile(r"<!-- (not run|slow|network|new server)(?:: (.+))? -->")
#: Ends what a page left running.
PROLOGUE = """
set -euo pipefail
stop() { sandling rm --all >/dev/null 2>&1 || true; kill $(jobs -p) 2>/dev/null || true; wait; }
trap stop EXIT
"""


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    code: str
    mark: str
    reason: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def file(self, project: Path, suffix: str) -> Path:
        """The source of a TypeScript block. Node finds packages relative to the file."""
        return project / f"{self.page.stem}-{self.line}{suffix}"


def blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text().split("\n")
    at = 1
    while at < len(lines):
        begin, mark = at, MARK.fullmatch(lines[at - 1])
        if lines[at].startswith("```"):
            at = lines.index("```", at + 1)
            language, code = lines[begin][3:], lines[begin + 1 : at]
        elif lines[at].startswith("    ") and (mark or not lines[at - 1]):
            while lines[at].startswith("    ") or (
                not lines[at] and "".join(lines[at + 1 : at + 2]).startswith("    ")
            ):
                at += 1
            language, code = "sh", [line[4:] for line in lines[begin:at]]
        if at > begin:
            what, reason = mark.groups() if mark else ("", "")
            yield Block(page, begin + 1, language, "\n".join([*code, ""]), what, reason or "")
        at += 1


def check(block: Block) -> None:
    """Refuses a block that would silently not run."""
    if block.language not in (*RUN, *SHOWN, *PARSED):
        raise SystemExit(f"{block.place}: a block of the language {block.language!r} is neither run nor known as text")
    if block.mark not in ("", "new server") and not block.reason:
        raise SystemExit(f"{block.place}: the comment must give the reason")
    PARSED.get(block.language, str)(block.code)


def check_typescript(sources: List[Block], project: Path) -> None:
    """Writes each block twice: for the compiler, which checks types, and for Node, which knows none."""
    for block in sources:
        for suffix in (".ts", ".mjs"):
            block.file(project, suffix).write_text(block.code)
    compiler = ["npx", "--no-install", "tsc", "--noEmit", "--target", "ES2022", "--module", "NodeNext", "--strict"]
    libraries = ["--lib", "ES2022,ESNext.Disposable", "--skipLibCheck", "--types", "node"]
    names = [block.file(project, ".ts").name for block in sources]
    subprocess.run([*compiler, *libraries, *names], check=True, cwd=project)


def has_internet() -> bool:
    """Whether sandboxes could reach the internet: they do so through connections of the server, without a proxy."""
    try:
        with socket.create_connection(("pypi.org", 443), timeout=5) as connection:
            # The gateway refuses other addresses, such as that of a mirror in a private network.
            return ipaddress.ip_address(connection.getpeername()[0]).is_global
    except OSError:
        return False


def session(page: List[Block], project: Path, directory: Path) -> str:
    """A script that runs the blocks of a page. It writes the place of each one to the file `reached` first."""
    lines = [PROLOGUE]
    if not any("sandling serve" in block.code for block in page):
        lines.append("sandling serve >/dev/null &")
    for block in page:
        if block.mark == "new server":
            lines.append("stop")
        lines.append(f"echo {shlex.quote(block.place)} >{shlex.quote(str(directory / 'reached'))}")
        if block.language == "sh":
            lines.append(block.code)
        elif block.language == "python":
            source = directory / f"block-{block.line}.py"
            source.write_text(block.code)
            lines.append(f"python {shlex.quote(str(source))}")
        else:
            source = shlex.quote(str(block.file(project, ".mjs")))
            lines += [f"{shlex.quote(node)} {source}" for node in os.environ.get("NODES", "node").split()]
    return "\n".join(lines)


def in_terminal(script: Path, directory: Path, environment: Dict[str, str]) -> Tuple[int, str]:
    """Runs a script in a terminal where somebody types `exit` every second, which ends interactive shells."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(directory)
        os.execvpe("bash", ["bash", str(script)], environment)
    output, deadline, typed = b"", time.monotonic() + PAGE_SECONDS, time.monotonic()
    while True:
        if select.select([terminal], [], [], 0.5)[0]:
            try:
                output += os.read(terminal, 65536)
            except OSError:  # the last process of the terminal has ended
                break
        if time.monotonic() - typed > 1:
            os.write(terminal, b"exit\n")
            typed = time.monotonic()
        if time.monotonic() > deadline:
            output += b"\n(the page takes too long)\n"
            os.killpg(pid, signal.SIGTERM)
            break
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    return status, output.decode(errors="replace")


def run(page: List[Block], project: Path, environment: Dict[str, str]) -> bool:
    """Runs the blocks of a page. Prints the output only if one fails."""
    # A short path, because it contains Unix sockets.
    with tempfile.TemporaryDirectory(prefix="docs.") as scratch:
        inside = Path(scratch)
        directory = inside / "here"
        shutil.copytree(HERE / "examples", directory)
        if any("*.whl" in block.code for block in page):
            wheel = next((Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "dist").glob("*.whl"))
            (directory / wheel.name).symlink_to(wheel)
        script = inside / "page.sh"
        script.write_text(session(page, project, inside))
        began = time.monotonic()
        status, output = in_terminal(script, directory, {**environment, "SANDLING_HOME": str(inside / "home")})
        took = f"{len(page)} blocks, {time.monotonic() - began:.0f} s"
        if status == 0:
            print(f"passed   {page[0].page.relative_to(ROOT)} ({took})", flush=True)
            return True
        print(output)
        print(f"FAILED   {(inside / 'reached').read_text().strip()} (exit code {status})", flush=True)
        return False


def say(body: Dict[str, Any], number: int) -> Any:
    """The scripted model: it runs code once and answers."""
    conversation = body["messages"] if "messages" in body else body["input"]
    if any(item.get("role") == "assistant" or item.get("type") == "function_call" for item in conversation):
        return "31,622,400 seconds."
    return [("run_code", {"code": "366 * 24 * 60 * 60"})]


def main(place: str, *options: str) -> int:
    sys.path.insert(0, str(HERE.parent / "python" / "tests" / "frameworks"))
    from model_server import ModelServer

    project, slow = Path(place).resolve(), "slow" in options
    wanted = [option for option in options if option != "slow"]
    pages = [list(blocks(page)) for page in PAGES if not wanted or str(page.relative_to(ROOT)) in wanted]
    every = [block for page in pages for block in page]
    for block in every:
        check(block)
    skipped = {"not run"} | (set() if slow else {"slow"}) | (set() if has_internet() else {"network"})
    left_out = [block for block in every if block.mark in skipped]
    chosen = [page for page in pages if not slow or any(block.mark == "slow" for block in page)]
    to_run = [[block for block in page if block.language in RUN and block not in left_out] for page in chosen]
    typescript = [block for page in to_run for block in page if block.language == "ts"]
    if typescript:
        check_typescript(typescript, project)
    model = ModelServer(say)
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("SANDLING_API", "SANDLING_TOKEN")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SANDLING_LISTEN": "127.0.0.1:0",
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": "unused",
        "ANTHROPIC_MODEL": "scripted",
        "OPENAI_BASE_URL": f"{model.url}/v1",
        "OPENAI_API_KEY": "unused",
        "OPENAI_MODEL": "scripted",
    }
    failed = [page for page in to_run if page and not run(page, project, environment)]
    print(f"\n{sum(map(len, to_run))} blocks ran; {len(left_out)} did not:")
    for block in left_out:
        print(f"  {block.place}  {block.mark}: {block.reason}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
