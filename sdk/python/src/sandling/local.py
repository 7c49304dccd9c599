"""The local server, which all processes of a user share.

A running server writes its address to the file ``server`` of its home and holds a lock on the file until it has ended.
While it shuts down, the file is empty. If there is no server, the first process that needs one starts it, detached, and
the others find it. A process holds ``local-server.lock`` while it searches or starts, and ``local-server.json`` names
the process that was started. The TypeScript SDK uses the same files in the same way. A server that an SDK started runs
until :func:`stop` or until the host shuts down. Its sandboxes end at their TTL.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

from . import config
from .config import Endpoint
from .errors import ConfigError

START_WITHIN = 120.0
STOP_WITHIN = 60.0
#: How long to wait for a server that somebody else restarts.
BACK_WITHIN = 5.0
_POLL = 0.05
#: Servers that this process started. A :class:`subprocess.Popen` that is garbage-collected would warn.
_started: List[subprocess.Popen[bytes]] = []


def ensure(gone: Optional[str] = None) -> Endpoint:
    """Finds the local server, or starts it. ``gone`` is the endpoint of a server that no longer answers.

    A server owns its sandboxes until it has ended, and its owner may restart it. A server that starts in between would
    either have no sandboxes or take them away.
    """
    home = config.home()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(home):
        if gone is not None and (_read(home) or {}).get("url") != gone:
            _wait(lambda: _said(home), BACK_WITHIN)
        _wait(lambda: _said(home) != "", STOP_WITHIN)
        url = _said(home) or _started_before(home) or _start(home)
    token = config.home_token()
    if token is None:
        raise ConfigError(f"the local server left no token in {home}")
    return Endpoint(url, token)


def stop() -> bool:
    """Stops the server that an SDK started. False if there is none. Its sandboxes keep running for the next server.

    The file that names its process stays, so that clients of the old server know that nobody else will restart it.
    """
    home = config.home()
    if not home.is_dir():
        return False
    with _locked(home):
        state = _read(home)
        if not state or not _is_alive(state):
            return False
        pid = int(state["pid"])
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_WITHIN
        while _is_alive(state):
            _reap()
            if time.monotonic() > deadline:
                raise ConfigError(f"the local server (process {pid}) did not stop; kill it and try again")
            time.sleep(_POLL)
    return True


def _private(path: str, flags: int) -> int:
    """Opens a file that only its owner can read."""
    return os.open(path, flags, 0o600)


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    with open(home / "local-server.lock", "a+b", opener=_private) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _wait(done: Callable[[], Any], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not done() and time.monotonic() < until:
        time.sleep(_POLL)


def _said(home: Path) -> Optional[str]:
    """The address of the running server; empty while it shuts down, ``None`` if there is no server."""
    try:
        with open(home / "server") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read().strip()
    except FileNotFoundError:
        pass
    # Nobody holds the lock: the server is dead, and another program may use its port.
    return None


def _started_before(home: Path) -> Optional[str]:
    state = _read(home)
    return str(state["url"]) if state and _is_alive(state) else None


def _read(home: Path) -> Optional[Dict[str, Any]]:
    try:
        state = json.loads((home / "local-server.json").read_text())
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) and {"url", "pid", "born"} <= state.keys() else None


def _is_alive(state: Dict[str, Any]) -> bool:
    """Whether the recorded process still runs, and not another one with the same ID."""
    _reap()
    return _born(int(state["pid"])) == str(state["born"])


def _born(pid: int) -> Optional[str]:
    """The start time of a process in the kernel's units; ``None`` if there is no process or it is a zombie."""
    try:
        # The name in parentheses may contain spaces and parentheses, so count from its end.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _reap() -> None:
    for server in _started:
        server.poll()


def _start(home: Path) -> str:
    log = home / "local-server.log"
    environment = {name: value for name, value in os.environ.items() if name != config.TOKEN_VARIABLE}
    environment[config.HOME_VARIABLE] = str(home)
    with open(log, "wb", opener=_private) as output:
        server = subprocess.Popen(
            [binary(), "serve", "--listen", "127.0.0.1:0"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=home,
            start_new_session=True,
        )
    _started.append(server)
    url = _address(server, log)
    state = {"url": url, "pid": server.pid, "born": _born(server.pid)}
    unfinished = home / f"local-server.json.{os.getpid()}"
    with open(unfinished, "w", opener=_private) as file:
        file.write(json.dumps(state))
    unfinished.replace(home / "local-server.json")
    return url


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_WITHIN
    while time.monotonic() < deadline:
        ended = server.poll() is not None
        printed = log.read_text(errors="replace")
        found = re.search(r"listens on (http://\S+)\n", printed)
        if found:
            return found.group(1)
        if ended:
            raise ConfigError(f"the local server exited during its start: {printed.strip() or 'it printed nothing'}")
        time.sleep(_POLL)
    server.kill()
    raise ConfigError(f"the local server did not start within {START_WITHIN:.0f} s; see {log}")


def binary() -> str:
    """The path of ``sandling``: on the ``PATH``, or next to this Python, also if its environment is not activated."""
    named = os.environ.get(config.BINARY_VARIABLE)
    found = shutil.which(named or "sandling")
    if not found and not named:
        found = shutil.which("sandling", path=os.path.dirname(sys.executable))
    if found:
        return os.path.abspath(found)
    if named:
        raise ConfigError(f"{config.BINARY_VARIABLE} names {named}, which is not an executable file")
    raise ConfigError(
        f"there is no server: set {config.API_VARIABLE} to one, put `sandling` on the PATH or beside this Python so "
        f"that one can be started, or name it in {config.BINARY_VARIABLE}"
    )
