"""When every model is in use, somebody's stream is cut short to make room.

Idle models go first, so it seems to work. When none is idle, the oldest one goes all the same.

A user sees: on busy days, answers end in the middle. The newcomer, who could have come back in a moment, is served.

Seen in the wild: the model that streams is killed to make room for another (llama.cpp issues 21678 and 22447).
"""

from ..lru import Entry, Lru, State
from ..parts import Parts
from ..residency import Residency

TEST = "tests/stage_06/test_pins.py::test_a_third_model_is_refused_and_both_streams_finish"
MESSAGE = "a stream was cut short to make room"


class SomebodyHasToGo(Lru):
    def victim(self, staying: list[Entry]) -> Entry | None:
        ready = (entry for entry in staying if entry.state is State.READY)
        return super().victim(staying) or next(ready, None)


class Kills(Residency):
    async def evict(self, entry: Entry) -> None:
        entry.worker.close()
        await self.free(entry.worker.worker)
        self.policy.remove(entry)
        self.changed()


PARTS = Parts(policy=SomebodyHasToGo, residency=Kills)


class WaitForTheStream:
    """Tempting: kill nobody, and wait until the streams have ended. That is what stage 05 does with predictions. Here
    it means a minute without a word, for the newcomer and for all who ask for the model that is on its way out."""

    PARTS = Parts(policy=SomebodyHasToGo)
    TEST = "tests/stage_06/test_pins.py::test_nobody_waits_for_a_stream_to_end"
    MESSAGE = "had to wait for somebody else's stream to end"


NAIVE_FIXES = {"wait_for_the_stream": WaitForTheStream}
