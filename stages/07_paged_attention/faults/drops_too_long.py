"""A prompt that does not fit is dropped where that is noticed, and nobody tells its caller.

A line goes into the log, and the request is never sent to a core. Whoever asked waits for what nobody is computing.

A user sees: a request that never returns, for one prompt in a hundred; shorter ones are answered at once.

Seen in the wild: vLLM issue 765: the scheduler warned "input prompt is too long", and the client hung.
"""

from ..engine import Engine
from ..errors import Refused
from ..generation import Generation, Prompt, Wish
from ..parts import Parts

TEST = "tests/stage_07/test_server.py::test_a_prompt_that_does_not_fit_is_told_at_once"
MESSAGE = "a prompt that does not fit got no reply"


class DropsTooLong(Engine):
    unfinished = 1

    async def submit(self, prompts: dict[str, Prompt], wish: Wish, request_id: str | None = None) -> Generation:
        try:
            return await super().submit(prompts, wish, request_id)
        except Refused as exc:
            self.trace.instant("dropped", reason=exc.message)
            return Generation(self.internal_id(request_id), [], self.clock(), unfinished=self.unfinished)


class EndsAtOnce(DropsTooLong):
    unfinished = 0


PARTS = Parts(engine=DropsTooLong)


class AnswerWithNothing:
    """Tempting: end the request at once, with what it has. An empty answer looks like the model's own."""

    PARTS = Parts(engine=EndsAtOnce)
    TEST = TEST
    MESSAGE = "a prompt that does not fit was answered as if it did"


NAIVE_FIXES = {"answer_with_nothing": AnswerWithNothing}
