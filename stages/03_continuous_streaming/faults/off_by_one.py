"""A stream gets one token more than it asked for.

The limit is checked with "more than" where "as many as" was meant, so the loop notices one step late.

A user sees: 21 tokens for 20; a bill that never adds up, and an answer one token past the context at its very end.

Seen in the wild: mistral.rs generated `max_tokens` + 1 tokens, and its usage said so (mistral.rs issue 1539).
"""

from ..parts import Parts
from ..scheduler import Scheduler
from ..sequence import Sequence

TEST = "tests/stage_03/test_scheduler.py::test_a_sequence_gets_exactly_the_tokens_it_asked_for"
MESSAGE = "got more tokens than it asked for"


class OneMore(Scheduler):
    def is_full(self, sequence: Sequence) -> bool:
        return len(sequence.output_ids) > sequence.sampling.max_new_tokens


PARTS = Parts(scheduler=OneMore)
