"""A conversation with a model in the format of each API: requests and answers. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Sequence, Tuple, Type

from ..mending import flat, mended
from ..toolkit import ToolCall, ToolSpec
from . import formats
from .streams import NoAnswer, failure

#: Bytes of text per token, estimated. Prose has more, but tool output is dense.
BYTES = 3
#: Tokens per picture, estimated.
PICTURE = 1500


@dataclass(frozen=True)
class Reply:
    text: str
    calls: List[ToolCall]
    #: Tokens.
    read: int
    written: int
    #: Whether the output limit cut it off.
    is_cut: bool = False


class Dialogue:
    """The conversation so far.

    :param older_limit: whether the server knows only the older name of the output limit.
    """

    def __init__(
        self, model: str, system: str, task: str, specs: Sequence[ToolSpec], *, older_limit: bool = False
    ) -> None:
        self.model = model
        self.system = system
        self.specs = specs
        self.older_limit = older_limit
        self.turns: List[Any] = [{"role": "user", "content": task}]

    def say(self, text: str) -> None:
        self.turns.append({"role": "user", "content": text})

    def size(self) -> int:
        """The estimated size of the next request in tokens."""
        return estimated([self.system, [vars(spec) for spec in self.specs], self.turns])

    def request(self, max_tokens: int) -> Dict[str, Any]:
        raise NotImplementedError

    def read(self, response: Any) -> Reply:
        """Adds an answer.

        :raises ModelError: it is not an answer. Nothing is added.
        """
        raise NotImplementedError

    def answer(self, answered: formats.Answered) -> None:
        raise NotImplementedError

    def _reply(self, text: str, calls: List[ToolCall], usage: Tuple[int, int], *, is_cut: bool) -> Reply:
        """A reply. If the server reports no token counts, they are estimated from the bytes, so that budgets hold."""
        read, written = usage
        if not read and not written:
            said = [text, *([call.name, call.arguments] for call in calls)]
            read, written = self.size(), estimated(said)
        return Reply(text, calls, read, written, is_cut)


def estimated(value: Any) -> int:
    """The estimated number of tokens."""
    if isinstance(value, str):
        return PICTURE if value.startswith("data:image/") else -(-len(value.encode("utf-8", "replace")) // BYTES)
    if hasattr(value, "model_dump"):
        value = value.model_dump(exclude_none=True)
    if isinstance(value, Mapping):
        if value.get("type") == "base64":
            return PICTURE
        return sum(estimated(name) + estimated(inner) for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        return sum(map(estimated, value))
    return 0 if value is None else 1


class Anthropic(Dialogue):
    def request(self, max_tokens: int) -> Dict[str, Any]:
        tools = formats.anthropic_tools(self.specs)
        common = {"model": self.model, "system": self.system, "tools": tools, "messages": self.turns}
        return {**common, "max_tokens": max_tokens}

    def read(self, response: Any) -> Reply:
        if getattr(response, "content", None) is None:
            raise NoAnswer(response)
        broken = getattr(response, "broken", {})
        calls = [
            ToolCall(call.id, call.name, flat(broken.get(call.id, call.arguments)))
            for call in formats.anthropic_calls(response)
        ]
        content = mended(response.content)
        text = "".join(block.text for block in content if block.type == "text")
        reply = self._reply(text, calls, _anthropic_usage(response.usage), is_cut=response.stop_reason == "max_tokens")
        if content:
            self.turns.append({"role": "assistant", "content": content})
        return reply

    def answer(self, answered: formats.Answered) -> None:
        self.turns.append({"role": "user", "content": formats.anthropic_results(answered)})


def _anthropic_usage(usage: Any) -> Tuple[int, int]:
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(getattr(usage, name, 0) or 0 for name in names), getattr(usage, "output_tokens", 0) or 0


class Chat(Dialogue):
    def request(self, max_tokens: int) -> Dict[str, Any]:
        messages = [{"role": "system", "content": self.system}, *self.turns]
        common = {"model": self.model, "tools": formats.openai_tools(self.specs), "messages": messages}
        return {**common, "max_tokens" if self.older_limit else "max_completion_tokens": max_tokens}

    def read(self, response: Any) -> Reply:
        choices = getattr(response, "choices", None)
        if not choices or choices[0].message is None:
            raise NoAnswer(response)
        choice = choices[0]
        usage = response.usage
        counted = (usage.prompt_tokens or 0, usage.completion_tokens or 0) if usage else (0, 0)
        calls = formats.openai_calls(choice.message)
        message = mended(choice.message)
        text = formats.field_of(message, "content") or ""
        reply = self._reply(text, calls, counted, is_cut=choice.finish_reason == "length")
        self.turns.append(message)
        return reply

    def answer(self, answered: formats.Answered) -> None:
        self.turns.extend(formats.openai_results(answered))


class Responses(Dialogue):
    def request(self, max_tokens: int) -> Dict[str, Any]:
        tools = formats.responses_tools(self.specs)
        common = {"model": self.model, "instructions": self.system, "tools": tools, "input": self.turns}
        return {**common, "max_output_tokens": max_tokens}

    def read(self, response: Any) -> Reply:
        if getattr(response, "status", None) == "failed":
            raise failure(response)
        if getattr(response, "output", None) is None:
            raise NoAnswer(response)
        usage, incomplete = response.usage, getattr(response, "incomplete_details", None)
        counted = (usage.input_tokens or 0, usage.output_tokens or 0) if usage else (0, 0)
        is_cut = incomplete is not None and incomplete.reason == "max_output_tokens"
        calls = formats.responses_calls(response)
        output = mended(response.output)
        reply = self._reply(mended(response.output_text), calls, counted, is_cut=is_cut)
        self.turns.extend(output)
        return reply

    def answer(self, answered: formats.Answered) -> None:
        self.turns.extend(formats.responses_results(answered))


DIALOGUES: Mapping[str, Type[Dialogue]] = {"anthropic": Anthropic, "chat": Chat, "responses": Responses}
