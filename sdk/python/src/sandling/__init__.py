"""A disposable computer for every AI agent.

    from sandling import Sandbox

    with Sandbox.create() as sandbox:
        print(sandbox.run_code("print(6 * 7)").stdout)

Everything exists twice, with the same methods: :class:`Sandbox` blocks, :class:`AsyncSandbox` is awaited. Names are
loaded at their first use, so that importing this package is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, List

from ._version import __version__

if TYPE_CHECKING:
    from ._async.agent import AsyncAgent
    from ._async.browser import AsyncBrowser
    from ._async.client import AsyncClient
    from ._async.contexts import AsyncCodeContext
    from ._async.desktop import AsyncDesktop
    from ._async.exec import AsyncExec, AsyncExecStream
    from ._async.explore import explore as async_explore
    from ._async.filesystem import AsyncSandboxFilesystem
    from ._async.pool import AsyncSandboxPool
    from ._async.sandbox import AsyncSandbox
    from ._async.secrets import AsyncSecret
    from ._async.templates import AsyncTemplate
    from ._async.terminal import AsyncTerminal
    from ._async.volumes import AsyncVolume
    from ._sync.agent import Agent
    from ._sync.browser import Browser
    from ._sync.client import Client, get_default_client, set_default_client
    from ._sync.contexts import CodeContext
    from ._sync.desktop import Desktop
    from ._sync.exec import Exec, ExecStream
    from ._sync.explore import explore
    from ._sync.filesystem import SandboxFilesystem
    from ._sync.pool import SandboxPool
    from ._sync.sandbox import Sandbox
    from ._sync.secrets import Secret
    from ._sync.templates import Template
    from ._sync.terminal import Terminal
    from ._sync.volumes import Volume
    from .agents import AgentEvent, AgentResult, Attempt, BestOf, Budget
    from .audit import AuditLog, AuditRecord
    from .desktops import Window
    from .errors import (
        AuthError,
        BadRequestError,
        CapacityError,
        CommandFailed,
        ConfigError,
        ConflictError,
        ConnectionError,
        CreateCancelled,
        ExecInterrupted,
        ExploreError,
        ForbiddenError,
        LimitError,
        ModelError,
        NoSpaceError,
        NotFoundError,
        RequestTimeout,
        SandboxTimeout,
        SandlingError,
        ServerError,
        TemplateBuildError,
    )
    from .errors import ConnectionError as APIConnectionError
    from .errors import SandlingError as PandastackError
    from .execution import ExecutionConfig, PoolStatus, RunReport
    from .exploring import BranchOutcome, Candidate, ExploreResult
    from .models import (
        Checkpoint,
        Chunk,
        Diff,
        Event,
        ExecInfo,
        ExecResult,
        Execution,
        FileChange,
        FileDiff,
        FileInfo,
        FileState,
        Lifecycle,
        Metrics,
        Preview,
        Promotion,
        Result,
        SnapshotInfo,
        TemplateBuild,
        Timeline,
        Token,
        VolumeInfo,
    )
    from .networking import (
        GrantedSecret,
        Network,
        NetworkDefault,
        NetworkEvent,
        NetworkLimits,
        NetworkOptions,
        NetworkPolicy,
        NetworkUsage,
    )
    from .options import VolumeMount
    from .retry import CreateRetryEvent

_HOMES = {
    "_async.agent": ["AsyncAgent"],
    "_async.browser": ["AsyncBrowser"],
    "_async.client": ["AsyncClient"],
    "_async.contexts": ["AsyncCodeContext"],
    "_async.desktop": ["AsyncDesktop"],
    "_async.exec": ["AsyncExec", "AsyncExecStream"],
    "_async.filesystem": ["AsyncSandboxFilesystem"],
    "_async.pool": ["AsyncSandboxPool"],
    "_async.sandbox": ["AsyncSandbox"],
    "_async.secrets": ["AsyncSecret"],
    "_async.templates": ["AsyncTemplate"],
    "_async.terminal": ["AsyncTerminal"],
    "_async.volumes": ["AsyncVolume"],
    "_sync.agent": ["Agent"],
    "_sync.browser": ["Browser"],
    "_sync.client": ["Client", "get_default_client", "set_default_client"],
    "_sync.contexts": ["CodeContext"],
    "_sync.desktop": ["Desktop"],
    "_sync.exec": ["Exec", "ExecStream"],
    "_sync.explore": ["explore"],
    "_sync.filesystem": ["SandboxFilesystem"],
    "_sync.pool": ["SandboxPool"],
    "_sync.sandbox": ["Sandbox"],
    "_sync.secrets": ["Secret"],
    "_sync.templates": ["Template"],
    "_sync.terminal": ["Terminal"],
    "_sync.volumes": ["Volume"],
    "agents": ["AgentEvent", "AgentResult", "Attempt", "BestOf", "Budget"],
    "audit": ["AuditLog", "AuditRecord"],
    "desktops": ["Window"],
    "errors": [
        "AuthError",
        "BadRequestError",
        "CapacityError",
        "CommandFailed",
        "ConfigError",
        "ConflictError",
        "ConnectionError",
        "CreateCancelled",
        "ExecInterrupted",
        "ExploreError",
        "ForbiddenError",
        "LimitError",
        "ModelError",
        "NoSpaceError",
        "NotFoundError",
        "RequestTimeout",
        "SandboxTimeout",
        "SandlingError",
        "ServerError",
        "TemplateBuildError",
    ],
    "execution": ["ExecutionConfig", "PoolStatus", "RunReport"],
    "exploring": ["BranchOutcome", "Candidate", "ExploreResult"],
    "models": [
        "Checkpoint",
        "Chunk",
        "Diff",
        "Event",
        "ExecInfo",
        "ExecResult",
        "Execution",
        "FileChange",
        "FileDiff",
        "FileInfo",
        "FileState",
        "Lifecycle",
        "Metrics",
        "Preview",
        "Promotion",
        "Result",
        "SnapshotInfo",
        "TemplateBuild",
        "Timeline",
        "Token",
        "VolumeInfo",
    ],
    "networking": [
        "GrantedSecret",
        "Network",
        "NetworkDefault",
        "NetworkEvent",
        "NetworkLimits",
        "NetworkOptions",
        "NetworkPolicy",
        "NetworkUsage",
    ],
    "options": ["VolumeMount"],
    "retry": ["CreateRetryEvent"],
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}
#: Names that differ from those in their module. The names of errors are those of PandaStack's client.
_RENAMED = {
    "APIConnectionError": ("errors", "ConnectionError"),
    "PandastackError": ("errors", "SandlingError"),
    "async_explore": ("_async.explore", "explore"),
}

__all__ = ["__version__", *sorted([*_MODULE_OF, *_RENAMED])]


def __getattr__(name: str) -> Any:
    module, own_name = _RENAMED.get(name) or (_MODULE_OF.get(name), name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{module}", __name__), own_name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return __all__
