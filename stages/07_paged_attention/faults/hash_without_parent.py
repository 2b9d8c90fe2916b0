"""A block's hash covers its own tokens and forgets what came before them.

Keys and values depend on every token before. The same 16 tokens after another beginning are other keys and values, but
here they have the same hash.

A user sees: answers that mix in another conversation, where two prompts share a paragraph but not what precedes it.

Seen in the wild: why vLLM's and SGLang's prefix caches chain their hashes, or walk a tree from the root.
"""

from array import array
from hashlib import sha256

from ..kv_cache_manager import KVCacheManager
from ..parts import Parts
from ..request import Request

TEST = "tests/stage_07/test_kv_cache_manager.py::test_a_block_is_found_only_after_the_same_beginning"
MESSAGE = "found a block that was computed after another beginning"


class ForgetsTheParent(KVCacheManager):
    def hash_block(self, parent: bytes, tokens: list[int]) -> bytes:
        return sha256(array("q", tokens).tobytes()).digest()


class HashesThePlace(KVCacheManager):
    def hashes(self, request: Request, count: int) -> list[bytes]:
        size = self.block_size
        blocks = [request.token_ids[place * size : (place + 1) * size] for place in range(count)]
        return [self.hash_block(bytes([place]), tokens) for place, tokens in enumerate(blocks)]


PARTS = Parts(kv_cache_manager=f"{__name__}:ForgetsTheParent")


class HashThePlace:
    """Tempting: add the block's place in the request. The same tokens in the same place may follow other ones."""

    PARTS = Parts(kv_cache_manager=f"{__name__}:HashesThePlace")
    TEST = TEST
    MESSAGE = MESSAGE


NAIVE_FIXES = {"hash_the_place": HashThePlace}
