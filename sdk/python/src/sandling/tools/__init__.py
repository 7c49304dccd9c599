"""Ready-made tools that give agent frameworks a sandbox.

    from sandling import Sandbox
    from sandling.tools import SandboxTools

    with Sandbox.create() as sandbox:
        tools = SandboxTools(sandbox)
        answer = client.messages.create(tools=tools.anthropic(), messages=messages, ...)
        messages.append({"role": "user", "content": tools.answer_anthropic(answer)})

Each framework has one method that returns the tools. If the framework does not call them itself, a second method runs
the calls of a model's message and returns what to send back.
"""

from .._async.tools import AsyncSandboxTools
from .._sync.tools import SandboxTools
from ..toolkit import Image, ToolOutput

__all__ = ["AsyncSandboxTools", "Image", "SandboxTools", "ToolOutput"]
