"""One input that fails takes its whole batch with it.

The pass raises, and the error goes to everybody who was in it.

A user sees: errors about somebody else's input, more often the busier the model.

Seen in the wild: one error for everyone in the batch (LitServe issue 340).
"""

from ..batching import Batching, Item, settle
from ..errors import ServingError
from ..parts import Parts

TEST = "tests/stage_05/test_batching.py::test_a_poisoned_input_fails_alone"
MESSAGE = "one caller's input failed another's request"


class FailsTogether(Batching):
    async def run(self, batch: list[Item]) -> None:
        try:
            results = await self.predict(batch)
        except ServingError as exc:
            for item in batch:
                settle(item, exc)
        else:
            self.deal(batch, results)


PARTS = Parts(batching=FailsTogether)
