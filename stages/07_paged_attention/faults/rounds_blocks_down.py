"""A request gets one block too few.

The number of blocks is `num_tokens // block_size`, so a prompt of 17 tokens gets one block. Its last token has none:
its key and value are written wherever the missing table entry points.

A user sees: an error for most prompts, or answers that fall apart after a block's length of tokens, depending on what
the runner makes of a table that is too short.

Seen in the wild: nano-vllm issue 190, where a block table was one column too narrow.
"""

from ..kv_cache_manager import KVCacheManager
from ..parts import Parts

TEST = "tests/stage_07/test_kv_cache_manager.py::test_17_tokens_need_two_blocks_and_16_need_one"
MESSAGE = "17 tokens need 2 blocks"


class RoundsDown(KVCacheManager):
    def blocks_for(self, num_tokens: int) -> int:
        return num_tokens // self.block_size


class AddsOne(KVCacheManager):
    def blocks_for(self, num_tokens: int) -> int:
        return num_tokens // self.block_size + 1


PARTS = Parts(kv_cache_manager=f"{__name__}:RoundsDown")


class AddOne:
    """Tempting: add one. Where the tokens fill their blocks exactly, that is a block that holds nothing."""

    PARTS = Parts(kv_cache_manager=f"{__name__}:AddsOne")
    TEST = TEST
    MESSAGE = "16 tokens need 1 block"


NAIVE_FIXES = {"add_one": AddOne}
