"""The routes over a scripted core: what the official client gets, what is refused, and in whose words."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from httpx_sse import connect_sse
from openai import OpenAI

from tests.conftest import ROOT
from tests.serving import Stage
from tests.stage_07.apps import openai_for, scripted, wait_for
from tests.stage_07.scripted import TOKENIZER, Cores

stage = Stage("07_paged_attention")
MODEL = str(ROOT / "models" / "tiny-opt")
IDS = TOKENIZER.encode("ab").ids


@pytest.fixture(scope="module")
def cores() -> Cores:
    return Cores()


@pytest.fixture(scope="module")
def client(cores: Cores) -> Any:
    with scripted(cores=cores) as client:
        yield client


@pytest.fixture(scope="module")
def official(client: httpx.Client) -> Any:
    with openai_for(client) as official:
        yield official


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [("ab", ["ab"]), (["ab", "cd"], ["ab", "cd"]), (IDS, ["ab"]), ([IDS, [*IDS, *IDS]], ["ab", "abab"])],
)
@pytest.mark.parametrize("n", [1, 2])
def test_completions_of_texts_and_ids_one_or_many(official: OpenAI, prompt: Any, texts: list[str], n: int) -> None:
    answer = official.completions.create(model="tiny-opt", prompt=prompt, n=n)
    expected = [text for text in texts for _ in range(n)]
    assert [choice.text for choice in answer.choices] == expected
    assert [choice.index for choice in answer.choices] == list(range(len(expected)))
    assert {choice.finish_reason for choice in answer.choices} == {"stop"}
    assert answer.usage
    assert answer.usage.prompt_tokens == sum(map(len, texts))
    assert answer.usage.completion_tokens == sum(len(text) + 1 for text in expected)
    streamed = dict.fromkeys(range(len(expected)), "")
    for chunk in official.completions.create(model="tiny-opt", prompt=prompt, n=n, stream=True):
        [choice] = chunk.choices
        streamed[choice.index] += choice.text
    assert list(streamed.values()) == expected


def test_a_completion_has_16_tokens_by_default(official: OpenAI) -> None:
    [choice] = official.completions.create(model="tiny-opt", prompt="ab" * 10).choices
    assert (choice.text, choice.finish_reason) == ("ab" * 8, "length")


def create(official: OpenAI, chat: bool, prompt: str, **options: Any) -> Any:
    """The same request to either route."""
    if not chat:
        return official.completions.create(model="tiny-opt", prompt=prompt, **options)
    messages: Any = [{"role": "user", "content": prompt}]
    return official.chat.completions.create(model="tiny-opt", messages=messages, **options)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("chat", [False, True])
def test_options_reach_the_core(official: OpenAI, cores: Cores, chat: bool, stream: bool) -> None:
    options: Any = {"max_tokens": 7, "temperature": 0.5, "top_p": 0.25, "seed": 9, "n": 2, "stream": stream}
    options |= {"logprobs": True, "top_logprobs": 3} if chat else {"logprobs": 3}
    answer = create(official, chat, "ab", **options, extra_body={"top_k": 4, "ignore_eos": True})
    reasons = [choice.finish_reason for part in (answer if stream else [answer]) for choice in part.choices]
    assert [reason for reason in reasons if reason] == ["length"] * 2
    first, second = [add.sampling for add in cores.launched[0].wait_for("Add")[-2:]]
    params = stage.messages.SamplingParams
    assert first == params(7, temperature=0.5, top_p=0.25, top_k=4, seed=9, ignore_eos=True, logprobs=3)
    assert second == params(7, temperature=0.5, top_p=0.25, top_k=4, seed=10, ignore_eos=True, logprobs=3)
    official.completions.create(model="tiny-opt", prompt="ab", extra_body={"top_k": -1})
    assert cores.launched[0].wait_for("Add")[-1].sampling.top_k == 0


@pytest.mark.parametrize("chat", [False, True])
def test_a_stream_ends_with_its_usage_if_asked(official: OpenAI, chat: bool) -> None:
    asked: Any = {"max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}}
    chunks = list(create(official, chat, "ab" * 10, **asked))
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-3:] == [None, None, "length"]
    usage = chunks[-1].usage
    assert chunks[-1].choices == [] and usage and usage.prompt_tokens_details
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (20, 3, 23)
    assert usage.prompt_tokens_details.cached_tokens == 16
    assert len({chunk.id for chunk in chunks}) == 1


@pytest.mark.parametrize("stop", [" 6", ["zz", " 6 7", "6"]])
def test_a_stop_string_ends_it_and_the_core_is_told(stop: Any) -> None:
    cores = Cores(manual=True)
    with ThreadPoolExecutor() as pool, scripted(cores=cores) as client, openai_for(client) as official:
        asked = pool.submit(official.completions.create, model="tiny-opt", prompt=" 5 6 7 8", max_tokens=500, stop=stop)
        cores.launched[0].wait_for("Add")
        cores.launched[0].step(2)
        [abort] = cores.launched[0].wait_for("Abort")
        answer = asked.result(30)
        assert (answer.choices[0].text.rstrip(), answer.choices[0].finish_reason) == (" 5", "stop")
        assert answer.usage and answer.usage.completion_tokens == 2
        assert abort.request_ids == [f"{answer.id.removeprefix('cmpl-')}-0"]
        wait_for(client, running=0)


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("stop", [" 6", ["zz", " 6 7", "6"]])
def test_a_stop_string_ends_a_stream_and_nothing_of_it_is_sent(official: OpenAI, chat: bool, stop: Any) -> None:
    said, reasons = "", []
    for chunk in create(official, chat, " 5 6 7 8", stream=True, stop=stop):
        [choice] = chunk.choices
        said += (choice.delta.content or "") if chat else choice.text
        reasons.append(choice.finish_reason)
    assert said.rstrip() == " 5"
    assert reasons[-1] == "stop" and not any(reasons[:-1])


def test_logprobs_of_a_completion(official: OpenAI) -> None:
    [choice] = official.completions.create(model="tiny-opt", prompt="ab", logprobs=2).choices
    told = choice.logprobs
    assert told
    assert told.tokens == ["a", "b", "</s>"]
    assert told.token_logprobs == [-0.5, -0.5, -0.5]
    assert told.text_offset == [0, 1, 2]
    assert told.top_logprobs and [len(likeliest) for likeliest in told.top_logprobs] == [2, 2, 2]
    [plain] = official.completions.create(model="tiny-opt", prompt="ab").choices
    assert plain.logprobs is None
    streamed: list[str] = []
    for chunk in official.completions.create(model="tiny-opt", prompt="ab", logprobs=0, stream=True):
        logprobs = chunk.choices[0].logprobs
        assert logprobs and logprobs.tokens and logprobs.text_offset == [len("".join(streamed))]
        streamed += logprobs.tokens
    assert streamed == ["a", "b", "</s>"]


def test_chats(official: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "ab"}]
    answer = official.chat.completions.create(model="tiny-opt", messages=messages, n=2)
    assert [choice.message.content for choice in answer.choices] == ["ab", "ab"]
    assert {choice.message.role for choice in answer.choices} == {"assistant"}
    assert {choice.finish_reason for choice in answer.choices} == {"stop"}
    said = ["", ""]
    chunks = list(official.chat.completions.create(model="tiny-opt", messages=messages, n=2, stream=True))
    assert [chunk.choices[0].delta.role for chunk in chunks].count("assistant") == 2
    for chunk in chunks:
        said[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert said == ["ab", "ab"]
    parts: Any = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert official.chat.completions.create(model="tiny-opt", messages=parts).choices[0].message.content == "ab"


def test_a_chat_may_take_all_there_is(official: OpenAI, cores: Cores) -> None:
    messages: Any = [{"role": "user", "content": "ab"}]
    official.chat.completions.create(model="tiny-opt", messages=messages)
    assert cores.launched[0].wait_for("Add")[-1].sampling.max_tokens == 1024 - 2
    answer = official.chat.completions.create(model="tiny-opt", messages=messages, max_completion_tokens=1)
    assert answer.choices[0].message.content == "a"
    assert (
        official.chat.completions.create(model="tiny-opt", messages=messages, max_tokens=1).choices[0].message.content
    )


def test_logprobs_of_a_chat(official: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "ab"}]
    answer = official.chat.completions.create(model="tiny-opt", messages=messages, logprobs=True, top_logprobs=2)
    told = answer.choices[0].logprobs
    assert told and told.content
    assert [token.token for token in told.content] == ["a", "b", "</s>"]
    assert [token.logprob for token in told.content] == [-0.5, -0.5, -0.5]
    assert [len(token.top_logprobs) for token in told.content] == [2, 2, 2]
    assert told.content[0].bytes == [ord("a")]
    asked: Any = {"logprobs": True, "top_logprobs": 2, "stream": True}
    parts = [chunk.choices[0].logprobs for chunk in create(official, True, "ab", **asked)]
    assert [token for part in parts if part for token in part.content] == told.content


def test_models(official: OpenAI) -> None:
    [model] = official.models.list().data
    assert model.id == "tiny-opt"
    assert model.model_extra and model.model_extra["max_model_len"] == 1024
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-4'"):
        official.completions.create(model="gpt-4", prompt="ab")


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({}, "prompt", "required"),
        ({"prompt": None}, "prompt", "required"),
        ({"prompt": ""}, "prompt", "at least 1"),
        ({"prompt": []}, "prompt", "at least 1"),
        ({"prompt": ["a", ""]}, "prompt[1]", "at least 1"),
        ({"prompt": ["a", [5]]}, "prompt", "a list of either"),
        ({"prompt": [5, 896]}, "prompt", "896"),
        ({"prompt": [-1]}, "prompt", "a list of either"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"prompt": "a", "n": 0}, "n", "greater than or equal to 1"),
        ({"prompt": "a", "n": 129}, "n", "less than or equal to 128"),
        ({"prompt": ["a"] * 65, "n": 2}, None, "130 sequences; at most 128 may wait"),
        ({"prompt": "a", "temperature": -0.1}, "temperature", "greater than or equal to 0"),
        ({"prompt": "a", "temperature": "hot"}, "temperature", "number"),
        ({"prompt": "a", "top_p": 0}, "top_p", "greater than 0"),
        ({"prompt": "a", "top_p": 1.1}, "top_p", "less than or equal to 1"),
        ({"prompt": "a", "top_k": -2}, "top_k", "greater than or equal to -1"),
        ({"prompt": "a", "seed": -1}, "seed", "greater than or equal to 0"),
        ({"prompt": "a", "seed": 1 << 63}, "seed", "less than"),
        ({"prompt": "a", "stop": ["x"] * 17}, "stop", "up to 16"),
        ({"prompt": "a", "stop": ""}, "stop", "up to 16"),
        ({"prompt": "a", "logprobs": 21}, "logprobs", "less than or equal to 20"),
        ({"prompt": "a", "stream_options": {}}, "stream_options", "only for stream: true"),
        ({"prompt": "a", "stream": True, "stream_options": {"x": 1}}, "stream_options.x", "not permitted"),
    ],
)
def test_bad_input_names_the_parameter_and_the_limit(client: httpx.Client, body: Any, param: Any, said: str) -> None:
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert said in error["message"]


def test_more_sequences_than_may_ever_wait_cost_nothing(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are refused by their number, before any of them is tokenized or made."""

    def must_not(*_: Any) -> None:
        pytest.fail("work was done for what cannot be served")

    monkeypatch.setattr(stage.engine, "Choice", must_not)
    monkeypatch.setattr(stage.tokenization.Tokenizer, "encode", must_not)
    answer = client.post("/v1/completions", json={"prompt": ["a"] * 100_000, "n": 128})
    assert answer.status_code == 400
    assert "12800000 sequences; at most 128 may wait" in answer.json()["error"]["message"]


UNSUPPORTED = {
    "best_of": 2, "echo": True, "presence_penalty": 0.5, "frequency_penalty": 0.5, "logit_bias": {"5": 1.0},
    "suffix": "x", "min_p": 0.1, "repetition_penalty": 1.1,
    "user": "me", "guided_json": {}, "prompt_logprobs": 1, "min_tokens": 1,
}  # fmt: skip
CHAT_ONLY = {"tools": [{"type": "function"}], "tool_choice": "auto", "response_format": {"type": "json_object"}}


@pytest.mark.parametrize("option", [*UNSUPPORTED, *CHAT_ONLY])
def test_what_is_not_supported_is_refused_by_name(client: httpx.Client, option: str) -> None:
    value = (UNSUPPORTED | CHAT_ONLY)[option]
    for path, body in (
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
    ):
        answer = client.post(path, json={**body, option: value})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == option
        assert option in answer.json()["error"]["message"]


def test_what_asks_for_nothing_is_no_reason_to_refuse(client: httpx.Client) -> None:
    nothing = {
        "best_of": 1, "echo": False, "suffix": None, "presence_penalty": 0.0, "frequency_penalty": 0, "logit_bias": {},
        "stop": None, "seed": None, "max_tokens": None, "logprobs": None, "user": None, "stream_options": None,
    }  # fmt: skip
    assert client.post("/v1/completions", json={"prompt": "a", **nothing}).status_code == 200


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({}, "messages", "required"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "required"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "messages[0].role", "'user'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content", "text"),
        ({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2}, "top_logprobs", "logprobs: true"),
        ({"messages": [{"role": "user", "content": "a" * 2000}]}, "messages", "1024"),
    ],
)
def test_bad_chats_are_refused(client: httpx.Client, body: Any, param: str, said: str) -> None:
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert said in answer.json()["error"]["message"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(client: httpx.Client, number: str) -> None:
    body = f'{{"prompt": "a", "temperature": {number}}}'
    answer = client.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "temperature"


def test_what_is_no_json_and_what_is_too_long_is_refused_in_the_same_form(client: httpx.Client) -> None:
    for content, status in ((b"{", 400), (b'{"prompt": "\\ud800"}', 400), (b"[" + b"1," * (1 << 20), 413)):
        answer = client.post("/v1/completions", content=content, headers={"content-type": "application/json"})
        assert answer.status_code == status
        assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
    assert client.get("/v1/nowhere").json()["error"]["type"] == "invalid_request_error"
    assert client.get("/nowhere").json()["error"].keys() == {"message", "field", "request_id"}


def test_a_prompt_that_does_not_fit_is_told_at_once(parts: Any, patience: float) -> None:
    with scripted(parts, Cores(num_blocks=4)) as client:
        for prompt, new, numbers in (("a" * 1020, 5, ("1025", "1024")), ("a" * 60, 6, ("5", "4"))):
            body = {"prompt": prompt, "max_tokens": new}
            try:
                answer = client.post("/v1/completions", json=body, timeout=patience)
            except httpx.ReadTimeout:
                pytest.fail("a prompt that does not fit got no reply")
            assert answer.status_code == 400, "a prompt that does not fit was answered as if it did"
            assert all(number in answer.json()["error"]["message"] for number in numbers)
        assert client.post("/v1/completions", json={"prompt": "a" * 60, "max_tokens": 5}).status_code == 200


def test_two_requests_may_have_the_same_id(parts: Any, patience: float) -> None:
    cores = Cores(manual=True)
    with ThreadPoolExecutor() as pool, scripted(parts, cores) as client:

        def ask(prompt: str) -> Any:
            headers = {"X-Request-Id": "twin"}
            return client.post("/v1/completions", json={"prompt": prompt}, headers=headers, timeout=patience)

        first = pool.submit(ask, "ab")
        core = cores.launched[0]
        core.wait_for("Add")
        second = pool.submit(ask, "cd")
        second.add_done_callback(lambda _: core.look())
        core.wait(lambda: second.done() or len(core.received) == 2)
        cores.manual = False
        try:
            answers = first.result(30), second.result(30)
        except httpx.ReadTimeout:
            pytest.fail("two requests with one id got each other's tokens")
        assert [answer.status_code for answer in answers] == [200, 200], (
            "a request was refused for what another client calls its own"
        )
        texts = [answer.json()["choices"][0]["text"] for answer in answers]
        assert texts == ["ab", "cd"], "two requests with one id got each other's tokens"
        assert len({answer.json()["id"] for answer in answers}) == 2
        assert all(answer.json()["id"].startswith("cmpl-twin-") for answer in answers)


def test_the_loop_turns_while_a_prompt_is_tokenized(parts: Any, patience: float) -> None:
    tokenizer, turned, stood_still = parts.tokenizer(MODEL), threading.Event(), []

    class Slow:
        """Does not return until the event loop has had a turn."""

        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            self.loop = loop

        def encode(self, text: str) -> Any:
            self.loop.call_soon_threadsafe(turned.set)
            stood_still.append(not turned.wait(patience))
            return TOKENIZER.encode(text)

        def encode_batch(self, texts: list[str]) -> list[Any]:
            return [self.encode(text) for text in texts]

    async def tokenize() -> list[int]:
        tokenizer.rust = Slow(asyncio.get_running_loop())
        return await tokenizer.encode("ab")

    assert asyncio.run(tokenize()) == IDS
    assert stood_still == [False], "the event loop stood still"


def test_a_full_queue_says_when_to_come_back() -> None:
    cores = Cores(manual=True)
    with ThreadPoolExecutor() as pool, scripted(cores=cores, max_queue=2, max_num_seqs=1) as client:
        running = pool.submit(client.post, "/v1/completions", json={"prompt": "abcdefgh"})
        cores.launched[0].wait_for("Add")
        cores.launched[0].step()
        wait_for(client, running=1)
        waiting = pool.submit(client.post, "/v1/completions", json={"prompt": ["ab", "cd"]})
        wait_for(client, queued=2)
        refused = client.post("/v1/completions", json={"prompt": "one too many"})
        assert refused.status_code == 503
        assert int(refused.headers["Retry-After"]) >= 1
        assert "2 of 2" in refused.json()["error"]["message"]
        assert refused.json()["error"]["type"] == "server_error"
        cores.manual = False
        assert running.result(30).status_code == waiting.result(30).status_code == 200


def test_a_client_that_hangs_up_frees_its_place() -> None:
    cores = Cores(manual=True)
    with ThreadPoolExecutor() as pool, scripted(cores=cores) as client:
        core = cores.launched[0]
        body = {"prompt": ["abc", "def"], "stream": True}
        with connect_sse(client, "POST", "/v1/completions", json=body) as source:
            stream = source.iter_sse()
            core.step()
            assert json.loads(next(stream).data)["choices"][0]["text"] == "a"
        [abort] = core.wait_for("Abort")
        assert len(abort.request_ids) == 2
        wait_for(client, running=0)
        with pytest.raises(httpx.ReadTimeout):
            client.post("/v1/completions", json={"prompt": "abc"}, timeout=0.2)
        core.wait_for("Abort", 2)
        cores.manual = False
        assert pool.submit(client.post, "/v1/completions", json={"prompt": "abc"}).result(30).status_code == 200
        assert client.get("/stats").json()["requests"] == {"completed": 1, "refused": 0, "failed": 0, "hung_up": 2}


def test_text_comes_while_the_core_still_works() -> None:
    cores = Cores(manual=True)
    with scripted(cores=cores) as client:
        messages = [{"role": "user", "content": "推論"}]
        with connect_sse(client, "POST", "/v1/chat/completions", json={"messages": messages, "stream": True}) as source:
            assert source.response.headers["cache-control"] == "no-store"
            stream, said = source.iter_sse(), ""
            assert json.loads(next(stream).data)["choices"][0]["delta"] == {"role": "assistant", "content": ""}
            while not said:
                cores.launched[0].step()
                if cores.launched[0].steps == len(TOKENIZER.encode("推").ids):
                    said = json.loads(next(stream).data)["choices"][0]["delta"]["content"]
            assert said == "推"
            cores.manual = False
            assert [event.data for event in stream][-1] == "[DONE]"


def test_a_request_that_fails_at_the_core_is_an_error_in_both_forms(client: httpx.Client, official: OpenAI) -> None:
    answer = client.post("/v1/completions", json={"prompt": ["fine", "raise"]})
    assert answer.status_code == 500
    assert answer.json()["error"]["message"] == "scripted trouble"
    with pytest.raises(openai.APIError, match="scripted trouble"):
        list(official.completions.create(model="tiny-opt", prompt="raise", stream=True))
    wait_for(client, running=0, queued=0)


def test_the_metrics_page_names_what_it_counts(client: httpx.Client) -> None:
    client.post("/v1/completions", json={"prompt": "ab"})
    page = client.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    for name in (
        "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prefix_cache_queries_total",
        "prefix_cache_hits_total", "num_preemptions_total", "time_to_first_token_seconds_bucket",
        "inter_token_latency_seconds_bucket", "e2e_request_latency_seconds_bucket",
    ):  # fmt: skip
        assert f"\nvllm:{name}{{" in page.text
    assert '\nvllm:cache_config_info{block_size="16",num_gpu_blocks="256"} 1.0' in page.text


def test_the_route_that_every_stage_has(client: httpx.Client) -> None:
    assert client.post("/basic_generate", json={"prompt": "ab"}).json() == {"generated_text": "ab"}
    refused = client.post("/basic_generate", json={"prompt": "ab", "max_new_tokens": 0})
    assert refused.status_code == 422
    assert refused.json()["error"]["field"] == "max_new_tokens"
