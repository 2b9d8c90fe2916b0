"""The worker: what it loads, how large its pool is, and what it refuses before anybody waits for it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.conftest import ROOT
from tests.stage_07.core import EAGER, Parts, stage
from tests.stage_07.engines import Engine, served

Unusable, EngineConfig, Worker = stage.config.Unusable, stage.config.EngineConfig, stage.worker.Worker
SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 50}


def config(**settings: Any) -> Any:
    return EngineConfig(**{"num_gpu_blocks_override": 8, **EAGER, **settings})


def test_what_the_engine_must_know_of_the_model() -> None:
    worker = Worker(served("qwen3"), config(block_size=8))
    assert worker.limits == stage.limits.Limits(max_model_len=512, block_size=8, num_blocks=8, vocab_size=300)
    assert worker.stop_token_ids == [1]
    assert Worker(served("qwen3"), config(max_model_len=100)).limits.max_model_len == 100
    assert [tuple(cache.shape) for cache in worker.runner.caches] == [(2, 9, 8, 2, 32)] * 2


def test_the_pool_takes_the_memory_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of two layers, K and V, 16 tokens, 2 heads of 16 floats: 8192 bytes. One of the blocks is nobody's."""
    monkeypatch.setattr(stage.worker, "CPU_CACHE_BYTES", 100 * 8192 + 5)
    worker = Worker(served("llama"), config(num_gpu_blocks_override=None))
    assert worker.limits.num_blocks == 99
    assert sum(cache.numel() * 4 for cache in worker.runner.caches) == 100 * 8192
    monkeypatch.setattr(stage.worker, "CPU_CACHE_BYTES", 8192)
    with pytest.raises(Unusable, match=r"--gpu-memory-utilization 0\.9 leaves no room"):
        Worker(served("llama"), config(num_gpu_blocks_override=None))


@pytest.mark.parametrize("size", [1, 2, 7, 32])
def test_any_block_size_gives_the_same_answer(size: int) -> None:
    answers = []
    for block_size in (16, size):
        engine = Engine("llama", block_size=block_size)
        engine.ask("A", list(range(20, 60)), 20, ignore_eos=True)
        answers.append(engine.finish()["A"])
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_model_len": 1000}, "--max-model-len 1000 is more than the 512 of the model"),
        ({"attention_backend": "none"}, "--attention-backend"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises((Unusable, ValueError), match=said):
        Worker(served("llama"), config(**settings))


def test_a_model_whose_attention_is_not_here_is_refused(tmp_path: Path) -> None:
    mistral = AutoConfig.for_model("mistral", **SMALL, num_key_value_heads=1, sliding_window=8)
    AutoModelForCausalLM.from_config(mistral).save_pretrained(tmp_path)
    settings = config(model=str(tmp_path))
    with pytest.raises(Unusable, match="attention wants sliding_window, which is not supported"):
        Worker.load(settings, Parts(), stage.trace.Tracer())


def test_a_model_that_does_not_ask_for_its_attention_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    llama = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **SMALL))
    monkeypatch.setattr(llama, "set_attn_implementation", lambda name: None)
    with pytest.raises(Unusable, match="the attention of LlamaForCausalLM cannot be replaced"):
        Worker(llama, config())


def test_what_cannot_be_loaded_gets_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "abacus"}')
    for where, device in ((tmp_path, "cpu"), (tmp_path / "nowhere", "cpu"), (ROOT / "models" / "tiny-opt", "abacus")):
        settings = config(model=str(where), device=device)
        with pytest.raises(Unusable, match=f"cannot be loaded on {device}") as told:
            Worker.load(settings, Parts(), stage.trace.Tracer())
        assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("dtype", "found"), [("auto", torch.float32), ("bfloat16", torch.bfloat16), ("float16", torch.float16)]
)
def test_a_dtype_holds_for_weights_and_cache(dtype: str, found: torch.dtype) -> None:
    settings = config(model=str(ROOT / "models" / "tiny-opt"), dtype=dtype)
    worker = Worker.load(settings, Parts(), stage.trace.Tracer())
    assert worker.model.dtype == worker.runner.caches[0].dtype == found
    row = stage.step.Row("A", [5, 6, 7], 0, [3], True, 0, stage.messages.SamplingParams(max_tokens=1, logprobs=1))
    [one] = worker.execute([row]).outcomes
    assert one.logprobs.chosen <= 0
