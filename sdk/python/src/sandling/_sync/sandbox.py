# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.
"""A sandbox: one virtual machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Type, TypeVar, Union

from ..errors import CommandFailed, from_answer
from ..models import Event, ExecResult, Execution, Metrics, Preview
from ..options import (
    DEFAULT_TEMPLATE,
    CreateOptions,
    ExecOptions,
    code_body,
    create_body,
    exec_body,
    is_script,
    live_code_body,
    one_timeout,
)
from .base import default_client
from .browser import Browser
from .checkpoints import Checkpoints
from .colour import Opening, Source, id_to_cancel, or_undone
from .contexts import CodeContext, Contexts, run_live
from .desktop import Desktop
from .exec import Exec, ExecStream, OnOutput, SandboxCommands, follow, patience
from .filesystem import SandboxFilesystem
from .machine import Machine
from .network import SandboxNetwork
from .secrets import SandboxSecrets

if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Unpack

    from .client import Client
    from .terminal import Terminal

S = TypeVar("S", bound="Sandbox")


class Sandbox(Machine, Opening):
    """A sandbox: one virtual machine. Leaving its ``with`` block ends it, unless it is persistent."""

    _first_run: Optional[Dict[str, Any]] = None

    def __init__(
        self,
        template: str = DEFAULT_TEMPLATE,
        *,
        client: Optional[Client] = None,
        **options: Unpack[CreateOptions],
    ) -> None:
        self._client = client
        self._wish = create_body(template, options)
        self._cancel = options.get("cancel")
        self._begin()

    @classmethod
    def create(
        cls: Type[S],
        template: str = DEFAULT_TEMPLATE,
        *,
        client: Optional[Client] = None,
        **options: Unpack[CreateOptions],
    ) -> S:
        """Creates a sandbox.

        If the server has no capacity, the client retries for up to a minute (its ``max_create_retry_seconds``).
        """
        sandbox = cls.__new__(cls)
        sandbox._client = client
        sandbox._wish = create_body(template, options)
        sandbox._cancel = options.get("cancel")
        sandbox._open()
        return sandbox

    @classmethod
    def get(cls: Type[S], sandbox_id: str, *, client: Optional[Client] = None) -> S:
        """An existing sandbox, by its ID or name."""
        client = client or default_client()
        return cls._of(client, client._transport.request("GET", f"/v1/sandboxes/{sandbox_id}"))

    @classmethod
    def list(cls: Type[S], *, metadata: Optional[Dict[str, str]] = None, client: Optional[Client] = None) -> List[S]:
        """All sandboxes; with ``metadata``, only those that have it."""
        client = client or default_client()
        data = client._transport.request("GET", "/v1/sandboxes")
        found = [cls._of(client, item) for item in (data if isinstance(data, list) else data["items"])]
        wanted = (metadata or {}).items()
        return [sandbox for sandbox in found if wanted <= sandbox.metadata.items()]

    def _open(self) -> None:
        if self.id:
            return
        data = self.client._make("/v1/sandboxes", self._wish, self._cancel, keyed=True)
        self._first_run = data.pop("run", None)
        self._take(data)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id or '(not made yet)'} {self.template} {self.status}>"

    @property
    def filesystem(self) -> SandboxFilesystem:
        return SandboxFilesystem(self)

    @property
    def files(self) -> SandboxFilesystem:
        return SandboxFilesystem(self)

    @property
    def commands(self) -> SandboxCommands:
        return SandboxCommands(self)

    @property
    def contexts(self) -> Contexts:
        return Contexts(self)

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self)

    @property
    def desktop(self) -> Desktop:
        return Desktop(self)

    @property
    def browser(self) -> Browser:
        return Browser(self)

    @property
    def network(self) -> SandboxNetwork:
        return SandboxNetwork(self)

    @property
    def secrets(self) -> SandboxSecrets:
        return SandboxSecrets(self)

    def exec(
        self,
        cmd: Union[str, Sequence[str]],
        timeout_seconds: Optional[float] = None,
        check: bool = False,
        *,
        on_stdout: Optional[OnOutput] = None,
        on_stderr: Optional[OnOutput] = None,
        **options: Unpack[ExecOptions],
    ) -> ExecResult:
        """Runs a command, as a shell line or a list of arguments, and waits until it ends.

        :param check: raises :class:`CommandFailed` if it does not exit with 0.
        :param on_stdout: is called with output while it runs; ``on_stderr`` likewise.
        :raises SandboxTimeout: it reached ``timeout_seconds`` and was ended. The error has the output so far.

        In async Python, a cancellation also ends the command, unless you gave it an ``id``.
        """
        result = self._run(exec_body(cmd, timeout_seconds, options), on_stdout, on_stderr)
        if check and result.exit_code != 0:
            message = f"the command ended with {result.exit_code}: {cmd}"
            raise CommandFailed(message, exit_code=result.exit_code, stdout=result.stdout, stderr=result.stderr)
        return result

    def run(
        self,
        cmd: str,
        timeout: Optional[float] = None,
        check: bool = False,
        *,
        timeout_seconds: Optional[float] = None,
        **options: Unpack[ExecOptions],
    ) -> ExecResult:
        """Runs a shell line and waits until it ends. ``timeout_seconds`` is the same as ``timeout``."""
        return self.exec(cmd, one_timeout(timeout, timeout_seconds), check, **options)

    def run_code(
        self,
        code: str,
        language: str = "python",
        timeout_seconds: Optional[float] = None,
        *,
        fresh: bool = False,
        on_stdout: Optional[OnOutput] = None,
        on_stderr: Optional[OnOutput] = None,
        **options: Unpack[ExecOptions],
    ) -> Execution:
        """Runs code in ``python`` or ``node``. Variables last from call to call, and a fork has them too.

        The value of the last expression is a result, and so are plots and tables. An exception is in ``error``. Calls
        wait for each other. For more than one interpreter, use :attr:`contexts`.

        With ``fresh=True``, and always in ``bash``, the code runs as a script in a new process, without the variables.

        :raises SandboxTimeout: the code reached ``timeout_seconds`` and was ended.
        """
        if is_script(language, fresh):
            script = code_body(code, language, timeout_seconds, options)
            return Execution.of_script(self._run(script, on_stdout, on_stderr))
        body = live_code_body(code, language, timeout_seconds, options)
        return run_live(self, body, on_stdout, on_stderr)

    def first_run(self) -> Execution:
        """The result of the code that the sandbox was created with (``run``). Raises what :meth:`run_code` would."""
        if self._first_run is None:
            raise ValueError("the sandbox was created without code: pass run=... to create()")
        if "error" in self._first_run:
            error = dict(self._first_run["error"])
            raise from_answer(error.pop("status", 500), {}, error)
        return Execution.from_wire(self._first_run["result"])

    def _run_script(
        self, code: str, language: str, timeout_seconds: Optional[float], options: ExecOptions
    ) -> ExecResult:
        return self._run(code_body(code, language, timeout_seconds, options), None, None)

    def stream(
        self,
        cmd: Union[str, Sequence[str]],
        timeout_seconds: Optional[float] = None,
        **options: Unpack[ExecOptions],
    ) -> ExecStream:
        """Runs a command and returns its output as an iterator. The command starts with the first iteration."""
        return self._followed(exec_body(cmd, timeout_seconds, options))

    def exec_stream(
        self,
        cmd: Union[str, Sequence[str]],
        on_stdout: Optional[OnOutput] = None,
        on_stderr: Optional[OnOutput] = None,
        timeout_seconds: Optional[float] = None,
        **options: Unpack[ExecOptions],
    ) -> int:
        """Runs a command, passes its output to callbacks and returns its exit code."""
        body = exec_body(cmd, timeout_seconds, options)
        return (self._run(body, on_stdout, on_stderr, is_followed=True)).exit_code

    def start(
        self,
        cmd: Union[str, Sequence[str]],
        timeout_seconds: Optional[float] = None,
        **options: Unpack[ExecOptions],
    ) -> Exec:
        """Starts a command in the background."""
        return self.commands.start(cmd, timeout_seconds, **options)

    def create_code_context(self, language: str = "python") -> CodeContext:
        """Starts a live interpreter; the same as ``contexts.create``."""
        return self.contexts.create(language)

    def logs(self, stream: str = "both", follow: bool = False) -> Source[str]:
        """The lines of the machine's console; with ``follow``, also new ones."""
        if not follow:
            for line in (self._fetch("GET", "/logs", params={"stream": stream})).text.splitlines():
                yield line
            return
        for event in self._events("GET", "/logs", params={"stream": stream, "follow": "true"}):
            yield str(event.json()["line"]).rstrip("\n")

    def events(self, tail: int = 100) -> List[Event]:
        """Its last ``tail`` events, oldest first."""
        data = self._request("GET", "/events", params={"tail": tail})
        return [Event.from_wire(item) for item in data["events"]]

    def follow_events(self, tail: int = 100) -> Source[Event]:
        """Its events, and new ones as they happen."""
        for event in self._events("GET", "/events", params={"tail": tail, "follow": "true"}):
            yield Event.from_wire(event.json())

    def metrics(self) -> Metrics:
        """The resources that it uses."""
        return Metrics.from_wire(self._request("GET", "/metrics"))

    def refresh(self: S) -> S:
        """Updates its data from the server."""
        self._take(self._request("GET", ""))
        return self

    def preview(
        self, port: int, *, ttl_seconds: Optional[int] = None, paths: Optional[Sequence[str]] = None
    ) -> Preview:
        """Opens a port of the sandbox for an hour by default."""
        wanted = {"port": port, "ttl_seconds": ttl_seconds, "paths": paths and [*paths]}
        body = {name: value for name, value in wanted.items() if value is not None}
        return Preview.from_wire(self._request("POST", "/preview-token", body=body))

    def preview_url(self, port: int, *, ttl_seconds: Optional[int] = None) -> str:
        """A URL that opens a port in a browser. It contains a token, so anybody with the URL can use the port."""
        return (self.preview(port, ttl_seconds=ttl_seconds)).url

    def preview_urls(self) -> Dict[int, str]:
        """The ports that are open now, and their URLs, which need a token (:meth:`preview_url`)."""
        data = self._request("GET", "/ports")
        return {item["port"]: item["preview_url"] for item in data["ports"]}

    def terminal(
        self, *, rows: int = 24, cols: int = 80, cmd: Optional[str] = None, user: Optional[str] = None
    ) -> Terminal:
        """Opens a terminal. Use it as a context manager. Needs ``pip install 'sandling[terminal]'``."""
        from .terminal import Terminal

        return Terminal(self, rows=rows, cols=cols, cmd=cmd, user=user)

    def __enter__(self: S) -> S:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(
        self,
        body: Dict[str, Any],
        on_stdout: Optional[OnOutput],
        on_stderr: Optional[OnOutput],
        *,
        is_followed: bool = False,
    ) -> ExecResult:
        def run() -> ExecResult:
            if is_followed or on_stdout is not None or on_stderr is not None:
                return follow(self._followed(body), on_stdout, on_stderr)
            timeout = patience(body.get("timeout_seconds"))
            return ExecResult.from_wire(self._request("POST", "/exec", body=body, timeout=timeout))

        name = id_to_cancel()
        if name is None or "id" in body:
            return run()
        body["id"] = name
        return or_undone(run, self.commands.get(name)._cancel)

    def _followed(self, body: Dict[str, Any]) -> ExecStream:
        return ExecStream(self, "POST", "/exec/stream", body=body)
