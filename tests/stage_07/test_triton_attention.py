"""The Triton kernels without a GPU: run by Triton's interpreter, and compiled for a GPU that is not here.

The interpreter must be chosen before Triton is first imported, so it has a process of its own; what it runs are
functions of this file. It runs programs one after another, so races do not show, and it multiplies bfloat16 as if it
were whole numbers, so float32 and float16 are what is tested. On a machine with a GPU the kernels run there as well.
"""

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stage_07.core import BLOCK, resolve, stage
from tests.stage_07.engines import Engine, served
from tests.stage_07.test_attention import CASES, Case
from tests.stage_07.test_cuda_graphs import captured

KERNELS = f"{stage.attention.__package__}.triton_attention"
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
Run = Callable[..., Any]
"""calls a function with arguments, in another process"""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" and find_spec("triton") is None, reason="Triton has no wheel for this platform"
)


@contextmanager
def process(**environment: str) -> Iterator[Run]:
    """Another process with some environment variables set from its start, which calls functions of this file."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            pool.submit(os.getpid).result()  # it is started by the first call
        yield lambda function, *arguments: pool.submit(function, *arguments).result(timeout=100)


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Run]:
    with process(TRITON_INTERPRET="1") as run:
        yield run


def wrongness(case: Case, splits: int | None = None, broken: tuple[Path, str, str] | None = None) -> float:
    """How far the kernels are from attention in float64, at worst, relative to 1 + what is expected.

    What `torch.empty` returns is full of NaN meanwhile.
    """
    kernels = load_broken(*broken) if broken else stage.triton_attention
    torch.use_deterministic_algorithms(True)
    try:
        expected, found = case.expected(), case.run(kernels.TritonAttention(splits))
    finally:
        torch.use_deterministic_algorithms(False)
    errors = [((found[p].double().cpu() - right).abs() / (1 + right.abs())).max() for p, right in expected.items()]
    return torch.stack(errors).max().item()


def load_broken(folder: Path, right: str, wrong: str) -> Any:
    """The kernels' file with a change in it, as a module."""
    source = Path(str(stage.triton_attention.__file__)).read_text()
    assert source.count(right) == 1, f"once in the source there must be: {right}"
    file = folder / "broken.py"
    file.write_text(source.replace(right, wrong))
    spec = spec_from_file_location(f"{KERNELS}_{folder.name}", file)
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MORE_CASES = {
    "many tiles": Case([(300, 1), (150, 90), (200, 1)], size=32),
    "head size 32, groups of 1": Case([(150, 1), (70, 1), (90, 33)], heads=2, kv_heads=2, size=32),
    "head size 64, groups of 2": Case([(150, 1), (70, 1), (90, 33)], heads=4, kv_heads=2, size=64),
    "head size 80, groups of 4": Case([(150, 1), (70, 1), (90, 33)], heads=4, kv_heads=1, size=80),
    "head size 128, groups of 8": Case([(150, 1), (70, 1), (90, 33)], heads=8, kv_heads=1, size=128),
    "groups of 3": Case([(150, 1), (70, 1), (90, 33)], heads=6, kv_heads=2, size=40),
    "groups of 20": Case([(40, 1), (40, 9)], heads=20, kv_heads=1),
}
ALL_CASES = {**CASES, **MORE_CASES}


@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize("case", ALL_CASES.values(), ids=ALL_CASES.keys())
def test_it_is_attention(interpreter: Run, case: Case, splits: int) -> None:
    """Slots that nobody owns hold NaN."""
    assert interpreter(wrongness, case, splits) <= TOLERANCE[case.dtype]


@st.composite
def steps(draw: st.DrawFn) -> Case:
    """Requests anywhere on their way, a chunk's boundary wherever it falls, in models of any shape."""
    totals = draw(st.lists(st.integers(1, 150), min_size=1, max_size=4))
    shape = [(total, draw(st.one_of(st.just(1), st.integers(1, total)))) for total in totals]
    kv_heads, group, size = (draw(st.sampled_from(some)) for some in ((1, 2), (1, 2, 4, 8), (32, 64, 80, 128)))
    dtype = draw(st.sampled_from([torch.float32, torch.float16]))
    return Case(shape, kv_heads * group, kv_heads, size, dtype)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(case=steps(), splits=st.sampled_from([None, 2, 16]))
def test_any_step(interpreter: Run, case: Case, splits: int | None) -> None:
    assert interpreter(wrongness, case, splits) <= TOLERANCE[case.dtype]


def differences(case: Case, splits: tuple[int, int]) -> float:
    """Between two ways of splitting keys."""
    one, other = (case.run(stage.triton_attention.TritonAttention(count)) for count in splits)
    return max((one[place] - other[place]).abs().max().item() for place in one)


def test_keys_are_split_only_where_programs_are_few(interpreter: Run) -> None:
    case = Case([(290, 1), (1, 1), (65, 1)], size=32)
    for count in (2, 16):  # of the keys of one token, 15 of 16 programs find none
        assert 0 < interpreter(differences, case, (1, count)) < 1e-5
    assert interpreter(splits_for_all, [(8, 4096), (8, 700), (8, 100), (100, 4096), (300, 4096)]) == [16, 4, 1, 2, 1]


def splits_for_all(given: list[tuple[int, int]]) -> list[int]:
    return [stage.triton_attention.splits_for(*each) for each in given]


def with_garbage(case: Case, splits: int, garbage: float, beyond: int) -> dict[int, torch.Tensor]:
    """What comes of a step with `garbage` in slots that nobody owns, and `beyond` for blocks beyond a row's own."""

    class Spoiled(stage.triton_attention.TritonAttention):
        def attend(self, query: Any, cache: Any, paged: Any, scaling: float) -> Any:
            for table, seq_len in zip(paged.block_tables, paged.seq_lens.tolist(), strict=True):
                table[-(-seq_len // BLOCK) :] = beyond
            return super().attend(query, cache.nan_to_num(nan=garbage), paged, scaling)

    return case.run(Spoiled(splits))


def same_with_garbage(case: Case, splits: int) -> bool:
    clean = with_garbage(case, splits, 0.0, 0)
    spoiled = [with_garbage(case, splits, *each) for each in ((3e4, 1 << 30), (float("nan"), -(1 << 30)))]
    return all(torch.equal(one[place], clean[place]) for one in spoiled for place in clean)


@pytest.mark.parametrize("splits", [1, 4])
def test_what_nobody_owns_changes_nothing(interpreter: Run, splits: int) -> None:
    assert interpreter(same_with_garbage, Case([(150, 1), (5, 1), (90, 33), (17, 17)], size=32), splits)


BROKEN = {
    "no causal limit": ("known[None, :] & (at[None, :] <= positions[:, None])", "known[None, :]"),
    "a chunk that starts at 0": ("positions = seq_len - length + nth", "positions = nth"),
    "only the first block": ("at // BLOCK_SIZE", "at * 0"),
    "a KV head for each query head": ("(at % BLOCK_SIZE) * kv_slot + kv_head *", "(at % BLOCK_SIZE) * kv_slot + 0 *"),
    "a scaling of its own": (") * scaling", ") * 0.1"),
    "sums on an old scale": ("tl.exp(best - higher)", "tl.exp(best - best)"),
    "values that are not masked": ("tl.load(there + kv, mask=wanted, other=0.0)", "tl.load(there + kv)"),
    "every split alike": ("begin = split * share", "begin = 0 * share"),
    "splits on scales of their own": ("best - tl.max(best, axis=0)", "best - best"),
    "splits without keys write nothing": (
        "    if SPLITS == 1:\n",
        "    if begin >= end:\n        return\n    if SPLITS == 1:\n",
    ),
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_kernel_is_found_out(interpreter: Run, tmp_path: Path, change: tuple[str, str]) -> None:
    case = Case([(150, 1), (17, 1), (90, 40)], size=32)
    assert not interpreter(wrongness, case, 2, (tmp_path, *change)) < 1e-2


PROMPTS = [list(range(20, 60)), [7, 8, 9], list(range(100, 133))]


def answers(name: str, count: int, graphs: bool, backend: str) -> dict[str, list[int]]:
    """What an engine says; the first prompt comes in chunks, the others while it is under way. Blocks of 12 tokens."""
    options = {"attention_backend": backend, "block_size": 12, "max_num_batched_tokens": 24, "max_num_seqs": 4}
    engine = captured(name, **options) if graphs else Engine(name, **options)
    for place, prompt in enumerate(PROMPTS[:count]):
        engine.ask(str(place), prompt, 4 + place, ignore_eos=True)
        engine.steps(1)
    return engine.finish()


@pytest.mark.parametrize(("name", "count", "graphs"), [("opt", 2, False), ("llama", 3, False), ("llama", 3, True)])
def test_the_same_tokens_as_the_pytorch_backend(interpreter: Run, name: str, count: int, graphs: bool) -> None:
    """With graphs, over tables as wide as the longest request's and rows that are nobody's."""
    assert interpreter(answers, name, count, graphs, "triton") == answers(name, count, graphs, "torch")


class Recorded:
    """In place of a kernel: launches nothing, and keeps what it was launched with."""

    def __init__(self, kernel: Any, launches: list[Any]) -> None:
        self.kernel, self.launches = kernel, launches

    def __getitem__(self, grid: Any) -> Any:
        return lambda *arguments, **options: self.launches.append((self.kernel, arguments, options))


def compiled(case: Case, splits: int, capability: int) -> dict[str, int]:
    """What one step launches, compiled for an NVIDIA GPU: bytes of shared memory by kernel and number of lanes."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    launches, shared = [], {}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("attend_kernel", "combine_kernel"):
            patch.setattr(stage.triton_attention, name, Recorded(getattr(stage.triton_attention, name), launches))
        case.run(stage.triton_attention.TritonAttention(splits))
    types = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.int32: "*i32", int: "i32", float: "fp32"}
    for kernel, arguments, options in launches:
        given = dict(zip(kernel.arg_names, arguments, strict=False))
        fixed = {place for place, parameter in enumerate(kernel.params) if parameter.do_not_specialize}
        constants = {name: options[name] for name in kernel.arg_names if name in options}
        signature, aligned = dict.fromkeys(kernel.arg_names, "constexpr"), {}
        for place, (name, value) in enumerate(given.items()):  # as Triton does at a launch
            if isinstance(value, int) and value == 1 and place not in fixed:
                constants[name] = 1
                continue
            signature[name] = types[getattr(value, "dtype", type(value))]
            if isinstance(value, torch.Tensor) or (isinstance(value, int) and value % 16 == 0 and place not in fixed):
                aligned[(place,)] = [["tt.divisibility", 16]]
        source = ASTSource(kernel, signature, constants, aligned)
        stages = {"num_stages": options["num_stages"]} if "num_stages" in options else {}
        made: Any = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=stages)
        assert made.asm["cubin"]
        shared[f"{kernel.__name__} {options.get('BLOCK_M', '')}".strip()] = made.metadata.shared
    return shared


def test_what_is_launched_compiles_and_fits_into_a_gpu(tmp_path: Path) -> None:
    """The interpreter takes much that the compiler does not. 99 KiB are what the smallest GPUs since 2020 have."""
    case = Case([(40, 1), (40, 9)], size=128, dtype=torch.bfloat16)
    with process(TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0") as run:
        shared = run(compiled, case, 4, 80)
    assert shared.keys() == {"attend_kernel 16", "combine_kernel", "attend_kernel 64"}
    assert max(shared.values()) <= 99 << 10


def test_who_gets_which_backend() -> None:
    """And where it was not chosen, Triton's file is not even imported."""
    worker = stage.worker.Worker

    def config(**settings: Any) -> Any:
        return stage.config.EngineConfig(model="", num_gpu_blocks_override=8, enforce_eager=True, **settings)

    attention = worker(served("llama"), config()).runner.attention
    assert isinstance(attention, resolve(stage.worker.BACKENDS["torch"]))
    assert KERNELS not in sys.modules or torch.cuda.is_available()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TRITON_INTERPRET", raising=False)
        with pytest.raises(stage.config.Unusable, match="--attention-backend triton needs a GPU"):
            worker(served("llama"), config(attention_backend="triton"))
        patch.setattr(stage.worker, "find_spec", lambda name: None)
        with pytest.raises(stage.config.Unusable, match="--attention-backend triton: it is not installed"):
            worker(served("llama"), config(attention_backend="triton"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_it_is_attention() -> None:
    for case, dtype, splits in product(ALL_CASES.values(), TOLERANCE, (None, 1, 4)):
        assert wrongness(replace(case, dtype=dtype, device="cuda"), splits) <= TOLERANCE[dtype]
