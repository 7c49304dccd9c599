"""Sandboxes for the OpenAI Agents SDK: ``pip install "sandling[openai-agents]"``.

A run names the client, and its agent works in a sandbox of its own::

    from agents.run_config import SandboxRunConfig
    from sandling.openai_agents import SandlingSandboxClient, SandlingSandboxClientOptions

    options = SandlingSandboxClientOptions(template="agent", network={"allow": ["pypi"]})
    config = RunConfig(sandbox=SandboxRunConfig(client=SandlingSandboxClient(), options=options))
    await Runner.run(agent, "Fix the bug", run_config=config)

``SandboxTools(sandbox).openai_agents()`` in :mod:`sandling.tools` needs no session: it gives any agent tools.
"""

from .client import SandlingSandboxClient
from .session import SandlingSandboxClientOptions, SandlingSandboxSession, SandlingSandboxSessionState

__all__ = [
    "SandlingSandboxClient",
    "SandlingSandboxClientOptions",
    "SandlingSandboxSession",
    "SandlingSandboxSessionState",
]
