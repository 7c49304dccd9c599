#!/usr/bin/env python3
"""Records a terminal session as a picture: runs the commands below and draws their output.

    scripts/record.py SANDLING [PICTURE]

Needs the template `code-interpreter`. PICTURE is docs/pictures/session.svg by default.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Each command runs in the same shell; the picture shows its output.
COMMANDS = [
    "sandling run -c 'import platform; print(platform.node(), sum(range(101)))'",
    "id=$(sandling create --ttl 10m)",
    "sandling exec -c 'echo original >/workspace/config' $id",
    "children=$(sandling fork -n 3 $id)",
    "for child in $children; do sandling exec -c 'echo risky >/workspace/config; hostname' $child; done",
    "sandling exec -c 'hostname; cat /workspace/config' $id",
    "sandling rm --all",
]
COLUMNS = 100
LINE, LETTER, EDGE = 20, 8.4, 16


def record(sandling: Path) -> list[tuple[str, str, float]]:
    """Lines as (kind, text, when)."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "SANDLING_HOME": scratch, "NO_COLOR": "1"}
        templates = environment.get("SANDLING_TEMPLATES") or environment.get("SANDLING_TEST_TEMPLATES")
        home = Path(os.environ.get("SANDLING_HOME") or Path.home() / ".local/share/sandling")
        environment["SANDLING_TEMPLATES"] = templates or str(home / "templates")
        environment["PATH"] = f"{sandling.parent}:{environment['PATH']}"
        server = subprocess.Popen(
            [sandling, "serve", "--listen", "127.0.0.1:0"], env=environment, stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            server.stdout.readline()
            time.sleep(1)
            return play(environment)
        finally:
            server.terminate()
            server.wait()


def play(environment: dict[str, str]) -> list[tuple[str, str, float]]:
    shell = subprocess.Popen(
        ["bash"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert shell.stdin is not None and shell.stdout is not None
    lines, now = [], 0.5
    for command in COMMANDS:
        lines.append(("typed", f"$ {command}", now))
        now += 0.6
        started = time.monotonic()
        # The next command is not the standard input of this one.
        shell.stdin.write(f"{{ {command}; }} </dev/null\necho END-OF-COMMAND $?\n")
        shell.stdin.flush()
        while not (line := shell.stdout.readline()).startswith("END-OF-COMMAND"):
            assert line, "the shell ended"
            lines.append(("printed", line.rstrip("\n"), now + time.monotonic() - started))
        assert line.split()[1] == "0", (command, line, lines)
        now += time.monotonic() - started + 0.4
    shell.stdin.close()
    shell.wait()
    return lines


def wrapped(lines: list[tuple[str, str, float]]) -> list[tuple[str, str, float]]:
    # The output of a sandbox is untrusted: it must not become markup of the picture.
    clean = [(kind, re.sub(r"[^\x20-\x7e\u00a0-\uffff]", "", text), when) for kind, text, when in lines]
    return [
        (kind, text[start : start + COLUMNS], when)
        for kind, text, when in clean
        for start in range(0, max(len(text), 1), COLUMNS)
    ]


def draw(lines: list[tuple[str, str, float]]) -> str:
    width, height = int(COLUMNS * LETTER + 2 * EDGE), len(lines) * LINE + 2 * EDGE + 24
    rows = []
    for number, (kind, text, when) in enumerate(lines):
        y = EDGE + 24 + (number + 1) * LINE - 5
        rows.append(
            f'<text class="{kind}" x="{EDGE}" y="{y}" style="animation-delay:{when:.2f}s" xml:space="preserve">'
            f"{html.escape(text)}</text>"
        )
    dots = "".join(f'<circle cx="{EDGE + 6 + 18 * n}" cy="18" r="5" fill="#4b5563"/>' for n in range(3))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">
<style>
text {{ font: 14px ui-monospace, Menlo, Consolas, monospace; opacity: 0; animation: show 0.01s forwards; }}
.typed {{ fill: #93c5fd; }} .printed {{ fill: #e5e7eb; }}
@keyframes show {{ to {{ opacity: 1; }} }}
@media (prefers-reduced-motion: reduce) {{ text {{ opacity: 1; animation: none; }} }}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#111827"/>{dots}
{chr(10).join(rows)}
</svg>
"""


def main() -> None:
    sandling = Path(sys.argv[1]).resolve()
    default = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "session.svg"
    picture = Path(sys.argv[2]) if len(sys.argv) > 2 else default
    picture.write_text(draw(wrapped(record(sandling))))
    print(f"wrote {picture}")


if __name__ == "__main__":
    main()
