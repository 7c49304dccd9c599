"""agno's E2BTools, with the tasks of agno's cookbook."""

import json

from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.tools.e2b import E2BTools

TASK = "Write Python code to generate the first 10 Fibonacci numbers and calculate their sum and average"

CODE = """numbers = [0, 1]
while len(numbers) < 10:
    numbers.append(numbers[-1] + numbers[-2])
print(sum(numbers), sum(numbers) / len(numbers))
numbers"""

SCRIPT = [
    [("run_python_code", {"code": CODE})],
    [("write_file_content", {"file_path": "/home/user/notes/n.txt", "content": "6 7"})],
    [
        ("read_file_content", {"file_path": "/home/user/notes/n.txt"}),
        ("list_files", {"directory_path": "/home/user/notes"}),
    ],
    [("run_command", {"command": "cat notes/n.txt | tr ' ' '*' | bc || echo $((6 * 7))"})],
    [("run_python_code", {"code": "import matplotlib.pyplot as plt\nplt.bar(['a', 'b'], [3, 4])\nplt.show()"})],
    [("download_png_result", {"result_index": 0, "output_path": "bars.png"})],
    [("set_sandbox_timeout", {"timeout": 60})],
    [("shutdown_sandbox", {})],
    "The sum is 88 and the average 8.8.",
]


def test_an_agent_uses_the_tools_in_a_sandbox(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server = model(SCRIPT)
    chat = OpenAIChat(id="scripted", base_url=f"{server.url}/v1", api_key="none")
    agent = Agent(name="Code Execution Sandbox", tools=[E2BTools(timeout=600)], model=chat, telemetry=False)
    assert agent.run(TASK).content == SCRIPT[-1]
    heard = json.dumps([message for message in server.requests[-1]["messages"] if message["role"] == "tool"])
    assert "88 8.8" in heard and "[0, 1, 1, 2, 3, 5, 8, 13, 21, 34]" in heard
    assert "6 7" in heard and "n.txt" in heard and "42" in heard
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG") and "shut down successfully" in heard
    assert "error" not in heard.lower(), heard
