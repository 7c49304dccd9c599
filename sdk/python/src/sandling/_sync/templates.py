# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.
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
    from .client import Client

T = TypeVar("T", bound="Template")

BUILD_WITHIN = 3600.0


@dataclass(frozen=True)
class Template:
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
    def list(cls, *, client: Optional[Client] = None) -> List[Template]:
        return (client or default_client()).templates.list()

    @classmethod
    def get(cls, name: str, *, client: Optional[Client] = None) -> Template:
        return (client or default_client()).templates.get(name)

    @classmethod
    def build(
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
        client: Optional[Client] = None,
    ) -> Template:
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
        build = templates.build(
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
                for line in templates.build_logs(build.id):
                    settle(on_log(line))
                    if time.monotonic() > until:
                        break
        templates.wait_for_build(build.id, timeout_seconds=max(until - time.monotonic(), 0))
        return templates.get(name)


class Templates:
    """``client.templates``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self) -> List[Template]:
        data = self._request("GET", "")
        return [Template.from_wire(item) for item in (data if isinstance(data, list) else data["items"])]

    def get(self, name: str) -> Template:
        return Template.from_wire(self._request("GET", f"/{name}"))

    def delete(self, name: str) -> None:
        self._request("DELETE", f"/{name}")

    def build(
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
            uploaded = None if context is None else self._upload(os.fspath(context))
            wanted.update(dockerfile=dockerfile, context=uploaded, replace=True)
        body = {"name": name, **{key: value for key, value in wanted.items() if value is not None}}
        return TemplateBuild.from_wire(self._request("POST", "/build", body=body))

    def _upload(self, directory: str) -> str:
        """Sends a directory, and returns the name under which a build finds it."""
        name = uuid.uuid4().hex
        with tempfile.TemporaryFile() as archive:
            in_thread(lambda: pack(directory, archive, DockerIgnore.of(directory)))
            archive.seek(0)
            self._client._transport.fetch(
                "PUT",
                f"/v1/templates/builds/uploads/{name}",
                content=blocks_of(archive),
                headers={"content-type": "application/x-tar"},
                timeout=None,
            )
        return name

    def builds(self) -> List[TemplateBuild]:
        data = self._request("GET", "/builds")
        return [TemplateBuild.from_wire(item) for item in (data if isinstance(data, list) else data["items"])]

    def get_build(self, build_id: str) -> TemplateBuild:
        return TemplateBuild.from_wire(self._request("GET", f"/builds/{build_id}"))

    def build_logs(self, build_id: str, *, follow: bool = True) -> Source[str]:
        """The lines of a build's log."""
        path = f"/v1/templates/builds/{build_id}/logs"
        for event in self._client._transport.events("GET", path, params={"follow": "1"} if follow else None):
            if event.name == "done":
                return
            yield event.data

    def wait_for_build(
        self, build_id: str, *, poll_interval: float = 2.0, timeout_seconds: float = 1200.0
    ) -> TemplateBuild:
        """
        :raises TemplateBuildError: it failed or took too long.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            build = self.get_build(build_id)
            if build.is_done:
                return build
            if build.is_failed:
                raise TemplateBuildError(build.error or "the build failed", build=build)
            if time.monotonic() > deadline:
                raise TemplateBuildError(f"the build is not done after {timeout_seconds:g} s", build=build)
            sleep(poll_interval)

    def _request(self, method: str, path: str, **more: Any) -> Any:
        return self._client._transport.request(method, f"/v1/templates{path}", **more)
