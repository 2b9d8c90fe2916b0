"""What is only about speed changes no answer: the C++ kernel, packed matrices, compiled layers."""

import gc
import re
import stat
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from flo.servers import running_stage
from tests.stage_07.core import stage
from tests.stage_07.engines import Engine, check_greedy, model
from tests.stage_07.test_attention import CASES, Case
from tests.stage_07.test_parity import COUNT, prompts

fast, compiled = stage.fast_cpu, stage.compiled


BOUNDS = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.fixture(scope="module", autouse=True)
def operators() -> None:
    fast.kernels()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("dtype", BOUNDS)
def test_the_kernel_is_attention(case: Case, dtype: torch.dtype) -> None:
    check_attention(Case(case.shape, case.heads, case.kv_heads, case.size, dtype))


@pytest.mark.parametrize("size", [3, 20, 32, 64, 80])
@pytest.mark.parametrize("dtype", BOUNDS)
def test_heads_of_any_size(size: int, dtype: torch.dtype) -> None:
    """Those that the compiler knows, and those that leave a vector partly filled."""
    check_attention(Case([(40, 1), (16, 16), (33, 2)], 6, 2, size, dtype))


def check_attention(case: Case) -> None:
    """The rest of the cache holds NaN, and none of it spreads."""
    expected = case.expected()
    for place, out in case.run(fast.CppAttention()).items():
        assert out.shape == expected[place].shape
        torch.testing.assert_close(out.double(), expected[place], atol=BOUNDS[case.dtype], rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("outputs", [1, 48, 80])
def test_a_packed_matrix_multiplies_as_before(dtype: torch.dtype, bias: bool, outputs: int) -> None:
    linear = torch.nn.Linear(48, outputs, bias=bias, dtype=dtype)
    packed = fast.PackedLinear([linear])
    for rows in (*range(18), 100):
        x = torch.randn(1, rows, 96, dtype=dtype)[:, :, ::2]
        with torch.inference_mode():
            torch.testing.assert_close(packed(x), linear(x), atol=BOUNDS[dtype], rtol=0)


def test_rows_that_do_not_fit_a_packed_matrix_are_refused() -> None:
    packed = fast.PackedLinear([torch.nn.Linear(48, 80)])
    with pytest.raises(RuntimeError, match="rows of 40 do not fit a matrix"):
        packed(torch.ones(1, 40))


class Layer(torch.nn.Module):
    """Projections as in a transformer's layer; `k_proj` sees other rows if told to."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (torch.nn.Linear(48, size, bias=bias) for size in (64, 16, 16))
        self.dtype = torch.float32

    def forward(self, x: torch.Tensor, others: torch.Tensor) -> list[torch.Tensor]:
        return [self.v_proj(x), self.k_proj(others), self.q_proj(x), self.v_proj(x)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("same", [True, False])
def test_layers_over_the_same_rows_are_one_matrix_and_over_others_still_right(bias: bool, same: bool) -> None:
    plain = Layer(bias)
    packed = deepcopy(plain)
    fast.pack_linears(packed)
    assert packed.q_proj.whole is packed.v_proj.whole
    for _ in range(2):
        x = torch.randn(1, 5, 48)
        others = x if same else torch.randn(1, 5, 48)
        with torch.inference_mode():
            for got, expected in zip(packed(x, others), plain(x, others), strict=True):
                torch.testing.assert_close(got, expected, atol=2e-6, rtol=0)


def test_a_matrix_that_something_else_shares_stays() -> None:
    tied = deepcopy(model("opt"))
    weight = tied.lm_head.weight
    fast.pack_linears(tied)
    assert not [one for one in tied.modules() if type(one) is torch.nn.Linear]
    assert tied.get_input_embeddings().weight is weight


@pytest.mark.parametrize(("dtype", "inputs"), [(torch.float16, 48), (torch.float64, 48), (torch.bfloat16, 47)])
def test_what_cannot_be_packed_stays(dtype: torch.dtype, inputs: int) -> None:
    layer: Any = torch.nn.Module()
    layer.up_proj = torch.nn.Linear(inputs, 8, dtype=dtype)
    fast.pack_linears(layer)
    assert type(layer.up_proj) is torch.nn.Linear


@pytest.mark.parametrize("name", ["opt", "llama", "qwen3"])
def test_greedy_answers_are_those_of_generate(name: str) -> None:
    """Alone and in company, prompts in chunks and decodes of 1 to 8 rows, all through what was compiled once."""
    engine = Engine(name, enforce_eager=False, max_num_batched_tokens=24)
    assert isinstance(engine.worker.runner.attention, fast.CppAttention)
    assert hasattr(engine.worker.model, "compiled"), "its layers run as they are"
    for place, prompt in enumerate(prompts(name)):
        engine.ask(str(place), prompt, COUNT)
        engine.steps(place * 3)
    answers = engine.finish()
    for place, prompt in enumerate(prompts(name)):
        check_greedy(name, prompt, answers[str(place)], COUNT)


def outcomes(of: Any, eager: bool) -> list[Any]:
    """What a copy of the model says after a prompt of 17 tokens."""
    settings = stage.config.EngineConfig(model="", num_gpu_blocks_override=4, enforce_eager=eager)
    row = stage.step.Row("A", list(range(20, 37)), 0, [1, 2], True, 0, stage.messages.SamplingParams(max_tokens=1))
    return stage.worker.Worker(deepcopy(of), settings).execute([row]).outcomes


@pytest.mark.parametrize("layers", [12, 7])
def test_what_is_compiled_for_some_layers_serves_for_all(layers: int, capfd: pytest.CaptureFixture) -> None:
    """For two groups of six, and for seven layers one by one: each has its own weights and its own cache."""
    torch.manual_seed(5)
    config = deepcopy(model("llama").config)
    config.num_hidden_layers = layers
    deep = type(model("llama"))(config).eval()
    assert outcomes(deep, eager=True) == outcomes(deep, eager=False)
    assert "run as they are" not in capfd.readouterr().err


@pytest.mark.parametrize("name", ["opt", "llama"])
def test_bfloat16_is_compiled_too(name: str, capfd: pytest.CaptureFixture) -> None:
    """It rounds elsewhere than uncompiled, which is not taken for another model."""
    assert outcomes(deepcopy(model(name)).bfloat16(), eager=False)
    assert "run as they are" not in capfd.readouterr().err


def test_models_of_a_kind_do_not_share_what_was_compiled() -> None:
    """Guards are dropped, so what was compiled for one would be taken for the other, which has other sizes."""
    torch.manual_seed(3)
    config = deepcopy(model("llama").config)
    config.update({"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1})
    other = type(model("llama"))(config).eval()
    for one in (model("llama"), other):
        assert outcomes(one, eager=True) == outcomes(one, eager=False)


def test_a_second_worker_takes_what_was_compiled_for_the_first() -> None:
    one, settings = deepcopy(model("llama")), stage.config.EngineConfig(model="", num_gpu_blocks_override=4)
    row = stage.step.Row("A", list(range(20, 37)), 0, [1, 2], True, 0, stage.messages.SamplingParams(max_tokens=1))
    answers = [stage.worker.Worker(one, settings).execute([row]).outcomes for _ in range(2)]
    assert answers[0] == answers[1]


def test_what_cannot_be_compiled_runs_as_it_is(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no such luck\nand more")

    monkeypatch.setattr(torch, "compile", lambda function, **_: fails)
    assert outcomes(model("qwen3"), eager=False) == outcomes(model("qwen3"), eager=True)
    assert "not possible, layers run as they are: no such luck and more\n" in capfd.readouterr().err


def test_what_computes_something_else_is_undone(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(torch, "compile", lambda forward, **_: lambda layer, hidden, *_, **__: -hidden)
    assert outcomes(model("llama"), eager=False) == outcomes(model("llama"), eager=True)
    assert "layers run as they are: compiled, they compute something else\n" in capfd.readouterr().err


def test_a_model_that_computes_something_else_with_packed_matrices_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    right = fast.PackedLinear.forward
    monkeypatch.setattr(fast.PackedLinear, "forward", lambda self, x: -right(self, x))
    with pytest.raises(stage.config.Unusable, match="computes something else once its matrices are packed"):
        outcomes(model("llama"), eager=False)


def test_a_model_whose_layers_are_not_alike_runs_as_it_is(capfd: pytest.CaptureFixture) -> None:
    """In SmolLM3 some layers know no positions: what is compiled for one would be wrong for another."""
    shape = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "max_position_embeddings": 512}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "no_rope_layers": [1, 0, 1, 0]}
    ids = {"vocab_size": 300, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
    torch.manual_seed(7)
    config = AutoConfig.for_model("smollm3", **shape, **heads, **ids, initializer_range=0.3)
    odd = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    assert outcomes(odd, eager=False) == outcomes(odd, eager=True)
    assert "layers run as they are: its layers are not all alike\n" in capfd.readouterr().err


def test_what_was_kept_for_a_module_goes_with_it() -> None:
    gc.collect()
    before = len(compiled._table)
    module = torch.nn.Linear(4, 4)
    compiled.keep(module, "a thing")
    assert len(compiled._table) == before + 1 and compiled.kept(module.key) == "a thing"
    del module
    gc.collect()
    assert len(compiled._table) == before


def test_the_kernel_is_built_once_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By a compiler that leaves a mark."""
    tool, calls = tmp_path / "c++", tmp_path / "calls"
    tool.write_text(f'#!/bin/sh\necho called >> {calls}\nwhile [ "$1" != -o ]; do shift; done\ntouch "$2"\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fast, "COMPILER", str(tool))
    assert fast.library() == fast.library()
    assert calls.read_text() == "called\n" * 3, "once to compile each, and once to link"
    assert [path.name for path in (tmp_path / "cache" / "flo").iterdir()] == [fast.library().name]


@pytest.mark.parametrize("script", ["echo out of luck >&2; exit 1", None], ids=["fails", "is missing"])
def test_without_a_working_compiler_attention_is_plain_pytorch(
    script: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    tool = tmp_path / "c++"
    if script:
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fast, "COMPILER", str(tool))
    why = "could not compile paged_attention.cpp: out of luck" if script else "No such file"
    assert stage.worker.backend_for(stage.config.EngineConfig(model=""), "cpu") == "torch"
    assert why in capfd.readouterr().err
    chosen = stage.config.EngineConfig(model="", attention_backend="cpp")
    with pytest.raises(stage.config.Unusable, match=f"--attention-backend cpp: .*{why}"):
        stage.worker.backend_for(chosen, "cpu")
    assert outcomes(model("qwen3"), eager=False) == outcomes(model("qwen3"), eager=True)
    assert re.search(f"matrices stay as they are: .*{why}", capfd.readouterr().err)


def test_a_server_compiles_before_it_listens_and_answers() -> None:
    """In a process of its own, as a user starts it."""
    with running_stage("07", quick=False) as server:
        answer = server.client.post("/basic_generate", json={"prompt": "Count from 3 to 9:"}, timeout=60).json()
        assert server.process.poll() is None
    assert answer == {"generated_text": " 3 4 5 6 7 8 9"}
    assert re.search(r"compiling layers of OPTForCausalLM .*\.\.\. \d+ s\n", server.stderr()), server.stderr()
