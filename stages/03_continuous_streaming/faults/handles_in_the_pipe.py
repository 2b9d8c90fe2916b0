"""The whole sequence goes into the pipe, return address and all.

A sequence carries a live queue and a live event loop. Neither can be pickled, and a copy of an event loop in another
process would mean nothing.

A user sees: every request fails with "cannot pickle".

Seen in the wild: a request with an uploaded file could not reach LitServe's worker process, because the open file in it
cannot be pickled (LitServe issue 443). That a loop cannot be called from another process at all is said in Python's
documentation ("Developing with asyncio", concurrency and multithreading).
"""

from typing import Any

from ..engine import Engine
from ..parts import Parts
from ..sequence import Sequence

TEST = "tests/stage_03/test_streaming.py::test_a_stream_crosses_the_process_boundary"
MESSAGE = "a live handle does not cross the pipe"


class SendsHandles(Engine):
    def rows(self, batch: list[Sequence]) -> list[Any]:
        return batch


PARTS = Parts(engine=SendsHandles)
