"""What the tour asks of each stage, and what it points out there. A new stage gets one entry in `VISITS`.

Remarks are templates over `figures.Figures`: its fields, its capacity, and the growth of each counter of `/stats`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from .asking import Ask
from .catalog import ROOT


@dataclass(frozen=True)
class Visit:
    """The plan for one stage."""

    samples: tuple[Ask, ...]
    """asked first, one after another, and shown with their answers"""
    question: Callable[[int, int], Ask]
    """what user number n asks in round number m"""
    notice: tuple[str, ...]
    """remarks about the figures"""
    users: int = 10
    rounds: int = 3
    one_model: bool = True
    """whether it serves the one model that `--model` names"""


def count(path: str, first: int, last: int, **more: object) -> Ask:
    """A prompt that fixes its answer."""
    answer = "".join(f" {number}" for number in range(first, last + 1))
    return Ask(path, {"prompt": f"Count from {first} to {last}:", **more}, answer)


def basic(user: int, number: int) -> Ask:
    """Each user counts from elsewhere, and some count further: 4 to 22 numbers."""
    first = 5 + 7 * user + 3 * number
    return count("/basic_generate", first, first + 3 + 2 * user)


def streamed(user: int, number: int) -> Ask:
    """The same questions in the streaming lane, greedily, so that the answers stay fixed."""
    asked = basic(user, number)
    return Ask("/generate_stream", {**asked.body, "temperature": 0, "max_new_tokens": 50}, asked.expected)


CLASSIFIERS = ("digits", "shapes", "intents", "iris")


def classify(name: str, number: int) -> Ask:
    """One of the samples that ship with a classifier; the file's name tells the right answer."""
    paths = sorted((ROOT / "models" / "samples").glob(f"{name}-*.json"))
    path = paths[number % len(paths)]
    return Ask("/predict", json.loads(path.read_text("utf-8")), path.stem.partition("-")[2])


STREAMERS = ("3e0f7b52-9c64-4d18-8a2b-6f5d1c90e706", "a47c18d9-52e6-4b0d-9f31-08b6d7e2c507")


def pinned(user: int, number: int) -> Ask:
    """The questions of stage 03, to the two ids of the model that streams: with two slots, that is all there is."""
    asked = streamed(user, number)
    return Ask(asked.path, {"model_id": STREAMERS[user % 2], **asked.body}, asked.expected)


def completed(user: int, number: int) -> Ask:
    """The same questions as OpenAI's clients put them, streamed."""
    asked, options = basic(user, number), {"max_tokens": 50, "temperature": 0, "stream": True}
    return Ask("/v1/completions", {**asked.body, **options}, asked.expected)


VISITS: dict[str, Visit] = {
    "01_single_request": Visit(
        samples=(
            count("/basic_generate", 3, 9),
            Ask("/basic_generate", {"prompt": "Explain the KV cache in one sentence."}),
        ),
        question=basic,
        notice=(
            "{requests} requests cost {passes} passes: one at a time, however many are waiting.",
            "The quickest answer took {latency_min:.2f} s, the median {latency_p50:.2f} s: most of that is waiting.",
            "Each forward pass moved {rows_per_forward:.0f} row. Flo could carry {capacity:.0f} for nearly the price of"
            " one, so by rows she was {busy_rows:.0%} busy.",
            "See it break: flo run 01 --fault crossed_replies. See one request's way: flo follow 01",
        ),
    ),
    "02_static_batching": Visit(
        samples=(
            count("/basic_generate", 3, 9),
            Ask("/generate", {"prompts": ["Count from 3 to 9:", "Count from 20 to 22:"]}, " 3 4 5 6 7 8 9\n 20 21 22"),
        ),
        question=basic,
        notice=(
            "{requests} requests cost {passes} passes: whoever waits goes along, up to the size of the batch.",
            "Each forward pass moved {rows_per_forward:.1f} rows, so by rows Flo was {busy_rows:.0%} busy.",
            "A batch waits for its slowest member: of {row_steps:.0f} row-steps, {idle_row_steps:.0f} went to rows that"
            " had finished.",
            "What changed in the code: flo diff 01 02",
        ),
    ),
    "03_continuous_streaming": Visit(
        samples=(
            count("/generate_stream", 3, 9, temperature=0),
            Ask("/generate_stream", {"prompt": "What does 推論 mean?", "temperature": 0, "max_new_tokens": 50}),
        ),
        question=streamed,
        notice=(
            "The first piece of text came after {ttft_p50:.2f} s in the median, the whole answer after"
            " {latency_p50:.2f} s: a reader starts long before the model has finished.",
            "Each forward pass moved {rows_per_forward:.1f} rows, because who finished leaves and who waits joins at"
            " every step: by rows Flo was {busy_rows:.0%} busy, and by time {busy_time:.0%}.",
            "No row-step went to a row that had finished: {idle_row_steps:.0f} of {row_steps:.0f}.",
            "Every step computes every row from its first token: {positions_attended:.0f} positions for"
            " {row_steps:.0f} tokens. A cache would feed each prompt once, and then one position a token.",
            "What changed in the code: flo diff 02 03. See it break: flo run 03 --fault eos_never_fires",
        ),
    ),
    "04_lru_models": Visit(
        samples=tuple(classify(name, 0) for name in CLASSIFIERS),
        question=lambda user, number: classify(CLASSIFIERS[(user // 3 + number) % 4], user),
        one_model=False,
        notice=(
            "{requests} requests for four models on two slots: {hits:.0f} found theirs in memory or on its way there,"
            " {misses:.0f} did not.",
            "There were {loads:.0f} loads and {evictions:.0f} evictions; loading took {load_seconds:.1f} s in all.",
            "Each input is a pass of its own: {row_steps:.0f} inputs, {passes} passes. Stage 05 changes that.",
            "See what is where: GET /models. See it break: flo run 04 --fault eviction_keeps_memory",
        ),
    ),
    "05_dynamic_batcher": Visit(
        samples=tuple(classify(name, 0) for name in CLASSIFIERS),
        question=lambda user, number: classify(CLASSIFIERS[number % 2], user),
        one_model=False,
        notice=(
            "{requests} requests for two models cost {passes} passes: whoever came within a few milliseconds of each"
            " other went along.",
            "Each pass moved {rows_per_forward:.1f} rows, so by rows Flo was {busy_rows:.0%} busy.",
            "The knob is --max-delay-ms: latency that is added on purpose. Try 0, and 200.",
            "See it break: flo run 05 --fault only_when_full. What changed in the code: flo diff 04 05",
        ),
    ),
    "06_pinned_streams": Visit(
        samples=(classify("iris", 0), count("/generate_stream", 3, 9, temperature=0, model_id=STREAMERS[0])),
        question=pinned,
        one_model=False,
        notice=(
            "The first piece of text came after {ttft_p50:.2f} s in the median, the whole answer after"
            " {latency_p50:.2f} s; the two models streamed side by side.",
            "Each prompt was computed once, and then one position a token: {positions_attended:.0f} positions for"
            " {row_steps:.0f} tokens. Compare stage 03.",
            "Evictions: {evictions:.0f}, of the idle model that you saw first. Whoever streams is not evicted."
            " Ask for a third model meanwhile, and you get 503 with a hint when to come back.",
            "See it break: flo run 06 --fault kill_when_full. What changed in the code: flo diff 05 06",
        ),
    ),
    "07_paged_attention": Visit(
        samples=(
            count("/v1/completions", 3, 9, temperature=0),
            Ask(
                "/v1/chat/completions",
                {"messages": [{"role": "user", "content": "Explain the KV cache in one sentence."}], "temperature": 0},
            ),
        ),
        question=completed,
        notice=(
            "The first piece of text came after {ttft_p50:.2f} s in the median, the whole answer after"
            " {latency_p50:.2f} s.",
            "Each step moved {rows_per_forward:.1f} rows, prompts and decodes in one sequence without padding: by rows"
            " Flo was {busy_rows:.0%} busy, and by time {busy_time:.0%}.",
            "{positions_attended:.0f} positions were computed for {row_steps:.0f} rows: a prompt once, and then one"
            " position a token. That is the KV cache, in blocks of 16 tokens that go back to the pool at once.",
            "One request's way through the processes: flo follow 07. Any OpenAI client can talk to flo run 07.",
        ),
    ),
}
