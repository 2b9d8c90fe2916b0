"""All of CUDA graphs that needs no GPU: here a recorded graph is the forward pass itself, over the same buffers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.stage_07.core import BLOCK, Parts, resolve, sampling, stage
from tests.stage_07.engines import Engine


def without_gpu(graphs: Any) -> Any:
    """The class, but what it records is a call of the model on the buffers that a graph would have been given."""

    class Recorded(graphs):
        def record(self, inputs: Any) -> Callable[[], torch.Tensor]:
            return lambda: self.runner.forward(inputs)

    return Recorded


def captured(name: str = "llama", parts: Any = Parts(), **config: Any) -> Engine:
    """An engine whose decode steps are replayed."""
    engine = Engine(name, **config)
    runner = engine.worker.runner
    width = engine.worker.limits.blocks(engine.worker.limits.max_model_len)
    runner.graphs = without_gpu(resolve(parts.cuda_graphs))(runner, engine.config.max_num_seqs, width)
    runner.graphs.capture()
    return engine


def decode(name: str, position: int, table: list[int]) -> Any:
    return stage.step.Row(name, [50], position, table, True, 0, sampling())


def test_sizes() -> None:
    assert stage.cuda_graphs.graph_sizes(1) == [1]
    assert stage.cuda_graphs.graph_sizes(6) == [1, 2, 4, 6]
    assert stage.cuda_graphs.graph_sizes(20) == [1, 2, 4, 8, 16, 20]
    assert stage.cuda_graphs.graph_sizes(256)[-3:] == [240, 248, 256]


def test_a_step_takes_the_smallest_graph_that_holds_it_and_a_prompt_takes_none() -> None:
    graphs = captured(max_num_seqs=6).worker.runner.graphs
    pack = stage.super_sequence.SuperSequence.pack
    rows = [decode(str(place), 3, [place + 1]) for place in range(7)]
    assert [graphs.size_for(pack(rows[:count], BLOCK)) for count in range(1, 8)] == [1, 2, 4, 4, 6, 6, None]
    prompt = stage.step.Row("A", [5, 6], 0, [9], True, 0, sampling())
    assert graphs.size_for(pack([prompt, *rows[:2]], BLOCK)) is None


def test_padding_rows_touch_no_block_of_the_pool(parts: Any) -> None:
    """With PyTorch's way of writing, which a GPU has: there slot -1 is the last one. The C++ kernel refuses it."""
    runner = captured(parts=parts, num_gpu_blocks_override=8, attention_backend="torch").worker.runner
    for cache in runner.caches:
        cache.fill_(7.0)
    rows = [decode("A", 20, [3, 5]), decode("B", 15, [4]), decode("C", 31, [6, 7])]
    pack = stage.super_sequence.SuperSequence.pack(rows, BLOCK)
    with torch.inference_mode():
        runner.graphs.replay(pack, 8)
    for cache in runner.caches:
        touched = (cache != 7.0).any(dim=-1).any(dim=-1).any(dim=0).flatten().nonzero().flatten().tolist()
        beyond = sorted(set(touched) - set(pack.slots) - set(range(BLOCK)))
        assert not beyond, f"padding rows wrote into the pool, slots {beyond}"
        assert set(pack.slots) <= set(touched)


def test_a_smaller_batch_leaves_nothing_of_a_larger_one() -> None:
    """Stale columns: a shorter table, and rows that are gone, must not point into anybody's blocks."""
    graphs = captured().worker.runner.graphs
    pack = stage.super_sequence.SuperSequence.pack
    graphs.fill(graphs.pad(pack([decode(str(p), 40, [p * 3 + i for i in (1, 2, 3)]) for p in range(8)], BLOCK), 8))
    graphs.fill(graphs.pad(pack([decode("A", 3, [9]), decode("B", 17, [7, 4]), decode("C", 2, [2])], BLOCK), 4))
    paged = graphs.first(4).paged
    assert paged.block_tables[:, :3].tolist() == [[9, 0, 0], [7, 4, 0], [2, 0, 0], [0, 0, 0]]
    assert not paged.block_tables[:, 3:].any()
    assert paged.slots.tolist() == [147, 65, 34, 0]
    assert paged.seq_lens.tolist() == [4, 18, 3, 1]
    assert paged.query_starts.tolist() == [0, 1, 2, 3, 4] and paged.num_decodes == 4


@pytest.mark.parametrize("name", ["llama", "opt"])
def test_the_same_tokens_with_and_without(name: str) -> None:
    prompts = [list(range(20, 60)), [7, 8, 9], list(range(100, 133)), [5] * 16, [4] * 17]
    engines = captured(name), Engine(name)
    sizes: list[int] = []
    replay = engines[0].worker.runner.graphs.replay
    engines[0].worker.runner.graphs.replay = lambda pack, size: (sizes.append(size), replay(pack, size))[1]
    for engine in engines:
        for place, prompt in enumerate(prompts):
            engine.ask(str(place), prompt, 10 + 6 * place, ignore_eos=True, temperature=place % 2, seed=place)
    assert engines[0].finish() == engines[1].finish()
    assert set(sizes) == {8, 4, 2, 1}
    work = engines[0].core.work
    assert 0 < work["positions_padding"] == work["positions_computed"] - engines[1].core.work["positions_computed"]


def test_what_cannot_be_recorded_runs_eagerly_and_says_so() -> None:
    class Unrecordable(stage.cuda_graphs.DecodeGraphs):
        def record(self, inputs: Any) -> Any:
            raise RuntimeError("operation not permitted when stream is capturing")

    engine = Engine("llama")
    engine.worker.runner.graphs = Unrecordable(engine.worker.runner, 8, 4)
    with pytest.warns(UserWarning, match="every step runs eagerly: operation not permitted"):
        engine.worker.runner.graphs.capture()
    engine.ask("A", [5, 6, 7], 5, ignore_eos=True)
    assert len(engine.finish()["A"]) == 5


def test_eager_where_there_is_no_gpu() -> None:
    assert Engine("llama").worker.runner.graphs is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", ["llama", "opt"])
def test_recorded_on_a_gpu_the_tokens_are_the_same(name: str) -> None:
    found = []
    for eager in (True, False):
        engine = Engine(name, device="cuda", enforce_eager=eager)
        assert bool(engine.worker.runner.graphs) != eager
        for place in range(7):
            engine.ask(str(place), list(range(20, 30 + 9 * place)), 10 + 6 * place, ignore_eos=True)
        found.append(engine.finish())
    assert found[0] == found[1]
