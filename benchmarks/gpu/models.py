"""Models of well-known shapes with random weights, so nothing to download; and stage 07's engine around one."""

from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.stamp import ROOT

from .without_web import Stage

stage = Stage("07_paged_attention")
REALISTIC = {
    "llama": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "vocab_size": 128256}
    | {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 8192},
    "qwen3": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "vocab_size": 151936}
    | {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 8192},
}
"""as Llama 3.2 1B and Qwen3 0.6B"""
SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 300} | {
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 512,
    "initializer_range": 0.3,
}  # fmt: skip
"""large weights, so that answers differ"""


def random_model(family: str, device: str, dtype: torch.dtype, small: bool = False) -> Any:
    """A model of that family that knows nothing; each call gives the same weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(7)
    ids = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "tie_word_embeddings": not small}
    config = AutoConfig.for_model(family, **(SMALL if small else REALISTIC[family]), **ids)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def tiny_opt(device: str) -> Any:
    """The model that ships."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    path = ROOT / "models" / "tiny-opt"
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    return model.to(device).eval()


class Engine:
    """An engine core around a model. On a GPU its decode steps are graphs; elsewhere something stands in for them."""

    def __init__(self, model: Any, graphs: bool = True, **settings: Any) -> None:
        cuda = model.device.type == "cuda"
        self.config = stage.config.EngineConfig(
            model="", device=str(model.device), enforce_eager=not (graphs and cuda), **settings
        )
        self.worker = stage.worker.Worker(model, self.config)
        self.runner = self.worker.runner
        if graphs and not cuda:
            width = self.worker.limits.blocks(self.worker.limits.max_model_len)
            self.runner.graphs = stand_in_graphs()(self.runner, self.config.max_num_seqs, width)
            self.runner.graphs.capture()
        executor: Any = SimpleNamespace(
            execute=self.worker.execute, limits=self.worker.limits, stop_token_ids=self.worker.stop_token_ids
        )
        parts = stage.core_parts.CoreParts()
        self.core = stage.core_loop.EngineCore.build(self.config, parts, executor, stage.trace.Tracer())

    def answer(self, prompts: list[list[int]], tokens: int) -> list[list[int]]:
        """Greedy answers of that many tokens each, the stop token ignored; all prompts at once."""
        answers: dict[str, list[int]] = {str(place): [] for place in range(len(prompts))}
        sampling = stage.messages.SamplingParams(tokens, temperature=0.0, ignore_eos=True)
        for name, prompt in zip(answers, prompts, strict=True):
            self.core.handle(stage.messages.Add(name, prompt, sampling, 0.0))
        busy = True
        while busy:
            busy, outputs = self.core.turn()
            for output in outputs:
                if output.error:
                    raise RuntimeError(output.error)
                answers[output.request_id] += output.token_ids
        return list(answers.values())


def stand_in_graphs() -> Any:
    """Stage 07's graphs where nothing can be recorded: a replay is the model, called on the graph's own buffers."""

    class Recorded(stage.cuda_graphs.DecodeGraphs):
        def record(self, inputs: Any) -> Any:
            return lambda: self.runner.forward(inputs)

    return Recorded


def decode_rows(count: int, length: int, block_size: int) -> list[Any]:
    """A step in which that many requests, each `length` tokens long with this one, decode."""
    blocks, greedy = -(-length // block_size), stage.messages.SamplingParams(max_tokens=1, temperature=0.0)
    tables = [list(range(1 + place * blocks, 1 + (place + 1) * blocks)) for place in range(count)]
    return [stage.step.Row(str(p), [5 + p], length - 1, table, True, 0, greedy) for p, table in enumerate(tables)]
