"""The prompt comes back glued to the completion.

`model.generate` returns prompt and continuation as one row of ids. Decoding the whole row hands both to the caller.

A user sees: every answer begins by repeating the question.

Seen in the wild: transformers' text-generation pipeline returns the full text unless told otherwise
(`return_full_text`, in the documentation of `TextGenerationPipeline`). Bumblebee's returned the prompt too, until pull
request 302. DJL Serving answered with the prompt or without, depending on how it batched (djl-serving pull request
1602).
"""

from ..parts import Parts
from ..worker import Worker

TEST = "tests/stage_01/test_worker.py::test_the_completion_comes_without_its_prompt"
MESSAGE = "the prompt came back with the completion"


class DecodesEverything(Worker):
    def decode(self, output: list[int], prompt_length: int) -> str:
        return self.tokenizer.decode(output, skip_special_tokens=True)


class CutsCharacters(Worker):
    def encode(self, prompt: str) -> list[int]:
        self.prompt = prompt
        return super().encode(prompt)

    def decode(self, output: list[int], prompt_length: int) -> str:
        return self.tokenizer.decode(output, skip_special_tokens=True)[len(self.prompt) :]


PARTS = Parts(worker=f"{__name__}:DecodesEverything")


class CutCharacters:
    """Tempting: cut `len(prompt)` characters. Decoding does not always give the prompt back: tokenizers compose
    accents (NFC) and drop special tokens, so the cut lands inside the answer."""

    PARTS = Parts(worker=f"{__name__}:CutsCharacters")
    TEST = "tests/stage_01/test_worker.py::test_a_prompt_that_does_not_round_trip_costs_the_answer_nothing"
    MESSAGE = "the cut fell inside the answer"


NAIVE_FIXES = {"cut_characters": CutCharacters}
