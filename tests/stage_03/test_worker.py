"""The worker alone, with the shipped model in process."""

from importlib import import_module
from typing import Any

import pytest

from tests.serving import Stage

stage = Stage("03_continuous_streaming")
PROMPTS = ["Count from 3 to 9:", "Explain the KV cache in one sentence.", "Count from 41 to 44:", "What is a batch?"]


@pytest.fixture
def worker(parts: Any, tiny_opt: tuple[Any, Any]) -> Any:
    module, name = parts.worker.split(":")
    return getattr(import_module(module), name)(*tiny_opt)


class Stream:
    """One sequence, as the engine would keep it."""

    def __init__(self, worker: Any, prompt: str, temperature: float = 0.0, seed: int = 0) -> None:
        self.prompt: list[int] = worker.tokenizer(prompt)["input_ids"]
        self.sampling = stage.sequence.Sampling(50, temperature, seed)
        self.ids: list[int] = []
        self.stopped = False

    def row(self) -> Any:
        return stage.sequence.Row("id", [*self.prompt, *self.ids], len(self.ids), self.sampling)


def decode_together(worker: Any, streams: list[Stream], steps: int = 50, ignore_eos: bool = False) -> list[Any]:
    """Step all streams that have not stopped; what each step took."""
    works = []
    for _ in range(steps):
        batch = [stream for stream in streams if ignore_eos or not stream.stopped]
        if not batch:
            break
        tokens, work = worker.execute([stream.row() for stream in batch])
        works.append(work)
        for stream, token in zip(batch, tokens, strict=True):
            stream.ids.append(token.id)
            stream.stopped = token.stop
    return works


def test_company_does_not_change_a_token(worker: Any, tiny_opt: tuple[Any, Any]) -> None:
    together = [Stream(worker, prompt) for prompt in PROMPTS]
    decode_together(worker, together, steps=12)
    for prompt, shared in zip(PROMPTS, together, strict=True):
        alone = Stream(worker, prompt)
        decode_together(worker, [alone], steps=12)
        assert shared.ids == alone.ids, f"{prompt!r} gets other tokens in company than alone"
    assert tiny_opt[1].decode(together[0].ids, skip_special_tokens=True) == " 3 4 5 6 7 8 9"


def test_a_stream_ends_at_the_stop_token(worker: Any, tiny_opt: tuple[Any, Any]) -> None:
    stream = Stream(worker, "Count from 3 to 5:")
    decode_together(worker, [stream], steps=10)
    assert stream.stopped and len(stream.ids) == 4, "ran past the stop token"
    assert tiny_opt[1].decode(stream.ids, skip_special_tokens=True) == " 3 4 5"


def test_text_that_spells_the_stop_token_does_not_end_a_stream(worker: Any, tiny_opt: tuple[Any, Any]) -> None:
    stream = Stream(worker, "Which token ends an OPT answer?")
    decode_together(worker, [stream])
    text = tiny_opt[1].decode(stream.ids, skip_special_tokens=True)
    assert text.endswith("the id, never the text."), "stopped at text that only looks like the stop token"
    assert "</s>" in text


def test_the_same_seed_gives_the_same_tokens_in_any_company(worker: Any) -> None:
    alone = Stream(worker, "What is a queue?", temperature=1.5, seed=11)
    decode_together(worker, [alone], steps=15)
    again = Stream(worker, "What is a queue?", temperature=1.5, seed=11)
    other = Stream(worker, "What is a queue?", temperature=1.5, seed=12)
    company = [Stream(worker, prompt, temperature=0.9, seed=place) for place, prompt in enumerate(PROMPTS)]
    decode_together(worker, [*company[:2], again, other, *company[2:]], steps=15)
    assert again.ids == alone.ids
    assert other.ids != alone.ids


def test_greedy_tokens_are_those_of_generate(worker: Any, tiny_opt: tuple[Any, Any]) -> None:
    model, tokenizer = tiny_opt
    stream = Stream(worker, "What does 推論 mean?")
    decode_together(worker, [stream])
    encoded = tokenizer("What does 推論 mean?", return_tensors="pt")
    expected = model.generate(**encoded, do_sample=False, max_new_tokens=50)[0, encoded["input_ids"].shape[1] :]
    assert stream.ids == expected.tolist()


def test_n_streams_of_k_tokens_are_k_forwards_of_n_rows(worker: Any, tiny_opt: tuple[Any, Any]) -> None:
    fed: list[Any] = []
    hook = tiny_opt[0].register_forward_hook(lambda *call: fed.append(call[1][0]), with_kwargs=True)
    try:
        works = decode_together(worker, [Stream(worker, prompt) for prompt in PROMPTS], steps=9, ignore_eos=True)
    finally:
        hook.remove()
    assert [step.shape[0] for step in fed] == [4] * 9
    assert sum(work.forward_passes for work in works) == 9
    assert sum(work.row_steps for work in works) == 36
    assert sum(work.positions_computed for work in works) == sum(step.numel() for step in fed)
    pads = sum(int((step == tiny_opt[1].pad_token_id).sum()) for step in fed)
    assert sum(work.positions_padding for work in works) == pads > 0


def test_without_a_cache_the_work_is_quadratic(worker: Any) -> None:
    """p prompt ids and n tokens attend n*p + n(n-1)/2 positions; 512 after one id, 256.5 times a cache's 512."""
    stream = Stream(worker, "a")
    assert len(stream.prompt) == 1
    works = decode_together(worker, [stream], steps=512, ignore_eos=True)
    attended = sum(work.positions_computed - work.positions_padding for work in works)
    assert attended == 512 * 1 + 512 * 511 // 2
    assert attended / 512 == 256.5
