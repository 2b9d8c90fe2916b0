"""A client that hangs up leaves its pin behind.

The pin is released where a stream ends, and a stream that nobody reads to its end never comes there.

A user sees: after some closed tabs, no other model can be loaded any more. The server says that it is busy, and is
idle.

Seen in the wild: the same leak with another resource, KV blocks of requests that were aborted (vLLM issues 46283 and
9428).
"""

from collections.abc import AsyncIterator

from ..engine import Aborted, Engine
from ..parts import Parts
from ..sequence import Sequence

TEST = "tests/stage_06/test_pins.py::test_hanging_up_mid_stream_releases_the_pin"
MESSAGE = "a hang-up in mid-stream left a pin behind"


class ForgetsThePin(Engine):
    def abort(self, sequence: Sequence) -> None:
        if streams := self.streams.pop(sequence, None):
            streams.scheduler.remove(sequence)
            self.stats.count(Aborted.outcome)
        sequence.mailbox.post(Aborted("aborted"))


class ReleasesInFinally(ForgetsThePin):
    async def pieces(self, sequence: Sequence) -> AsyncIterator[tuple[str, str | None]]:
        try:
            async for piece in super().pieces(sequence):
                yield piece
        finally:
            sequence.pin.release()


PARTS = Parts(engine=ForgetsThePin)


class FinallyInTheGenerator:
    """Tempting: release in the generator's `finally`, which runs when its reader goes. A generator that was never
    started has no `finally`, and whoever hangs up before the first byte never started it."""

    PARTS = Parts(engine=ReleasesInFinally)
    TEST = "tests/stage_06/test_pins.py::test_hanging_up_before_the_first_byte_releases_the_pin"
    MESSAGE = "a hang-up before the first byte left a pin behind"


NAIVE_FIXES = {"finally_in_the_generator": FinallyInTheGenerator}
