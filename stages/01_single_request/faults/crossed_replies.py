"""A reply goes to whoever reads next, not to the caller it is for.

Moving the blocking call from the event loop to threads repairs `blocking_route` and opens this: many threads wait
on one queue of replies, and each takes what comes first without looking at the id.

A user sees: fluent, fast, well-formed answers to somebody else's prompt.

Seen in the wild: ChatGPT showed users the titles of other users' chats in March 2023, when a cancelled request
left its reply on a shared Redis connection for the next one to read (redis-py issue 2624).
"""

import queue
from concurrent.futures import Future
from typing import Any

from ..executor import Executor
from ..parts import Parts

TEST = "tests/stage_01/test_executor.py::test_each_caller_gets_its_own_reply"
MESSAGE = "got the reply to somebody else's prompt"


class FirstReaderWins(Executor):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.replies: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()

    def execute(self, batch: list[Any]) -> Any:
        self.submit(batch).add_done_callback(self.replies.put)
        return self.replies.get().result()


PARTS = Parts(executor=FirstReaderWins)
