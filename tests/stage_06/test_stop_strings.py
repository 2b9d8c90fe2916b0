"""Stop strings: pure, so hypothesis may cut a text anywhere."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serving import Stage

StopStrings = Stage("06_pinned_streams").stop_strings.StopStrings
LETTERS = st.text("ab\n", max_size=12)


def read(stops: tuple[str, ...], pieces: list[str]) -> tuple[str, bool]:
    """All that may be sent, and whether the text was stopped."""
    reader, said = StopStrings(stops), ""
    for piece in pieces:
        text, found = reader.add(piece)
        said += text
        if found:
            return said, True
    return said + reader.flush(), False


def expected(stops: tuple[str, ...], whole: str) -> tuple[str, bool]:
    """The slow way: look again after every character."""
    for end in range(1, len(whole) + 1):
        complete = [len(stop) for stop in stops if whole[:end].endswith(stop)]
        if complete:
            return whole[: end - max(complete)], True
    return whole, False


@given(st.lists(LETTERS, max_size=8), st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3))
def test_the_pieces_make_no_difference(pieces: list[str], stops: list[str]) -> None:
    assert read(tuple(stops), pieces) == expected(tuple(stops), "".join(pieces))


@given(st.lists(LETTERS, max_size=8), st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3))
def test_nothing_is_held_back_without_need(pieces: list[str], stops: list[str]) -> None:
    reader, whole, said = StopStrings(tuple(stops)), "", ""
    for piece in pieces:
        text, found = reader.add(piece)
        whole, said = whole + piece, said + text
        if found:
            return
        held = whole[len(said) :]
        assert not held or any(stop.startswith(held) for stop in stops)


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        (["one", " ST", "OP two"], "one "),
        (["one S", "T", "ART"], "one START"),
        (["STOP"], ""),
        (["one ST"], "one ST"),
        (["SSTOP"], "S"),
    ],
)
def test_a_stop_string_across_pieces(pieces: list[str], said: Any) -> None:
    assert read(("STOP",), pieces)[0] == said


def test_without_stop_strings_everything_passes_at_once() -> None:
    reader = StopStrings(())
    assert reader.add("anything") == ("anything", False)
    assert reader.flush() == ""
