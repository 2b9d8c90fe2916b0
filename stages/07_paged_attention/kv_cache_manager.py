"""07.5 The KV cache manager: gives requests their blocks, finds blocks that already hold their prefix, takes them back.

Pure. A block's hash covers its own tokens *and its parent's hash*, so equal hashes mean equal text from the very
beginning: keys and values depend on all that came before. (Paged attention: Kwon et al., SOSP 2023.)
"""

from array import array
from hashlib import sha256

from .block_pool import BlockPool
from .request import Request

ROOT = b""
"""the parent of a first block"""


class KVCacheManager:
    """Block tables over one pool, in blocks of `block_size` tokens."""

    def __init__(self, pool: BlockPool, block_size: int = 16, enable_prefix_caching: bool = True) -> None:
        self.pool = pool
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.prefix_queries = 0
        self.prefix_hits = 0

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens`: 2 for 17."""
        return -(-num_tokens // self.block_size)

    def admit(self, request: Request, headroom: int) -> bool:
        """Give a waiting request blocks for all its tokens, those of its cached prefix shared, the others new.

        All or nothing: False if fewer than `headroom` blocks would be left for the rest. Blocks for the whole prompt
        are taken even if it will be computed in chunks: half a prompt is of no use to anybody (vLLM issue 37307).
        """
        hits = self.cached_prefix(request)
        from_cache = sum(not self.pool.references[block] for block in hits)
        fresh = self.blocks_for(request.num_tokens) - len(hits)
        if self.pool.available - from_cache - fresh < headroom:
            return False
        for block in hits:
            self.pool.share(block)
        request.block_ids = [*hits, *(self.pool.pop() for _ in range(fresh))]
        request.num_computed_tokens = len(hits) * self.block_size
        if self.enable_prefix_caching and not request.num_preemptions:
            request.num_cached_tokens = request.num_computed_tokens
            self.prefix_queries += request.num_tokens
            self.prefix_hits += request.num_cached_tokens
        return True

    def grow(self, request: Request, num_tokens: int) -> bool:
        """See that a running request's table covers `num_tokens`. All or nothing: False if the pool cannot."""
        missing = self.blocks_for(num_tokens) - len(request.block_ids)
        if missing > self.pool.available:
            return False
        request.block_ids.extend(self.pool.pop() for _ in range(missing))
        return True

    def free(self, request: Request) -> None:
        """Take all blocks back, the last first: a prefix is worth more than what follows it, so it is evicted later."""
        for block in reversed(request.block_ids):
            self.pool.release(block)
        request.block_ids = []
        request.num_computed_tokens = 0

    def cached_prefix(self, request: Request) -> list[int]:
        """Blocks that hold the request's first tokens. Never all of them: one must be computed to have logits."""
        found: list[int] = []
        if self.enable_prefix_caching:
            for block_hash in self.hashes(request, (request.num_tokens - 1) // self.block_size):
                block = self.pool.find(block_hash)
                if block is None:
                    break
                found.append(block)
        return found

    def remember(self, request: Request, since: int) -> None:
        """Make the blocks findable that a step has filled. `since`: tokens that were computed before the step."""
        first, last = since // self.block_size, request.num_computed_tokens // self.block_size
        if self.enable_prefix_caching and last > first:
            hashes = self.hashes(request, last)
            for place in range(first, last):
                self.pool.register(request.block_ids[place], hashes[place])

    def hashes(self, request: Request, count: int) -> list[bytes]:
        """Hashes of the request's first `count` full blocks; each is computed once."""
        for place in range(len(request.block_hashes), count):
            tokens = request.token_ids[place * self.block_size : (place + 1) * self.block_size]
            parent = request.block_hashes[-1] if place else ROOT
            request.block_hashes.append(self.hash_block(parent, tokens))
        return request.block_hashes[:count]

    def hash_block(self, parent: bytes, tokens: list[int]) -> bytes:
        """The name of a block's content, and of all that came before it."""
        return sha256(parent + array("q", tokens).tobytes()).digest()
