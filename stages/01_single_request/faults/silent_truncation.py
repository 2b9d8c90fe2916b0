"""A prompt that is too long is cut, and nobody is told.

The tokenizer is asked to truncate, which is how most examples call it. What does not fit the context is dropped
before the model sees it.

A user sees: confident answers that ignore part of the prompt; with truncation on the right, the question itself.

Seen in the wild: Ollama cut prompts to the context that happened to be set, with a line in its log and no word to the
client (Ollama issues 299, 3839 and 10368).
"""

from ..parts import Parts
from ..worker import Worker

TEST = "tests/stage_01/test_worker.py::test_a_prompt_longer_than_the_context_is_refused"
MESSAGE = "a prompt that does not fit was answered"


class Truncates(Worker):
    def encode(self, prompt: str) -> list[int]:
        return self.tokenizer(prompt, truncation=True, max_length=self.context - 50)["input_ids"]


PARTS = Parts(worker=f"{__name__}:Truncates")
