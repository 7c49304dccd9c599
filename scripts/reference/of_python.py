"""The page of the Python SDK: its exports, read from the source without importing it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Set, Tuple

OPENING = """# Python

Everything that `from sandling import …` provides. Each class of the first part exists twice: `Sandbox` blocks, and
`AsyncSandbox` has the same methods and is awaited. [sdk.md](../sdk.md) is the guide.
"""
PARTS = [
    ("Sandboxes and what belongs to them", lambda module: module.startswith("_sync")),
    ("Errors", lambda module: module == "errors"),
    ("Data", lambda module: True),
]
#: Classes of `sandling.tools`, and classes that signatures use.
MORE = ["SandboxTools", "ToolOutput", "Image", "CreateOptions", "ExecOptions"]


class Source:
    """The classes and functions of the package, by name."""

    def __init__(self, package: Path) -> None:
        self.homes: Dict[str, str] = {}
        self.nodes: Dict[str, ast.AST] = {}
        self.texts: Dict[str, List[str]] = {}
        for path in sorted([*package.glob("*.py"), *(package / "_sync").glob("*.py")]):
            module = f"_sync.{path.stem}" if path.parent.name == "_sync" else path.stem
            text = path.read_text()
            self.texts[module] = text.splitlines()
            for node in ast.parse(text).body:
                if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
                    self.homes.setdefault(node.name, module)
                    self.nodes.setdefault(node.name, node)

    def comment(self, module: str, line: int) -> str:
        """The `#:` comment above a line."""
        lines = self.texts[module]
        found: List[str] = []
        while line >= 2 and lines[line - 2].strip().startswith("#:"):
            found.insert(0, lines[line - 2].strip()[2:].strip())
            line -= 1
        return " ".join(found)


def page(package: Path) -> str:
    source = Source(package)
    wanted = [*exports(package), *MORE]
    reached(source, wanted)
    parts = [OPENING]
    done: Set[str] = set()
    for title, fits in PARTS:
        parts.append(f"## {title}\n")
        for name in sorted(set(wanted) - done):
            if fits(source.homes[name]):
                done.add(name)
                parts.append(entry(source, name))
    return "\n".join(parts)


def exports(package: Path) -> List[str]:
    """The names that `__init__` exports, without the async classes."""
    tree = ast.parse((package / "__init__.py").read_text())
    homes = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "_HOMES"  # type: ignore[attr-defined]
    )
    named = ast.literal_eval(homes)
    return [name for module, names in named.items() if not module.startswith("_async") for name in names]


def reached(source: Source, wanted: List[str]) -> None:
    """Adds the classes of properties and attributes."""
    for name in wanted:
        node = source.nodes[name]
        if not isinstance(node, ast.ClassDef):
            continue
        for one in [node, *bases(source, node)]:
            for kind in attributes(one):
                if kind in source.nodes and kind not in wanted:
                    wanted.append(kind)


def attributes(node: ast.ClassDef) -> Iterator[str]:
    for item in node.body:
        if not isinstance(item, ast.FunctionDef):
            continue
        if is_property(item) and isinstance(item.returns, ast.Name):
            yield item.returns.id
        if item.name == "__init__":
            for kind, _ in made(item):
                yield kind


def made(init: ast.FunctionDef) -> Iterator[Tuple[str, str]]:
    """The class and name of each `self.name = Class(self)`."""
    for line in init.body:
        if not isinstance(line, ast.Assign) or not isinstance(line.value, ast.Call):
            continue
        target = line.targets[0]
        is_own = isinstance(target, ast.Attribute) and not target.attr.startswith("_")
        if is_own and isinstance(line.value.func, ast.Name) and line.value.func.id[0].isupper():
            yield line.value.func.id, target.attr  # type: ignore[union-attr]


def bases(source: Source, node: ast.ClassDef) -> List[ast.ClassDef]:
    found: List[ast.ClassDef] = []
    for base in node.bases:
        known = source.nodes.get(base.id) if isinstance(base, ast.Name) else None
        if isinstance(known, ast.ClassDef) and known.name != "SandlingError":
            found += [known, *bases(source, known)]
    return found


def entry(source: Source, name: str) -> str:
    node = source.nodes[name]
    if isinstance(node, ast.FunctionDef):
        return f"### {name}\n\n`{signature(node, is_method=False)}`\n\n{plain(ast.get_docstring(node))}\n"
    assert isinstance(node, ast.ClassDef)
    above = ", ".join(ast.unparse(base) for base in node.bases if not ast.unparse(base).startswith("Generic"))
    lines = [f"### {name}" + (f" ({above})" if above and source.homes[name] == "errors" else ""), ""]
    text = plain(ast.get_docstring(node))
    if text:
        lines += [text, ""]
    init = next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    if init is not None and source.homes[name] != "errors" and has_arguments(init):
        lines.append(f"- `{signature(init).replace('__init__', name, 1).replace(' -> None', '')}`")
    seen: Set[str] = set()
    for one in [node, *bases(source, node)]:
        lines += [line for line in members(source, one, seen)]
    return "\n".join(lines).rstrip() + "\n"


def has_arguments(init: ast.FunctionDef) -> bool:
    """Whether users of the package call it."""
    first = init.args.args[1:2]
    internal = {"client", "sandbox", "machine", "pool"}
    return not (first and first[0].arg in internal and len(init.args.args) == 2) or bool(init.args.kwonlyargs)


def members(source: Source, node: ast.ClassDef, seen: Set[str]) -> Iterator[str]:
    module = source.homes[node.name]
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            name = item.target.id
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                comment = plain(source.comment(module, item.lineno))
                default = f" = {ast.unparse(item.value)}" if is_plain(item.value) else ""
                yield line(f"{name}: {ast.unparse(item.annotation)}{default}", comment)
        elif isinstance(item, ast.FunctionDef):
            if item.name == "__init__":
                for kind, name in made(item):
                    yield line(f"{name}: {kind}", "")
            elif not item.name.startswith("_") and item.name not in ("from_wire", "to_wire"):
                if is_overload(item) or item.name in seen:
                    continue
                seen.add(item.name)
                shown = f"{item.name}: {returned(item)}" if is_property(item) else signature(item)
                yield line(shown, plain(ast.get_docstring(item)))


def line(code: str, comment: str) -> str:
    comment = comment.replace("\n\n", "\n").replace("\n", "\n  ")
    return f"- `{code}`: {comment}" if comment else f"- `{code}`"


def is_plain(value: Optional[ast.AST]) -> bool:
    return isinstance(value, ast.Constant)


def is_property(item: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "property" for one in item.decorator_list)


def is_overload(item: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "overload" for one in item.decorator_list)


def returned(item: ast.FunctionDef) -> str:
    text = ast.unparse(item.returns) if item.returns else "Any"
    return text.replace("Source[", "Iterator[")


def signature(item: ast.FunctionDef, *, is_method: bool = True) -> str:
    arguments = ast.unparse(item.args)
    if is_method:
        arguments = re.sub(r"^(self|cls)(: [\w\[\]]+)?(, )?", "", arguments)
    static = [one for one in item.decorator_list if isinstance(one, ast.Name) and one.id == "classmethod"]
    result = f" -> {returned(item)}" if item.returns else ""
    return ("classmethod " if static else "") + f"{item.name}({arguments}){result}"


def plain(text: Optional[str]) -> str:
    """A docstring as Markdown: roles and double quotes of reStructuredText become code."""
    if not text:
        return ""
    text = re.sub(r":(?:class|meth|func|attr|mod):`~?([^`]+)`", r"`\1`", text)
    text = text.replace("``\\ ", "``").replace("``", "`")
    # A paragraph becomes one line, and each parameter an item.
    blocks = []
    for paragraph in re.split(r"\n\s*\n", text):
        block = re.sub(r"\n\s+", " ", paragraph) if paragraph.lstrip().startswith(":") else paragraph
        if block.startswith("    "):
            blocks.append(block)
            continue
        rows = [re.sub(r"^:param (\w+):", r"`\1`:", row) for row in block.split("\n")]
        rows = [re.sub(r"^:raises (\w+):", r"Raises `\1`:", row) for row in rows]
        joined: List[str] = []
        for row in rows:
            if joined and not re.match(r"(`\w+`:|Raises )", row):
                joined[-1] += f" {row.strip()}"
            else:
                joined.append(row)
        blocks.append("\n".join(f"- {row}" if re.match(r"(`\w+`:|Raises )", row) else row for row in joined))
    return "\n\n".join(blocks)
