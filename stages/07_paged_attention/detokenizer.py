"""Text from token ids, piece by piece. Pure: knows a decode function and nothing else.

Decoding each id alone would tear characters that span tokens, and decoding everything again at each step would cost
more with every token. So a short window is decoded: the piece before, for context, and what is new. Text that ends in
U+FFFD may be half a character, so it waits for the next id. (The window is vLLM's and, before it, TGI's idea.)
"""

from collections.abc import Callable

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
    """Joined, all that `add` and a last `flush` return equals `decode(ids)`, and no piece holds half a character."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self.decode = decode
        self.before: list[int] = []  # the ids of the last piece
        self.held: list[int] = []  # ids whose text has not been returned

    def add(self, token_id: int) -> str:
        """The text that this id completes; empty while a character is incomplete."""
        self.held.append(token_id)
        text = self.text()
        if not text or text.endswith(REPLACEMENT):
            return ""
        self.before, self.held = self.held, []
        return text

    def flush(self) -> str:
        """What is still held back. Bytes that never became a character come out as U+FFFD."""
        text, self.before, self.held = self.text(), self.held, []
        return text

    def text(self) -> str:
        """The text of the held ids, in their context."""
        known = self.decode(self.before)
        return self.decode([*self.before, *self.held])[len(known) :]
