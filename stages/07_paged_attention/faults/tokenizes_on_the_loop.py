"""Prompts are tokenized on the event loop.

A long prompt takes a good while to tokenize, and an event loop does one thing at a time. Until it is done, no stream
gets its next token, however fast the engine is.

A user sees: all streams stutter whenever somebody sends a long document.

Seen in the wild: one reason why vLLM's API server became a process of its own, and tokenizes in a thread pool.
"""

import asyncio

from ..parts import Parts
from ..tokenization import Tokenizer

TEST = "tests/stage_07/test_server.py::test_the_loop_turns_while_a_prompt_is_tokenized"
MESSAGE = "the event loop stood still"


class OnTheLoop(Tokenizer):
    async def encode(self, text: str) -> list[int]:
        return self.rust.encode(text).ids


class AfterAYield(OnTheLoop):
    async def encode(self, text: str) -> list[int]:
        await asyncio.sleep(0)
        return await super().encode(text)


PARTS = Parts(tokenizer=OnTheLoop)


class YieldFirst:
    """Tempting: let the others have a turn first. They get one, and then wait as long as before."""

    PARTS = Parts(tokenizer=AfterAYield)
    TEST = TEST
    MESSAGE = MESSAGE


NAIVE_FIXES = {"yield_first": YieldFirst}
