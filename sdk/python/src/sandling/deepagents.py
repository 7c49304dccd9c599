"""A sandbox as the backend of a Deep Agent: ``pip install "sandling[deepagents]"``.

The agent's tools for files and commands then work in the sandbox::

    from deepagents import create_deep_agent
    from sandling import Sandbox
    from sandling.deepagents import SandboxBackend

    with Sandbox.create() as sandbox:
        agent = create_deep_agent(model="openai:gpt-5", backend=SandboxBackend(sandbox))

The sandbox stays yours: fork it, rewind it or change its network while the agent works.
"""

from __future__ import annotations

from typing import List, Optional, Tuple

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

from ._sync.sandbox import Sandbox
from .errors import BadRequestError, NotFoundError, SandboxTimeout

#: What a shell's ``timeout`` exits with.
TIMED_OUT = 124
#: The names that Deep Agents has for what can go wrong with a file.
FILE_ERRORS = {
    "not_found": "file_not_found",
    "is_a_directory": "is_directory",
    "not_a_directory": "invalid_path",
    "permission_denied": "permission_denied",
}
#: Deep Agents has absolute paths only.
RELATIVE = "invalid_path"


class SandboxBackend(BaseSandbox):  # type: ignore[misc]  # deepagents is installed only where it is tested
    """Runs an agent's commands in ``sandbox``, each for at most ``timeout`` seconds unless the agent says otherwise."""

    def __init__(self, sandbox: Sandbox, *, timeout: int = 30 * 60) -> None:
        self.sandbox = sandbox
        self._timeout = timeout

    @property
    def id(self) -> str:
        return self.sandbox.id

    def execute(self, command: str, *, timeout: Optional[int] = None) -> ExecuteResponse:
        seconds = self._timeout if timeout is None else timeout
        try:
            # Without a limit if the agent asks for 0 seconds.
            ran = self.sandbox.exec(command, seconds or None)
        except SandboxTimeout as ended:
            output = f"{ended.stdout}{ended.stderr}the command timed out after {seconds} seconds"
            return ExecuteResponse(output=output, exit_code=TIMED_OUT)
        parts = [part for part in (ran.stdout, ran.stderr) if part]
        return ExecuteResponse(output="\n".join(parts), exit_code=ran.exit_code)

    def upload_files(self, files: List[Tuple[str, bytes]]) -> List[FileUploadResponse]:
        return [FileUploadResponse(path=path, error=self._write(path, content)) for path, content in files]

    def download_files(self, paths: List[str]) -> List[FileDownloadResponse]:
        return [self._read(path) for path in paths]

    def _write(self, path: str, content: bytes) -> Optional[str]:
        if not path.startswith("/"):
            return RELATIVE
        try:
            self.sandbox.filesystem.write(path, content)
        except (BadRequestError, NotFoundError) as error:
            return _named(error)
        return None

    def _read(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path=path, error=RELATIVE)
        try:
            return FileDownloadResponse(path=path, content=self.sandbox.filesystem.read(path))
        except (BadRequestError, NotFoundError) as error:
            return FileDownloadResponse(path=path, error=_named(error))


def _named(error: Exception) -> str:
    return FILE_ERRORS.get(getattr(error, "code", None) or "", "invalid_path")
