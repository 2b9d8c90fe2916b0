"""The seam inside an engine core: which class plays which part.

All are import paths (`"package.module:Class"`), resolved in the core's process or its worker's, so that the web process
never loads torch.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class CoreParts:
    """The players of one engine core."""

    scheduler: str = f"{__package__}.scheduler:Scheduler"
    kv_cache_manager: str = f"{__package__}.kv_cache_manager:KVCacheManager"
    block_pool: str = f"{__package__}.block_pool:BlockPool"
    worker: str = f"{__package__}.worker:Worker"
    model_runner: str = f"{__package__}.model_runner:ModelRunner"
    super_sequence: str = f"{__package__}.super_sequence:SuperSequence"
    attention: str | None = None
    """None is the one that `--attention-backend` names"""
    sampler: str = f"{__package__}.sampler:Sampler"
    cuda_graphs: str = f"{__package__}.cuda_graphs:DecodeGraphs"


def resolve(path: str) -> Any:
    """The class that an import path names."""
    module, name = path.split(":")
    return getattr(import_module(module), name)
