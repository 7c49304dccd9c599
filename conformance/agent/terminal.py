"""``sandling agent`` at a terminal: its output, its questions and Ctrl-C.

terminal.py SANDLING
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import sys
import tempfile
import termios
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, Optional

from cases import KEY, SANDLING, model, project, run_cases, sandboxes, until
from model_server import ModelServer, Script

#: Fixes the project, and tries to do harm.
MEND = "sed -i 's/a - b/a + b/' src/add.py && rm old.txt && echo new >new.txt && chmod +x new.txt"
QUESTION = "[y/N] "
CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal:
    """A process at its own terminal. ``shown`` is its raw output."""

    def __init__(self, command: List[str], environment: dict, columns: int) -> None:
        self.shown = ""
        self.pid, self._end = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, environment)
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self._end, keys.encode())

    def until(self, text: Optional[str], within: float = 120) -> str:
        """Waits until it shows a text; without a text, until it ends."""
        deadline = time.monotonic() + within
        while text is None or text not in self.shown:
            assert select.select([self._end], [], [], max(0, deadline - time.monotonic()))[0], (text, self.shown)
            try:
                data = os.read(self._end, 65536)
            except OSError:
                data = b""
            if not data:
                assert text is None, f"it ended before it showed {text!r}: {self.shown}"
                return self.shown
            self.shown += data.decode("utf-8", "replace")
        return self.shown

    def wait(self) -> int:
        self.until(None)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self) -> None:
        os.close(self._end)


@contextmanager
def agent(server: ModelServer, *arguments: str, columns: int = 80, **more: str) -> Iterator[Terminal]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "OPENAI"))}
    environment.update(ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=server.url, ANTHROPIC_MODEL="scripted", **more)
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            SANDLING,
            "agent",
            "--template",
            "base",
            "--api",
            "anthropic",
            "--transcript",
            f"{scratch}/t.jsonl",
            *arguments,
            "Mend it.",
        ]
        terminal = Terminal(command, environment, columns)
        try:
            yield terminal
        finally:
            terminal.close()


@contextmanager
def mending(script: Script, *arguments: str, **more: object) -> Iterator[tuple]:
    """An agent that works on a project, and the project."""
    with tempfile.TemporaryDirectory() as scratch, model(script) as server:
        directory = Path(scratch)
        project(directory)
        with agent(server, "--files", scratch, "--apply", *arguments, **more) as terminal:  # type: ignore[arg-type]
            yield terminal, directory


def doing(command: str, last: str = "Mended.") -> Script:
    return [[("run_command", {"command": command})], last]


def is_untouched(directory: Path) -> bool:
    return (
        "a - b" in (directory / "src" / "add.py").read_text()
        and (directory / "old.txt").exists()
        and not (directory / "new.txt").exists()
    )


def what_is_answered_is_done() -> None:
    for keys, applied in (("n\r", False), ("\r", False), (CTRL_D, False), ("y\r", True)):
        with mending(doing(MEND)) as (terminal, directory):
            shown = terminal.until(QUESTION)
            for line in ("-    return a - b", "+    return a + b", "deleted file mode 100644", "new file mode 100755"):
                assert line in shown.partition("apply 3 changes")[0], (line, shown)
            assert "\x1b[31m-    return a - b\x1b[0m" in shown, "removals are red"
            assert is_untouched(directory), "nothing is written before the answer"
            terminal.type(keys)
            assert terminal.wait() == 0, terminal.shown
            assert is_untouched(directory) != applied, (keys, terminal.shown)
            if applied:
                assert "a + b" in (directory / "src" / "add.py").read_text()
                assert not (directory / "old.txt").exists() and os.access(directory / "new.txt", os.X_OK)
            else:
                assert "nothing was written here" in terminal.shown


def what_was_typed_before_the_question_is_no_answer() -> None:
    with mending(doing(f"sleep 2; {MEND}")) as (terminal, directory):
        terminal.until("▸ run_command")
        terminal.type("y\r")
        terminal.until(QUESTION)
        time.sleep(1)
        assert is_untouched(directory), terminal.shown
        terminal.type("n\r")
        assert terminal.wait() == 0 and is_untouched(directory)


def a_file_that_changed_here_meanwhile_is_a_conflict_and_nothing_is_applied() -> None:
    with mending(doing(MEND)) as (terminal, directory):
        terminal.until(QUESTION)
        (directory / "src" / "add.py").write_text("def add(a, b):\n    return a - b  # mine\n")
        terminal.type("y\r")
        assert terminal.wait() != 0 and "changed here meanwhile, so nothing was applied" in terminal.shown
        assert "# mine" in (directory / "src" / "add.py").read_text() and is_untouched(directory)
    # It comes last, when the others may already be written.
    with mending(doing(f"{MEND}; echo last >zz")) as (terminal, directory):
        terminal.until(QUESTION)
        (directory / "zz").mkdir()
        terminal.type("y\r")
        assert terminal.wait() != 0 and "nothing was applied" in terminal.shown, terminal.shown
        assert is_untouched(directory) and (directory / "zz").is_dir(), terminal.shown


#: Returns a forged archive, because the sandbox is not trusted.
FORGED = """
mv /bin/tar /bin/real-tar
cat >/bin/tar <<'END'
#!/usr/bin/env python3
import io, os, sys, tarfile
if "-cf" not in sys.argv:
    os.execv("/bin/real-tar", sys.argv)
with tarfile.open(sys.argv[sys.argv.index("-cf") + 1], "w") as archive:
    def add(name, kind=tarfile.REGTYPE, target=""):
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, target
        data = b"evil" if kind == tarfile.REGTYPE else b""
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    for name in ("../outside", "/tmp/outside-of-it", "./a/../../outside", ".git/hooks/pre-commit", "sub/.GIT/config"):
        add(name)
    add("passwd", tarfile.SYMTYPE, "/etc/passwd")
    add("up", tarfile.SYMTYPE, "..")
    add("d/l", tarfile.SYMTYPE, "..")
    add("chain", tarfile.SYMTYPE, "d/l/..")
    add("hard", tarfile.LNKTYPE, "../../etc/passwd")
    add("esc\\x1b[2Jape")
    add("fine.txt")
END
chmod +x /bin/tar
"""


def what_leads_out_of_the_project_is_left_out() -> None:
    with mending(doing(FORGED)) as (terminal, directory):
        shown = terminal.until(QUESTION)
        assert shown.count("the link leads out of the project") == 3, shown
        assert shown.count("nothing is written into .git") == 2, shown
        terminal.type("y\r")
        assert terminal.wait() == 0, terminal.shown
        left = sorted(
            str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir() or path.is_symlink()
        )
        # Ignored files were not sent. Files that the forged archive leaves out are removed.
        assert left == [".env", ".git/config", "d/l", "fine.txt"], left
        assert not (directory.parent / "outside").exists() and not Path("/tmp/outside-of-it").exists()


EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\x1bP1;1|\x1b\\\u202e"


def no_terminal_obeys_what_strangers_say() -> None:
    script: Script = [
        [
            (
                "run_command",
                {"command": f"printf '\\033[2J\\033]0;t\\007\\r\\x9b31mout'; echo {EVIL} >'new{EVIL}'; : {EVIL}"},
            ),
            ("write_file", {"path": "/workspace/evil.txt", "content": f"{EVIL}\nsecond\n"}),
            ("run_code", {"code": f"raise ValueError({EVIL!r})"}),
            (f"fly{EVIL}", {}),
        ],
        f"Done{EVIL}.",
    ]
    with mending(script, NO_COLOR="1") as (terminal, _):
        terminal.until(QUESTION)
        terminal.type("n\r")
        assert terminal.wait() == 0, terminal.shown
        harmless(terminal.shown)
        for told in ("Done", "second", "out", "fly"):
            assert told in terminal.shown, told
    # Another part reports the failure.
    with mending(doing("true"), "--setup", "printf '\\033[2Jsetup\\007'; exit 3", NO_COLOR="1") as (terminal, _):
        assert terminal.wait() != 0 and "the setup failed" in terminal.shown
        harmless(terminal.shown)
    with mending(doing("printf '#!/bin/sh\\nprintf \"\\\\033[2Jtar\\\\007\"; exit 9' >/bin/tar"), NO_COLOR="1") as (
        terminal,
        _,
    ):
        assert terminal.wait() != 0 and "could not pack" in terminal.shown, terminal.shown
        harmless(terminal.shown)


def harmless(shown: str) -> None:
    found = [hex(ord(sign)) for sign in shown if sign in "\x1b\x07\x9b\u202e" or re.match("[\x80-\x9f]", sign)]
    assert not found, (found, shown)


def a_narrow_window_is_no_trouble() -> None:
    def attempts(body: dict, number: int) -> object:
        return "Done. " * 20 if "tool_result" in str(body) else [("run_command", {"command": "seq 100; " + MEND})]

    for columns in (1, 12, 44):
        with mending(attempts, "--best-of", "2", "--check", "true", columns=columns) as (terminal, directory):
            terminal.until("◀")
            terminal.until(QUESTION)
            terminal.type("y\r")
            assert terminal.wait() == 0 and not is_untouched(directory), terminal.shown
            assert "ATTEMPT" in terminal.shown or columns >= 40, terminal.shown


def ctrl_c_ends_the_sandbox_and_applies_nothing() -> None:
    with mending(doing(f"{MEND}; echo working; sleep 300"), "--yes") as (terminal, directory):
        terminal.until("│ working")
        terminal.type(CTRL_C)
        assert terminal.wait() == 130 and "stopped" in terminal.shown, terminal.shown
        assert is_untouched(directory) and sandboxes() == []
    with mending(doing(MEND)) as (terminal, directory):
        terminal.until(QUESTION)
        terminal.type(CTRL_C)
        assert terminal.wait() == 130 and "nothing was written here" in terminal.shown, terminal.shown
        assert is_untouched(directory) and sandboxes() == []


def a_terminal_that_is_gone_leaves_nothing() -> None:
    with mending(doing(f"{MEND}; echo working; sleep 300"), "--yes") as (terminal, _):
        terminal.until("│ working")
    until(lambda: sandboxes() == [])
    os.waitpid(terminal.pid, 0)


CASES = [
    what_is_answered_is_done,
    what_was_typed_before_the_question_is_no_answer,
    a_file_that_changed_here_meanwhile_is_a_conflict_and_nothing_is_applied,
    what_leads_out_of_the_project_is_left_out,
    no_terminal_obeys_what_strangers_say,
    a_narrow_window_is_no_trouble,
    ctrl_c_ends_the_sandbox_and_applies_nothing,
    a_terminal_that_is_gone_leaves_nothing,
]

if __name__ == "__main__":
    sys.exit(run_cases(CASES))
