"""The exceptions of this package.

All of them are a :class:`SandlingError`. If the server refused a request, the error has the HTTP ``status``, a stable
``code`` for programs, and the ``request_id`` of the server's log and audit log. Names and base classes are those of
PandaStack's client, so that ``except`` clauses written for it keep working.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Type


class SandlingError(Exception):
    """Base class of all errors of this package."""

    def __init__(
        self,
        message: str,
        *,
        status: Optional[int] = None,
        code: Optional[str] = None,
        request_id: Optional[str] = None,
        retry_after: Optional[float] = None,
        details: Optional[Mapping[str, Any]] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.request_id = request_id
        #: Seconds to wait before a retry, if the server said so.
        self.retry_after = retry_after
        #: The other fields of the answer.
        self.details = dict(details or {})

    def __str__(self) -> str:
        known = (("status", self.status), ("code", self.code), ("request", self.request_id))
        facts = ", ".join(f"{name} {value}" for name, value in known if value is not None)
        return f"{self.message} ({facts})" if facts else self.message


class ConfigError(SandlingError):
    """There is no server to talk to, and none could be started."""


class AuthError(SandlingError):
    """The token is missing, unknown, expired or revoked."""


class NotFoundError(SandlingError):
    """It does not exist, or belongs to another workspace."""


class BadRequestError(SandlingError):
    """The request is invalid."""


class ForbiddenError(BadRequestError):
    """The token's scope, or the guest's file permissions, do not allow it."""


class ConflictError(BadRequestError):
    """The current state does not allow it, such as a command in a paused sandbox."""


class LimitError(BadRequestError):
    """A quota or a rate limit is exceeded."""


class ServerError(SandlingError):
    """The server or the guest failed."""


class CapacityError(ServerError):
    """The host has no capacity at the moment."""


class NoSpaceError(ServerError):
    """A disk is full, of the sandbox or of the server; the message says which. Waiting seldom helps."""


class ConnectionError(SandlingError):
    """The server could not be reached, or the connection was lost before it answered."""


class RequestTimeout(ConnectionError):
    """The server did not answer in time. It may still have carried out the request."""


class WithOutput(SandlingError):
    """An error that carries the output so far."""

    def __init__(self, message: str, *, stdout: str = "", stderr: str = "", **more: Any) -> None:
        super().__init__(message, **more)
        self.stdout = stdout
        self.stderr = stderr

    @property
    def partial_stdout(self) -> str:
        return self.stdout

    @property
    def partial_stderr(self) -> str:
        return self.stderr


class SandboxTimeout(WithOutput):
    """A command or cell reached its timeout and was ended. ``stdout`` and ``stderr`` hold what it had printed."""


class ExecInterrupted(WithOutput):
    """A command's output ended without an exit code. It may still be running; ``commands.get(id)`` tells."""

    def __init__(self, message: str, *, id: str = "", **more: Any) -> None:
        super().__init__(message, **more)
        #: The ID of the command; empty if it is unknown.
        self.id = id


class CommandFailed(WithOutput):
    """A command with ``check=True`` did not exit with 0."""

    def __init__(self, message: str, *, exit_code: int, stdout: str = "", stderr: str = "") -> None:
        super().__init__(message, stdout=stdout, stderr=stderr)
        self.exit_code = exit_code


class TemplateBuildError(SandlingError):
    """A template could not be built. ``build`` has its last known state."""

    def __init__(self, message: str, *, build: object = None) -> None:
        super().__init__(message)
        self.build = build


class CreateCancelled(SandlingError):
    """Waiting for capacity was cancelled. The last refusal is the cause."""


class ModelError(SandlingError):
    """The model's server reported a failure during an answer, or sent no answer."""


class ExploreError(SandlingError):
    """No branch of an exploration can win. ``outcomes`` says how each one ended."""

    def __init__(self, message: str, *, outcomes: object = ()) -> None:
        super().__init__(message)
        self.outcomes = outcomes


_BY_STATUS: Mapping[int, Type[SandlingError]] = {
    401: AuthError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    429: LimitError,
    503: CapacityError,
    507: CapacityError,
}


def from_answer(status: int, headers: Mapping[str, str], body: Any) -> SandlingError:
    """The exception for an unsuccessful answer. ``body`` is its JSON or its text."""
    fields = dict(body) if isinstance(body, Mapping) else {}
    message = str(fields.pop("error", "") or (body if isinstance(body, str) else "") or f"the server answered {status}")
    code = fields.pop("code", None)
    request_id = fields.pop("request_id", None) or headers.get("x-request-id")
    told = {"status": status, "code": code, "request_id": request_id, "details": fields}
    if code == "command_timeout":
        return SandboxTimeout(
            message, stdout=str(fields.get("stdout", "")), stderr=str(fields.get("stderr", "")), **told
        )
    if code == "no_space":
        return NoSpaceError(message, retry_after=_seconds(headers.get("retry-after")), **told)
    kind = _BY_STATUS.get(status) or (ServerError if status >= 500 else BadRequestError)
    return kind(message, retry_after=_seconds(headers.get("retry-after")), **told)


def _seconds(header: Optional[str]) -> Optional[float]:
    try:
        return max(0.0, float(header)) if header is not None else None
    except ValueError:
        return None
