"""The page of the MCP server: the tools and resources that it lists."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Dict

OPENING = """# MCP

What `sandling mcp --desktop` tells a client. [mcp.md](../mcp.md) says how to set one up, and which tools need the
option.

> {instructions}

## Tools
"""


def page(sandling: Path) -> str:
    told = ask(sandling)
    parts = [OPENING.format(instructions=told["initialize"]["instructions"])]
    parts += [tool(item) for item in told["tools/list"]["tools"]]
    parts.append("## Resources\n")
    for item in told["resources/templates/list"]["resourceTemplates"]:
        parts.append(f"- `{item['uriTemplate']}`: {item['description']}\n")
    return "\n".join(parts)


def tool(about: Dict[str, Any]) -> str:
    lines = [f"### `{about['name']}`\n", about["description"], ""]
    schema = about["inputSchema"]
    fields = schema.get("properties", {})
    if fields:
        lines += ["| argument | type | |", "|---|---|---|"]
    # Required arguments first, then by name.
    for name in sorted(fields, key=lambda name: (name not in schema.get("required", []), name)):
        field = fields[name]
        kind = ", ".join(f"`{word}`" for word in field["enum"]) if "enum" in field else field.get("type", "")
        needed = "" if name in schema.get("required", []) else "optional; "
        lines.append(f"| `{name}` | {kind} | {needed}{field.get('description', '')} |")
    return "\n".join(lines) + "\n"


def ask(sandling: Path) -> Dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SANDLING_")}
    # With a configured server, `sandling mcp` starts none, and contacts it only when a tool is called.
    environment.update(SANDLING_API="http://127.0.0.1:9", SANDLING_TOKEN="unused")
    who = {"name": "reference", "version": "0"}
    wanted = [
        ("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": who}),
        ("notifications/initialized", None),
        ("tools/list", {}),
        ("resources/templates/list", {}),
    ]
    told: Dict[str, Any] = {}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([str(sandling), "mcp", "--desktop"], env=environment, **pipes) as server:  # type: ignore[call-overload]
        for number, (method, parameters) in enumerate(wanted):
            message = {"jsonrpc": "2.0", "method": method}
            if parameters is None:
                server.stdin.write(json.dumps(message) + "\n")
                continue
            server.stdin.write(json.dumps({**message, "id": number, "params": parameters}) + "\n")
            server.stdin.flush()
            told[method] = json.loads(server.stdout.readline())["result"]
        server.stdin.close()
        server.wait(30)
    return told
