# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.
"""A sandbox as tools for a model: runs the model's calls and returns answers that it can use."""

from __future__ import annotations

import base64
import posixpath
import time
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Union

from ..audit import AuditLog, AuditRecord
from ..errors import BadRequestError, NoSpaceError, NotFoundError, SandboxTimeout
from ..fields import refuse_other
from ..mending import flat
from ..toolkit import (
    MAX_OUTPUT,
    BadCall,
    Image,
    ToolCall,
    ToolOutput,
    ToolSpec,
    checked,
    chosen,
    described,
    shorten,
)
from ..tools import formats
from .base import SandboxBase
from .colour import Lock
from .contexts import CodeContext
from .filesystem import Unfinished

if TYPE_CHECKING:
    from ..models import ExecResult, Execution
    from .sandbox import Sandbox

#: Image types that a model can see, by the first bytes of the file.
_PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
#: Larger files are not read for a model.
_LARGEST_FILE = 16 << 20
#: Larger pictures are described instead.
_LARGEST_PICTURE = 4_000_000
#: How many results and pictures of a cell a model sees; the rest is counted.
_MOST_RESULTS = 20
_MOST_PICTURES = 8


class SandboxTools:
    """A sandbox as tools for a model.

    :param timeout_seconds: the timeout of every command and cell, and the longest that a model can ask for.
    :param max_output: how many characters of each stream a model sees; longer output is cut in the middle.
    :param directory: where commands and code run, and where relative paths start.
    :param only: the names of the tools to offer; all by default.
    :param audit: records every call and its complete output.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        timeout_seconds: float = 60.0,
        max_output: int = MAX_OUTPUT,
        directory: str = "/workspace",
        only: Optional[Sequence[str]] = None,
        audit: Optional[AuditLog] = None,
        actor: Optional[str] = None,
    ) -> None:
        refuse_other(sandbox, SandboxBase, "SandboxTools")
        self.sandbox = sandbox
        self.specs: List[ToolSpec] = chosen(only)
        self.timeout_seconds = timeout_seconds
        self._limit = max_output
        self._directory = directory
        self._audit = audit
        self._actor = actor
        self._python: Optional[CodeContext] = None
        # Frameworks run the calls of one turn in parallel, but an interpreter runs one cell at a time.
        self._cells = Lock()

    def call(self, name: str, arguments: Union[str, Mapping[str, Any]]) -> ToolOutput:
        """Runs one call. Errors that the model can correct are returned; errors that only you can fix are raised."""
        arguments = flat(arguments)
        record = AuditRecord(name, {"arguments": arguments}, sandbox_id=self.sandbox.id, actor=self._actor)
        started = time.monotonic()
        try:
            output = self._carry_out(name, arguments, record)
        except BaseException as error:
            record.outcome, record.output = "error", {"error": str(error) or type(error).__name__}
            raise
        finally:
            record.duration_ms = round((time.monotonic() - started) * 1000)
            if self._audit is not None:
                self._audit.write(record)
        return output

    def close(self) -> None:
        """Ends the live Python, if there is one. A later call starts a new one."""
        python, self._python = self._python, None
        if python is not None:
            python.close()

    def anthropic(self) -> List[Any]:
        """For ``tools=`` of Anthropic's Messages API."""
        return formats.anthropic_tools(self.specs)

    def answer_anthropic(self, message: Any) -> List[Any]:
        """Runs the calls of a message and returns the content of the next user message. Empty if there are no calls."""
        return formats.anthropic_results([(call, self._answer(call)) for call in formats.anthropic_calls(message)])

    def openai(self) -> List[Any]:
        """For ``tools=`` of OpenAI's Chat Completions API."""
        return formats.openai_tools(self.specs)

    def answer_openai(self, message: Any) -> List[Any]:
        """Runs the calls of ``choices[0].message`` and returns the messages to append after it."""
        return formats.openai_results([(call, self._answer(call)) for call in formats.openai_calls(message)])

    def openai_responses(self) -> List[Any]:
        """For ``tools=`` of OpenAI's Responses API."""
        return formats.responses_tools(self.specs)

    def answer_openai_responses(self, response: Any) -> List[Any]:
        """Runs the calls of a response and returns the items to append to the input after its output."""
        return formats.responses_results([(call, self._answer(call)) for call in formats.responses_calls(response)])

    def langchain(self) -> List[Any]:
        """Tools for LangChain and LangGraph."""
        from ..tools.langchain import langchain_tools

        return langchain_tools(self.specs, self.call)

    def openai_agents(self) -> List[Any]:
        """Tools for the OpenAI Agents SDK."""
        from ..tools.openai_agents import agents_tools

        return agents_tools(self.specs, self.call)

    def pydantic_ai(self) -> List[Any]:
        """Tools for Pydantic AI."""
        from ..tools.pydantic_ai import pydantic_tools

        return pydantic_tools(self.specs, self.call)

    def _answer(self, call: ToolCall) -> ToolOutput:
        return self.call(call.name, call.arguments)

    def _carry_out(self, name: str, arguments: Union[str, Mapping[str, Any]], record: AuditRecord) -> ToolOutput:
        try:
            spec = next((spec for spec in self.specs if spec.name == name), None)
            if spec is None:
                known = ", ".join(spec.name for spec in self.specs)
                raise BadCall(f"there is no tool {name!r}; there are {known}")
            given = checked(spec, arguments)
            return getattr(self, f"_{name}")(record, **given)  # type: ignore[no-any-return]
        except BadCall as error:
            record.outcome, record.output = "failed", {"error": str(error)}
            return ToolOutput(f"error: {error}", is_error=True)
        except SandboxTimeout as late:
            record.outcome, record.output = "timeout", {"stdout": late.stdout, "stderr": late.stderr}
            note = f"{late.message}; it was ended, and this is what it had printed"
            return ToolOutput(described("none", late.stdout, late.stderr, self._limit, [note]), is_error=True)
        except (BadRequestError, NoSpaceError, NotFoundError) as error:
            if error.code == "sandbox_ended" or error.message == "sandbox not found":
                raise
            record.outcome, record.output = "failed", {"error": error.message}
            return ToolOutput(f"error: {error.message}", is_error=True)

    def _run_code(
        self, record: AuditRecord, code: str, language: str = "python", timeout_seconds: Optional[float] = None
    ) -> ToolOutput:
        deadline = self._deadline(timeout_seconds)
        if language != "python":
            return self._ran(record, self.sandbox._run_script(code, language, deadline, {"cwd": self._directory}))
        with self._cells:
            try:
                cell = (self._context()).run_code(code, deadline)
            except NotFoundError as error:
                if error.message != "session not found":
                    raise
                # After a rewind the interpreter may not exist. Nothing ran, so a new one is safe.
                self._python = None
                cell = (self._context()).run_code(code, deadline)
        return self._cell(record, cell)

    def _context(self) -> CodeContext:
        if self._python is None:
            self._python = self.sandbox.contexts.create("python", cwd=self._directory)
        return self._python

    def _run_command(self, record: AuditRecord, command: str, timeout_seconds: Optional[float] = None) -> ToolOutput:
        deadline = self._deadline(timeout_seconds)
        return self._ran(record, self.sandbox.exec(command, deadline, cwd=self._directory))

    def _deadline(self, wanted: Optional[float]) -> float:
        """The timeout that the model asked for, within the limit."""
        return max(self.timeout_seconds if wanted is None else min(wanted, self.timeout_seconds), 0.001)

    def _read_file(self, record: AuditRecord, path: str) -> ToolOutput:
        data = self._fetch(path)
        mime = next((mime for start, mime in _PICTURES.items() if data.startswith(start)), None)
        record.output = {"bytes": len(data)}
        if mime is not None and len(data) <= _LARGEST_PICTURE:
            return ToolOutput(f"{path}: {mime}, {len(data)} bytes", (Image(mime, base64.b64encode(data).decode()),))
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return ToolOutput(f"{path} is not text: {len(data)} bytes. Look at it with run_command.", is_error=True)
        record.output["text"] = text
        return ToolOutput(shorten(text, self._limit) or f"({path} is empty)")

    def _fetch(self, path: str) -> bytes:
        """The bytes of a file, if they are suitable for a model."""
        about = self.sandbox.files.stat(self._path(path))
        if about.is_dir:
            raise BadCall(f"{path} is a directory; list_files lists it")
        if about.mode == "o":
            raise BadCall(f"{path} is a device, a pipe or a socket; look at it with run_command")
        too_much = "bytes, which is too much; read a part with run_command"
        if about.size > _LARGEST_FILE:
            raise BadCall(f"{path} has {about.size} {too_much}")
        try:
            data = self.sandbox.files._begin(self._path(path), _LARGEST_FILE, self.timeout_seconds)
        except Unfinished as error:
            raise BadCall(f"{path} could not be read to its end; look at it with run_command") from error
        # Files of /proc and similar ones have more bytes than their size says.
        if len(data) > _LARGEST_FILE:
            raise BadCall(f"{path} has more than {_LARGEST_FILE} {too_much}")
        return data

    def _write_file(self, record: AuditRecord, path: str, content: str) -> ToolOutput:
        written: Dict[str, Any] = self.sandbox.files.write(self._path(path), content)
        record.output = written
        return ToolOutput(f"wrote {written['bytes']} bytes to {path}")

    def _list_files(self, record: AuditRecord, path: str = "") -> ToolOutput:
        path = self._path(path)
        entries = self.sandbox.files.listdir(path)
        lines = [f"{entry.name}{'/' if entry.is_dir else ''}  {entry.size}" for entry in entries]
        record.output = {"entries": len(entries)}
        return ToolOutput(shorten("\n".join(lines), self._limit) or f"({path} is empty)")

    def _path(self, path: str) -> str:
        return posixpath.join(self._directory, path) if path else self._directory

    def _ran(self, record: AuditRecord, result: ExecResult) -> ToolOutput:
        record.outcome = "ok" if result.ok else "failed"
        record.output = {"stdout": result.stdout, "stderr": result.stderr, "exit_code": result.exit_code}
        notes = [] if result.reason in ("exited", "signalled") else [f"ended by: {result.reason}"]
        text = described(result.exit_code, result.stdout, result.stderr, self._limit, notes)
        return ToolOutput(text, exit_code=result.exit_code)

    def _cell(self, record: AuditRecord, cell: Execution) -> ToolOutput:
        record.outcome = "ok" if cell.ok else "failed"
        record.output = {"stdout": cell.stdout, "stderr": cell.stderr, "error": cell.error}
        record.output["results"] = [result.data for result in cell.results]
        images = [Image(mime, data) for result in cell.results for mime, data in result.data.items() if _is_shown(mime)]
        small = [image for image in images if len(image.data) <= _LARGEST_PICTURE][:_MOST_PICTURES]
        texts = [f"result:\n{result.text}" for result in cell.results[:_MOST_RESULTS] if result.text]
        notes = [shorten("\n".join(texts), self._limit)] if texts else []
        for cut, what in (
            (len(cell.results) - _MOST_RESULTS, "results"),
            (len(images) - len(small), "pictures"),
        ):
            if cut > 0:
                notes.append(f"[{cut} more {what} are not shown]")
        if cell.restarted:
            notes.append("the interpreter was ended and started anew: variables are gone")
        if cell.error:
            notes.append(f"error:\n{shorten(cell.error, self._limit)}")
        text = described(cell.exit_code, cell.stdout, cell.stderr, self._limit, notes)
        return ToolOutput(text, tuple(small), exit_code=cell.exit_code)


def _is_shown(mime: str) -> bool:
    return mime in _PICTURES.values()
