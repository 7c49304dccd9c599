"""Tools for Pydantic AI (``pydantic-ai``)."""

from __future__ import annotations

import base64
import inspect
from typing import Any, Callable, List, Sequence

from ..toolkit import ToolOutput, ToolSpec


def pydantic_tools(specs: Sequence[ToolSpec], call: Callable[..., Any]) -> List[Any]:
    from pydantic_ai import Tool

    make = _awaited if inspect.iscoroutinefunction(call) else _blocking
    return [
        Tool.from_schema(
            function=make(call, spec.name), name=spec.name, description=spec.description, json_schema=spec.schema
        )
        for spec in specs
    ]


def _told(output: ToolOutput) -> Any:
    if not output.images:
        return output.text
    from pydantic_ai import BinaryContent

    images = [BinaryContent(base64.b64decode(image.data), media_type=image.mime) for image in output.images]
    return [output.text, *images]


def _blocking(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    def tool(**arguments: Any) -> Any:
        return _told(call(name, arguments))

    return tool


def _awaited(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    async def tool(**arguments: Any) -> Any:
        return _told(await call(name, arguments))

    return tool
