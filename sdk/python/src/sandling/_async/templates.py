"""Templates: what sandboxes start from."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Type, TypeVar

from ..archives import pack
from ..dockerignore import DockerIgnore
from ..errors import ConnectionError, TemplateBuildError
from ..models import TemplateBuild
from .base import default_client
from .colour import Source, in_thread, settle, sleep
from .filesystem import Local, blocks_of

if TYPE_CHECKING:
    from .client import AsyncClient

T = TypeVar("T", bound="AsyncTemplate")

BUILD_WITHIN = 3600.0


@dataclass(frozen=True)
class AsyncTemplate:
    """A template: a root file system and a pre-warmed snapshot of it."""

    name: str
    label: str = ""
    description: str = ""
    category: str = ""
    cpu: int = 0
    memory_mb: int = 0
    disk_mb: int = 0
    size_bytes: int = 0
    #: Whether every workspace has it.
    is_global: bool = False
    workspace: Optional[str] = None
    #: Its packages.
    tools: List[str] = field(default_factory=list)
    #: What is installed in a built-in template, with versions: Debian's packages by name, others as ``npm:NAME`` and
    #: ``pip:NAME``. Empty in lists.
    versions: Dict[str, str] = field(default_factory=dict)
    #: Whether it can be used now; otherwise build it first.
    ready: bool = False
    meta: Dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_wire(cls: Type[T], data: Mapping[str, Any]) -> T:
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})

    @classmethod
    async def list(cls, *, client: Optional[AsyncClient] = None) -> List[AsyncTemplate]:
        return await (client or default_client()).templates.list()

    @classmethod
    async def get(cls, name: str, *, client: Optional[AsyncClient] = None) -> AsyncTemplate:
        return await (client or default_client()).templates.get(name)

    @classmethod
    async def build(
        cls,
        name: str,
        *,
        packages: Sequence[str] = (),
        npm: Sequence[str] = (),
        pip: Sequence[str] = (),
        requirements: Optional[str] = None,
        dockerfile: Optional[str] = None,
        context: Optional[Local] = None,
        build_args: Optional[Mapping[str, str]] = None,
        target: Optional[str] = None,
        warm: Sequence[str] = (),
        base: Optional[str] = None,
        cpu: Optional[int] = None,
        memory_mb: Optional[int] = None,
        disk_mb: Optional[int] = None,
        on_log: Optional[Callable[[str], Any]] = None,
        timeout_seconds: float = BUILD_WITHIN,
        client: Optional[AsyncClient] = None,
    ) -> AsyncTemplate:
        """Builds a template from a Dockerfile, or from a built-in one and more packages from Debian, npm and PyPI.

        Waits until it is done. The default of ``base`` is ``base``.

        :param packages: Debian packages.
        :param npm: ``name`` or ``name@version``. Their install scripts do not run.
        :param pip: packages from PyPI, optionally with versions, like ``six==1.16.0``.
        :param requirements: the text of a requirements file, not its path.
        :param dockerfile: the text of a Dockerfile, not its path.
        :param context: the directory for its ``COPY`` and ``ADD``, without what ``.dockerignore`` names. If there is no
            ``dockerfile``, the file ``Dockerfile`` in it.
        :param target: the stage of the Dockerfile that becomes the template.
        :param warm: commands that run before the template is saved, so that they are fast in its sandboxes.
        :raises TemplateBuildError: the build failed or took too long.
        """
        templates = (client or default_client()).templates
        build = await templates.build(
            name,
            packages=packages,
            npm=npm,
            pip=pip,
            requirements=requirements,
            dockerfile=dockerfile,
            context=context,
            build_args=build_args,
            target=target,
            warm=warm,
            base=base,
            cpu=cpu,
            memory_mb=memory_mb,
            disk_mb=disk_mb,
        )
        until = time.monotonic() + timeout_seconds
        if on_log is not None:
            # A build does not need its log.
            with suppress(ConnectionError):
                async for line in templates.build_logs(build.id):
                    await settle(on_log(line))
                    if time.monotonic() > until:
                        break
        await templates.wait_for_build(build.id, timeout_seconds=max(until - time.monotonic(), 0))
        return await templates.get(name)


class AsyncTemplates:
    """``client.templates``."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def list(self) -> List[AsyncTemplate]:
        data = await self._request("GET", "")
        return [AsyncTemplate.from_wire(item) for item in (data if isinstance(data, list) else data["items"])]

    async def get(self, name: str) -> AsyncTemplate:
        return AsyncTemplate.from_wire(await self._request("GET", f"/{name}"))

    async def delete(self, name: str) -> None:
        await self._request("DELETE", f"/{name}")

    async def build(
        self,
        name: str,
        *,
        packages: Sequence[str] = (),
        npm: Sequence[str] = (),
        pip: Sequence[str] = (),
        requirements: Optional[str] = None,
        dockerfile: Optional[str] = None,
        context: Optional[Local] = None,
        build_args: Optional[Mapping[str, str]] = None,
        target: Optional[str] = None,
        warm: Sequence[str] = (),
        base: Optional[str] = None,
        cpu: Optional[int] = None,
        memory_mb: Optional[int] = None,
        disk_mb: Optional[int] = None,
    ) -> TemplateBuild:
        """Starts to build a template. The arguments are those of :meth:`AsyncTemplate.build`."""
        if dockerfile is None and context is not None:
            with open(os.path.join(context, "Dockerfile"), encoding="utf-8") as file:
                dockerfile = file.read()
        sizes = {"cpu": cpu, "memory_mb": memory_mb, "disk_mb": disk_mb}
        lists = {"npm": [*npm] or None, "pip": [*pip] or None, "warm": [*warm] or None}
        wanted: Dict[str, Any] = {"from": base, "packages": [*packages], "requirements": requirements, **lists, **sizes}
        wanted.update(build_args=dict(build_args or {}) or None, target=target)
        if dockerfile is not None:
            uploaded = None if context is None else await self._upload(os.fspath(context))
            wanted.update(dockerfile=dockerfile, context=uploaded, replace=True)
        body = {"name": name, **{key: value for key, value in wanted.items() if value is not None}}
        return TemplateBuild.from_wire(await self._request("POST", "/build", body=body))

    async def _upload(self, directory: str) -> str:
        """Sends a directory, and returns the name under which a build finds it."""
        name = uuid.uuid4().hex
        with tempfile.TemporaryFile() as archive:
            await in_thread(lambda: pack(directory, archive, DockerIgnore.of(directory)))
            archive.seek(0)
            await self._client._transport.fetch(
                "PUT",
                f"/v1/templates/builds/uploads/{name}",
                content=blocks_of(archive),
                headers={"content-type": "application/x-tar"},
                timeout=None,
            )
        return name

    async def builds(self) -> List[TemplateBuild]:
        data = await self._request("GET", "/builds")
        return [TemplateBuild.from_wire(item) for item in (data if isinstance(data, list) else data["items"])]

    async def get_build(self, build_id: str) -> TemplateBuild:
        return TemplateBuild.from_wire(await self._request("GET", f"/builds/{build_id}"))

    async def build_logs(self, build_id: str, *, follow: bool = True) -> Source[str]:
        """The lines of a build's log."""
        path = f"/v1/templates/builds/{build_id}/logs"
        async for event in self._client._transport.events("GET", path, params={"follow": "1"} if follow else None):
            if event.name == "done":
                return
            yield event.data

    async def wait_for_build(
        self, build_id: str, *, poll_interval: float = 2.0, timeout_seconds: float = 1200.0
    ) -> TemplateBuild:
        """
        :raises TemplateBuildError: it failed or took too long.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            build = await self.get_build(build_id)
            if build.is_done:
                return build
            if build.is_failed:
                raise TemplateBuildError(build.error or "the build failed", build=build)
            if time.monotonic() > deadline:
                raise TemplateBuildError(f"the build is not done after {timeout_seconds:g} s", build=build)
            await sleep(poll_interval)

    async def _request(self, method: str, path: str, **more: Any) -> Any:
        return await self._client._transport.request(method, f"/v1/templates{path}", **more)
