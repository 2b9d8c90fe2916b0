"""One prompt that fails takes its whole batch with it.

The pass raises, and the error goes to everybody who was in it.

A user sees: errors about somebody else's input, at random, more often the bigger the batch.

Seen in the wild: one error for everyone in the batch (LitServe issue 340).
"""

from ..engine import Engine
from ..errors import ServingError
from ..parts import Parts
from ..sequence import Completion, Refusal, Sequence

TEST = "tests/stage_02/test_engine.py::test_a_poisoned_prompt_fails_alone"
MESSAGE = "one caller's prompt failed another's request"


class FailsTogether(Engine):
    def run(self, batch: list[Sequence]) -> list[Completion | Refusal | ServingError]:
        try:
            results, work = self.executor.execute(batch)
        except ServingError as exc:
            return [exc] * len(batch)
        self.stats.record(work, [])
        return results


PARTS = Parts(engine=FailsTogether)
