"""Tools for the OpenAI Agents SDK (``openai-agents``)."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Callable, List, Sequence

from ..toolkit import ToolOutput, ToolSpec


def agents_tools(specs: Sequence[ToolSpec], call: Callable[..., Any]) -> List[Any]:
    from agents import FunctionTool

    return [
        FunctionTool(
            name=spec.name,
            description=spec.description,
            params_json_schema=spec.schema,
            on_invoke_tool=_invoked(call, spec.name),
            strict_json_schema=False,
        )
        for spec in specs
    ]


def _invoked(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    async def tool(_context: Any, arguments: str) -> Any:
        if inspect.iscoroutinefunction(call):
            return _told(await call(name, arguments))
        return _told(await asyncio.to_thread(call, name, arguments))

    return tool


def _told(output: ToolOutput) -> Any:
    if not output.images:
        return output.text
    from agents import ToolOutputImage, ToolOutputText

    images = [ToolOutputImage(image_url=f"data:{image.mime};base64,{image.data}") for image in output.images]
    return [ToolOutputText(text=output.text), *images]
