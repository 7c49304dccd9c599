# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.
"""A pool of pre-warmed machines. Every user gets a fresh one."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Deque, Optional, Set

from ..audit import AuditLog, AuditRecord
from ..errors import (
    CapacityError,
    ConnectionError,
    CreateCancelled,
    LimitError,
    NotFoundError,
    SandboxTimeout,
    SandlingError,
    ServerError,
)
from ..execution import ExecutionConfig, PoolStatus, RunReport
from ..options import DEFAULT_TEMPLATE, CreateOptions, ExecOptions
from .colour import condition, finish, settle, sleep, spawn, wait_for
from .recording import recorded
from .sandbox import Sandbox

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Type

    from typing_extensions import Unpack

    from .client import Client

TTL_SECONDS = 3600
#: The pause after a failure. It doubles each time.
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
#: How often to check for the end of a pause.
_GLANCE = 0.1


class SandboxPool:
    """Holds ``size`` machines ready. A machine that comes back is ended, and nobody gets it again.

    :param prepare: is called with every machine before it is ready, for example to install packages.
    :param max_busy: how many machines may be in use at once; further calls wait.
    :param options: as for :meth:`Sandbox.create`. A machine lives for ``ttl_seconds`` (an hour by default) in the pool,
        and as long again after it is handed out, even if this process dies.
    """

    def __init__(
        self,
        size: int = 2,
        template: str = DEFAULT_TEMPLATE,
        *,
        config: Optional[ExecutionConfig] = None,
        audit: Optional[AuditLog] = None,
        prepare: Optional[Callable[[Sandbox], Any]] = None,
        max_busy: Optional[int] = None,
        client: Optional[Client] = None,
        **options: Unpack[CreateOptions],
    ) -> None:
        if size < 0:
            raise ValueError("size must not be less than 0")
        self.config = config or ExecutionConfig()
        if self.config.memory_mb is not None:
            options.setdefault("memory_mb", self.config.memory_mb)
        self._size, self._max_busy, self._ttl = size, max_busy, options.get("ttl_seconds") or TTL_SECONDS
        self._template, self._options, self._client = template, options, client
        self._prepare, self._audit = prepare, audit
        self._ready: Deque[Sandbox] = deque()
        self._running: Set[Any] = set()
        self._warming = self._busy = self._served = 0
        self._pause = _FIRST_PAUSE
        self._last_error: Optional[Exception] = None
        self._open = False
        self._news: Any = None

    def start(self) -> None:
        """Starts to create machines."""
        if self._news is None:
            self._news = condition()
        with self._news:
            self._open = True
            self._fill()

    def close(self) -> None:
        """Ends the ready machines and hands out no more. Users end the machines that they have."""
        if self._news is None:
            return
        with self._news:
            self._open = False
            self._news.notify_all()
        finish(self._running)
        while self._ready:
            self._end(self._ready.popleft())

    def __enter__(self) -> SandboxPool:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def status(self) -> PoolStatus:
        error = None if self._last_error is None else str(self._last_error)
        return PoolStatus(self._size, len(self._ready), self._warming, self._busy, self._served, error)

    def lease(self, timeout: Optional[float] = None, *, actor: Optional[str] = None) -> Lease:
        """A fresh machine for a ``with`` block, which ends it."""
        return Lease(self, lambda: self.acquire(timeout, actor=actor))

    def acquire(self, timeout: Optional[float] = None, *, actor: Optional[str] = None) -> Sandbox:
        """A fresh machine. Give it back with :meth:`release`.

        The pool's audit log records all requests to it and to its copies, with ``actor`` as the user.

        :raises CapacityError: no machine was ready within ``timeout`` seconds.
        """
        sandbox = self._acquire(timeout)
        if self._audit is not None:
            sandbox._client = recorded(sandbox.client, self._audit, actor)
        return sandbox

    def _acquire(self, timeout: Optional[float]) -> Sandbox:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            sandbox = self._take(deadline)
            try:
                sandbox.set_ttl(self._ttl)
                return sandbox
            except NotFoundError:
                # It waited in the pool until its TTL ended it.
                self._returned()
            except BaseException:
                self.release(sandbox)
                raise

    def release(self, sandbox: Sandbox) -> None:
        """Ends a machine that :meth:`acquire` returned."""
        try:
            self._end(sandbox)
        finally:
            self._returned()

    def run(self, code: str, *, config: Optional[ExecutionConfig] = None, actor: Optional[str] = None) -> RunReport:
        """Runs code in a fresh machine and ends the machine. ``actor`` is the user in the audit log.

        If ``config`` asks for another memory size than the pool's machines have, a new machine is created.
        """
        config = config or self.config
        asked = {"code": code, **config.to_dict(), "memory_mb": config.memory_mb or self._options.get("memory_mb")}
        record = AuditRecord("run", asked, actor=actor)
        try:
            with Lease(self, lambda: self._acquire_for(config)) as sandbox:
                record.sandbox_id = sandbox.id
                report = self._execute(sandbox, code, config)
        except BaseException as error:
            record.outcome, record.output = "error", {"error": str(error) or type(error).__name__}
            raise
        else:
            record.outcome = "timeout" if report.timed_out else "ok" if report.ok else "failed"
            record.output, record.duration_ms = report.to_dict(), report.duration_ms
            return report
        finally:
            if self._audit is not None:
                self._audit.write(record)

    def _acquire_for(self, config: ExecutionConfig) -> Sandbox:
        if config.memory_mb is None or config.memory_mb == self._options.get("memory_mb"):
            return self._acquire(None)
        return self._acquire_sized(config.memory_mb)

    def _acquire_sized(self, memory_mb: int) -> Sandbox:
        """Creates a machine for one caller. It counts as in use."""
        self._must_be_started()
        with self._news:
            while self._open and self._max_busy is not None and self._busy >= self._max_busy:
                wait_for(self._news, None)
            self._must_be_open()
            self._busy += 1
            self._served += 1
        try:
            return self._make(memory_mb)
        except BaseException:
            self._returned()
            raise

    def _execute(self, sandbox: Sandbox, code: str, config: ExecutionConfig) -> RunReport:
        advice = config.advice(code)
        started = time.monotonic()
        try:
            options: ExecOptions = {
                "env": config.env or None,
                "user": config.user,
                "output_limit": config.output_limit,
                "cpu_seconds": config.cpu_seconds,
                "disk_limit_mb": config.disk_limit_mb,
            }
            result = sandbox._run_script(code, config.language, config.timeout_seconds, options)
        except SandboxTimeout as late:
            took = round((time.monotonic() - started) * 1000)
            return RunReport(late.stdout, late.stderr, None, "timeout", took, sandbox.id, advice)
        return RunReport.of(result, sandbox.id, advice)

    def _take(self, deadline: Optional[float]) -> Sandbox:
        self._must_be_started()
        with self._news:
            while True:
                self._must_be_open()
                if self._ready and (self._max_busy is None or self._busy < self._max_busy):
                    self._busy += 1
                    self._served += 1
                    sandbox = self._ready.popleft()
                    self._fill()
                    return sandbox
                if self._last_error is not None and _is_final(self._last_error):
                    raise self._last_error
                # A pool of size 0 creates a machine for each waiting caller.
                self._fill(least=1)
                left = None if deadline is None else deadline - time.monotonic()
                if (left is not None and left <= 0) or not wait_for(self._news, left):
                    raise CapacityError("no machine became ready in time") from self._last_error

    def _must_be_started(self) -> None:
        if self._news is None:
            raise RuntimeError("the pool was not started: call start(), or enter its `with` block")

    def _must_be_open(self) -> None:
        if not self._open:
            raise RuntimeError("the pool is closed")

    def _returned(self) -> None:
        with self._news:
            self._busy -= 1
            self._news.notify_all()

    def _fill(self, least: int = 0) -> None:
        """Starts enough creates to fill the pool. The caller holds the condition."""
        while self._open and len(self._ready) + self._warming < max(self._size, least):
            self._warming += 1
            spawn(self._warm, self._running)

    def _warm(self) -> None:
        """Creates one machine, with retries, while the pool is open."""
        sandbox = None
        while sandbox is None and self._open:
            try:
                sandbox = self._make()
                self._last_error, self._pause = None, _FIRST_PAUSE
            except Exception as error:
                # Includes errors of the caller's ``prepare``. Callers that wait for a machine get them.
                self._failed(error)
        with self._news:
            self._warming -= 1
            if sandbox is not None:
                self._ready.append(sandbox)
            self._news.notify_all()

    def _failed(self, error: Exception) -> None:
        with self._news:
            self._last_error = error
            self._news.notify_all()
        self._rest()

    def _make(self, memory_mb: Optional[int] = None) -> Sandbox:
        options: CreateOptions = {**self._options, "ttl_seconds": self._ttl, "cancel": _Closing(self)}
        if memory_mb is not None:
            options["memory_mb"] = memory_mb
        sandbox = Sandbox.create(self._template, client=self._client, **options)
        try:
            if self._prepare is not None:
                settle(self._prepare(sandbox))
        except BaseException:
            self._end(sandbox)
            raise
        return sandbox

    def _rest(self) -> None:
        until, self._pause = time.monotonic() + self._pause, min(self._pause * 2, _LONGEST_PAUSE)
        while self._open and time.monotonic() < until:
            sleep(_GLANCE)

    def _end(self, sandbox: Sandbox) -> None:
        """Ends a machine. If that fails, its TTL ends it."""
        with suppress(SandlingError):
            sandbox.kill()


class _Closing:
    """Cancels a create that waits for capacity when the pool closes."""

    def __init__(self, pool: SandboxPool) -> None:
        self._pool = pool

    def is_set(self) -> bool:
        return not self._pool._open


def _is_final(error: Exception) -> bool:
    """Whether a retry cannot help, because the caller has to change something."""
    return not isinstance(error, (ConnectionError, ServerError, LimitError, CreateCancelled))


class Lease:
    """A machine of a pool for one ``with`` block."""

    def __init__(self, pool: SandboxPool, take: Callable[[], Any]) -> None:
        self._pool = pool
        self._take_one = take
        self._sandbox: Optional[Sandbox] = None

    def __enter__(self) -> Sandbox:
        sandbox: Sandbox = self._take_one()
        self._sandbox = sandbox
        return sandbox

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._sandbox is not None:
            self._pool.release(self._sandbox)
