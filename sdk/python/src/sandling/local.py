"""A server of this user's own, shared by all of their processes.

A server that somebody started says in the file ``server`` of its home where it listens, and holds that file's lock
until it has ended; while it ends, the file is empty. If there is none, the first who needs one starts it, detached;
the others find it. ``local-server.lock`` is held while one looks or starts, and ``local-server.json`` says which
process was started. The TypeScript SDK does the same with the same files. A server that was started so stays until
:func:`stop`, or until the machine is shut down; its sandboxes end by their own time to live.
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
#: A server that somebody restarts is back by then.
BACK_WITHIN = 5.0
_POLL = 0.05
#: Servers that this process started. Kept, because a :class:`subprocess.Popen` that is dropped warns.
_started: List[subprocess.Popen[bytes]] = []


def ensure(gone: Optional[str] = None) -> Endpoint:
    """The local server, started if there is none; with ``gone``, now that nobody listens there any more.

    A server that ends has its sandboxes until it has ended, and whoever ran it may run it again: another that comes in
    between would have none, or keep them from it.
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
    """Ends the server that an SDK started. False if there is none. Its sandboxes go on; the next one has them.

    What says which it was stays, so that whoever misses it knows that nobody else will run it again.
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
                raise ConfigError(f"the local server (process {pid}) does not end")
            time.sleep(_POLL)
    return True


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    with open(home / "local-server.lock", "a+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _wait(done: Callable[[], Any], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not done() and time.monotonic() < until:
        time.sleep(_POLL)


def _said(home: Path) -> Optional[str]:
    """Where a server listens; empty while it ends, and nothing if there is none."""
    try:
        with open(home / "server") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read().strip()
    except FileNotFoundError:
        pass
    # Nobody holds it: its server is dead, and the port may be somebody else's by now.
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
    """Whether the process that wrote down its address still runs: not only one of the same number."""
    _reap()
    return _born(int(state["pid"])) == str(state["born"])


def _born(pid: int) -> Optional[str]:
    """When a process started, in the kernel's words; nothing if there is none or it only waits to be buried."""
    try:
        # The name in parentheses may hold anything, so count from its end.
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
    with open(log, "wb") as output:
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
    unfinished.write_text(json.dumps(state))
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
            raise ConfigError(f"the local server ended at its start: {printed.strip() or 'it said nothing'}")
        time.sleep(_POLL)
    server.kill()
    raise ConfigError(f"the local server did not say where it listens within {START_WITHIN:.0f} s; see {log}")


def binary() -> str:
    """The path of ``sandling``: on the ``PATH``, or beside this Python, whose environment need not be activated."""
    named = os.environ.get(config.BINARY_VARIABLE)
    found = shutil.which(named or "sandling")
    if not found and not named:
        found = shutil.which("sandling", path=os.path.dirname(sys.executable))
    if found:
        return os.path.abspath(found)
    if named:
        raise ConfigError(f"{config.BINARY_VARIABLE} names {named}, which cannot be run")
    raise ConfigError(
        f"there is no server: set {config.API_VARIABLE} to one, put `sandling` on the PATH or beside this Python so "
        f"that one can be started, or name it in {config.BINARY_VARIABLE}"
    )
