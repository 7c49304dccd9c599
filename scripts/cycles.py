#!/usr/bin/env python3
"""Fails if modules of a crate import each other in a cycle.

    scripts/cycles.py [--show CRATE]

Compares the top-level modules below `crates/*/src`, tests left out. A path counts however it is written: `crate::a::B`,
`super::a::B`, or `crate::B` where `lib.rs` re-exports B from `a`. The crates in NO_CYCLES may have no cycle at all.
Elsewhere two or three modules that are really one thing may know each other. `--show` prints who imports whom in a crate.
"""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NO_CYCLES = {"api", "engine", "fleet", "oci", "service", "wire"}
LARGEST_ELSEWHERE = 3

TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*(pub(\([a-z]+\))? )?mod \w+ \{")
COMMENT = re.compile(r"//.*")
# A path, or the braces of a `use` that begin with one.
PATH = re.compile(r"\b(crate|super|self)((?:::\s*super)*)::\s*(\{|[A-Za-z_]\w*(?:::\s*[A-Za-z_]\w*)*(?:::\s*\{)?)")
REEXPORT = re.compile(r"\bpub(?:\([a-z]+\))? use (?:crate::|self::)?([a-z_0-9]+)::([^;]+);")


def code(path):
    """A file's text without comments and without its test modules, which stand at its end."""
    text = "\n".join(COMMENT.sub("", line) for line in path.read_text().splitlines())
    return TEST_MODULE.split(text)[0]


def group(text, start):
    """What stands between the brace at `start` and the one that closes it."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start + 1 : at]
    return text[start + 1 :]


def heads(body):
    """The first name of each path in a group: `a::{b, c}, d` gives a and d."""
    names, depth, word = [], 0, ""
    for char in body + ",":
        if char == "," and depth == 0:
            names.append(word.strip().split("::")[0].split(" as ")[0].strip())
            word = ""
            continue
        depth += {"{": 1, "}": -1}.get(char, 0)
        word += char
    return [name for name in names if name]


def imports(text):
    """(root, number of supers, first name) of every path in a file."""
    for match in PATH.finditer(text):
        root, supers, rest = match.group(1), match.group(2).count("super"), match.group(3)
        if rest == "{":
            for name in heads(group(text, match.end() - 1)):
                yield root, supers, name
        else:
            yield root, supers, re.split(r"::", rest)[0].strip()


def edges(src):
    """Which top-level module uses which: {module: {module: a file that does}}."""
    files = [path for path in src.rglob("*.rs") if "tests" not in path.stem]
    tops = {path.relative_to(src).parts[0].removesuffix(".rs") for path in files} - {"lib", "main"}
    root_file = next((src / name for name in ("lib.rs", "main.rs") if (src / name).exists()), None)
    reexported = {}
    for module, names in REEXPORT.findall(code(root_file)) if root_file else []:
        for name in re.findall(r"\w+", names):
            reexported.setdefault(name, module)
    found = collections.defaultdict(dict)
    for path in files:
        place = list(path.relative_to(src).with_suffix("").parts)
        if place[-1] == "mod":
            place.pop()
        own = place[0]
        if own in ("lib", "main"):
            continue
        for root, supers, name in imports(code(path)):
            climbs = supers + (root == "super")
            # Only a path that reaches the crate's root can name another top-level module.
            if root == "crate" or (root == "super" and climbs == len(place)):
                target = name if name in tops else reexported.get(name)
                if target in tops and target != own:
                    found[own].setdefault(target, path.relative_to(src))
    return {module: found.get(module, {}) for module in tops}


def cycles(graph):
    """The sets of modules of which each reaches all others."""

    def reach(start):
        seen, todo = set(), [start]
        while todo:
            for after in graph[todo.pop()]:
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
        return seen

    reached = {module: reach(module) for module in graph}
    found = {frozenset(n for n in graph if n in reached[m] and m in reached[n]) for m in graph if m in reached[m]}
    return sorted((sorted(cycle) for cycle in found), key=len, reverse=True)


def main():
    if sys.argv[1:2] == ["--show"]:
        for module, uses in sorted(edges(ROOT / "crates" / sys.argv[2] / "src").items()):
            print(f"{module}: {' '.join(sorted(uses))}")
        return 0
    failed = 0
    for crate in sorted(path for path in (ROOT / "crates").iterdir() if (path / "src").is_dir()):
        graph = edges(crate / "src")
        for cycle in cycles(graph):
            if crate.name not in NO_CYCLES and len(cycle) <= LARGEST_ELSEWHERE:
                continue
            failed = 1
            print(f"{crate.name}: {len(cycle)} modules import each other: {' '.join(cycle)}")
            for module in cycle:
                for target, path in sorted(graph[module].items()):
                    if target in cycle:
                        print(f"    {module} -> {target}  ({path})")
    if not failed:
        print("no cycles")
    return failed


sys.exit(main())
