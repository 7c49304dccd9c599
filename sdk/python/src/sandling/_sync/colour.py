"""The parts that differ between the clients and are not generated. The counterpart is ``sandling._async.colour``."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Generator, List, Optional, Sequence, Set, TypeVar

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

#: An iterator that can be closed.
Source = Generator[T, None, None]


class _Process:
    """The owner of a default client, where the async client has an event loop."""


_PROCESS = _Process()


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def in_thread(work: Callable[[], T]) -> T:
    return work()


def within(work: Callable[[], T], seconds: float) -> T:
    """Runs a function in a thread, because a read that gets a byte now and then never times out.

    :raises TimeoutError: it takes too long; the thread is abandoned.
    """
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except BaseException as error:
            done.put((None, error))

    threading.Thread(target=run, name="sandling", daemon=True).start()
    value, error = _next(done, seconds)
    if error is not None:
        raise error
    result: T = value
    return result


def id_to_cancel() -> Optional[str]:
    """``None``: blocking commands cannot be cancelled."""
    return None


def or_undone(work: Callable[[], T], undo: Callable[[], Any]) -> T:
    return work()


def each_within(source: Any, left: Callable[[], float]) -> Generator[Any, None, None]:
    """Yields items until the time is over.

    :raises TimeoutError: no time is left.
    """
    come: queue.SimpleQueue[Any] = queue.SimpleQueue()
    unwanted = threading.Event()

    def run() -> None:
        try:
            for item in source:
                if unwanted.is_set():
                    return
                come.put((item, None))
            come.put((None, _END))
        except BaseException as error:
            come.put((None, error))

    threading.Thread(target=run, name="sandling", daemon=True).start()
    try:
        while True:
            item, error = _next(come, left())
            if error is _END:
                return
            if error is not None:
                raise error
            yield item
    finally:
        unwanted.set()


_END = StopIteration()


def _next(come: queue.SimpleQueue[Any], seconds: float) -> Any:
    try:
        return come.get(timeout=max(seconds, 0))
    except queue.Empty as late:
        raise TimeoutError from late


def run_all(work: Sequence[Callable[[], T]], limit: int) -> List[T]:
    """Runs everything, at most ``limit`` in parallel, and returns the results in order."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=max(1, min(limit, len(work)))) as threads:
        return list(threads.map(lambda task: task(), work))


def spawn(work: Callable[[], None], running: Set[Any]) -> None:
    """Runs a function in the background. ``running`` refers to it until it ends."""

    def run() -> None:
        try:
            work()
        finally:
            running.discard(thread)

    thread = threading.Thread(target=run, name="sandling", daemon=True)
    running.add(thread)
    thread.start()


def finish(running: Set[Any]) -> None:
    """Waits for all background functions."""
    for thread in list(running):
        thread.join()


Lock = threading.Lock


def condition() -> threading.Condition:
    return threading.Condition()


def wait_for(news: threading.Condition, timeout: Optional[float]) -> bool:
    """Waits until a condition that is held is notified. False if it takes too long."""
    return news.wait(timeout)


def settle(value: Any) -> Any:
    return value


def scope() -> Any:
    return _PROCESS


def is_over(owner: Any) -> bool:
    return False


def leave(pool: Any) -> None:
    pass


def to_loopback(limits: httpx.Limits, socket_options: List[Any]) -> httpx.BaseTransport:
    """The transport to a server on this machine without TLS."""
    import httpx

    return httpx.HTTPTransport(verify=False, limits=limits, socket_options=socket_options, trust_env=False)


class Opening:
    """An object that is opened after its construction: here at once."""

    def _open(self) -> None:
        raise NotImplementedError

    def _begin(self) -> None:
        self._open()
