"""A conversation with a model in each API's own words: what to send, and what came back. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Sequence, Type

from ..toolkit import ToolCall, ToolSpec
from . import formats


@dataclass(frozen=True)
class Reply:
    text: str
    calls: List[ToolCall]
    #: Tokens.
    read: int
    written: int


class Dialogue:
    """What was said so far."""

    def __init__(self, model: str, system: str, task: str, specs: Sequence[ToolSpec]) -> None:
        self.model = model
        self.system = system
        self.specs = specs
        self.turns: List[Any] = [{"role": "user", "content": task}]

    def say(self, text: str) -> None:
        self.turns.append({"role": "user", "content": text})

    def request(self, max_tokens: int) -> Dict[str, Any]:
        raise NotImplementedError

    def read(self, response: Any) -> Reply:
        raise NotImplementedError

    def answer(self, answered: formats.Answered) -> None:
        raise NotImplementedError


class Anthropic(Dialogue):
    def request(self, max_tokens: int) -> Dict[str, Any]:
        tools = formats.anthropic_tools(self.specs)
        common = {"model": self.model, "system": self.system, "tools": tools, "messages": self.turns}
        return {**common, "max_tokens": max_tokens}

    def read(self, response: Any) -> Reply:
        calls = formats.anthropic_calls(response)
        text = "".join(block.text for block in response.content if block.type == "text")
        if response.content:
            self.turns.append({"role": "assistant", "content": response.content})
        usage = response.usage
        cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
        return Reply(text, calls, usage.input_tokens + cached, usage.output_tokens)

    def answer(self, answered: formats.Answered) -> None:
        self.turns.append({"role": "user", "content": formats.anthropic_results(answered)})


class Chat(Dialogue):
    def request(self, max_tokens: int) -> Dict[str, Any]:
        messages = [{"role": "system", "content": self.system}, *self.turns]
        common = {"model": self.model, "tools": formats.openai_tools(self.specs), "messages": messages}
        return {**common, "max_completion_tokens": max_tokens}

    def read(self, response: Any) -> Reply:
        message = response.choices[0].message
        self.turns.append(message)
        usage = response.usage
        read, written = (usage.prompt_tokens, usage.completion_tokens) if usage else (0, 0)
        return Reply(message.content or "", formats.openai_calls(message), read, written)

    def answer(self, answered: formats.Answered) -> None:
        self.turns.extend(formats.openai_results(answered))


class Responses(Dialogue):
    def request(self, max_tokens: int) -> Dict[str, Any]:
        tools = formats.responses_tools(self.specs)
        common = {"model": self.model, "instructions": self.system, "tools": tools, "input": self.turns}
        return {**common, "max_output_tokens": max_tokens}

    def read(self, response: Any) -> Reply:
        self.turns.extend(response.output)
        usage = response.usage
        read, written = (usage.input_tokens, usage.output_tokens) if usage else (0, 0)
        return Reply(response.output_text, formats.responses_calls(response), read, written)

    def answer(self, answered: formats.Answered) -> None:
        self.turns.extend(formats.responses_results(answered))


DIALOGUES: Mapping[str, Type[Dialogue]] = {"anthropic": Anthropic, "chat": Chat, "responses": Responses}
