"""The page of the HTTP API, from its OpenAPI document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

OPENING = """# HTTP

Every request needs the header `Authorization: Bearer TOKEN`. Answers are JSON unless noted. A refused request returns
`{"error", "code", "request_id"}`: `error` is a sentence for people, and `code` is stable for programs. The OpenAPI
document is [openapi.json](../openapi.json); a server has it at `/openapi.json`.
"""
REFUSALS = "\n## Refusals\n\n| status | |\n|---|---|\n"
METHODS = ("get", "post", "put", "patch", "delete")


def page(path: Path) -> str:
    document = json.loads(path.read_text())
    parts = [OPENING]
    refusals: Dict[str, str] = {}
    for tag in document["tags"]:
        entries = [
            operation(method, where, about)
            for where, methods in document["paths"].items()
            for method, about in methods.items()
            if method in METHODS and tag["name"] in about["tags"]
        ]
        described = f"\n{tag['description']}\n" if tag.get("description") else ""
        parts.append(f"## {tag['name'].capitalize()}\n{described}")
        parts += entries
    for methods in document["paths"].values():
        for about in methods.values():
            for status, answer in about.get("responses", {}).items() if isinstance(about, dict) else []:
                if status >= "400" and answer.get("description"):
                    refusals.setdefault(status, answer["description"])
    parts.append(REFUSALS + "".join(f"| {status} | {why} |\n" for status, why in sorted(refusals.items())))
    parts.append("## Types\n")
    parts += [schema(name, about) for name, about in sorted(document["components"]["schemas"].items())]
    return "\n".join(parts)


def operation(method: str, where: str, about: Dict[str, Any]) -> str:
    lines = [f"### {method.upper()} `{where}`\n", f"{about['summary']}.", ""]
    if about.get("description"):
        lines += [about["description"], ""]
    parameters = [item for item in about.get("parameters", []) if item["in"] != "path"]
    if parameters:
        lines += ["| parameter | type | |", "|---|---|---|"]
        lines += [parameter(item) for item in parameters] + [""]
    body = about.get("requestBody")
    if body:
        lines.append(f"Takes {content(body)}.")
    good = [(status, answer) for status, answer in about["responses"].items() if status < "400"]
    lines += [f"Answers {status}{answered(answer)}." for status, answer in good]
    return "\n".join(lines) + "\n"


def parameter(item: Dict[str, Any]) -> str:
    where = "" if item["in"] == "query" else f"a {item['in']}; "
    needed = "" if item.get("required") else "optional; "
    return f"| `{item['name']}` | {kind(item['schema'])} | {cell(where + needed + item.get('description', ''))} |"


def answered(answer: Dict[str, Any]) -> str:
    return f" with {content(answer)}" if answer.get("content") else ""


def content(holder: Dict[str, Any]) -> str:
    return " or ".join(
        kind(about["schema"]) if mime == "application/json" and "schema" in about else f"`{mime}`"
        for mime, about in holder["content"].items()
    )


def kind(about: Dict[str, Any]) -> str:
    """A short description of a type, without null."""
    if "$ref" in about:
        name = about["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    for word in ("oneOf", "anyOf"):
        if word in about:
            return " or ".join(kind(one) for one in about[word] if one.get("type") != "null")
    if "enum" in about:
        return ", ".join(f"`{value}`" for value in about["enum"])
    kinds = about.get("type", "any")
    first = next((one for one in kinds if one != "null"), "any") if isinstance(kinds, list) else kinds
    if first == "array":
        return f"list of {kind(about.get('items', {}))}"
    if first == "object" and isinstance(about.get("additionalProperties"), dict):
        return f"map to {kind(about['additionalProperties'])}"
    return first


def schema(name: str, about: Dict[str, Any]) -> str:
    lines = [f"### {name}\n"]
    if about.get("description"):
        lines += [about["description"], ""]
    fields: List[str] = []
    for part in about.get("allOf", [about]):
        if "$ref" in part:
            lines += [f"All of {kind(part)}, and:", ""]
        required = part.get("required", [])
        fields += [field(key, value, key in required) for key, value in part.get("properties", {}).items()]
    if fields:
        lines += ["| field | type | |", "|---|---|---|", *fields]
    elif "allOf" not in about:
        lines.append(f"{kind(about)}")
    return "\n".join(lines) + "\n"


def field(name: str, about: Dict[str, Any], required: bool) -> str:
    told = about.get("description") or next(
        (one["description"] for one in about.get("oneOf", []) if one.get("description")), ""
    )
    bounds = [
        f"{word} {about[key]}"
        for key, word in (("minimum", "at least"), ("maximum", "at most"), ("maxItems", "at most"))
        if about.get(key) not in (None, 0)
    ]
    told = "; ".join(part for part in ["" if required else "optional", ", ".join(bounds), told] if part)
    return f"| `{name}` | {kind(about)} | {cell(told)} |"


def cell(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|").strip().rstrip(";")
