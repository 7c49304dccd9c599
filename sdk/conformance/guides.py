"""Runs the code of the guides, block by block, against the server that ``SANDLING_API`` names.

    guides.py python                    with this interpreter
    guides.py typescript DIRECTORY      in the npm project that install.sh made

A block can have ``requires=PATH``, a path of the server's API, or ``needs=MODULE``. If it is missing, the block is
skipped and listed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple

import sandling

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent.parent / "docs"
NAMED = ("../README.md", "quickstart.md", "sdk.md", "agent.md")
GUIDES = [*(DOCS / name for name in NAMED), *sorted(DOCS.glob("guides/*.md"))]
BLOCK_WITHIN = 300


class Block(NamedTuple):
    title: str
    language: str
    options: Dict[str, str]
    code: str


def blocks() -> Iterator[Block]:
    title = ""
    pattern = re.compile(r"^##? (?P<title>.+)$|^```(?P<info>\w.*)\n(?P<code>(?:.*\n)*?)```$", re.MULTILINE)
    for found in (found for guide in GUIDES for found in pattern.finditer(guide.read_text())):
        if found["title"]:
            title = found["title"]
            continue
        language, *options = found["info"].split()
        yield Block(title, language, dict(option.split("=", 1) for option in options), found["code"])


def lacking(block: Block, paths: Any) -> str:
    """The missing requirement of a block; empty if there is none."""
    path, module = block.options.get("requires"), block.options.get("needs")
    if path and path not in paths:
        return f"the server has no {path}"
    if module and importlib.util.find_spec(module) is None:
        return f"there is no module {module}"
    return ""


def run_python(code: str, directory: Path) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, cwd=directory, timeout=BLOCK_WITHIN)


def run_typescript(code: str, project: Path) -> None:
    source = project / "guide.ts"
    source.write_text(code)
    compiler = ["npx", "--no-install", "tsc", "--target", "ES2022", "--module", "NodeNext", "--strict"]
    libraries = ["--lib", "ES2022,ESNext.Disposable", "--skipLibCheck", "--types", "node"]
    subprocess.run([*compiler, *libraries, source.name], check=True, cwd=project)
    subprocess.run(["node", "guide.js"], check=True, cwd=project, timeout=BLOCK_WITHIN)


def say(body: Dict[str, Any], number: int) -> Any:
    """The scripted model of the guides: it runs code once and answers."""
    if any(message["role"] == "assistant" for message in body["messages"]):
        return "31,622,400 seconds."
    return [("run_code", {"code": "366 * 24 * 60 * 60"})]


def main(language: str, *place: str) -> int:
    sys.path.insert(0, str(HERE.parent / "python" / "tests" / "frameworks"))
    from model_server import ModelServer

    model = ModelServer(say)
    os.environ.update(ANTHROPIC_BASE_URL=model.url, ANTHROPIC_API_KEY="unused", ANTHROPIC_MODEL="scripted")
    paths = sandling.Client()._transport.request("GET", "/openapi.json")["paths"]
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for block in blocks():
            if block.language != {"python": "python", "typescript": "ts"}[language]:
                continue
            missing = lacking(block, paths)
            if missing:
                print(f"skipped  {block.title} ({missing})", flush=True)
                continue
            try:
                run_python(block.code, Path(scratch)) if not place else run_typescript(block.code, Path(place[0]))
                print(f"passed   {block.title}", flush=True)
            except subprocess.SubprocessError as error:
                failed += 1
                print(f"FAILED   {block.title}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
