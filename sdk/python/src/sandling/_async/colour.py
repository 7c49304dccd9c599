"""The parts that differ between the clients and are not generated. The counterpart is ``sandling._sync.colour``."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from secrets import token_hex
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    List,
    Optional,
    Sequence,
    Set,
    TypeVar,
)

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
S = TypeVar("S", bound="Opening")

#: An iterator that can be closed.
Source = AsyncGenerator[T, None]


#: How long a cancelled command may take to end.
UNDO_WITHIN = 5.0
_undoing: Set[Any] = set()


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def in_thread(work: Callable[[], T]) -> T:
    """Runs a blocking function in a thread."""
    return await asyncio.to_thread(work)


async def within(work: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Awaits a result.

    :raises TimeoutError: it takes too long.
    """
    try:
        return await asyncio.wait_for(work(), max(seconds, 0))
    except asyncio.TimeoutError as late:
        raise TimeoutError from late


def id_to_cancel() -> Optional[str]:
    """An ID for a command that may be cancelled."""
    return token_hex(16)


async def or_undone(work: Callable[[], Awaitable[T]], undo: Callable[[], Awaitable[Any]]) -> T:
    """Awaits a result. A cancellation undoes it; a second cancellation does not wait for that."""
    try:
        return await work()
    except asyncio.CancelledError:

        async def undone() -> None:
            # The caller gets its cancellation, also if the undo fails.
            with suppress(Exception):
                await asyncio.wait_for(undo(), UNDO_WITHIN)

        task = asyncio.ensure_future(undone())
        _undoing.add(task)
        task.add_done_callback(_undoing.discard)
        await asyncio.shield(task)
        raise


async def each_within(source: Any, left: Callable[[], float]) -> AsyncGenerator[Any, None]:
    """Yields items until the time is over.

    :raises TimeoutError: no time is left.
    """
    steps = source.__aiter__()
    while True:
        try:
            item = await within(steps.__anext__, left())
        except StopAsyncIteration:
            return
        yield item


async def run_all(work: Sequence[Callable[[], Awaitable[T]]], limit: int) -> List[T]:
    """Runs everything, at most ``limit`` in parallel, and returns the results in order."""
    places = asyncio.Semaphore(limit)

    async def one(task: Callable[[], Awaitable[T]]) -> T:
        async with places:
            return await task()

    return await asyncio.gather(*(one(task) for task in work))


def spawn(work: Callable[[], Coroutine[Any, Any, None]], running: Set[Any]) -> None:
    """Runs a task in the background. ``running`` refers to it until it ends, so that it is not garbage-collected."""
    task = asyncio.ensure_future(work())
    running.add(task)
    task.add_done_callback(running.discard)


async def finish(running: Set[Any]) -> None:
    """Waits for all background tasks."""
    await asyncio.gather(*running)


class Lock:
    """A lock. Before Python 3.10, asyncio's own lock belongs to the event loop in which it is created."""

    _lock: Optional[asyncio.Lock] = None

    async def __aenter__(self) -> None:
        if self._lock is None:
            self._lock = asyncio.Lock()
        await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        assert self._lock is not None, "it was entered"
        self._lock.release()


def condition() -> asyncio.Condition:
    return asyncio.Condition()


async def wait_for(news: asyncio.Condition, timeout: Optional[float]) -> bool:
    """Waits until a condition that is held is notified. False if it takes too long."""
    try:
        await asyncio.wait_for(news.wait(), timeout)
    except asyncio.TimeoutError:
        return False
    return True


async def settle(value: Any) -> Any:
    """The return value of a caller's function, awaited if necessary."""
    return await value if hasattr(value, "__await__") else value


def scope() -> Any:
    """The owner of a default client: the event loop, which its connections cannot leave."""
    return asyncio.get_running_loop()


def is_over(owner: Any) -> bool:
    """Whether a default client's event loop is closed."""
    return bool(owner.is_closed())


def leave(pool: Any) -> None:
    """Closes the connections of a closed loop. Those to other machines can only be dropped."""
    from ..loopback import LoopbackTransport

    if isinstance(pool, LoopbackTransport):
        pool.leave()


def to_loopback(limits: httpx.Limits, socket_options: List[Any]) -> httpx.AsyncBaseTransport:
    """The transport to a server on this machine without TLS."""
    from ..loopback import LoopbackTransport

    return LoopbackTransport(limits, socket_options)


class Opening:
    """An object that is opened after its construction: here by ``await`` or ``async with``."""

    async def _open(self) -> None:
        raise NotImplementedError

    def _begin(self) -> None:
        pass

    def __await__(self: S) -> Generator[Any, None, S]:
        yield from self._open().__await__()
        return self
