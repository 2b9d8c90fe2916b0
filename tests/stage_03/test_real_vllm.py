"""The gateway against a real vLLM on the CPU, which lives in an environment of its own: `make test-vllm`."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from flo.servers import running_stage
from tests.conftest import ROOT

PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
MODEL = "models/tiny-opt"
START_SECONDS, STOP_SECONDS = 300, 30
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "2", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(START_SECONDS + 120)]


@contextmanager
def vllm_serve(log: Path) -> Iterator[str]:
    """Serve the shipped model with vLLM until the block ends; yields the address. Leaves no process behind."""
    assert PYTHON.exists(), "there is no vLLM here; `make test-vllm` sets it up"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    # What `vllm serve` runs. The command itself looks for a package named "vllm", and this one is named "vllm-cpu".
    command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", MODEL, "--dtype", "float32"]
    command += ["--enforce-eager", "--host", "127.0.0.1", "--port", str(port)]
    environment = {**os.environ, **ENVIRONMENT, "VLLM_CACHE_ROOT": str(log.parent / "cache")}
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends these tests ends vLLM as well
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # it has children, which must end with it
        )
    try:
        url = f"http://127.0.0.1:{port}"
        await_health(url, process, log)
        yield url
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_SECONDS)
        signal.signal(signal.SIGTERM, before)


def await_health(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Return once the server at `url` is ready; fail with what it wrote if it has ended, or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    with httpx.Client(base_url=url, timeout=5, trust_env=False) as client:
        while time.monotonic() < deadline:
            with suppress(httpx.TransportError):
                if client.get("/health").is_success:
                    return
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
                break
    pytest.fail(f"vLLM did not start:\n{log.read_text(errors='replace')[-3000:]}")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of stage 03, which has a real vLLM behind it."""
    with (
        vllm_serve(tmp_path_factory.mktemp("vllm") / "log") as url,
        running_stage("03", "--vllm-url", url) as server,
        httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client,
    ):
        yield client


def counting(a: int, b: int) -> tuple[str, str]:
    return f"Count from {a} to {b}:", "".join(f" {number}" for number in range(a, b + 1))


def test_it_counts(client: httpx.Client) -> None:
    answer = client.post("/generate_vllm", json={"prompt": "Count from 3 to 9:", "temperature": 0.0})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"generated_text": " 3 4 5 6 7 8 9"}


def test_it_stops_at_the_limit(client: httpx.Client) -> None:
    body = {"prompt": "Count from 3 to 9:", "temperature": 0.0, "max_new_tokens": 2}
    assert client.post("/generate_vllm", json=body).json() == {"generated_text": " 3 4"}


def test_sixteen_clients_each_get_their_own_answer(client: httpx.Client) -> None:
    pairs = [counting(start, start + 3 + start % 5) for start in range(16)]

    def ask(pair: tuple[str, str]) -> str:
        return client.post("/generate_vllm", json={"prompt": pair[0], "temperature": 0.0}).json()["generated_text"]

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, pairs)) == [expected for _, expected in pairs]


def test_the_same_seed_gives_the_same_text(client: httpx.Client) -> None:
    body = {"prompt": "Once upon a time", "temperature": 2.0, "seed": 7}
    texts = [client.post("/generate_vllm", json=body).json()["generated_text"] for _ in range(3)]
    assert texts[0]
    assert len(set(texts)) == 1


def test_the_same_answer_as_the_stage_itself(client: httpx.Client) -> None:
    prompt = "Explain the KV cache in one sentence."
    ours = client.post("/basic_generate", json={"prompt": prompt, "max_new_tokens": 40})
    theirs = client.post("/generate_vllm", json={"prompt": prompt, "max_new_tokens": 40, "temperature": 0.0})
    assert ours.json() == theirs.json()


def test_what_vllm_refuses_is_a_502_with_its_reason(client: httpx.Client) -> None:
    answer = client.post("/generate_vllm", json={"prompt": "word " * 2000})
    assert answer.status_code == 502
    assert "answered 400" in answer.json()["error"]["message"]
    assert "1024" in answer.json()["error"]["message"]
    assert client.get("/health").status_code == 200
