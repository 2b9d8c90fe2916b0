"""Eviction drops a reference, and the model stays in memory.

Setting an attribute to None frees nothing by itself. Modules, hooks and closures hold each other in cycles, which wait
for some later collection; what is collected goes back to the framework's allocator, which keeps it.

A user sees: "two models at most" runs out of memory at the third.

Seen in the wild: memory that stays taken after an unload (Triton issues 3320, 5841 and 7020).
"""

import gc

import torch

from ..parts import WORKERS, Parts
from ..torchvision_worker import TorchVisionWorker

TEST = "tests/stage_04/test_freeing.py::test_an_evicted_module_is_gone_before_the_next_load"
MESSAGE = "the evicted model was still in memory when the next load began"


class DropsTheReference(TorchVisionWorker):
    def free(self) -> None:
        self.model = None


class CollectsTooEarly(TorchVisionWorker):
    def free(self) -> None:
        gc.collect()
        if torch.accelerator.is_available():
            torch.accelerator.empty_cache()
        self.model = None


PARTS = Parts(workers={**WORKERS, "torchvision": DropsTheReference})


class CollectFirst:
    """Tempting: the right three lines in the wrong order. Nothing is garbage yet when the collector comes."""

    PARTS = Parts(workers={**WORKERS, "torchvision": CollectsTooEarly})
    TEST = TEST
    MESSAGE = MESSAGE


NAIVE_FIXES = {"collect_first": CollectFirst}
