"""Commands of an agent that run longer than one call, with or without a terminal."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Deque, Dict, Optional

from agents.sandbox.session.pty_output import collect_pty_output
from agents.sandbox.session.pty_types import (
    PTY_PROCESSES_MAX,
    PtyExecUpdate,
    allocate_pty_process_id,
    clamp_pty_yield_time_ms,
    process_id_to_prune_from_meta,
    resolve_pty_write_yield_time_ms,
)

from .._async.sandbox import AsyncSandbox
from .._async.session import AsyncExecSession
from ..errors import SandlingError

SIZE = {"rows": 24, "cols": 80}
#: Output is passed on and not collected, so it needs no limit.
NO_LIMIT = 1 << 62
#: How long a call waits for output by default, in milliseconds: of a new command, and after input.
FIRST_WAIT = 10_000
NEXT_WAIT = 250
#: The exit code of a command whose connection was lost.
LOST = -1


@dataclass
class Terminal:
    """One command, and its output that the agent has not seen."""

    session: AsyncExecSession
    tty: bool
    chunks: Deque[bytes] = field(default_factory=deque)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    exit_code: Optional[int] = None
    used_at: float = field(default_factory=time.monotonic)
    reader: Optional[asyncio.Task[None]] = None

    def has_ended(self) -> bool:
        return self.exit_code is not None

    async def read_all(self) -> None:
        try:
            async for _, output in self.session:
                self.chunks.append(output)
                self.news.set()
            self.exit_code = self.session.exit_code
        except SandlingError as error:
            self.chunks.append(str(error).encode())
            self.exit_code = LOST
        self.news.set()

    async def end(self) -> None:
        """Ends the command. A sandbox that is gone has ended it already."""
        if not self.has_ended():
            with suppress(SandlingError):
                await self.session.kill()
        if self.reader is not None:
            self.reader.cancel()
            await asyncio.gather(self.reader, return_exceptions=True)


class Terminals:
    """The commands of a session."""

    def __init__(self) -> None:
        self.running: Dict[int, Terminal] = {}

    async def open(self, sandbox: AsyncSandbox, body: Dict[str, Any], *, tty: bool) -> int:
        """Starts a command, and returns its number."""
        start: Dict[str, Any] = {"run": {**body, "output_limit": NO_LIMIT}}
        start.update({"terminal": SIZE} if tty else {"closed_stdin": True})
        terminal = Terminal(AsyncExecSession(sandbox, start), tty)
        await terminal.session.open()
        terminal.reader = asyncio.create_task(terminal.read_all())
        await self._make_room()
        number: int = allocate_pty_process_id(set(self.running))
        self.running[number] = terminal
        return number

    async def write(self, number: int, text: str) -> None:
        if not text:
            return
        terminal = self.running[number]
        if not terminal.tty:
            raise RuntimeError("stdin is not available for this process")
        await terminal.session.write(text.encode())

    async def update(
        self, number: int, wait_s: Optional[float], most_tokens: Optional[int], *, typed: Optional[str] = None
    ) -> PtyExecUpdate:
        """Waits for output. ``typed`` is what was written before; ``None`` for a new command."""
        terminal = self.running[number]
        default = FIRST_WAIT if typed is None else NEXT_WAIT
        wanted = default if wait_s is None else int(wait_s * 1000)
        if typed is None:
            wait = clamp_pty_yield_time_ms(wanted)
        else:
            wait = resolve_pty_write_yield_time_ms(yield_time_ms=wanted, input_empty=typed == "")
        output, tokens, is_over = await collect_pty_output(
            output_chunks=terminal.chunks,
            output_lock=terminal.lock,
            output_notify=terminal.news,
            is_done=terminal.has_ended,
            yield_time_ms=wait,
            max_output_tokens=most_tokens,
        )
        terminal.used_at = time.monotonic()
        if is_over:
            self.running.pop(number, None)
        return PtyExecUpdate(
            process_id=None if is_over else number,
            output=output,
            exit_code=terminal.exit_code if is_over else None,
            original_token_count=tokens,
        )

    async def close(self) -> None:
        """Ends all commands."""
        ending, self.running = list(self.running.values()), {}
        for terminal in ending:
            await terminal.end()

    async def _make_room(self) -> None:
        if len(self.running) < PTY_PROCESSES_MAX:
            return
        oldest = process_id_to_prune_from_meta(
            [(number, terminal.used_at, terminal.has_ended()) for number, terminal in self.running.items()]
        )
        if oldest is not None:
            await self.running.pop(oldest).end()
