"""Settings and results of a pool's runs."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional

from .models import ExecResult


@dataclass(frozen=True)
class ExecutionConfig:
    """How a pool runs code."""

    language: str = "python"
    timeout_seconds: float = 30.0
    #: Memory of each machine; by default the template's.
    memory_mb: Optional[int] = None
    #: The output limit in bytes.
    output_limit: Optional[int] = None
    #: Seconds of CPU time.
    cpu_seconds: Optional[float] = None
    #: How much the code may write to the disk.
    disk_limit_mb: Optional[int] = None
    env: Mapping[str, str] = field(default_factory=dict)
    #: A name or a number; root by default.
    user: Optional[str] = None
    #: Top-level modules that may be imported. This is advice: other imports are reported and not prevented, because no
    #: list of names could prevent them. The virtual machine is the boundary.
    allowed_imports: Optional[FrozenSet[str]] = None

    def __post_init__(self) -> None:
        if self.timeout_seconds <= 0:
            raise ValueError("timeout_seconds must be more than 0")
        if self.allowed_imports is not None:
            object.__setattr__(self, "allowed_imports", frozenset(self.allowed_imports))

    def to_dict(self) -> Dict[str, Any]:
        """All settings, for a record. Only the names of the environment, because the values may be secrets."""
        allowed = None if self.allowed_imports is None else sorted(self.allowed_imports)
        return {**vars(self), "env": sorted(self.env), "allowed_imports": allowed}

    def advice(self, code: str) -> List[str]:
        """Remarks about the code, made before it runs."""
        if self.allowed_imports is None or self.language not in ("python", "py", "python3"):
            return []
        unwelcome = sorted(imported_modules(code) - self.allowed_imports)
        return [f"imports {name}, which is not among the allowed modules" for name in unwelcome]


def imported_modules(code: str) -> FrozenSet[str]:
    """The top-level modules that Python code imports. ``None`` if it cannot be parsed; running it shows the error."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return frozenset()
    return frozenset(name.partition(".")[0] for node in ast.walk(tree) for name in _names(node))


def _names(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module]
    return []


@dataclass(frozen=True)
class RunReport:
    """The result of one run of a pool."""

    stdout: str
    stderr: str
    #: ``None`` if it reached its timeout.
    exit_code: Optional[int]
    #: ``exited``, ``signalled``, ``timeout``, ``out_of_memory``, ``output_limit``, ``cpu_limit`` or ``disk_limit``.
    reason: str
    duration_ms: int
    sandbox_id: str
    advice: List[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def timed_out(self) -> bool:
        return self.reason == "timeout"

    @classmethod
    def of(cls, result: ExecResult, sandbox_id: str, advice: List[str]) -> RunReport:
        return cls(
            result.stdout, result.stderr, result.exit_code, result.reason, result.duration_ms, sandbox_id, advice
        )

    def to_dict(self) -> Dict[str, Any]:
        return {
            "stdout": self.stdout,
            "stderr": self.stderr,
            "exit_code": self.exit_code,
            "reason": self.reason,
            "advice": self.advice,
        }


@dataclass(frozen=True)
class PoolStatus:
    """The state of a pool."""

    #: How many machines should be ready.
    size: int
    ready: int
    #: How many are being created.
    warming: int
    #: How many are in use.
    busy: int
    #: How many were handed out since the start.
    served: int
    #: Why the last create failed; ``None`` after a success.
    last_error: Optional[str] = None
