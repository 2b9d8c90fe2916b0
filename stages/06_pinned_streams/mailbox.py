"""The return address of a sequence: a queue that lives on the event loop of whoever waits for it.

An `asyncio.Queue` may be touched only from its own loop. A thread does not put into it; it asks the loop to, which
also wakes the loop up. The backlog is bounded: who reads too slowly loses the stream, not the server its memory.
"""

import asyncio
from contextlib import suppress
from typing import Any

from .errors import ServingError

BACKLOG = 256
"""deliveries that may wait for their reader"""


class TooSlow(ServingError):
    """The client reads more slowly than the model writes, and has fallen too far behind."""


class Mailbox:
    """Carries deliveries from any thread to one coroutine, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, backlog: int = BACKLOG) -> None:
        self.loop = loop
        self.backlog = backlog
        self.overflowed = False
        self.queue: asyncio.Queue[Any] = asyncio.Queue()

    def post(self, delivery: Any) -> None:
        """Deliver, from any thread. A delivery that is an exception is raised at the reader."""
        with suppress(RuntimeError):  # the loop has closed: nobody is left to read
            self.loop.call_soon_threadsafe(self.put, delivery)

    async def get(self) -> Any:
        """The next delivery. Raises it if it is an exception."""
        delivery = await self.queue.get()
        if isinstance(delivery, Exception):
            raise delivery
        return delivery

    def put(self, delivery: Any) -> None:
        """Deliver, on the loop. Past the bound the backlog is dropped and the reader gets `TooSlow` instead."""
        if self.overflowed:
            return
        if self.queue.qsize() >= self.backlog:
            self.overflowed = True
            while not self.queue.empty():
                self.queue.get_nowait()
            delivery = TooSlow(f"the client fell more than {self.backlog} tokens behind")
        self.queue.put_nowait(delivery)
