"""The cache evicts a model in the middle of a sentence.

Which model goes is decided by age alone. A model that was asked for once, an hour-long stream ago, is the oldest.

A user sees: a text stops in the middle, with an error or without one, when somebody else asks for another model.

Seen in the wild: a router unloads the model that a client is still reading from (llama.cpp issues 21678 and 22447).
"""

from ..lru import Entry, Lru, State
from ..parts import Parts
from ..residency import Residency

TEST = "tests/stage_06/test_pins.py::test_a_model_that_streams_is_not_the_victim"
MESSAGE = "a model was evicted in mid-stream"


class ByAgeAlone(Lru):
    def victim(self, staying: list[Entry]) -> Entry | None:
        return next((entry for entry in staying if entry.state is State.READY), None)


class FreesAtOnce(Residency):
    async def evict(self, entry: Entry) -> None:
        entry.worker.close()
        await self.free(entry.worker.worker)
        self.policy.remove(entry)
        self.changed()


class CountsStreamsOnly(Lru):
    def victim(self, staying: list[Entry]) -> Entry | None:
        for entry in staying:
            streams = getattr(entry.worker, "scheduler", None)
            if entry.state is State.READY and not (streams and streams.running):
                return entry
        return None


PARTS = Parts(policy=ByAgeAlone, residency=FreesAtOnce)


class OnlyStreamsCount:
    """Tempting: a model is in use as long as its streams run. But a stream that waits for its place and a prediction
    that waits for its pass have been admitted, too."""

    PARTS = Parts(policy=CountsStreamsOnly, residency=FreesAtOnce)
    TEST = "tests/stage_06/test_pins.py::test_a_model_that_predicts_is_not_the_victim"
    MESSAGE = "a model was evicted in mid-prediction"


NAIVE_FIXES = {"only_streams_count": OnlyStreamsCount}
