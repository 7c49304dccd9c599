"""Private mounts. Use them only in a private mount namespace."""

import subprocess


class Mounts:
    def __init__(self):
        self.targets = []

    def small_disk(self, target, mebibytes):
        """Mounts a small file system."""
        target.mkdir(parents=True, exist_ok=True)
        self._mount(target, "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs")

    def instead(self, target, file):
        """Mounts one file over another."""
        self._mount(target, "--bind", file)

    def _mount(self, target, *arguments):
        subprocess.run(["mount", *map(str, arguments), str(target)], check=True)
        self.targets.append(target)

    def undo(self):
        while self.targets:
            subprocess.run(["umount", "--lazy", str(self.targets.pop())], check=True)
