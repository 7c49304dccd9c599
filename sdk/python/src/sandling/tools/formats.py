"""How each API represents tools, calls and answers. Works on dictionaries and on objects with the same fields."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple

from ..toolkit import ToolCall, ToolOutput, ToolSpec

Answered = Sequence[Tuple[ToolCall, ToolOutput]]


def field_of(thing: Any, name: str, default: Any = None) -> Any:
    """A field of an SDK's object, or of the dictionary that it came from."""
    return thing.get(name, default) if isinstance(thing, Mapping) else getattr(thing, name, default)


def anthropic_tools(specs: Iterable[ToolSpec]) -> List[Dict[str, Any]]:
    return [{"name": spec.name, "description": spec.description, "input_schema": spec.schema} for spec in specs]


def anthropic_calls(message: Any) -> List[ToolCall]:
    blocks = [block for block in field_of(message, "content") or [] if field_of(block, "type") == "tool_use"]
    return [ToolCall(field_of(block, "id"), field_of(block, "name"), field_of(block, "input")) for block in blocks]


def anthropic_results(answered: Answered) -> List[Dict[str, Any]]:
    return [
        {
            "type": "tool_result",
            "tool_use_id": call.id,
            "is_error": output.is_error,
            "content": [{"type": "text", "text": output.text}, *_anthropic_images(output)],
        }
        for call, output in answered
    ]


def _anthropic_images(output: ToolOutput) -> List[Dict[str, Any]]:
    sources = [{"type": "base64", "media_type": image.mime, "data": image.data} for image in output.images]
    return [{"type": "image", "source": source} for source in sources]


def openai_tools(specs: Iterable[ToolSpec]) -> List[Dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {"name": spec.name, "description": spec.description, "parameters": spec.schema},
        }
        for spec in specs
    ]


def openai_calls(message: Any) -> List[ToolCall]:
    calls = []
    for call in field_of(message, "tool_calls") or []:
        function = field_of(call, "function")
        calls.append(ToolCall(field_of(call, "id"), field_of(function, "name"), field_of(function, "arguments")))
    return calls


def openai_results(answered: Answered) -> List[Dict[str, Any]]:
    """Tool messages hold only text, so images follow in a user message."""
    messages: List[Dict[str, Any]] = [
        {"role": "tool", "tool_call_id": call.id, "content": output.text} for call, output in answered
    ]
    shown = [
        {"type": "image_url", "image_url": {"url": f"data:{image.mime};base64,{image.data}"}}
        for _, output in answered
        for image in output.images
    ]
    if shown:
        lead = {"type": "text", "text": "Images that the tools produced:"}
        messages.append({"role": "user", "content": [lead, *shown]})
    return messages


def responses_tools(specs: Iterable[ToolSpec]) -> List[Dict[str, Any]]:
    return [
        {
            "type": "function",
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.schema,
            "strict": False,
        }
        for spec in specs
    ]


def responses_calls(response: Any) -> List[ToolCall]:
    items = [item for item in field_of(response, "output") or [] if field_of(item, "type") == "function_call"]
    return [ToolCall(field_of(item, "call_id"), field_of(item, "name"), field_of(item, "arguments")) for item in items]


def responses_results(answered: Answered) -> List[Dict[str, Any]]:
    return [
        {"type": "function_call_output", "call_id": call.id, "output": _responses_output(output)}
        for call, output in answered
    ]


def _responses_output(output: ToolOutput) -> Any:
    if not output.images:
        return output.text
    images = [{"type": "input_image", "image_url": f"data:{image.mime};base64,{image.data}"} for image in output.images]
    return [{"type": "input_text", "text": output.text}, *images]
