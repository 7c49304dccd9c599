"""smolagents with E2B, as in its page on secure code execution: all code of the agent and its tools run in the
sandbox."""

import json

from smolagents import CodeAgent, OpenAIServerModel, Tool

FIBONACCI = """Thought: I will compute it.
<code>
def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a
hundredth = fibonacci(100)
print("computed", hundredth)
</code>"""

MISTAKE = "Thought: This goes wrong.\n<code>\nhundredth / 0\n</code>"

ANSWER = """Thought: The variable is still there.
<code>
final_answer({"number": hundredth, "where": host_name("hello")})
</code>"""


class HostName(Tool):
    name = "host_name"
    description = "Says the name of the machine that this runs on."
    inputs = {"greeting": {"type": "string", "description": "What to say first."}}
    output_type = "string"

    def forward(self, greeting: str) -> str:
        import socket

        return f"{greeting} {socket.gethostname()}"


def test_the_example_of_its_documentation(model):
    server = model([FIBONACCI, MISTAKE, ANSWER])
    scripted = OpenAIServerModel("scripted", api_base=f"{server.url}/v1", api_key="none")
    with CodeAgent(model=scripted, tools=[HostName()], executor_type="e2b") as agent:
        answer = agent.run("Can you give me the 100th Fibonacci number?")
    assert answer["number"] == 354224848179261915075 and answer["where"].startswith("hello sandbox-")
    assert "computed 354224848179261915075" in json.dumps(server.requests[1])
    assert "ZeroDivisionError" in json.dumps(server.requests[2])
