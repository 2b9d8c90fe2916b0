"""The super sequence alone: pure lists."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stage_07.core import BLOCK, resolve, sampling, stage

check_slots = stage.super_sequence.check_slots


def row(name: str, count: int, position: int, block_ids: list[int], samples: bool = True) -> Any:
    return stage.step.Row(name, list(range(50, 50 + count)), position, block_ids, samples, 0, sampling())


def table(position: int, first: int) -> list[int]:
    return list(range(first, first + position // BLOCK + 1))


def test_17_prompt_tokens_and_three_decodes_are_exactly_20_rows() -> None:
    rows = [
        row("ours", 17, 0, [7, 3]),
        row("A", 1, 208, table(208, 20)),
        row("B", 1, 96, table(96, 40)),
        row("C", 1, 40, table(40, 50)),
    ]
    pack = stage.super_sequence.SuperSequence.pack(rows, BLOCK)
    assert len(pack.token_ids) == len(pack.positions) == len(pack.slots) == 20
    assert [row.request_id for row in pack.rows] == ["A", "B", "C", "ours"]
    assert pack.num_decodes == 3
    assert pack.query_starts == [0, 1, 2, 3, 20]
    assert pack.positions == [208, 96, 40, *range(17)]
    assert pack.slots[3:] == [*range(112, 128), 48]
    assert pack.slots[:3] == [(20 + 13) * 16, (40 + 6) * 16, (50 + 2) * 16 + 8]
    assert pack.seq_lens == [209, 97, 41, 17]
    assert pack.last == [0, 1, 2, 19]


def test_a_slot_is_in_the_block_that_the_table_has_for_its_position(parts: Any) -> None:
    pack = resolve(parts.super_sequence).pack([row("ours", 17, 0, [7, 3])], BLOCK)
    for position, slot in zip(pack.positions, pack.slots, strict=True):
        block = [7, 3][position // BLOCK]
        assert slot // BLOCK == block, (
            f"slot {slot} of position {position} lies in a block that the table does not have for it"
        )
    assert pack.slots[0] == 112 and pack.slots[16] == 48


def test_slots_that_cannot_be_right_are_refused() -> None:
    """Two slots of the figure that this stage follows do not match their positions."""
    for slot, position in ((171, 208), (300, 96)):
        with pytest.raises(ValueError, match=f"slot {slot} cannot be that of position {position}"):
            check_slots([slot], [position], BLOCK)
    check_slots([112, 48, 176, 304], [0, 16, 208, 96], BLOCK)


def test_half_a_prompt_samples_nothing() -> None:
    pack = stage.super_sequence.SuperSequence.pack(
        [row("A", 20, 16, [2, 5, 3], samples=False), row("B", 1, 3, [4])], 16
    )
    assert pack.last == [0]
    assert pack.seq_lens == [4, 36]
    assert pack.slots[1:] == [*range(80, 96), *range(48, 52)]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 60), st.booleans()), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_nothing_is_lost_doubled_or_padded(shape: list[tuple[int, int, bool]], random: Any) -> None:
    blocks = list(range(1, 60))
    random.shuffle(blocks)
    rows = []
    for place, (count, position, samples) in enumerate(shape):
        need = -(-(position + count) // BLOCK)
        rows.append(row(str(place), count, position, [blocks.pop() for _ in range(need)], samples))
    pack = stage.super_sequence.SuperSequence.pack(rows, BLOCK)
    assert len(pack.token_ids) == sum(count for count, _, _ in shape) == pack.query_starts[-1]
    assert len(set(pack.slots)) == len(pack.slots)
    assert [len(row.token_ids) == 1 for row in pack.rows] == sorted(
        (len(row.token_ids) == 1 for row in rows), reverse=True
    )
    for packed, start, end in zip(pack.rows, pack.query_starts, pack.query_starts[1:], strict=False):
        assert pack.token_ids[start:end] == packed.token_ids
        assert {slot // BLOCK for slot in pack.slots[start:end]} <= set(packed.block_ids)
    assert [pack.rows[pack.query_starts[1:].index(last + 1)].samples for last in pack.last] == [True] * len(pack.last)
