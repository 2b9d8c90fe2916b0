"""Incremental detokenization: pure, so hypothesis may ask anything."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.serving import Stage

stage = Stage("03_continuous_streaming")
TOKENIZER = stage.tokenization.Tokenizer(str(ROOT / "models" / "tiny-opt"))
VOCABULARY = TOKENIZER.rust.get_vocab_size()


def pieces(ids: list[int]) -> list[str]:
    detokenizer = TOKENIZER.detokenizer()
    return [*(detokenizer.add(token) for token in ids), detokenizer.flush()]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.integers(0, VOCABULARY - 1), max_size=40))
def test_joined_pieces_equal_the_whole_for_any_ids(ids: list[int]) -> None:
    assert "".join(pieces(ids)) == TOKENIZER.decode(ids)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=30))
def test_no_piece_holds_half_a_character(text: str) -> None:
    ids = TOKENIZER.rust.encode(text).ids
    whole = TOKENIZER.decode(ids)
    said = pieces(ids)
    assert "".join(said) == whole
    assert sum(piece.count("\N{REPLACEMENT CHARACTER}") for piece in said) == whole.count("\N{REPLACEMENT CHARACTER}")


@pytest.mark.parametrize("text", ["推論", "🧠🚀", "👩‍💻", "naïve café", "e\u0301"])
def test_a_character_comes_whole_with_its_last_token(text: str) -> None:
    ids = TOKENIZER.rust.encode(text).ids
    said = pieces(ids)
    assert "".join(said) == TOKENIZER.decode(ids)
    assert all("\N{REPLACEMENT CHARACTER}" not in piece for piece in said)


def test_bytes_that_never_become_a_character_come_out_as_replacements() -> None:
    ids = TOKENIZER.rust.encode("🧠").ids
    assert len(ids) > 1
    assert "".join(pieces(ids[:-1])) == "\N{REPLACEMENT CHARACTER}"


def test_the_window_stays_short() -> None:
    """The cost of a piece does not grow with the text."""
    asked: list[int] = []

    def decode(ids: list[int]) -> str:
        asked.append(len(ids))
        return TOKENIZER.decode(ids)

    detokenizer: Any = stage.detokenizer.Detokenizer(decode)
    for token in TOKENIZER.rust.encode("推論 and naïve " * 50).ids:
        detokenizer.add(token)
    assert max(asked) <= 8
