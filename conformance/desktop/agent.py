"""A scripted model uses a desktop, with the computer tools of two APIs and with our own tools.

agent.py SANDLING
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "sdk" / "python" / "tests" / "frameworks"))
from model_server import ModelServer, Strange, Turn

SANDLING = sys.argv[1]
#: Opens a window at a place that is well inside the screen, and waits for it.
SETUP = """
xterm -geometry 80x20+200+200 -title notes >/dev/null 2>&1 &
for i in $(seq 150); do wmctrl -l | grep -q notes && exit; sleep 1; done; exit 1
"""
#: Waits for what was typed into the window. The check also runs before the model does anything.
CHECK = """
test -e /tmp/checked || { touch /tmp/checked; exit 1; }
for i in $(seq 150); do grep -q 'it works' /tmp/typed && exit; sleep 1; done; exit 1
"""
TYPED = "echo it works >/tmp/typed\n"
INSIDE = (350, 350)


def agent(server: ModelServer, api: str) -> List[Dict[str, Any]]:
    """Runs the agent, and returns its transcript."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "OPENAI"))}
    environment.update(ANTHROPIC_API_KEY="k", ANTHROPIC_BASE_URL=server.url, ANTHROPIC_MODEL="scripted")
    environment.update(OPENAI_API_KEY="k", OPENAI_BASE_URL=f"{server.url}/v1", OPENAI_MODEL="scripted")
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as transcript:
        options = ["--desktop", "--api", api, "--transcript", transcript.name, "--setup", SETUP, "--check", CHECK]
        command = [SANDLING, "agent", *options, "Write that it works."]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
        assert ran.returncode == 0 and ran.stdout == "It works.\n", ran
        return [json.loads(line) for line in transcript]


def is_screenshot(image: Dict[str, Any]) -> bool:
    return image["source"]["media_type"] == "image/png" and image["source"]["data"].startswith("iVBORw0KGgo")


def anthropics_computer_tool() -> None:
    script: List[Turn] = [
        [("computer", {"action": "screenshot"})],
        [("computer", {"action": "left_click", "coordinate": [*INSIDE]})],
        [("computer", {"action": "fly"})],
        [("computer", {"action": "type", "text": TYPED})],
        "It works.",
    ]
    server = ModelServer(script)
    lines = agent(server, "anthropic")
    server.close()
    tools = {tool["name"]: tool for tool in server.requests[0]["tools"]}
    wanted = {"type": "computer_20250124", "name": "computer", "display_width_px": 1024, "display_height_px": 768}
    assert tools["computer"] == wanted, tools["computer"]
    assert "launch" in tools and "click" not in tools, tools.keys()
    answers = [message["content"][0] for message in server.requests[-1]["messages"] if message["role"] == "user"][1:]
    assert [answer["is_error"] for answer in answers] == [False, False, True, False], answers
    assert "unknown variant `fly`" in answers[2]["content"][0]["text"], answers[2]
    assert all(is_screenshot(answer["content"][1]) for answer in answers)
    assert [line["images"] for line in lines if line["type"] == "result"] == [1, 1, 1, 1]


def response(*output: Dict[str, Any]) -> Strange:
    """A complete answer of the Responses API."""
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return Strange({"id": "r", "object": "response", "status": "completed", "output": output, "usage": usage})


def computer_call(number: int, **what: Any) -> Strange:
    call = {"type": "computer_call", "id": f"i{number}", "call_id": f"c{number}", "status": "completed"}
    return response({**call, "pending_safety_checks": [], **what})


def openais_computer_tool() -> None:
    click = {"type": "click", "button": "left", "x": INSIDE[0], "y": INSIDE[1]}
    text = {"type": "output_text", "text": "It works."}
    script: List[Turn] = [
        computer_call(1, action={"type": "screenshot"}),
        computer_call(2, actions=[click, {"type": "type", "text": TYPED}]),
        response({"type": "message", "id": "m", "role": "assistant", "content": [text]}),
    ]
    server = ModelServer(script)
    agent(server, "responses")
    server.close()
    first, last = server.requests[0], server.requests[-1]
    assert {"type": "computer"} in first["tools"] and first["truncation"] == "auto", first["tools"]
    outputs = [item for item in last["input"] if item.get("type") == "computer_call_output"]
    assert [item["call_id"] for item in outputs] == ["c1", "c2"], outputs
    for item in outputs:
        assert item["output"]["type"] == "computer_screenshot", item
        assert item["output"]["image_url"].startswith("data:image/png;base64,iVBORw0KGgo")


def our_tools_in_the_chat_api() -> None:
    script: List[Turn] = [
        [("screenshot", {})],
        [("click", {"x": INSIDE[0], "y": INSIDE[1]}), ("type", {"text": TYPED})],
        "It works.",
    ]
    server = ModelServer(script)
    lines = agent(server, "chat")
    server.close()
    names = {tool["function"]["name"] for tool in server.requests[0]["tools"]}
    assert {"screenshot", "click", "type", "launch"} <= names and "computer" not in names, names
    assert [line["images"] for line in lines if line["type"] == "result"] == [1, 0, 0]


for case in (anthropics_computer_tool, openais_computer_tool, our_tools_in_the_chat_api):
    case()
    print(f"agent: {case.__name__}")
