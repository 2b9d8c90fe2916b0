"""From ids to the text that may be sent: stop strings, whole characters, choices."""

import sys
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.serving import Stage
from tests.stage_07.scripted import STOP

stage = Stage("07_paged_attention")
MODEL = str(ROOT / "models" / "tiny-opt")


def choice(parts: Any, *stops: str) -> Any:
    return stage.output_handler.Choice("r-0", 0, [5], parts.tokenizer(MODEL).detokenizer(), parts.stops(stops))


def output(*ids: int, reason: str | None = None) -> Any:
    return stage.messages.Output("r-0", list(ids), reason)


def pieces(parts: Any, text: str, *stops: str) -> list[str]:
    """The pieces of a text whose tokens come one by one, until it is stopped."""
    one, ids, said = choice(parts, *stops), parts.tokenizer(MODEL).rust.encode(text).ids, []
    for token in ids:
        delta = one.take(output(token))
        said.append(delta.text)
        if delta.finish_reason:
            return said
    return [*said, one.take(output(STOP, reason="stop")).text]


def test_characters_come_whole(parts: Any) -> None:
    said = pieces(parts, "naïve 推論 🧠!")
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(said), f"a character was torn: {said}"
    assert "".join(said) == "naïve 推論 🧠!", f"a character was lost: {said}"


def test_a_stop_string_across_tokens(parts: Any) -> None:
    said = pieces(parts, " 3 4 5 6 7", " 5 6")
    assert not {" 6", " 7"} & set(said), f"a stop string across tokens was not seen: {said}"
    assert "".join(said) == " 3 4", f"the beginning of a stop string was sent: {said}"


def test_what_only_looked_like_a_stop_string_is_sent_later() -> None:
    said = pieces(stage.parts.Parts(), " 3 4 5 6 7", " 5 7")
    assert said[:3] == [" 3", " 4", ""]
    assert "".join(said) == " 3 4 5 6 7"


def test_a_stop_string_ends_a_choice_before_the_core_knows() -> None:
    one = choice(stage.parts.Parts(), "b")
    ids = stage.tokenization.Tokenizer(MODEL).rust.encode("abc").ids
    delta = one.take(output(*ids))
    assert (delta.text, delta.finish_reason) == ("a", "stop")
    assert delta.token_ids == ids[:2]
    assert one.tokens == 2


def test_a_stop_string_in_what_was_held_back_at_the_end() -> None:
    ids = stage.tokenization.Tokenizer(MODEL).rust.encode("推").ids
    assert len(ids) > 1, "the character spans tokens"
    one = choice(stage.parts.Parts(), "\N{REPLACEMENT CHARACTER}")
    delta = one.take(output(ids[0], reason="length"))
    assert (delta.text, delta.finish_reason) == ("", "stop")


def test_half_a_character_at_the_limit_is_told_as_such() -> None:
    ids = stage.tokenization.Tokenizer(MODEL).rust.encode("推").ids
    delta = choice(stage.parts.Parts()).take(output(ids[0], reason="length"))
    assert (delta.text, delta.finish_reason) == ("\N{REPLACEMENT CHARACTER}", "length")


def test_a_stop_token_counts_but_has_no_text() -> None:
    one = choice(stage.parts.Parts())
    delta = one.take(output(STOP, reason="stop"))
    assert (delta.text, delta.token_ids, one.tokens) == ("", [STOP], 1)


TEXTS = st.text("ab", max_size=30)
STOPS = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3)


@given(TEXTS, STOPS, st.lists(st.integers(0, 30), max_size=6))
def test_in_what_pieces_a_text_comes_does_not_matter(text: str, stops: list[str], cuts: list[int]) -> None:
    def cut(places: list[int]) -> tuple[str, bool]:
        checker, said = stage.output_handler.StopStrings(tuple(stops)), ""
        for begin, end in zip([0, *places], [*places, len(text)], strict=True):
            said += checker.add(text[begin:end])
            if checker.found:
                return said, True
        return said + checker.flush(), False

    whole, found = cut([])
    assert cut(sorted(min(place, len(text)) for place in cuts)) == (whole, found)
    assert cut(list(range(len(text)))) == (whole, found)
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    assert found == bool(ends)
    if not found:
        assert whole == text
    else:
        assert text.startswith(whole)
        assert any(text[len(whole) :].startswith(stop) for stop in stops)
        assert len(whole) < min(ends), "stopped where the first stop string was complete"


@given(TEXTS, STOPS)
def test_no_part_of_a_stop_string_is_ever_sent_early(text: str, stops: list[str]) -> None:
    checker, said = stage.output_handler.StopStrings(tuple(stops)), ""
    for place, character in enumerate(text, 1):
        said += checker.add(character)
        if checker.found:
            break
        assert text[:place] == said + checker.held
    assert not any(stop in said for stop in stops)


def test_what_a_stop_string_costs_does_not_grow_with_its_length() -> None:
    def calls(length: int) -> int:
        checker, count = stage.output_handler.StopStrings(("a" * length, "b" * length)), 0

        def tick(*_: Any) -> None:
            nonlocal count
            count += 1

        sys.setprofile(tick)
        try:
            said = [checker.add(piece) for piece in ("x", "aa", "b", "bb", "xy")]
        finally:
            sys.setprofile(None)
        assert "".join(said) == "xaabbbxy"
        return count

    assert calls(50_000) == calls(50)


def test_deltas_are_joined_by_choice() -> None:
    delta, logprob = stage.output_handler.Delta, stage.messages.Logprobs(-1.0, [], [])
    [first, second] = stage.output_handler.joined(
        [delta(1, "x", [7], None, None), delta(0, "a", [5], [logprob], None), delta(0, "b", [6], [logprob], "stop"),
         delta(1, "", [], None, "length")]
    )  # fmt: skip
    assert first == delta(0, "ab", [5, 6], [logprob, logprob], "stop")
    assert second == delta(1, "x", [7], None, "length")
