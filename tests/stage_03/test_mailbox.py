"""The return address: from any thread to one coroutine, awake, in order and bounded."""

import asyncio
import selectors
import threading
from collections.abc import Iterator
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import pytest

from tests.serving import Stage

stage = Stage("03_continuous_streaming")


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop on a thread of its own, with nothing else to do."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)
    loop.close()


class Sleeper(selectors.DefaultSelector):
    """Says when its loop has nothing left to do, and sleeps until it is woken."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep = threading.Event()

    def select(self, timeout: float | None = None) -> Any:
        if events := super().select(0):
            return events
        if timeout is None:
            self.asleep.set()
        return super().select(timeout)


def test_a_post_from_a_thread_wakes_the_reader(parts: Any, patience: float) -> None:
    sleeper = Sleeper()
    loop = asyncio.SelectorEventLoop(sleeper)
    mailbox = parts.mailbox(loop)
    reading = asyncio.run_coroutine_threadsafe(mailbox.get(), loop)  # the last that wakes the loop: it starts later
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    assert sleeper.asleep.wait(30)
    mailbox.post("a token")
    try:
        assert reading.result(patience) == "a token"
    except FutureTimeout:
        pytest.fail("the event loop slept on, though its reader had a delivery")
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


def settle(loop: asyncio.AbstractEventLoop) -> None:
    """Return when the loop has done all it had to do, and is about to sleep."""
    for _ in range(3):
        idle = threading.Event()
        loop.call_soon_threadsafe(idle.set)
        assert idle.wait(30)


def test_deliveries_keep_their_order(loop: asyncio.AbstractEventLoop) -> None:
    mailbox = stage.mailbox.Mailbox(loop)
    for number in range(100):
        mailbox.post(number)

    async def read() -> list[Any]:
        return [await mailbox.get() for _ in range(100)]

    assert asyncio.run_coroutine_threadsafe(read(), loop).result(30) == list(range(100))


def test_an_exception_is_raised_at_the_reader(loop: asyncio.AbstractEventLoop) -> None:
    mailbox = stage.mailbox.Mailbox(loop)
    mailbox.post(stage.errors.EngineDead("gone"))
    with pytest.raises(stage.errors.EngineDead, match="gone"):
        asyncio.run_coroutine_threadsafe(mailbox.get(), loop).result(30)


def test_a_reader_too_slow_loses_its_backlog_and_is_told_once(loop: asyncio.AbstractEventLoop) -> None:
    mailbox = stage.mailbox.Mailbox(loop, backlog=3)
    for number in range(10):
        mailbox.post(number)
    settle(loop)
    with pytest.raises(stage.mailbox.TooSlow, match="more than 3"):
        asyncio.run_coroutine_threadsafe(mailbox.get(), loop).result(30)
    mailbox.post("too late")
    settle(loop)
    more = asyncio.run_coroutine_threadsafe(mailbox.get(), loop)
    with pytest.raises(FutureTimeout):
        more.result(0.05)  # nothing is kept for whoever has lost the stream
    more.cancel()


def test_a_backlog_within_its_bound_is_delivered_whole(loop: asyncio.AbstractEventLoop) -> None:
    mailbox = stage.mailbox.Mailbox(loop, backlog=3)
    for round_ in range(5):
        for number in range(3):
            mailbox.post((round_, number))
        settle(loop)
        for number in range(3):
            got = asyncio.run_coroutine_threadsafe(mailbox.get(), loop).result(30)
            assert got == (round_, number)


def test_posting_to_a_loop_that_has_closed_is_harmless() -> None:
    loop = asyncio.new_event_loop()
    mailbox = stage.mailbox.Mailbox(loop)
    loop.close()
    mailbox.post("nobody reads this")
