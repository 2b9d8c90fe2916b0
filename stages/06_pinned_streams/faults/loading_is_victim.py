"""A model that is still loading is chosen as victim.

It has no pins if whoever asked for it has hung up meanwhile, so it looks idle. But what it takes cannot be given back
before the load has ended, and there is no worker yet that could be told to.

A user sees: requests that hang, or more models in memory than there are slots.

Seen in the wild: a model router picks a model in the state LOADING as the one to unload (llama.cpp issue 25528).
"""

from ..lru import Entry, Lru
from ..parts import Parts

TEST = "tests/stage_06/test_lru.py::test_a_model_that_is_loading_is_never_the_victim"
MESSAGE = "a model that was loading was chosen as victim"


class ByPinsAlone(Lru):
    def victim(self, staying: list[Entry]) -> Entry | None:
        return next((entry for entry in staying if entry.pins == 0), None)


PARTS = Parts(policy=ByPinsAlone)
