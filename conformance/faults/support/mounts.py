"""Mounts that nobody else sees: only to be used in a mount namespace of one's own."""

import subprocess


class Mounts:
    def __init__(self):
        self.targets = []

    def small_disk(self, target, mebibytes):
        """A file system that is soon full."""
        target.mkdir(parents=True, exist_ok=True)
        self._mount(target, "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs")

    def instead(self, target, file):
        """Shows another file in the place of one."""
        self._mount(target, "--bind", file)

    def _mount(self, target, *arguments):
        subprocess.run(["mount", *map(str, arguments), str(target)], check=True)
        self.targets.append(target)

    def undo(self):
        while self.targets:
            subprocess.run(["umount", "--lazy", str(self.targets.pop())], check=True)
