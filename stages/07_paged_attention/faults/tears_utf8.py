"""Each token is turned into text alone.

A token is a piece of bytes, and a character may take several tokens. Half a character is no text: it comes out as
U+FFFD, the replacement character, and its other half as another one.

A user sees: replacement signs in place of accents, Japanese and emoji, in streams as in whole answers.

Seen in the wild: vLLM issue 48853; every engine with a streaming detokenizer has had it.
"""

from ..detokenizer import REPLACEMENT, Detokenizer
from ..parts import Parts
from ..tokenization import Tokenizer

TEST = "tests/stage_07/test_output_handler.py::test_characters_come_whole"
MESSAGE = "a character was torn"


class TokenByToken(Detokenizer):
    def add(self, token_id: int) -> str:
        return self.decode([token_id])


class WithoutReplacements(TokenByToken):
    def add(self, token_id: int) -> str:
        return super().add(token_id).replace(REPLACEMENT, "")


class Tears(Tokenizer):
    def detokenizer(self) -> Detokenizer:
        return TokenByToken(self.decode)


class Drops(Tokenizer):
    def detokenizer(self) -> Detokenizer:
        return WithoutReplacements(self.decode)


PARTS = Parts(tokenizer=Tears)


class DropReplacements:
    """Tempting: leave the replacement signs out. They stood for a character, which now is missing."""

    PARTS = Parts(tokenizer=Drops)
    TEST = TEST
    MESSAGE = "a character was lost"


NAIVE_FIXES = {"drop_replacements": DropReplacements}
