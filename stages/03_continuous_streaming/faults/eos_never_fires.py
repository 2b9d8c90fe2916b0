"""The stop token never fires.

The worker decodes the new token, skipping special tokens, and compares the text with "</s>". Skipping turns the stop
token into an empty string, so the comparison is never true.

A user sees: every stream runs to its length limit, with babble after the answer, and costs the tokens of it.

Seen in the wild: vLLM compared stop strings with text from which special tokens had been skipped, so one that is a
special token never matched (vLLM issue 2123); koboldcpp rendered such a token as nothing and did not stop either
(koboldcpp issue 791).
"""

from ..parts import Parts
from ..sequence import Row, Token
from ..stats import Work
from ..worker import Worker

TEST = "tests/stage_03/test_worker.py::test_a_stream_ends_at_the_stop_token"
MESSAGE = "ran past the stop token"


class EosByText(Worker):
    def is_stop(self, token_id: int) -> bool:
        return self.tokenizer.decode([token_id], skip_special_tokens=True) == "</s>"


class EosInText(Worker):
    def execute(self, batch: list[Row]) -> tuple[list[Token], Work]:
        tokens, work = super().execute(batch)
        texts = [self.tokenizer.decode([*row.ids, token.id]) for row, token in zip(batch, tokens, strict=True)]
        return [Token(token.id, text.endswith("</s>")) for token, text in zip(tokens, texts, strict=True)], work


PARTS = Parts(worker=f"{__name__}:EosByText")


class KeepSpecialTokens:
    """Tempting: decode without skipping special tokens. Now text that merely spells "</s>" ends the stream too."""

    PARTS = Parts(worker=f"{__name__}:EosInText")
    TEST = "tests/stage_03/test_worker.py::test_text_that_spells_the_stop_token_does_not_end_a_stream"
    MESSAGE = "stopped at text that only looks like the stop token"


NAIVE_FIXES = {"keep_special_tokens": KeepSpecialTokens}
