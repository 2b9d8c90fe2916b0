"""Runs engines in processes of their own: each reads jobs and writes answers (`engines/jobs.py`).

Every wait is bounded, and whatever was started ends with its `with` block, and its children with it.
"""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TextIO

from benchmarks.stamp import ROOT

from .workload import Answer, Decode, Job

THREADS = 2
"""of every engine"""
START_SECONDS = 600.0
"""some compile when they start"""
STOP_SECONDS = 20.0
ENVIRONMENT = {
    "OMP_NUM_THREADS": str(THREADS),
    "HF_HUB_OFFLINE": "1",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
Popen = subprocess.Popen[str]
Engine = Callable[[Job, float], Answer]
"""takes a job, and the seconds that it may last; raises `EngineFailed`"""


class EngineFailed(Exception):
    """An engine did not start, or did not answer; the message ends with what it wrote last."""


@contextmanager
def started(command: Sequence[str], environment: dict[str, str], **pipes: Any) -> Iterator[tuple[Popen, TextIO]]:
    """A process with a group of its own, and the file that its errors go to."""
    everything = {**os.environ, **ENVIRONMENT, **environment}
    with TemporaryFile("w+", errors="replace") as log:
        process = Popen(command, cwd=ROOT, env=everything, stderr=log, text=True, start_new_session=True, **pipes)
        try:
            yield process, log
        finally:
            signal_group(process, signal.SIGCONT)
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            signal_group(process, signal.SIGKILL)
            process.wait(STOP_SECONDS)
            for pipe in filter(None, (process.stdin, process.stdout)):
                with suppress(BrokenPipeError):
                    pipe.close()


def signal_group(process: Popen, what: signal.Signals) -> None:
    """To a process and its children, as far as they live."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, what)


@contextmanager
def child(python: str | Path, engine: str, model: str | Path, dtype: str) -> Iterator[Callable[[Job, float], Any]]:
    """An engine of `engines/`, its model loaded: takes a job, and returns the answer as the child wrote it."""
    command = [str(python), "-m", f"{__package__}.engines.{engine}", str(model), dtype]
    with started(command, {}, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as (process, log):
        assert process.stdin
        assert process.stdout
        jobs, answers = process.stdin, process.stdout

        def answer(seconds: float) -> Any:
            give_up = threading.Timer(seconds, process.kill)
            give_up.start()
            try:
                line = answers.readline()
            finally:
                give_up.cancel()
            if not line:
                raise EngineFailed(f"{engine} ended, or took more than {seconds:g} s: {last_words(log)}")
            return json.loads(line)

        def ask(job: Job, seconds: float) -> Any:
            with suppress(BrokenPipeError):
                print(json.dumps({"prompts": job.prompts, "tokens": job.tokens}), file=jobs, flush=True)
            return answer(seconds)

        answer(START_SECONDS)
        yield ask


@contextmanager
def offline(python: str | Path, engine: str, model: str | Path, dtype: str, decode: Decode) -> Iterator[Engine]:
    """The same, for engines that answer with the ids of the new tokens."""
    with child(python, engine, model, dtype) as ask:

        def run(job: Job, seconds: float) -> Answer:
            told = ask(job, seconds)
            outputs: list[list[int]] = told["outputs"]
            return Answer(told["seconds"], [len(ids) for ids in outputs], [decode(ids) for ids in outputs])

        yield run


def last_words(log: TextIO) -> str:
    """The end of what a process wrote."""
    log.seek(0)
    return log.read()[-3000:] or "it said nothing"
