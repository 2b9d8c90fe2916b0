"""What an engine can be told, each field named as the flag of `vllm serve` that it stands for.

Plain data: it crosses into the engine core's process, and from there into the worker's.
"""

from dataclasses import dataclass


class Unusable(Exception):
    """The engine cannot be built from its settings, and trying again would not help."""


@dataclass(frozen=True)
class EngineConfig:
    """One engine's settings. Raises `ValueError` with the flag's name and its limit."""

    model: str = "tiny-opt"
    """a directory or a hub id, resolved before it comes here"""
    device: str = "cpu"
    """as torch names it"""
    dtype: str = "auto"
    """"float32", "bfloat16" or "float16"; "auto" is the checkpoint's own on a GPU, and float32 elsewhere"""
    max_model_len: int | None = None
    """tokens that a request may have, prompt and answer together; None is the model's own limit"""
    block_size: int = 16
    """tokens a block"""
    gpu_memory_utilization: float = 0.9
    """share of the GPU's memory for weights, activations and the pool together"""
    num_gpu_blocks_override: int | None = None
    """blocks in the pool; None takes what the memory allows"""
    enable_prefix_caching: bool = True
    max_num_batched_tokens: int = 2048
    """tokens in a step, prompts and decodes together"""
    max_num_seqs: int = 256
    """requests that run at the same time"""
    max_queue: int = 128
    """requests that may wait; one more is refused"""
    enforce_eager: bool = False
    """neither packed matrices nor compiled layers nor CUDA graphs: a quick start, and slow steps"""
    attention_backend: str = "auto"
    """"torch", "cpp" or "triton"; "auto" is triton on a GPU, cpp on a CPU, and torch where that is missing or eager"""
    distributed_executor_backend: str = "uni"
    """where the worker lives: "uni" is the core's process, "mp" one of its own"""
    data_parallel_size: int = 1
    """engine cores, each with the whole model and a pool of its own"""
    trace: bool = False
    """whether the core sends trace events with its outputs"""

    def __post_init__(self) -> None:
        whole = ("block_size", "max_num_batched_tokens", "max_num_seqs", "max_queue", "data_parallel_size")
        for name in (*whole, "max_model_len", "num_gpu_blocks_override"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{flag(name)} must be at least 1, not {value}")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ValueError(
                f"--gpu-memory-utilization must be above 0 and at most 1, not {self.gpu_memory_utilization}"
            )
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"--max-num-batched-tokens ({self.max_num_batched_tokens}) must be at least --max-num-seqs"
                f" ({self.max_num_seqs}): whoever runs gets a token in every step"
            )
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{flag(name)} must be one of {', '.join(allowed)}, not {getattr(self, name)}")


CHOICES = {
    "dtype": ("auto", "float32", "bfloat16", "float16"),
    "attention_backend": ("auto", "torch", "cpp", "triton"),
    "distributed_executor_backend": ("uni", "mp"),
}
"""what those fields may be"""


def flag(name: str) -> str:
    """A field's flag: `max_num_seqs` is `--max-num-seqs`."""
    return f"--{name.replace('_', '-')}"
