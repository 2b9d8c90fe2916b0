"""Finds stop strings in text that comes in pieces. Pure: strings in, strings out.

A stop string may begin in one piece and end in another, and what has been sent cannot be taken back. So a possible
beginning of one is held back until it is clear what it is (vLLM issues 3574 and 45636 tell how that goes wrong).
"""


class StopStrings:
    """Joined, all that `add` and a last `flush` return is the text before the stop string that is complete first.

    Of several that end at the same character, the longest counts. So the pieces make no difference.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self.stops = stops
        self.held = ""

    def add(self, piece: str) -> tuple[str, bool]:
        """The text that may be sent now, and whether a stop string has been found; then nothing more may come."""
        text, self.held = self.held + piece, ""
        found = [(text.find(stop) + len(stop), text.find(stop)) for stop in self.stops if stop in text]
        if found:
            _, begin = min(found)
            return text[:begin], True
        sure = len(text) - self.beginning(text)
        self.held = text[sure:]
        return text[:sure], False

    def flush(self) -> str:
        """What is still held back: it has become no stop string."""
        text, self.held = self.held, ""
        return text

    def beginning(self, text: str) -> int:
        """How many characters at the end of a text may be the beginning of a stop string."""
        longest = max((len(stop) - 1 for stop in self.stops), default=0)
        lengths = range(min(longest, len(text)), 0, -1)
        return next((n for n in lengths if any(stop.startswith(text[-n:]) for stop in self.stops)), 0)
