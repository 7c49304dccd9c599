"""The tools for a model, and how its calls are parsed and answered. No I/O."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from .mending import is_whole, paired

#: How many characters of output a model sees. Longer output is cut in the middle.
MAX_OUTPUT = 20_000
LANGUAGES = ("python", "node", "bash")


class Image(NamedTuple):
    mime: str
    #: In base64.
    data: str


@dataclass(frozen=True)
class ToolOutput:
    """The answer to a model's call."""

    text: str
    images: Tuple[Image, ...] = ()
    #: Whether something went wrong that the model can correct.
    is_error: bool = False
    #: The exit code, if something ran.
    exit_code: Optional[int] = None


@dataclass(frozen=True)
class ToolCall:
    """A model's call. ``arguments`` is what it sent, JSON text or an object."""

    id: str
    name: str
    arguments: Union[str, Mapping[str, Any]]


@dataclass(frozen=True)
class ToolSpec:
    """One tool, as a model sees it."""

    name: str
    description: str
    properties: Mapping[str, Mapping[str, Any]]
    required: Sequence[str] = field(default_factory=tuple)

    @property
    def schema(self) -> Dict[str, Any]:
        return {
            "type": "object",
            "properties": {name: dict(about) for name, about in self.properties.items()},
            "required": list(self.required),
            "additionalProperties": False,
        }


class BadCall(ValueError):
    """An invalid call of a model. The text tells the model why."""


SPECS = {
    spec.name: spec
    for spec in (
        ToolSpec(
            "run_code",
            "Run code in a sandbox, a disposable computer. Python keeps its variables between calls, shows its last "
            "expression, and returns plots as images. Each node or bash run is a new process. Files persist.",
            {
                "code": {"type": "string", "description": "The code to run."},
                "language": {"type": "string", "enum": list(LANGUAGES), "description": "The default is python."},
                "timeout_seconds": {"type": "number", "description": "The time limit in seconds."},
            },
            ("code",),
        ),
        ToolSpec(
            "run_command",
            "Run a shell command in the sandbox and get its output and exit code. Each call starts a new shell in the "
            "working directory. Files persist, and processes started with & keep running.",
            {
                "command": {"type": "string", "description": "The command line for sh."},
                "timeout_seconds": {"type": "number", "description": "The time limit in seconds."},
            },
            ("command",),
        ),
        ToolSpec(
            "read_file",
            "Read a file in the sandbox. PNG and JPEG files are returned as images.",
            {"path": {"type": "string", "description": "An absolute path."}},
            ("path",),
        ),
        ToolSpec(
            "write_file",
            "Write a text file in the sandbox. Replaces an existing file, and creates missing directories.",
            {
                "path": {"type": "string", "description": "An absolute path."},
                "content": {"type": "string", "description": "The complete text of the file."},
            },
            ("path", "content"),
        ),
        ToolSpec(
            "list_files",
            "List a directory in the sandbox.",
            {"path": {"type": "string", "description": "An absolute path. The default is the working directory."}},
        ),
    )
}


def chosen(only: Optional[Sequence[str]]) -> List[ToolSpec]:
    """The tools with these names; all tools if there are none."""
    names = list(SPECS) if only is None else list(only)
    for name in names:
        if name not in SPECS:
            raise ValueError(f"there is no tool {name!r}; there are {', '.join(SPECS)}")
    return [SPECS[name] for name in names]


_TYPES: Mapping[str, Any] = {"string": str, "number": (int, float)}


def checked(spec: ToolSpec, arguments: Union[str, Mapping[str, Any]]) -> Dict[str, Any]:
    """The arguments of a call, checked against the schema. Errors tell the model what is wrong."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError as error:
            raise BadCall(f"the arguments are not valid JSON: {error}") from error
        except RecursionError:
            raise BadCall("the arguments are not valid JSON: they are nested too deeply") from None
    if not isinstance(arguments, Mapping):
        raise BadCall("the arguments must be a JSON object")
    for name in spec.required:
        if name not in arguments:
            raise BadCall(f"the argument {name!r} is missing")
    for name, value in arguments.items():
        about = spec.properties.get(name)
        if about is None:
            raise BadCall(f"there is no argument {name!r}; there are {', '.join(spec.properties)}")
        if not isinstance(value, _TYPES[about["type"]]) or isinstance(value, bool):
            raise BadCall(f"the argument {name!r} must be a {about['type']}")
        if value not in about.get("enum", [value]):
            raise BadCall(f"the argument {name!r} must be one of {', '.join(about['enum'])}")
        if isinstance(value, float) and not math.isfinite(value):
            raise BadCall(f"the argument {name!r} must be a finite number")
        if isinstance(value, str) and not is_whole(paired(value)):
            raise BadCall(f"the argument {name!r} has half a character: a surrogate that is not one of a pair")
    return {name: paired(value) if isinstance(value, str) else value for name, value in arguments.items()}


def shorten(text: str, limit: int) -> str:
    """Shortens text to its beginning and end, with a note about what was cut."""
    if len(text) <= limit:
        return text
    head = limit // 2
    tail = limit - head
    return f"{text[:head]}\n[... {len(text) - limit} characters cut here ...]\n{text[-tail:]}"


def described(exit_code: object, stdout: str, stderr: str, limit: int, notes: Sequence[str] = ()) -> str:
    """Describes a run: its exit code, then its output."""
    parts: List[str] = [f"exit code: {exit_code}", *notes]
    if stdout:
        parts.append(f"stdout:\n{shorten(stdout, limit)}")
    if stderr:
        parts.append(f"stderr:\n{shorten(stderr, limit)}")
    if not stdout and not stderr:
        parts.append("(nothing was printed)")
    return "\n".join(parts)
