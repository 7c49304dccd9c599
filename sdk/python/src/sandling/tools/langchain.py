"""Tools for LangChain and LangGraph (``langchain-core``)."""

from __future__ import annotations

import inspect
from typing import Any, Callable, List, Sequence, Tuple

from ..toolkit import Image, ToolOutput, ToolSpec


def langchain_tools(specs: Sequence[ToolSpec], call: Callable[..., Any]) -> List[Any]:
    """The model sees the text. Images are the artifact of the tool message."""
    from langchain_core.tools import StructuredTool

    tools: List[Any] = []
    for spec in specs:
        is_async = inspect.iscoroutinefunction(call)
        tools.append(
            StructuredTool.from_function(
                func=None if is_async else _blocking(call, spec.name),
                coroutine=_awaited(call, spec.name) if is_async else None,
                name=spec.name,
                description=spec.description,
                args_schema=spec.schema,
                infer_schema=False,
                response_format="content_and_artifact",
            )
        )
    return tools


def _parted(output: ToolOutput) -> Tuple[str, List[Image]]:
    return output.text, list(output.images)


def _blocking(call: Callable[..., Any], name: str) -> Callable[..., Tuple[str, List[Image]]]:
    def tool(**arguments: Any) -> Tuple[str, List[Image]]:
        return _parted(call(name, arguments))

    return tool


def _awaited(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    async def tool(**arguments: Any) -> Tuple[str, List[Image]]:
        return _parted(await call(name, arguments))

    return tool
