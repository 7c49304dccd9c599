# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.
"""Checkpoints: where a sandbox can go back to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

from ..models import Checkpoint, Timeline

if TYPE_CHECKING:
    from .machine import Machine


class Checkpoints:
    """``sandbox.checkpoints``; see :meth:`Sandbox.rewind` and :meth:`Sandbox.diff` for what they are good for."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def list(self) -> Timeline:
        """All of them, oldest first; ``current`` is the one that the sandbox has come from."""
        return self._machine.timeline()

    def create(self, name: Optional[str] = None) -> Checkpoint:
        """Makes one of this moment; one with a name is kept."""
        return self._machine.checkpoint(name)

    def name(self, checkpoint: Union[int, str], name: Optional[str]) -> Checkpoint:
        """Gives one a name, which keeps it, or takes its name away."""
        return self._machine.name_checkpoint(checkpoint, name)
