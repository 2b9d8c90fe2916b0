"""Each arrival restarts the clock.

The delay is counted from the newest input, as a debounce would. A trickle that is faster than the delay keeps
putting off the flush.

A user sees: the steadier the traffic, the longer the wait, up to a whole batch of delays.

Seen in the wild: the confusion of debounce and throttle, which every library of timers documents. A lost wake-up has
the same effect (Ray issue 42593).
"""

from typing import Any

from ..batcher import DynamicBatcher
from ..parts import Parts

TEST = "tests/stage_05/test_batcher.py::test_the_oldest_input_starts_the_clock"
MESSAGE = "a later arrival put off the flush"


class CountsFromTheNewest(DynamicBatcher):
    def deadline(self, group: list[Any]) -> float:
        return group[-1].arrived + self.max_delay


PARTS = Parts(batcher=CountsFromTheNewest)
