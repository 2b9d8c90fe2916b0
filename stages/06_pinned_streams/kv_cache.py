"""A real KV cache for streams that come and go: one contiguous, full-length reservation a stream.

Keys and values of all layers lie in tensors [slots, heads, context, head size]. A stream holds one slot from its
prefill to its end; the slots in use are the first ones, always, so that a step works on a plain slice. Unmodified
transformers models write here through `Cache.update`. What is reserved and holds no token is the cost that paging
removes in stage 07.
"""

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class SlotLayer(CacheLayerMixin):
    """One layer's keys and values. Writes the new ones at each row's own position, returns each row's all."""

    def __init__(self, cache: "SlotCache", slots: int, context: int) -> None:
        super().__init__()
        self.cache, self.slots, self.context = cache, slots, context

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        _, heads, _, size = key_states.shape
        self.keys = key_states.new_zeros(self.slots, heads, self.context, size)
        self.values = value_states.new_zeros(self.slots, heads, self.context, value_states.shape[-1])
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        """Take the new keys and values, [rows, heads, new, size]; return all, [rows, heads, longest, size]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        rows, positions, longest = self.cache.rows, self.cache.positions, self.cache.longest
        at = torch.arange(rows.start, rows.stop, device=positions.device)[:, None], slice(None), positions
        self.keys[at] = key_states.transpose(1, 2)
        self.values[at] = value_states.transpose(1, 2)
        return self.keys[rows, :, :longest], self.values[rows, :, :longest]

    def tensors(self) -> list[torch.Tensor]:
        """Keys and values; nothing before the first forward pass, which tells their shape."""
        return [tensor for tensor in (self.keys, self.values) if tensor is not None]

    def get_seq_length(self) -> int:
        return self.cache.longest

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cache.longest, 0

    def get_max_length(self) -> int:
        return self.context


class SlotCache(Cache):
    """The KV cache of one model: `slots` streams of up to `context` tokens each."""

    def __init__(self, layers: int, slots: int, context: int) -> None:
        self.tables = [SlotLayer(self, slots, context) for _ in range(layers)]
        super().__init__(layers=[*self.tables])
        self.slots, self.context = slots, context
        self.lengths: list[int] = []  # tokens in each slot in use
        self.rows = slice(0, 0)
        self.longest = 0
        self.positions = torch.zeros(0, 0, dtype=torch.long)

    def join(self, tokens: int, device: torch.device) -> dict[str, Any]:
        """A stream takes the next slot with a prompt of so many tokens; the arguments of its prefill."""
        slot = len(self.lengths)
        self.lengths.append(tokens)
        return self.arguments(slice(slot, slot + 1), torch.arange(tokens, device=device)[None])

    def step(self, device: torch.device) -> dict[str, Any]:
        """Each stream gets one more token; the arguments of the step."""
        positions = torch.tensor(self.lengths, device=device)[:, None]
        self.lengths = [length + 1 for length in self.lengths]
        return self.arguments(slice(0, len(self.lengths)), positions)

    def leave(self, slot: int) -> None:
        """A stream leaves; the last one moves into its slot."""
        last = len(self.lengths) - 1
        if slot != last:
            for layer in self.tables:
                for tensor in layer.tensors():
                    tensor[slot, :, : self.lengths[last]] = tensor[last, :, : self.lengths[last]]
            self.lengths[slot] = self.lengths[last]
        self.lengths.pop()

    def arguments(self, rows: slice, positions: torch.Tensor) -> dict[str, Any]:
        """For a forward pass of these slots at these positions, [rows, new]: each token sees what came before it."""
        self.rows, self.positions, self.longest = rows, positions, int(positions.max()) + 1
        seen = torch.arange(self.longest, device=positions.device) <= positions[..., None]
        return {"past_key_values": self, "position_ids": positions, "attention_mask": seen[:, None], "use_cache": True}

    def bytes(self) -> tuple[int, int]:
        """Bytes reserved, and bytes that hold tokens."""
        tensors = [tensor for layer in self.tables for tensor in layer.tensors()]
        reserved = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return reserved, reserved * sum(self.lengths) // (self.slots * self.context)
