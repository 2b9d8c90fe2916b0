"""07.5 The blocks of the KV cache: which are free, which are in use and by how many, which hold a known prefix.

Knows block ids and hashes, nothing of requests or tensors. A block is in exactly one of three states: *free* (holds
nothing of worth), *used* (in at least one block table), *cached* (in none, but its content has a hash and may be hit
again; the least recently used one is taken when no free one is left). At all times free + used + cached == total.
"""

from collections import OrderedDict, deque

NOBODY = 0
"""A block that is never handed out: whatever pads a table or a batch points there (vLLM's null block)."""


class BlockPool:
    """`num_blocks` blocks, numbered from 1."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.references = [0] * (num_blocks + 1)
        self._free = deque(range(1, num_blocks + 1))
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._hash_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}
        self.used = 0

    @property
    def free(self) -> int:
        """How many blocks hold nothing of worth."""
        return len(self._free)

    @property
    def cached(self) -> int:
        """How many blocks are in no table, but may be hit again."""
        return len(self._cached)

    @property
    def available(self) -> int:
        """How many `pop` could return."""
        return len(self._free) + len(self._cached)

    def pop(self) -> int:
        """A block for new tokens, with one reference. Raises `IndexError` when all are in use."""
        if self._free:
            block = self._free.popleft()
        elif self._cached:
            block, _ = self._cached.popitem(last=False)
            del self._block_of[self._hash_of.pop(block)]
        else:
            raise IndexError(f"all {self.num_blocks} blocks are in use")
        self.references[block] = 1
        self.used += 1
        return block

    def share(self, block: int) -> None:
        """Add a reference to a block that `find` returned."""
        if not self.references[block]:
            del self._cached[block]
            self.used += 1
        self.references[block] += 1

    def release(self, block: int) -> None:
        """Take a reference away. Without any the block is cached if it has a hash, free if not."""
        if not self.references[block]:
            raise ValueError(f"block {block} is given back, but nobody has it")
        self.references[block] -= 1
        if not self.references[block]:
            self.used -= 1
            if block in self._hash_of:
                self._cached[block] = None
            else:
                self._free.append(block)

    def find(self, block_hash: bytes) -> int | None:
        """The block with this content, used or cached."""
        return self._block_of.get(block_hash)

    def register(self, block: int, block_hash: bytes) -> None:
        """Make a full block findable. Of two with the same content, the first is found and the other stays private."""
        if block not in self._hash_of and block_hash not in self._block_of:
            self._hash_of[block], self._block_of[block_hash] = block_hash, block
