"""Stage 07's scheduler, but nobody is admitted while somebody runs: a batch ends before the next one begins.

The rest of the engine stays as it is, cache and kernels included, so what differs is admission alone.
"""

from importlib import import_module
from typing import Any

SETTINGS: dict[str, Any] = {
    "enable_prefix_caching": False,
    "max_num_seqs": 16,
    "num_gpu_blocks_override": 512,
}
"""of the engine, with this scheduler and with its own"""
Scheduler: Any = import_module("stages.07_paged_attention.scheduler").Scheduler


class StaticScheduler(Scheduler):
    """A newcomer fits only into a batch that has not begun."""

    def headroom(self) -> int:
        """Blocks that must be left: more than there can be, once anybody's first token has been computed."""
        begun = any(request.num_computed_tokens for request in self.running)
        return self.limits.num_blocks if begun else super().headroom()
