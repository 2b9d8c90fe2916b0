"""The causal mask compares positions, and forgets to compare requests.

All rows lie in one super sequence, so "earlier" does not mean "mine". Here a token attends to every token of the step's
requests whose position is not beyond its own.

A user sees: good answers alone; in company, answers that know what strangers asked.

Seen in the wild: what happens to an OPT whose packed prompts run through plain scaled-dot-product attention; the reason
why attention kernels for packed sequences take `cu_seqlens`.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from ..attention import Paged, TorchAttention
from ..parts import Parts

TEST = "tests/stage_07/test_attention.py::test_no_token_attends_to_another_request"
MESSAGE = "depends on its neighbors"


class ComparesPositions(TorchAttention):
    def attend(self, query: torch.Tensor, cache: torch.Tensor, paged: Paged, scaling: float) -> torch.Tensor:
        known = cache[:, paged.block_tables].flatten(2, 3)  # [2, R, S, KV heads, D]
        positions = torch.arange(known.shape[2]).expand(known.shape[1], -1)
        there = positions < paged.seq_lens[:, None]
        keys, values = known[:, there].transpose(1, 2)
        rows = zip(paged.query_starts.diff().tolist(), paged.seq_lens.tolist(), strict=True)
        mine = torch.cat([torch.arange(seq_len - length, seq_len) for length, seq_len in rows])
        mask = positions[there] <= mine[:, None]
        q, grouped = query.transpose(0, 1)[None], query.shape[1] != keys.shape[0]
        out = sdpa(q, keys[None], values[None], attn_mask=mask, scale=scaling, enable_gqa=grouped)
        return out[0].transpose(0, 1)


PARTS = Parts(attention=f"{__name__}:ComparesPositions")
