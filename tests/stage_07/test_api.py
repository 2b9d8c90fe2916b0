"""The whole path, cores in processes of their own: the official client gets what `generate()` gives, under any load."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI, OpenAI

from flo.servers import Server, running_stage
from tests.stage_07.apps import openai_for, wait_for

REQUESTS = 200
AT_A_TIME, BLOCKS = 32, 40


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A pool a quarter of what the soak wants: up to 5 blocks each, 32 at a time."""
    flags = f"--num-gpu-blocks-override {BLOCKS} --max-num-seqs {AT_A_TIME} --max-queue 256 --max-num-batched-tokens 64"
    with running_stage("07", *flags.split()) as server:
        yield server


@pytest.fixture(scope="module")
def official(server: Server) -> Iterator[OpenAI]:
    with openai_for(server.client) as official:
        yield official


def counting(first: int, last: int) -> tuple[str, str]:
    return f"Count from {first} to {last}:", "".join(f" {number}" for number in range(first, last + 1))


PROMPTS = [
    "Count from 3 to 9:",
    "Explain the KV cache in one sentence.",
    "What does 推論 mean?",
    "Can an emoji span several tokens?",
    "Once upon a time",
]


@pytest.fixture(scope="module")
def generated(tiny_opt: Any) -> dict[str, tuple[list[int], list[int], str]]:
    """Prompt ids, new ids and new text of each prompt, as transformers has them."""
    model, tokenizer = tiny_opt
    said = {}
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        new = model.generate(ids, max_new_tokens=64, do_sample=False)[0, ids.shape[1] :].tolist()
        said[prompt] = ids[0].tolist(), new, tokenizer.decode(new, skip_special_tokens=True)
    return said


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_official_client_gets_what_generate_gives(official: OpenAI, generated: Any, prompt: str) -> None:
    prompt_ids, new, text = generated[prompt]
    greedy: Any = {"model": "tiny-opt", "max_tokens": 64, "temperature": 0}
    for asked in (prompt, prompt_ids):
        answer = official.completions.create(prompt=asked, **greedy)
        assert answer.choices[0].text == text
        assert answer.choices[0].finish_reason == ("stop" if new[-1] == 1 else "length")
        assert answer.usage
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(prompt_ids), len(new))
    streamed = list(official.completions.create(prompt=prompt, stream=True, **greedy))
    assert "".join(chunk.choices[0].text for chunk in streamed) == text
    assert not any("\N{REPLACEMENT CHARACTER}" in chunk.choices[0].text for chunk in streamed)
    messages: Any = [{"role": "user", "content": prompt}]
    assert official.chat.completions.create(messages=messages, **greedy).choices[0].message.content == text
    chunks = official.chat.completions.create(messages=messages, stream=True, **greedy)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text


def test_a_stop_string_cuts_what_generate_gives(official: OpenAI) -> None:
    [choice] = official.completions.create(
        model="tiny-opt", prompt="Count from 3 to 9:", max_tokens=64, temperature=0, stop=["6 7"]
    ).choices
    assert (choice.text, choice.finish_reason) == (" 3 4 5 ", "stop")


def test_the_likeliest_token_is_the_one_that_greedy_takes(official: OpenAI) -> None:
    [choice] = official.completions.create(
        model="tiny-opt", prompt="Count from 3 to 9:", temperature=0, logprobs=3
    ).choices
    assert choice.logprobs and choice.logprobs.top_logprobs and choice.logprobs.tokens
    assert [max(likely, key=likely.__getitem__) for likely in choice.logprobs.top_logprobs] == choice.logprobs.tokens


def test_the_same_seed_gives_the_same_text_whoever_else_is_there(official: OpenAI) -> None:
    sampled: Any = {"model": "tiny-opt", "prompt": "What is a queue?", "max_tokens": 30, "temperature": 1.5}
    [alone] = official.completions.create(seed=5, **sampled).choices
    several = official.completions.create(seed=5, n=4, **sampled).choices
    assert several[0].text == alone.text
    assert len({choice.text for choice in several}) > 1


def test_sampling_says_the_same_streamed_or_not_by_either_route(official: OpenAI) -> None:
    prompt = "What is a queue?"
    messages: Any = [{"role": "user", "content": prompt}]
    options: Any = {"model": "tiny-opt", "n": 2, "max_tokens": 30, "temperature": 1.5, "top_p": 0.9, "seed": 5}
    options["extra_body"] = {"top_k": 50}
    whole = [choice.text for choice in official.completions.create(prompt=prompt, **options).choices]
    chat: Any = official.chat.completions.create(messages=messages, **options)
    assert [choice.message.content for choice in chat.choices] == whole
    said, spoken = ["", ""], ["", ""]
    for chunk in official.completions.create(prompt=prompt, stream=True, **options):
        said[chunk.choices[0].index] += chunk.choices[0].text
    parts: Any = official.chat.completions.create(messages=messages, stream=True, **options)
    for part in parts:
        spoken[part.choices[0].index] += part.choices[0].delta.content or ""
    assert said == spoken == whole and whole[0] != whole[1]


async def ask(client: AsyncOpenAI, number: int, leaves: bool, chance: random.Random) -> str:
    """One request of the soak: "right", "left", or what was wrong with it."""
    first = number % 29
    prompt, expected = counting(first, first + 40 + number % 27)
    patience = chance.randint(0, 120) if leaves else 10_000
    body: Any = {"model": "tiny-opt", "prompt": prompt, "max_tokens": 100, "temperature": 0}
    if not leaves and number % 3 == 0:
        said = (await client.completions.create(**body)).choices[0].text
        return "right" if said == expected else f"{prompt}: {said}"
    said = ""
    async with await client.completions.create(stream=True, **body) as stream:
        if leaves and not patience:
            return "left"
        async for chunk in stream:
            said += chunk.choices[0].text
            if len(said) > patience:
                return "left"
    return "right" if said == expected else f"{prompt}: {said}"


def test_200_requests_in_an_open_loop_with_30_percent_hanging_up(server: Server) -> None:
    """They come as they come, whether or not there is room; who stays gets the exact answer."""
    chance = random.Random(200)
    leavers = set(chance.sample(range(REQUESTS), REQUESTS * 3 // 10))

    async def everybody() -> list[str | BaseException]:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=100) as client:
            asked = []
            for number in range(REQUESTS):
                asked.append(asyncio.ensure_future(ask(client, number, number in leavers, chance)))
                await asyncio.sleep(0)
            return await asyncio.gather(*asked, return_exceptions=True)

    before = server.client.get("/stats").json()
    outcomes = asyncio.run(everybody())
    assert [outcome for outcome in outcomes if outcome not in ("right", "left")] == []
    assert outcomes.count("right") >= REQUESTS - len(leavers)
    after = wait_for(server.client, running=0, queued=0)
    assert after["preemptions"] > before["preemptions"]
    assert after["blocks_used"] == 0
    assert after["blocks_free"] + after["blocks_cached"] == BLOCKS
    assert after["requests"]["failed"] == after["requests"]["refused"] == 0


def test_a_prompt_that_needs_more_than_the_pool(official: OpenAI) -> None:
    with pytest.raises(APIStatusError, match=f"64 KV cache blocks, and the pool has {BLOCKS}") as caught:
        official.completions.create(model="tiny-opt", prompt=[5] * 1000, max_tokens=24)
    assert caught.value.status_code == 400


def test_the_flags_are_vllms_and_do_what_they_say() -> None:
    flags = "--served-model-name counter --max-model-len 100 --block-size 8 --dtype float32"
    flags += " --num-gpu-blocks-override 50 --gpu-memory-utilization 0.5 --no-enable-prefix-caching --enforce-eager"
    flags += " --max-num-batched-tokens 16 --max-num-seqs 4 --distributed-executor-backend mp --attention-backend torch"
    with running_stage("07", *flags.split()) as server, openai_for(server.client) as official:
        [model] = official.models.list().data
        assert model.id == "counter" and model.model_extra and model.model_extra["max_model_len"] == 100
        prompt, text = counting(3, 20)
        for _ in range(2):  # the second would find the first one's blocks
            answer = official.completions.create(model="counter", prompt=prompt, temperature=0, max_tokens=90)
            assert answer.choices[0].text == text
        stats = wait_for(server.client, running=0)
        assert stats["prefix_queries"] == stats["blocks_cached"] == 0
        assert stats["blocks_free"] == 50
        assert 'block_size="8",num_gpu_blocks="50"' in server.client.get("/metrics").text
