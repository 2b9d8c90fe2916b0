"""One sequence that has left costs everybody else a token.

It is routine that a sequence is gone by the time its token comes: its client hung up during the step. Looking it up
gives None, the next attribute raises, and an `except Exception` around the whole delivery prints the error and goes on
with the next step. Whoever comes after it in the batch gets no token for this one.

A user sees: now and then a word is missing from the middle of an answer, always when somebody else hangs up. If it was
the last token, the stream never ends: the scheduler is done with the sequence, and its reader waits for more.

Seen in the wild: in SGLang-Omni, broad `except Exception` blocks turned an error into an empty or degraded answer with
status 200 (sglang-omni issue 300). That who is looked up may just have left is routine: in SGLang, an abort that came
for a finished request raised a KeyError in the loop that serves everybody (SGLang issue 21173).
"""

from ..engine import Engine
from ..errors import ServingError
from ..parts import Parts
from ..sequence import Sequence, Token

TEST = "tests/stage_03/test_engine.py::test_who_hangs_up_costs_nobody_a_token"
MESSAGE = "lost a token when somebody else hung up"


class DropsTheStep(Engine):
    def deliver(self, batch: list[Sequence], outcomes: list[Token | ServingError]) -> None:
        with self.changed:
            known = {sequence.request_id: sequence for sequence in self.scheduler.running}
            done = [self.scheduler.update(s, token) for s, token in zip(batch, outcomes, strict=True)]  # pyright: ignore
        try:
            for sequence, token, reason in zip(batch, outcomes, done, strict=True):
                known.get(sequence.request_id).mailbox.post((token.id, reason))  # pyright: ignore
        except Exception as exc:
            print(f"error in the loop, going on: {exc!r}")


PARTS = Parts(engine=DropsTheStep)
