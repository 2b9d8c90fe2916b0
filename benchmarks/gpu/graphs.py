"""07.8 CUDA graphs: a replay computes what the eager step computes, in how much of its time and how many launches.

What is recorded are compiled layers, so a third time is theirs without a graph.
"""

from collections.abc import Iterator
from typing import Any

import torch

from .models import Engine, decode_rows, random_model
from .rows import Row
from .steps import difference
from .timing import launches, seconds, wall_seconds

BATCHES = (1, 7, 32)
"""7 is rounded up to 8: one row is nobody's"""
LENGTH = 500
ROUNDS = 10
TOLERANCE = 0.1
"""between rows rounded differently in bfloat16, the worst of millions; a wrong row is off by more than 1"""


@torch.inference_mode()
def check(device: str) -> Iterator[Row]:
    """Whole decode steps of models of realistic shape, in bfloat16."""
    real = device == "cuda"
    length, dtype = (LENGTH, torch.bfloat16) if real else (40, torch.float32)
    for family in ("llama", "qwen3"):
        sizes = {"num_gpu_blocks_override": max(BATCHES) * -(-length // 16), "max_num_seqs": max(BATCHES)}
        runner, plain = (
            Engine(random_model(family, device, dtype, small=not real), graphs, **sizes).runner
            for graphs in (True, False)
        )
        if not runner.graphs.replays:
            yield Row("07 graphs", family, "nothing was recorded; the warning above says why", passed=False)
            continue
        for cache, same in zip(runner.caches, plain.caches, strict=True):
            same.copy_(cache.normal_())
        for batch in BATCHES:
            rows = decode_rows(batch, length, runner.block_size)
            yield measure(f"{family}, {batch} rows", runner, plain, rows, device)


def measure(subject: str, runner: Any, plain: Any, rows: list[Any], device: str) -> Row:
    """One batch size: the forward pass alone, and with all that a step has around it."""
    pack = runner.super_sequence.pack(rows, runner.block_size)
    size, inputs, plain_inputs = runner.graphs.size_for(pack), runner.inputs(pack), plain.inputs(pack)

    def forward() -> torch.Tensor:
        return plain.forward(plain_inputs)

    replay = runner.graphs.replays[size]
    off = difference(runner.graphs.replay(pack, size), forward())
    eager, replayed = (seconds(work, device, ROUNDS) for work in (forward, replay))
    compiled = seconds(lambda: runner.forward(inputs), device, ROUNDS)
    whole = wall_seconds(lambda: runner.execute(rows), device, ROUNDS)
    many, few = (launches(work, device) for work in (forward, replay))
    told = (
        f"{replayed * 1e3:.2f} ms against {eager * 1e3:.2f} eager, {eager / replayed:.1f} times;"
        f" compiled without a graph {compiled * 1e3:.2f} ms;"
        f" {few} launches against {many}; a step with all around it {whole * 1e3:.2f} ms"
    )
    figures = {"eager_seconds": eager, "replay_seconds": replayed, "step_seconds": whole, "off": off}
    figures |= {"eager_launches": many, "replay_launches": few, "compiled_seconds": compiled}
    return Row("07 graphs", subject, told, off <= TOLERANCE, figures)
