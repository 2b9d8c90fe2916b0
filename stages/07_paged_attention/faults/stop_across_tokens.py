"""Stop strings are looked for in each piece of text alone.

The model writes tokens, not strings: " 5 6" comes as " 5" and then " 6", and neither piece holds it.

A user sees: text that runs past its stop string to the length limit, depending on how the model happened to cut it.

Seen in the wild: vLLM issues 3574 and 45636.
"""

from ..output_handler import StopStrings
from ..parts import Parts

TEST = "tests/stage_07/test_output_handler.py::test_a_stop_string_across_tokens"
MESSAGE = "a stop string across tokens was not seen"


class LooksAtEachPiece(StopStrings):
    def add(self, text: str) -> str:
        places = [text.find(string) for string in self.strings if string in text]
        self.found = bool(places)
        return text[: min(places)] if places else text


class LooksAtAllOfIt(StopStrings):
    def add(self, text: str) -> str:
        sent, self.held = len(self.held), self.held + text
        places = [self.held.find(string) for string in self.strings if string in self.held]
        self.found = bool(places)
        return self.held[sent : min(places)] if places else text

    def flush(self) -> str:
        return ""


PARTS = Parts(stops=LooksAtEachPiece)


class LookAtAllOfIt:
    """Tempting: look at the whole text so far. It is seen then, but its beginning has been sent already."""

    PARTS = Parts(stops=LooksAtAllOfIt)
    TEST = TEST
    MESSAGE = "the beginning of a stop string was sent"


NAIVE_FIXES = {"look_at_all_of_it": LookAtAllOfIt}
