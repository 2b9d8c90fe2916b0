"""The driver thread touches an asyncio queue that belongs to an event loop.

Putting from another thread completes the reader's future, but tells the loop with `call_soon`, which does not wake it.
The loop sleeps in its selector until something else happens to come along.

A user sees: a stream that stalls, and goes on when anybody else's request arrives. (Until Python 3.9 the symptom was
an error, "got Future attached to a different loop"; queues now bind to a loop late, and the stall remains.)

Seen in the wild: the reason for `call_soon_threadsafe`; asyncio's debug mode raises "Non-thread-safe operation" here.
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
    """Tempting: `put` is a coroutine, so run it, on a loop made for it. The reader still sleeps on the other one."""

    PARTS = Parts(mailbox=LoopOfItsOwn)
    TEST = TEST
    MESSAGE = MESSAGE


NAIVE_FIXES = {"run_the_coroutine": RunTheCoroutine}
