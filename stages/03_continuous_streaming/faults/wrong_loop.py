"""The driver thread touches an asyncio queue that belongs to an event loop.

Putting from another thread completes the reader's future, but tells the loop with `call_soon`, which does not wake it.
The loop sleeps in its selector until something else happens to come along.

A user sees: words in lumps of about a tenth of a second. uvicorn's loop wakes ten times a second by a timer of its own,
and finds what has piled up; anybody else's request wakes it, too. On a loop without such a timer the stream stalls.

Seen in the wild: a reader that waits for an `asyncio.Queue` is never woken by a `put` from another thread (CPython
issue 97970). ScaleLLM did it, too, until pull request 324. asyncio's debug mode raises "Non-thread-safe operation" here
("Developing with asyncio", in Python's documentation).
"""

import asyncio
from typing import Any

from ..mailbox import Mailbox
from ..parts import Parts

TEST = "tests/stage_03/test_mailbox.py::test_a_post_from_a_thread_wakes_the_reader"
MESSAGE = "the event loop slept on"


class TouchesTheQueue(Mailbox):
    def post(self, delivery: Any) -> None:
        self.put(delivery)


class LoopOfItsOwn(Mailbox):
    def post(self, delivery: Any) -> None:
        asyncio.run(self.queue.put(delivery))


PARTS = Parts(mailbox=TouchesTheQueue)


class RunTheCoroutine:
    """Tempting: `put` is a coroutine, so run it, on a loop made for it. The reader still sleeps on the other one. And
    what is posted from a thread that has a loop raises: streams end in an error event, blocking routes answer 500."""

    PARTS = Parts(mailbox=LoopOfItsOwn)
    TEST = TEST
    MESSAGE = MESSAGE


NAIVE_FIXES = {"run_the_coroutine": RunTheCoroutine}
