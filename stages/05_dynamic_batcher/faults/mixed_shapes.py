"""Rows of different shapes are put into one batch.

The queue looks at how many there are, not at what they are.

A user sees: "stack expects each tensor to be equal size", when somebody else sent an image of another size at the
same time.

Seen in the wild: Triton issues 270 and 6937. Triton never batches unequal shapes unless ragged batching is allowed.
"""

from typing import Any

from ..batcher import DynamicBatcher
from ..parts import Parts

TEST = "tests/stage_05/test_batcher.py::test_rows_of_different_shapes_share_no_pass"
MESSAGE = "rows of different shapes were put into one pass"


class TakesAnything(DynamicBatcher):
    def groups(self) -> list[list[Any]]:
        return [self.waiting] if self.waiting else []


PARTS = Parts(batcher=TakesAnything)
