"""07.9 What clients get, as OpenAI's API has it: whole answers, and the chunks of a stream. Pure: data in, data out."""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from .generation import Generation
from .messages import Logprobs
from .output_handler import Delta, joined


class CompletionWriter:
    """Writes the answers of `/v1/completions`. `token_text` is the text of one token."""

    prefix, whole_is, part_is = "cmpl", "text_completion", "text_completion"

    def __init__(self, generation: Generation, model: str, created: int, token_text: Callable[[int], str]) -> None:
        self.generation = generation
        self.token_text = token_text
        self.offsets: dict[int, int] = {}  # characters of each choice so far
        self.head = {"id": f"{self.prefix}-{generation.request_id}", "created": created, "model": model}

    def opening(self) -> list[dict[str, Any]]:
        """Chunks that come before any text."""
        return []

    def chunk(self, delta: Delta) -> dict[str, Any]:
        """What is sent of one step."""
        return {**self.head, "object": self.part_is, "choices": [self.part(delta)]}

    def last(self) -> dict[str, Any]:
        """The chunk with the numbers of tokens."""
        return {**self.head, "object": self.part_is, "choices": [], "usage": self.generation.usage()}

    def answer(self, deltas: list[Delta]) -> dict[str, Any]:
        """All of it at once."""
        choices = [self.whole(delta) for delta in joined(deltas)]
        return {**self.head, "object": self.whole_is, "choices": choices, "usage": self.generation.usage()}

    def part(self, delta: Delta) -> dict[str, Any]:
        """A choice in a chunk."""
        return self.whole(delta)

    def whole(self, delta: Delta) -> dict[str, Any]:
        """A choice in an answer."""
        ended = {"logprobs": self.logprobs(delta), "finish_reason": delta.finish_reason}
        return {"index": delta.index, "text": delta.text, **ended}

    def logprobs(self, delta: Delta) -> dict[str, Any] | None:
        """Four lists of equal length, one entry a token."""
        if delta.logprobs is None:
            return None
        tokens = [self.token_text(token) for token in delta.token_ids]
        offsets = list(accumulate(map(len, tokens), initial=self.offsets.get(delta.index, 0)))
        self.offsets[delta.index] = offsets.pop()
        likeliest = [
            {token: each.chosen} | {self.token_text(i): value for i, value in zip(each.ids, each.values, strict=True)}
            for token, each in zip(tokens, delta.logprobs, strict=True)
        ]
        chosen = [each.chosen for each in delta.logprobs]
        return {"tokens": tokens, "token_logprobs": chosen, "top_logprobs": likeliest, "text_offset": offsets}


class ChatWriter(CompletionWriter):
    """Writes the answers of `/v1/chat/completions`."""

    prefix, whole_is, part_is = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def opening(self) -> list[dict[str, Any]]:
        choices = [self.spoken(choice.index, "delta", "") for choice in self.generation.choices]
        return [{**self.head, "object": self.part_is, "choices": [choice]} for choice in choices]

    def part(self, delta: Delta) -> dict[str, Any]:
        said = self.spoken(delta.index, "delta", delta.text, self.logprobs(delta), delta.finish_reason)
        del said["delta"]["role"]
        return said

    def whole(self, delta: Delta) -> dict[str, Any]:
        return self.spoken(delta.index, "message", delta.text, self.logprobs(delta), delta.finish_reason)

    def logprobs(self, delta: Delta) -> dict[str, Any] | None:
        """A list with one entry a token."""
        if delta.logprobs is None:
            return None
        told = zip(delta.token_ids, delta.logprobs, strict=True)
        return {"content": [self.token(token, each.chosen) | self.likeliest(each) for token, each in told]}

    def likeliest(self, each: Logprobs) -> dict[str, Any]:
        """What else it could have been."""
        return {"top_logprobs": [self.token(i, value) for i, value in zip(each.ids, each.values, strict=True)]}

    def token(self, token: int, logprob: float) -> dict[str, Any]:
        """One token, and how likely it was."""
        text = self.token_text(token)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    @staticmethod
    def spoken(index: int, kind: str, text: str, logprobs: Any = None, finish_reason: str | None = None) -> Any:
        """One choice."""
        said = {"role": "assistant", "content": text}
        return {"index": index, kind: said, "logprobs": logprobs, "finish_reason": finish_reason}
