"""What differs between the two clients and cannot be made from one source. Its twin is ``sandling._async.colour``."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Generator, List, Optional, Sequence, Set, TypeVar

T = TypeVar("T")

#: An iterator that can be closed.
Source = Generator[T, None, None]


class _Process:
    """Stands for this process where the other client has an event loop."""


_PROCESS = _Process()


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def in_thread(work: Callable[[], T]) -> T:
    return work()


def run_all(work: Sequence[Callable[[], T]], limit: int) -> List[T]:
    """Does all of it, at most ``limit`` at once, and gives the results in order."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=max(1, min(limit, len(work)))) as threads:
        return list(threads.map(lambda task: task(), work))


def spawn(work: Callable[[], None], running: Set[Any]) -> None:
    """Does it beside everything else. Until it is done it is in ``running``, so that it is not forgotten."""

    def run() -> None:
        try:
            work()
        finally:
            running.discard(thread)

    thread = threading.Thread(target=run, name="sandling", daemon=True)
    running.add(thread)
    thread.start()


def finish(running: Set[Any]) -> None:
    """Waits for all that runs beside."""
    for thread in list(running):
        thread.join()


def condition() -> threading.Condition:
    return threading.Condition()


def wait_for(news: threading.Condition, timeout: Optional[float]) -> bool:
    """Waits until the condition, which is held, is notified. False if that takes too long."""
    return news.wait(timeout)


def settle(value: Any) -> Any:
    return value


def scope() -> Any:
    return _PROCESS


class Opening:
    """Something that is made by its constructor and then opened: here at once."""

    def _open(self) -> None:
        raise NotImplementedError

    def _begin(self) -> None:
        self._open()
