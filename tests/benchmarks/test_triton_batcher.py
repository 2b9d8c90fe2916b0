"""Triton's batcher beside stage 05's: what is asked and what is counted; and, marked, a full batch of a real Triton."""

import asyncio
import json
from itertools import islice
from typing import Any

import httpx
import pytest

from benchmarks.predicting import predicting, questions
from benchmarks.records import server_side
from benchmarks.scenarios import triton_batcher
from benchmarks.targets import ModelMissing
from flo.triton import TritonError


def triton_questions(count: int) -> list[Any]:
    return [triton_batcher.triton_question(question) for question in islice(questions("wine"), count)]


def test_triton_is_asked_for_the_same_input_and_the_same_label() -> None:
    [question] = islice(questions("wine"), 1)
    asked = triton_batcher.triton_question(question)
    [features] = json.loads(asked.body)["inputs"]
    assert features["data"] == json.loads(question.body)["input_data"]["features"]
    assert (features["shape"], asked.label) == ([1, 13], question.label)


@pytest.mark.parametrize(("text", "outcome"), [("0.99:0:class_0", "ok"), ("0.99:1:class_1", "wrong")])
def test_an_answer_of_triton_is_judged(monkeypatch: pytest.MonkeyPatch, text: str, outcome: str) -> None:
    async def post(self: httpx.AsyncClient, path: str, **_: Any) -> httpx.Response:
        assert path == "/v2/models/wine/infer"
        return httpx.Response(200, json={"outputs": [{"data": [text]}]})

    async def main() -> str:
        async with predicting("http://127.0.0.1:9", "/v2/models/wine/infer", triton_batcher.triton_label) as (send, _):
            [asked] = triton_questions(1)
            return (await send(asked, 0.0)).outcome

    monkeypatch.setattr(httpx.AsyncClient, "post", post)
    assert asyncio.run(main()) == outcome


def test_triton_counts_rows_and_passes() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        queue = {"count": next(counts), "ns": 3_000_000_000}
        counted = {"inference_count": next(counts), "execution_count": next(counts)}
        return httpx.Response(200, json={"model_stats": [{**counted, "inference_stats": {"queue": queue}}]})

    counts = iter([1, 1, 1, 21, 21, 9])

    async def main() -> tuple[Any, Any]:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://triton") as http:
            return await triton_batcher.triton_counters(http), await triton_batcher.triton_counters(http)

    assert server_side([asyncio.run(main())]) == {"queue_wait": 0.0, "rows_per_forward": 2.5}


def test_a_delay_is_told_to_triton_in_microseconds() -> None:
    assert "dynamic_batching { max_queue_delay_microseconds: 5000 }" in triton_batcher.dynamic_batching(5)
    assert "dynamic_batching { max_queue_delay_microseconds: 0 }" in triton_batcher.dynamic_batching(0)
    assert triton_batcher.dynamic_batching("off") == ""


def test_without_a_triton_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*_: object, **__: object) -> None:
        raise TritonError("nvidia-pytriton has Triton for Linux on x86-64 only")

    monkeypatch.setattr(triton_batcher, "running_triton", unavailable)
    with pytest.raises(ModelMissing, match="`flo triton` gets no server here: nvidia-pytriton has"):
        triton_batcher.run(1.0, lambda _: None)


@pytest.mark.triton
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("delay", "passes"), [(60_000, 1), ("off", 32)])
def test_a_full_batch_of_a_real_triton_is_one_pass(delay: int | str, passes: int) -> None:
    async def main(url: str) -> tuple[list[str], Any]:
        async with predicting(url, "/v2/models/wine/infer", triton_batcher.triton_label) as (send, http):
            records = await asyncio.gather(*(send(asked, 0.0) for asked in triton_questions(32)))
            return [record.outcome for record in records], await triton_batcher.triton_counters(http)

    with triton_batcher.served(triton_batcher.THEIRS, delay) as url:
        outcomes, counters = asyncio.run(main(url))
    assert outcomes == ["ok"] * 32
    assert (counters["row_steps"], counters["forward_passes"]) == (32, passes)
