"""Checkpoints: saved moments that a sandbox can go back to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

from ..models import Checkpoint, Timeline

if TYPE_CHECKING:
    from .machine import AsyncMachine


class AsyncCheckpoints:
    """``sandbox.checkpoints``; use them with :meth:`Sandbox.rewind` and :meth:`Sandbox.diff`."""

    def __init__(self, machine: AsyncMachine) -> None:
        self._machine = machine

    async def list(self) -> Timeline:
        """All checkpoints, oldest first. ``current`` is the one that the sandbox came from."""
        return await self._machine.timeline()

    async def create(self, name: Optional[str] = None) -> Checkpoint:
        """Makes a checkpoint now. One with a name is kept."""
        return await self._machine.checkpoint(name)

    async def name(self, checkpoint: Union[int, str], name: Optional[str]) -> Checkpoint:
        """Names a checkpoint, which keeps it, or removes its name."""
        return await self._machine.name_checkpoint(checkpoint, name)
