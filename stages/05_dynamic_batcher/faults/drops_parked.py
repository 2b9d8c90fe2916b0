"""Evicting a model throws away what is parked on it.

The queue goes with its worker, and with it the inputs that were waiting for company.

A user sees: now and then a request fails for no reason of its own, when somebody else asks for another model.

Seen in the wild: an engine evicted between loading and the start of its request (llama.cpp issue 28698).
"""

from ..batching import Batching, settle
from ..errors import EngineDead
from ..parts import Parts

TEST = "tests/stage_05/test_residency.py::test_evicting_a_model_flushes_what_is_parked_on_it"
MESSAGE = "what was parked on an evicted model was thrown away"


class ThrowsAway(Batching):
    def drain(self) -> None:
        for batch in self.batcher.flush():
            for item in batch:
                settle(item, EngineDead("the model was evicted"))


PARTS = Parts(batching=ThrowsAway)
