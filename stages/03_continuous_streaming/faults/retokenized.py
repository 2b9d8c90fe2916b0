"""Each step tokenizes the text so far again.

The new token is turned into text, appended to the prompt, and the whole is tokenized for the next step. But text does
not determine its tokens: half a character becomes U+FFFD, and pieces that the model chose apart are merged.

A user sees: characters torn into replacement signs, and answers that differ from what the model says by itself.

Seen in the wild: TRL decoded each turn of a conversation and tokenized the whole of it again, so the ids it trained on
were not the ids the model had chosen (TRL issue 5224). SGLang did it to prompts with images that had come as ids
(SGLang pull request 26555).
"""

from dataclasses import replace
from typing import Any

from ..engine import Engine
from ..parts import Parts
from ..sequence import Sequence

TEST = "tests/stage_03/test_engine.py::test_the_model_sees_the_very_ids_it_chose"
MESSAGE = "the ids drifted"


class Retokenizes(Engine):
    def rows(self, batch: list[Sequence]) -> list[Any]:
        return [replace(sequence.row(), ids=self.again(sequence)) for sequence in batch]

    def again(self, sequence: Sequence) -> list[int]:
        text = self.tokenizer.decode(sequence.prompt_ids) + self.tokenizer.decode(sequence.output_ids)
        return self.tokenizer.rust.encode(text).ids


class HoldsBack(Retokenizes):
    def again(self, sequence: Sequence) -> list[int]:
        if self.tokenizer.decode(sequence.output_ids).endswith("\N{REPLACEMENT CHARACTER}"):
            return sequence.row().ids
        return super().again(sequence)


PARTS = Parts(engine=Retokenizes)


class HoldBackHalves:
    """Tempting: do not re-tokenize while a character is incomplete. Whole characters drift too, by being merged."""

    PARTS = Parts(engine=HoldsBack)
    TEST = "tests/stage_03/test_engine.py::test_pieces_that_could_be_merged_stay_apart"
    MESSAGE = "pieces were merged"


NAIVE_FIXES = {"hold_back_halves": HoldBackHalves}
