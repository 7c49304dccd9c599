"""Checkpoints: where a sandbox can go back to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

from ..models import Checkpoint, Timeline

if TYPE_CHECKING:
    from .machine import AsyncMachine


class AsyncCheckpoints:
    """``sandbox.checkpoints``; see :meth:`Sandbox.rewind` and :meth:`Sandbox.diff` for what they are good for."""

    def __init__(self, machine: AsyncMachine) -> None:
        self._machine = machine

    async def list(self) -> Timeline:
        """All of them, oldest first; ``current`` is the one that the sandbox has come from."""
        return await self._machine.timeline()

    async def create(self, name: Optional[str] = None) -> Checkpoint:
        """Makes one of this moment; one with a name is kept."""
        return await self._machine.checkpoint(name)

    async def name(self, checkpoint: Union[int, str], name: Optional[str]) -> Checkpoint:
        """Gives one a name, which keeps it, or takes its name away."""
        return await self._machine.name_checkpoint(checkpoint, name)
