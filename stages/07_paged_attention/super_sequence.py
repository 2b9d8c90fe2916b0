"""07.6 The super sequence: all rows of a step end to end, with no padding, and where each token's KV is written.

Pure lists. 17 prompt tokens and three decodes are exactly 20 tokens. A token's slot is
`block * block_size + position % block_size`, its block being the one that the table has for its position.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .step import Row


@dataclass(frozen=True)
class SuperSequence:
    """One step's input. R rows, T tokens; rows of one token come first, which lets attention tell them by a count."""

    rows: list[Row]
    token_ids: list[int]
    """[T]"""
    positions: list[int]
    """[T]: where each token stands in its own request"""
    slots: list[int]
    """[T]: where its key and value are written"""
    query_starts: list[int]
    """[R + 1]: where each row begins; the last entry is T"""
    seq_lens: list[int]
    """[R]: tokens that each row's last token attends to, itself included"""
    block_tables: list[list[int]]
    """[R], each of its own length"""
    num_decodes: int
    """rows of one token"""

    @classmethod
    def pack(cls, rows: list[Row], block_size: int) -> "SuperSequence":
        """Lay the rows end to end. Raises `ValueError` if a slot cannot be its position's."""
        rows = sorted(rows, key=lambda row: len(row.token_ids) > 1)
        positions = [list(range(row.position, row.position + len(row.token_ids))) for row in rows]
        flat = [position for some in positions for position in some]
        slots = [
            cls.slot(row.block_ids, position, block_size)
            for row, some in zip(rows, positions, strict=True)
            for position in some
        ]
        check_slots(slots, flat, block_size)
        starts = [0]
        for row in rows:
            starts.append(starts[-1] + len(row.token_ids))
        return cls(
            rows=rows,
            token_ids=[token for row in rows for token in row.token_ids],
            positions=flat,
            slots=slots,
            query_starts=starts,
            seq_lens=[some[-1] + 1 for some in positions],
            block_tables=[row.block_ids for row in rows],
            num_decodes=sum(len(row.token_ids) == 1 for row in rows),
        )

    @staticmethod
    def slot(block_ids: list[int], position: int, block_size: int) -> int:
        """Where the token at `position` of a request is kept: 112 for position 0 in block 7, 48 for 16 in block 3."""
        return block_ids[position // block_size] * block_size + position % block_size

    @property
    def last(self) -> list[int]:
        """Where in the super sequence each row ends whose next token is to be sampled."""
        return [self.query_starts[place + 1] - 1 for place, row in enumerate(self.rows) if row.samples]


def check_slots(slots: Sequence[int], positions: Sequence[int], block_size: int) -> None:
    """Raise `ValueError` unless each slot lies as deep in its block as its position does: 171 for 208 is refused."""
    for slot, position in zip(slots, positions, strict=True):
        if slot % block_size != position % block_size:
            raise ValueError(f"slot {slot} cannot be that of position {position}: they differ modulo {block_size}")
