"""What a step of stage 07 cannot do without, each alone: `python -m benchmarks.peers.step_floor MODEL DTYPE ROWS`.

The floor of a step are its matrices: every weight has to be read. Prints the median seconds of a whole decode step, of
its forward pass, of its matrices and of its attention, all in one process and in turns.
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from statistics import median
from typing import Any

stage = "stages.07_paged_attention"  # no identifier, so no import statement
KNOWN = 128
"""tokens that each row attends to"""
ROUNDS = 30


def main(model: str, dtype: str, count: int) -> dict[str, float]:
    """Median seconds of each, for so many rows."""
    config, executor, messages, parts, step, trace = (
        import_module(f"{stage}.{name}") for name in ("config", "executor", "messages", "core_parts", "step", "trace")
    )
    executor.settle_in()
    worker_module, fast_cpu = (import_module(f"{stage}.{name}") for name in ("worker", "fast_cpu"))
    import torch

    settings = config.EngineConfig(model=model, dtype=dtype, num_gpu_blocks_override=1 + count * KNOWN // 16)
    worker: Any = worker_module.Worker.load(settings, parts.CoreParts(), trace.Tracer(None))
    runner, greedy = worker.runner, messages.SamplingParams(1, temperature=0.0)
    width = KNOWN // 16
    rows = [
        step.Row(str(n), [100 + n], KNOWN - 1, list(range(1 + n * width, 1 + (n + 1) * width)), True, 0, greedy)
        for n in range(count)
    ]
    packed = [module for module in worker.model.modules() if isinstance(module, fast_cpu.PackedLinear)]
    inputs = {one.in_features: torch.randn(1, count, one.in_features).to(worker.model.dtype) for one in packed}
    paged = runner.inputs(runner.super_sequence.pack(rows, 16)).paged
    heads, size = worker.model.config.num_attention_heads, runner.caches[0].shape[-1]
    query = torch.randn(count, heads, size).to(worker.model.dtype)
    took: defaultdict[str, list[float]] = defaultdict(list)

    def timed(name: str, run: Callable[[], object]) -> Any:
        began = time.perf_counter()
        found = run()
        took[name].append(time.perf_counter() - began)
        return found

    with torch.inference_mode():
        for _ in range(ROUNDS):
            took["forward"].append(timed("step", lambda: worker.execute(rows)).seconds["forward"])
            timed("matrices", lambda: [one(inputs[one.in_features]) for one in packed])
            timed("attention", lambda: [runner.attention.attend(query, one, paged, 0.1) for one in runner.caches])
    return {name: median(times) for name, times in took.items()}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
