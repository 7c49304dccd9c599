# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.
"""A model with a task and a sandbox, through the official SDKs of Anthropic and OpenAI."""

from __future__ import annotations

import os
from typing import Any, Callable, List, Optional

from ..agents import MOST_EMPTY, MOST_REPEATS, SYSTEM, AgentResult, Budget, Spent, Transcript
from ..errors import ConfigError
from ..options import DEFAULT_TEMPLATE
from ..toolkit import ToolCall, ToolOutput
from ..tools import dialogues
from .sandbox import Sandbox
from .tools import SandboxTools

#: Beyond the task's own time.
_TTL_SLACK = 600


class Agent:
    """The loop: the model proposes, the sandbox runs, the model is told, until it is done or a budget is used up.

    :param api: ``anthropic`` (Messages), ``chat`` (OpenAI's Chat Completions) or ``responses`` (OpenAI's Responses).
        Without it, what the environment has a key for.
    :param model: its name; else ``ANTHROPIC_MODEL`` or ``OPENAI_MODEL``.
    :param client: the SDK's own client, if you have one; else it is made from the environment, base URL and all.
    :param sandbox: where it works. Without one, each task gets a fresh one, which is always ended.
    :param budget: what a task may use.
    :param command_timeout_seconds: the deadline of every command.
    :param transcript: a file that gets a line of JSON for everything that happens.
    :param on_event: is told ``(kind, data)`` as things happen: ``reply``, ``call`` and ``result``.
    """

    def __init__(
        self,
        model: Optional[str] = None,
        *,
        api: Optional[str] = None,
        client: Any = None,
        sandbox: Optional[Sandbox] = None,
        template: str = DEFAULT_TEMPLATE,
        budget: Optional[Budget] = None,
        command_timeout_seconds: float = 120.0,
        system: str = SYSTEM,
        transcript: Optional[str] = None,
        on_event: Optional[Callable[[str, Any], Any]] = None,
    ) -> None:
        self._api = api or _api_of_environment()
        if self._api not in dialogues.DIALOGUES:
            raise ConfigError(f"there is no API {self._api!r}; there are {', '.join(dialogues.DIALOGUES)}")
        variable = "ANTHROPIC_MODEL" if self._api == "anthropic" else "OPENAI_MODEL"
        named = model or os.environ.get(variable)
        if not named:
            raise ConfigError(f"say which model to use: Agent(model) or {variable}")
        self._model = named
        self._client = client if client is not None else self._make_client()
        self._sandbox = sandbox
        self._template = template
        self._budget = budget or Budget()
        self._command_timeout = command_timeout_seconds
        self._system = system
        self._transcript = Transcript(transcript)
        self._on_event = on_event

    def run(self, task: str) -> AgentResult:
        """Works on a task. Errors of the model's API and of the server are raised; a sandbox of its own ends anyway."""
        if self._sandbox is not None:
            return self._work(task, self._sandbox)
        ttl = int(self._budget.seconds) + _TTL_SLACK
        with Sandbox.create(self._template, ttl_seconds=ttl) as sandbox:
            return self._work(task, sandbox)

    def _work(self, task: str, sandbox: Sandbox) -> AgentResult:
        self._transcript.write("start", task=task, model=self._model, sandbox=sandbox.id)
        tools = SandboxTools(sandbox, timeout_seconds=self._command_timeout)
        dialogue = dialogues.DIALOGUES[self._api](self._model, self._system, task, tools.specs)
        spent = Spent(self._budget)
        answer, last, repeats, empty = "", None, 0, 0
        ended_by = spent.over()
        while ended_by is None:
            reply = dialogue.read(self._ask(dialogue, spent))
            spent.add(reply.read, reply.written)
            answer = reply.text or answer
            self._note("reply", step=spent.steps, text=reply.text, input_tokens=reply.read, output_tokens=reply.written)
            if not reply.calls and not reply.text.strip():
                empty += 1
                dialogue.say("You said nothing. Call a tool, or answer if the task is done.")
                ended_by = "empty" if empty == MOST_EMPTY else spent.over()
                continue
            if not reply.calls:
                ended_by = "answer"
                break
            answers = [(call, self._call(tools, call, spent)) for call in reply.calls]
            dialogue.answer(answers)
            this = [(call.name, str(call.arguments), output.text) for call, output in answers]
            repeats = repeats + 1 if this == last else 1
            last = this
            ended_by = "repeats" if repeats == MOST_REPEATS else spent.over()
        result = spent.result(answer, ended_by)
        self._transcript.write("end", **vars(result))
        return result

    def _ask(self, dialogue: Any, spent: Spent) -> Any:
        request = dialogue.request(spent.longest_answer())
        # The SDKs try again by themselves when a server is busy or a connection breaks.
        timeout = max(spent.seconds_left, 0.001)
        if self._api == "anthropic":
            return self._client.messages.create(**request, timeout=timeout)
        if self._api == "chat":
            return self._client.chat.completions.create(**request, timeout=timeout)
        return self._client.responses.create(**request, timeout=timeout)

    def _call(self, tools: SandboxTools, call: ToolCall, spent: Spent) -> ToolOutput:
        self._note("call", id=call.id, name=call.name, arguments=call.arguments)
        tools.timeout_seconds = max(min(self._command_timeout, spent.seconds_left), 0.001)
        output = tools.call(call.name, call.arguments)
        self._note("result", id=call.id, text=output.text, images=len(output.images), is_error=output.is_error)
        return output

    def _note(self, kind: str, **about: Any) -> None:
        self._transcript.write(kind, **about)
        if self._on_event is not None:
            self._on_event(kind, about)

    def _make_client(self) -> Any:
        if self._api == "anthropic":
            from anthropic import Anthropic

            return Anthropic(max_retries=5)
        from openai import OpenAI

        return OpenAI(max_retries=5)


def _api_of_environment() -> str:
    keys: List[str] = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY"]
    found = next((key for key in keys if os.environ.get(key)), None)
    if found is None:
        raise ConfigError("no model is known: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or pass api= and client=")
    return "chat" if found.startswith("OPENAI") else "anthropic"
