"""Sandboxes for Harbor's tasks: ``pip install "sandling[harbor]"``, with Python 3.12 or newer.

Name the class as the environment of a job::

    harbor run --path tasks --agent oracle --env sandling.harbor:SandlingEnvironment

Each trial gets a sandbox of its own, from the task's ``docker_image``, or from a template that is built once from its
Dockerfile. ``environment.sandbox`` is the sandbox itself: fork it, rewind it or change its network.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, ClassVar, DefaultDict, Dict, Optional, Union

from harbor.environments.base import BaseEnvironment, ExecResult, SandboxBuildFailedError
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.definition import (
    DOCKERFILE_NAME,
    SNAPSHOT_HASH_LEN,
    require_agent_environment_definition,
    should_use_prebuilt_docker_image,
)
from harbor.models.task.config import NetworkMode, NetworkPolicy

from ._async.base import default_client
from ._async.client import AsyncClient
from ._async.sandbox import AsyncSandbox
from ._async.templates import BUILD_WITHIN
from .archives import pack
from .errors import NotFoundError, SandboxTimeout, SandlingError, TemplateBuildError

Local = Union[Path, str]

#: A sandbox ends after this time, even if Harbor was killed.
TTL_SECONDS = 24 * 3600


class SandlingEnvironment(BaseEnvironment):  # type: ignore[misc]  # harbor is installed only where it is tested
    """One sandbox."""

    #: Trials of one task wait for the same build.
    _building: ClassVar[DefaultDict[str, asyncio.Lock]] = defaultdict(asyncio.Lock)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._sandbox: Optional[AsyncSandbox] = None

    @staticmethod
    def type() -> str:
        return "sandling"

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, memory_request=True)

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True,
            network_allowlist_ipv4_addresses=True,
            network_allowlist_ipv4_cidrs=True,
            dynamic_network_policy=True,
        )

    @property
    def sandbox(self) -> AsyncSandbox:
        if self._sandbox is None:
            raise RuntimeError("the environment has no sandbox; start it first")
        return self._sandbox

    def _validate_definition(self) -> None:
        require_agent_environment_definition(self.environment_dir, docker_image=self.task_env_config.docker_image)

    async def start(self, force_build: bool) -> None:
        image = self.task_env_config.docker_image
        if should_use_prebuilt_docker_image(self.environment_dir, docker_image=image, force_build=force_build):
            source = {"image": image, **self._size()}
        else:
            # The template has the size.
            source = {"template": await self._built(force_build)}
        self._sandbox = await AsyncSandbox.create(
            **source,
            env=self._startup_env(),
            network=_network(self.network_policy),
            labels={"harbor": self.session_id},
            ttl_seconds=TTL_SECONDS,
        )
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        """Ends the sandbox. With ``--no-delete`` it hibernates until its TTL ends, and ``sandling shell`` wakes it."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is None:
            return
        try:
            if delete:
                await sandbox.close()
            else:
                await sandbox.hibernate()
                self.logger.info(f"the sandbox {sandbox.id} is hibernated")
        except SandlingError as error:
            self.logger.error(f"the sandbox {sandbox.id} continues until its TTL ends: {error}")

    async def exec(
        self,
        command: str,
        cwd: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        timeout_sec: Optional[int] = None,
        user: Union[str, int, None] = None,
    ) -> ExecResult:
        listener = self._output_callback()
        heard = {f"on_{name}": _told(listener, name) for name in ("stdout", "stderr")} if listener else {}
        runner = self._resolve_user(user)
        try:
            ran = await self.sandbox.exec(
                ["bash", "-c", command],
                timeout_sec,
                cwd=cwd or self.task_env_config.workdir,
                env=self._merge_env(env),
                user=None if runner is None else str(runner),
                on_limit="keep_tail",
                **heard,
            )
        except SandboxTimeout as error:
            raise RuntimeError(f"the command timed out after {timeout_sec} seconds") from error
        return ExecResult(stdout=ran.stdout, stderr=ran.stderr, return_code=ran.exit_code)

    async def upload_file(self, source_path: Local, target_path: str) -> None:
        mode = os.stat(source_path).st_mode & 0o777
        await self.sandbox.filesystem.upload(source_path, target_path, mode=f"{mode:04o}")

    async def upload_dir(self, source_dir: Local, target_dir: str) -> None:
        await self.sandbox.filesystem.upload(source_dir, target_dir)

    async def download_file(self, source_path: str, target_path: Local) -> None:
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        await self.sandbox.filesystem.download(source_path, target_path)

    async def download_dir(self, source_dir: str, target_dir: Local) -> None:
        await self.sandbox.filesystem.download(source_dir, target_dir)

    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        await self.sandbox.network.set(**_network(network_policy))

    def _size(self) -> Dict[str, int]:
        wanted = {
            "cpu": self._effective_cpus,
            "memory_mb": self._effective_memory_mb,
            "disk_mb": self._effective_storage_mb,
        }
        return {name: value for name, value in wanted.items() if value is not None}

    async def _built(self, force_build: bool) -> str:
        """The template of the task's Dockerfile and size, which is built if it does not exist."""
        name = "-".join(map(str, ["harbor", self.environment_id[:SNAPSHOT_HASH_LEN], *self._size().values()]))
        client = default_client()
        async with self._building[name]:
            try:
                if not force_build:
                    await client.templates.get(name)
                    return name
            except NotFoundError:
                self.logger.debug(f"building the template {name}")
            try:
                await self._build(client, name)
            except TemplateBuildError as error:
                raise SandboxBuildFailedError(str(error)) from error
        return name

    async def _build(self, client: AsyncClient, name: str) -> None:
        context = os.urandom(16).hex()
        with tempfile.TemporaryFile() as archive:
            await asyncio.to_thread(pack, str(self.environment_dir), archive)
            archive.seek(0)
            uploads = f"/v1/templates/builds/uploads/{context}"
            headers = {"content-type": "application/x-tar"}
            await client._transport.fetch("PUT", uploads, content=archive.read(), headers=headers, timeout=None)
        wanted = {
            "name": name,
            "dockerfile": (self.environment_dir / DOCKERFILE_NAME).read_text(),
            "context": context,
            "replace": True,
            # Harbor starts what a task needs.
            "start": False,
            **self._size(),
        }
        build = await client._transport.request("POST", "/v1/templates/build", body=wanted)
        await client.templates.wait_for_build(build["id"], timeout_seconds=BUILD_WITHIN)


def _network(policy: NetworkPolicy) -> Dict[str, Any]:
    if policy.network_mode == NetworkMode.PUBLIC:
        return {"mode": "open"}
    if policy.network_mode == NetworkMode.NO_NETWORK:
        return {"mode": "deny"}
    return {"mode": "allow", "allow": list(policy.allowed_hosts)}


def _told(listener: Any, stream: str) -> Any:
    return lambda text: listener(text, stream)
