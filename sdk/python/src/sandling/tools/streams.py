"""Assembles a streamed answer of each API into the answer without streaming. No I/O."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Optional, Type

from ..errors import ModelError
from .formats import field_of

#: The field of a block that each kind of piece extends.
_GROWING = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}

#: How many characters of an unexpected answer an error shows.
_SHOWN = 500


def heard_of(event: Any) -> str:
    """The text that an event adds to an answer, including arguments, in any of the APIs."""
    choices = getattr(event, "choices", None)
    return _text_of(getattr(choices[0] if choices else event, "delta", None))


def _text_of(piece: Any) -> str:
    if isinstance(piece, str):
        return piece
    if hasattr(piece, "model_dump"):
        piece = piece.model_dump(exclude_none=True)
    if isinstance(piece, Mapping):
        return "".join(_text_of(value) for name, value in piece.items() if name != "type")
    return "".join(map(_text_of, piece)) if isinstance(piece, list) else ""


class CutShort(Exception):
    """The connection ended before the answer did."""


class NoAnswer(ModelError):
    """The server reported success without an answer. Some servers do this while they are busy."""

    def __init__(self, response: Any) -> None:
        error = field_of(response, "error")
        why = field_of(error, "message") or error or (response if isinstance(response, str) else None)
        super().__init__(f"the model's server sent no answer: {str(why or 'it does not say why')[:_SHOWN]}")


class Pieces:
    """Assembles the pieces of one answer."""

    #: Options of a request that turn on streaming.
    ASKED: Mapping[str, Any] = {"stream": True}

    def take(self, event: Any) -> str:
        """Adds a piece and returns its text."""
        raise NotImplementedError

    def whole(self) -> Any:
        """The answer.

        :raises CutShort: the end is missing.
        """
        raise NotImplementedError


class AnthropicPieces(Pieces):
    def __init__(self) -> None:
        self._message: Any = None
        self._blocks: List[Any] = []
        self._arguments: Dict[int, str] = {}

    def take(self, event: Any) -> str:
        if event.type == "message_start":
            self._message = event.message
        elif event.type == "content_block_start":
            self._blocks.append(event.content_block)
        elif event.type == "content_block_delta":
            return self._grow(event.index, event.delta)
        elif event.type == "message_delta":
            self._message.stop_reason = event.delta.stop_reason
            if event.usage is not None and self._message.usage is not None:
                self._message.usage.output_tokens = event.usage.output_tokens
        return ""

    def _grow(self, index: int, delta: Any) -> str:
        if delta.type == "input_json_delta":
            self._arguments[index] = self._arguments.get(index, "") + delta.partial_json
        elif delta.type in _GROWING:
            name = _GROWING[delta.type]
            setattr(self._blocks[index], name, (getattr(self._blocks[index], name) or "") + getattr(delta, name))
        return delta.text if delta.type == "text_delta" else ""

    def whole(self) -> Any:
        if self._message is None or self._message.stop_reason is None:
            raise CutShort
        for index, text in self._arguments.items():
            self._blocks[index].input = _object(text)
        self._message.content = self._blocks
        broken = {self._blocks[index].id: text for index, text in self._arguments.items() if not _is_object(text)}
        # The API accepts only objects as arguments. The original text stays next to the message, for the answer to it.
        return SimpleNamespace(**vars(self._message), broken=broken)


class ChatPieces(Pieces):
    ASKED: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}

    def __init__(self) -> None:
        self._text: List[str] = []
        self._calls: Dict[int, Dict[str, Any]] = {}
        self._reason: Optional[str] = None
        self._usage: Any = None

    def take(self, event: Any) -> str:
        self._usage = event.usage or self._usage
        if not event.choices:
            return ""
        choice = event.choices[0]
        self._reason = choice.finish_reason or self._reason
        for piece in choice.delta.tool_calls or []:
            self._grow(piece)
        text: str = choice.delta.content or ""
        self._text.append(text)
        return text

    def _grow(self, piece: Any) -> None:
        empty = {"type": "function", "id": "", "function": {"name": "", "arguments": ""}}
        call = self._calls.setdefault(piece.index, empty)
        call["id"] = piece.id or call["id"]
        if piece.function is not None:
            call["function"]["name"] += piece.function.name or ""
            call["function"]["arguments"] += piece.function.arguments or ""

    def whole(self) -> Any:
        if self._reason is None:
            raise CutShort
        said: Dict[str, Any] = {"role": "assistant", "content": "".join(self._text) or None}
        if self._calls:
            said["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        choice = SimpleNamespace(message=said, finish_reason=self._reason)
        return SimpleNamespace(choices=[choice], usage=self._usage)


class ResponsesPieces(Pieces):
    def __init__(self) -> None:
        self._response: Any = None

    def take(self, event: Any) -> str:
        if event.type in ("response.completed", "response.incomplete"):
            self._response = event.response
        if event.type == "response.failed":
            raise failure(event.response)
        return event.delta if event.type == "response.output_text.delta" else ""

    def whole(self) -> Any:
        if self._response is None:
            raise CutShort
        return self._response


def failure(response: Any) -> ModelError:
    """The error of a response that failed."""
    why = response.error.message if response.error else "it does not say why"
    return ModelError(f"the model's server failed: {why}")


def _object(text: str) -> Dict[str, Any]:
    """The arguments as an object; empty if they are not one."""
    try:
        read = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def _is_object(text: str) -> bool:
    return not text.strip() or bool(_object(text)) or text.strip() == "{}"


PIECES: Mapping[str, Type[Pieces]] = {
    "anthropic": AnthropicPieces,
    "chat": ChatPieces,
    "responses": ResponsesPieces,
}
