"""A project goes in as a tar, is worked on, and comes back as one."""

import io
import tarfile
import tempfile
from pathlib import Path

from sandling import Sandbox

with tempfile.TemporaryDirectory() as scratch, Sandbox(template="base", ttl_seconds=300) as sb:
    packed, changed = Path(scratch) / "project.tar.gz", Path(scratch) / "changed.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        for name, text in {"src/add.py": "def add(a, b):\n    return a - b\n", "grüße.txt": "hallo\n"}.items():
            about = tarfile.TarInfo(name)
            about.size = len(text.encode())
            tar.addfile(about, io.BytesIO(text.encode()))
    sb.filesystem.upload(packed, "/workspace/project.tar.gz")
    sb.run("tar -xzf project.tar.gz && rm project.tar.gz", cwd="/workspace", check=True)
    sb.run("sed -i 's/a - b/a + b/' src/add.py", cwd="/workspace", check=True)
    sb.run("tar -czf /tmp/changed.tar.gz .", cwd="/workspace", check=True)
    sb.filesystem.download("/tmp/changed.tar.gz", changed)
    with tarfile.open(changed) as tar:
        mended = tar.extractfile("./src/add.py")
        assert mended is not None and mended.read() == b"def add(a, b):\n    return a + b\n"
        assert "./grüße.txt" in tar.getnames()
