"""How long something takes: a median, each time with cold caches, and by the GPU's own clock if there is one."""

import time
from collections.abc import Callable
from statistics import median

import torch

ROUNDS = 25
WARM_UPS = 3
FLUSH_BYTES = 1 << 29
"""written between two rounds: more than any GPU's cache holds, and long enough for Python to get ahead of the GPU"""


def seconds(work: Callable[[], object], device: str, rounds: int = ROUNDS) -> float:
    """The median over `rounds`; without a GPU of one, since it means nothing there."""
    if device != "cuda":
        began = time.perf_counter()
        work()
        return time.perf_counter() - began
    for _ in range(WARM_UPS):
        work()
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(rounds)]
    for begin, end in marks:
        flush.zero_()
        begin.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return median(begin.elapsed_time(end) / 1000 for begin, end in marks)


def wall_seconds(work: Callable[[], object], device: str, rounds: int = ROUNDS) -> float:
    """The same with Python's part in it: what a caller waits who needs the answer before the next call."""
    took = []
    for place in range(rounds + WARM_UPS if device == "cuda" else 1):
        synchronize(device)
        began = time.perf_counter()
        work()
        synchronize(device)
        took += [time.perf_counter() - began] if device != "cuda" or place >= WARM_UPS else []
    return median(took)


def synchronize(device: str) -> None:
    """Wait until the GPU has done all it was told."""
    if device == "cuda":
        torch.cuda.synchronize()


def launches(work: Callable[[], object], device: str) -> int:
    """Kernels and graphs that the processor launches in one call; without a GPU, operations of torch."""
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    work()
    with profile(activities=kinds) as seen:
        work()
        synchronize(device)
    wanted = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaMemsetAsync")
    names = wanted if device == "cuda" else ("aten::",)
    return sum(event.count for event in seen.key_averages() if event.key.startswith(names))
