# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.
"""Checkpoints: saved moments that a sandbox can go back to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

from ..models import Checkpoint, Timeline

if TYPE_CHECKING:
    from .machine import Machine


class Checkpoints:
    """``sandbox.checkpoints``; use them with :meth:`Sandbox.rewind` and :meth:`Sandbox.diff`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def list(self) -> Timeline:
        """All checkpoints, oldest first. ``current`` is the one that the sandbox came from."""
        return self._machine.timeline()

    def create(self, name: Optional[str] = None) -> Checkpoint:
        """Makes a checkpoint now. One with a name is kept."""
        return self._machine.checkpoint(name)

    def name(self, checkpoint: Union[int, str], name: Optional[str]) -> Checkpoint:
        """Names a checkpoint, which keeps it, or removes its name."""
        return self._machine.name_checkpoint(checkpoint, name)
