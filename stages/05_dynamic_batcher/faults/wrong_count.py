"""A wrong number of results is dealt out all the same.

`zip` stops at the shorter of two lists and says nothing. If one result is missing, everybody behind the gap may get
somebody else's, and the last ones get none.

A user sees: a request that never ends; or, worse, a right answer to another input.

Seen in the wild: TorchServe issues 730 and 2853.
"""

from ..batching import Batching, Item, settle
from ..parts import Parts
from ..worker import Prediction

TEST = "tests/stage_05/test_batching.py::test_a_wrong_number_of_results_fails_them_all"
MESSAGE = "results were dealt out although their number was wrong"


class DealsWhatThereIs(Batching):
    def deal(self, batch: list[Item], results: list[Prediction]) -> None:
        for item, result in zip(batch, results, strict=False):
            settle(item, result)


PARTS = Parts(batching=DealsWhatThereIs)
