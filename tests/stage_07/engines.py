"""Engine cores in process, around real models: the shipped one, and tiny random ones of other families."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tests.conftest import ROOT
from tests.stage_07.core import EAGER, Parts, add, check_pool, stage

VOCABULARY = 300
"""of the random models"""
SHIPPED = {"opt": "tiny-opt", "smollm2": "smollm2"}
"""those that are not random, and where they are below `models`"""


def folder(name: str) -> Path:
    """Where a model is that is not random."""
    path = ROOT / "models" / SHIPPED[name]
    assert path.exists(), f"{path} is missing: `make test-slow` fetches it"
    return path


@cache
def model(name: str) -> Any:
    """The model as transformers has it: the reference."""
    from transformers import AutoConfig, AutoModelForCausalLM

    if name in SHIPPED:
        return AutoModelForCausalLM.from_pretrained(folder(name), dtype=torch.float32).eval()
    shape = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "max_position_embeddings": 512}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32 if name == "qwen3" else 16}
    ids = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
    torch.manual_seed(7)
    config = AutoConfig.for_model(name, **shape, **heads, **ids, initializer_range=0.3)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


@cache
def served(name: str, device: str = "cpu", eager: bool = True) -> Any:
    """A copy for engines, since a model runner replaces its attention, and another for those that compile it."""
    return deepcopy(model(name)).to(device)


@cache
def generated(
    name: str, prompt: tuple[int, ...], count: int, ignore_eos: bool = False
) -> tuple[list[int], list[float]]:
    """What transformers' `generate()` says, stop token included, and how far ahead of the second each token was."""
    ids = torch.tensor([prompt])
    out = model(name).generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        **({"eos_token_id": None} if ignore_eos else {}),
        max_new_tokens=count,
        output_logits=True,
        return_dict_in_generate=True,
    )
    best = torch.stack(out.logits)[:, 0].topk(2).values
    return out.sequences[0, len(prompt) :].tolist(), (best[:, 0] - best[:, 1]).tolist()


def check_greedy(name: str, prompt: list[int], ids: list[int], count: int, ignore_eos: bool = False) -> None:
    """The ids are those of `generate()`; only a tie of two logits excuses a difference, and what follows it."""
    expected, gaps = generated(name, tuple(prompt), count, ignore_eos)
    if ids != expected:
        place = next(i for i, pair in enumerate(zip([*ids, -1], [*expected, -1], strict=False)) if pair[0] != pair[1])
        assert place < len(gaps) and gaps[place] < 1e-4, f"differs from generate() at token {place}: {ids} {expected}"


class InProcess:
    """An executor around a worker; `before(rows, runner)` is called ahead of each step."""

    def __init__(self, worker: Any, before: Callable[[list[Any], Any], None] | None = None) -> None:
        self.worker = worker
        self.before = before
        self.limits = worker.limits
        self.stop_token_ids = worker.stop_token_ids

    def execute(self, rows: list[Any]) -> Any:
        if self.before:
            self.before(rows, self.worker.runner)
        try:
            return self.worker.execute(rows)
        except Exception as exc:
            raise stage.executor.StepFailed(repr(exc)) from exc

    def close(self) -> None:
        pass


class Engine:
    """An engine core around a model, in this process. `ask` queues, `finish` runs until all is said."""

    def __init__(
        self,
        name: str,
        parts: Any = Parts(),
        before: Callable[[list[Any], Any], None] | None = None,
        trace: Any = None,
        **config: Any,
    ) -> None:
        settings = {"num_gpu_blocks_override": 64, "max_num_seqs": 8, "max_num_batched_tokens": 128, **EAGER, **config}
        self.config = stage.config.EngineConfig(model="", **settings)
        trace = trace or stage.trace.Tracer()
        loaded = served(name, self.config.device, self.config.enforce_eager)
        self.worker = stage.core_parts.resolve(parts.worker)(loaded, self.config, parts, trace)
        executor = InProcess(self.worker, before)
        self.core = stage.engine_core.EngineCore.build(self.config, parts, executor, trace)
        self.answers: dict[str, list[int]] = {}
        self.ends: dict[str, Any] = {}

    def ask(self, name: str, prompt: list[int], max_tokens: int = 30, **options: Any) -> None:
        self.answers[name] = []
        self.take(self.core.handle(add(name, prompt, max_tokens, **options)))

    def hang_up(self, name: str) -> None:
        """Abort a request; nothing is heard of it any more."""
        self.core.handle(stage.messages.Abort([name]))
        self.answers.pop(name, None)

    def take(self, outputs: list[Any]) -> None:
        for output in outputs:
            assert output.request_id not in self.ends
            self.answers[output.request_id] += output.token_ids
            if output.finish_reason:
                self.ends[output.request_id] = output

    def steps(self, count: int = 100_000) -> int:
        """Run that many steps, or until nothing is left; how many it were."""
        for done in range(count):
            busy, outputs = self.core.turn()
            self.take(outputs)
            check_pool(self.core.scheduler)
            if not busy:
                return done
        return count

    def finish(self) -> dict[str, list[int]]:
        """All answers, once everybody has ended."""
        self.steps()
        assert self.ends.keys() == self.answers.keys()
        assert self.core.scheduler.manager.pool.used == 0
        return self.answers
