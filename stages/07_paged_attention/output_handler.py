"""07.9 From token ids to the text that may be sent. Pure: knows no sockets, no event loop and no HTTP.

Text comes out in pieces that hold whole characters only, and nothing of a stop string: not even its beginning, as
long as it may still become one.
"""

from dataclasses import dataclass

from .detokenizer import Detokenizer
from .messages import Logprobs, Output


class StopStrings:
    """Joined, all that `add` and a last `flush` return is the text before the first stop string, or all of it.

    The first is the one that is complete first, so it does not matter in what pieces the text comes.
    """

    def __init__(self, strings: tuple[str, ...]) -> None:
        self.strings = strings
        self.found = False
        self.held = ""  # may be the beginning of a stop string

    def add(self, text: str) -> str:
        """More text in; out comes what can be no part of a stop string."""
        text = self.held + text
        places = [(at + len(string), at) for string in self.strings if (at := text.find(string)) >= 0]
        if places:
            self.found, self.held = True, ""
            return text[: min(places)[1]]
        longest = max(map(len, self.strings), default=1) - 1
        for at in range(max(0, len(text) - longest), len(text)):
            if any(string.startswith(text[at:]) for string in self.strings):
                self.held = text[at:]
                return text[:at]
        self.held = ""
        return text

    def flush(self) -> str:
        """What is still held back, when no more text comes."""
        text, self.held = self.held, ""
        return text


@dataclass(frozen=True)
class Delta:
    """What one step added to one choice; `finish_reason` comes with the last."""

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[Logprobs] | None
    finish_reason: str | None


def joined(deltas: list[Delta]) -> list[Delta]:
    """All that came of each choice, as one."""
    by_index: dict[int, list[Delta]] = {}
    for delta in deltas:
        by_index.setdefault(delta.index, []).append(delta)
    return [
        Delta(
            index,
            "".join(delta.text for delta in own),
            [token for delta in own for token in delta.token_ids],
            [each for delta in own for each in delta.logprobs or ()] if own[0].logprobs is not None else None,
            own[-1].finish_reason,
        )
        for index, own in sorted(by_index.items())
    ]


class Choice:
    """One of the sequences that an HTTP request asked for, as it grows."""

    def __init__(
        self, request_id: str, index: int, prompt_ids: list[int], detokenizer: Detokenizer, stops: StopStrings
    ) -> None:
        self.request_id = request_id
        self.index = index
        self.prompt_ids = prompt_ids
        self.detokenizer = detokenizer
        self.stops = stops
        self.tokens = 0
        self.cached_tokens = 0
        self.heard: float | None = None  # when the last token came

    def take(self, output: Output) -> Delta:
        """What comes of one step. If a stop string ends the choice, the core does not know yet, and has to be told."""
        self.cached_tokens = max(self.cached_tokens, output.cached_tokens)
        reason, text, taken = output.finish_reason, "", 0
        for place, token_id in enumerate(output.token_ids, 1):
            taken = place
            if reason != "stop" or place < len(output.token_ids):  # a stop token has no text
                text += self.stops.add(self.detokenizer.add(token_id))
            if self.stops.found:
                break
        if reason and not self.stops.found:
            text += self.stops.add(self.detokenizer.flush()) + ("" if self.stops.found else self.stops.flush())
        self.tokens += taken
        logprobs = output.logprobs[:taken] if output.logprobs is not None else None
        return Delta(self.index, text, output.token_ids[:taken], logprobs, "stop" if self.stops.found else reason)
