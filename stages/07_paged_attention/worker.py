"""07.6 The worker: loads a model, makes room for the pool, and runs steps. It lives wherever its executor puts it.

Any Hugging Face causal LM goes in unmodified. Only this file, the model runner, attention, the sampler and the CUDA
graphs know torch.
"""

import os
import time
from importlib.util import find_spec
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from .block_pool import NOBODY
from .compiled import compile_layers, tell
from .config import EngineConfig, Unusable
from .core_parts import CoreParts, resolve
from .executor import WorkerDied
from .fast_cpu import pack_linears, why_no_kernels
from .limits import Limits
from .messages import SamplingParams
from .model_runner import ModelRunner, cache_shape
from .step import Result, Row
from .trace import Tracer

CPU_CACHE_BYTES = 1 << 28
"""size of the pool on a CPU, where nothing else says how much memory is ours"""

TRIED = 13
"""tokens with which a model is tried out; a number that is no other size in a model, which the compiler could mix up"""

TOLERANCE = 0.1
"""of how far logits are apart: more than any order of rounding makes, less than a layer that computes something else"""

BACKENDS = {
    "torch": f"{__package__}.attention:TorchAttention",
    "triton": f"{__package__}.triton_attention:TritonAttention",
    "cpp": f"{__package__}.fast_cpu:CppAttention",
}
"""what `--attention-backend` names"""


class Worker:
    """One model, one pool. `limits` and `stop_token_ids` are what the rest of the engine must know of them."""

    def __init__(
        self, model: Any, config: EngineConfig, parts: CoreParts = CoreParts(), trace: Tracer | None = None
    ) -> None:
        self.model = model
        self.config = config
        stop = model.generation_config.eos_token_id
        self.stop_token_ids = sorted(set(stop if isinstance(stop, list) else [] if stop is None else [stop]))
        text = model.config.get_text_config()
        longest: int = config.max_model_len or text.max_position_embeddings
        if longest > text.max_position_embeddings:
            raise Unusable(f"--max-model-len {longest} is more than the {text.max_position_embeddings} of the model")
        backend = parts.attention or BACKENDS[backend_for(config, model.device.type)]
        attention, sampler = resolve(backend)(), resolve(parts.sampler)()

        def runner(num_blocks: int) -> ModelRunner:
            packer = resolve(parts.super_sequence)
            return resolve(parts.model_runner)(model, num_blocks, config.block_size, attention, sampler, packer, trace)

        num_blocks = config.num_gpu_blocks_override or self.blocks_that_fit(runner, longest)
        self.limits = Limits(longest, config.block_size, num_blocks, text.vocab_size)
        self.runner = runner(num_blocks)
        self.try_out()
        if not config.enforce_eager:
            self.speed_up()
        if model.device.type == "cuda" and attention.graphs and not config.enforce_eager:
            width = self.limits.blocks(longest)
            self.runner.graphs = resolve(parts.cuda_graphs)(self.runner, config.max_num_seqs, width)
            self.runner.graphs.capture()

    @classmethod
    def load(cls, config: EngineConfig, parts: CoreParts, trace: Tracer) -> "Worker":
        """Build the worker from its settings. Raises `Unusable` with one line when that cannot work."""
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        dtype = config.dtype
        if dtype == "auto" and not config.device.startswith("cuda"):
            dtype = "float32"
        try:
            model: Any = AutoModelForCausalLM.from_pretrained(config.model, dtype=dtype)
            return cls(model.to(config.device).eval(), config, parts, trace)
        except (OSError, ValueError, RuntimeError, TypeError, AttributeError) as exc:
            reason = str(exc).strip().splitlines()[0]
            raise Unusable(f"{config.model} cannot be loaded on {config.device}: {reason}") from exc

    def execute(self, rows: list[Row]) -> Result:
        """One step. What it raises concerns these rows, which may be tried again; `WorkerDied` concerns all."""
        try:
            return self.runner.execute(rows)
        except torch.AcceleratorError as exc:
            raise WorkerDied(f"the device is lost: {str(exc).splitlines()[0]}") from exc

    @torch.inference_mode()
    def try_out(self) -> torch.Tensor:
        """Logits after a few tokens, kept in the block that is nobody's. Raises `Unusable` if nothing gets there."""
        size, vocabulary = self.config.block_size, self.limits.vocab_size
        # from all over the vocabulary: the first ids mean nothing to many models, and what they say of those is chance
        ids = [vocabulary * (place + 1) // (TRIED + 1) for place in range(TRIED)]
        row = Row("", ids, 0, [NOBODY] * TRIED, True, 0, SamplingParams(max_tokens=1))
        logits = self.runner.forward(self.runner.inputs(self.runner.super_sequence.pack([row], size)))
        if not all(cache[:, NOBODY].any() for cache in self.runner.caches):
            raise Unusable(f"the attention of {type(self.model).__name__} cannot be replaced")
        return logits.float()

    def speed_up(self) -> None:
        """Pack the matrices on a CPU, and compile the layers. What cannot be compiled runs as it is, and says so."""
        plain = self.try_out()
        if self.model.device.type == "cpu":
            if why := why_no_kernels():
                tell(f"matrices stay as they are: {why}")
            else:
                pack_linears(self.model)
        if self.differs(plain):
            raise Unusable(f"{type(self.model).__name__} computes something else once its matrices are packed")
        tell(f"compiling layers of {type(self.model).__name__} (--enforce-eager goes without) ... ", end="")
        began, undo = time.monotonic(), lambda: None
        try:
            undo = compile_layers(self.model)
            if self.differs(plain):
                raise RuntimeError("compiled, they compute something else")
        except Exception as exc:
            undo()
            tell(f"not possible, layers run as they are: {' '.join(str(exc).split()[:40])}")
        else:
            tell(f"{time.monotonic() - began:.0f} s")

    def differs(self, plain: torch.Tensor) -> bool:
        """Whether logits are now further from `plain` than the order of rounding explains."""
        return bool((self.try_out() - plain).std() > TOLERANCE * plain.std())

    def blocks_that_fit(self, runner: Any, longest: int) -> int:
        """As many blocks as the memory holds beside the weights and what a full step needs."""
        layers, *shape = cache_shape(self.model.config, 1, self.config.block_size)
        block_bytes = layers * torch.Size(shape).numel() * self.model.dtype.itemsize
        budget = CPU_CACHE_BYTES
        if self.model.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            self.full_step(runner, longest)
            free, total = torch.cuda.mem_get_info()
            elsewhere = total - free - torch.cuda.memory_reserved()  # other processes, and what CUDA itself takes
            budget = int(total * self.config.gpu_memory_utilization) - elsewhere - torch.cuda.max_memory_allocated()
            torch.cuda.empty_cache()
        if budget < 2 * block_bytes:
            share = self.config.gpu_memory_utilization
            raise Unusable(f"--gpu-memory-utilization {share} leaves no room for a single KV cache block")
        return budget // block_bytes - 1  # block 0 is nobody's

    def full_step(self, runner: Any, longest: int) -> None:
        """The step that needs the most memory: as many tokens and as many rows as may be."""
        size, count = self.config.block_size, self.config.max_num_seqs
        length = min(longest, -(-self.config.max_num_batched_tokens // count))
        blocks = -(-length // size)
        greedy = SamplingParams(max_tokens=1)
        table = list(range(1, blocks + 1))
        runner(blocks).execute([Row(str(i), [0] * length, 0, table, True, 0, greedy) for i in range(count)])


def backend_for(config: EngineConfig, device: str) -> str:
    """The attention backend's name. Raises `Unusable` if the one that was asked for cannot run here."""
    backend, triton = config.attention_backend, find_spec("triton")
    if backend == "auto" and device == "cuda" and triton:
        return "triton"
    if backend == "auto" and device == "cpu" and not config.enforce_eager:
        if not (why := why_no_kernels()):
            return "cpp"
        tell(f"attention is plain PyTorch's: {why}")
    if backend == "triton" and not triton:
        raise Unusable("--attention-backend triton: it is not installed; on Linux, PyTorch for CUDA brings it")
    if backend == "triton" and device != "cuda" and "TRITON_INTERPRET" not in os.environ:
        raise Unusable("--attention-backend triton needs a GPU, or TRITON_INTERPRET=1 and patience")
    if backend == "cpp" and device != "cpu":
        raise Unusable(f"--attention-backend cpp is for --device cpu, not {device}")
    if backend == "cpp" and (why := why_no_kernels()):
        raise Unusable(f"--attention-backend cpp: {why}")
    return "torch" if backend == "auto" else backend
