"""A gateway to a running `vllm serve`: the same request, answered by an engine that has all that is still to come here.

vLLM's offline API, `LLM.generate`, is no way to serve: it blocks, and admits nothing while it runs. So the engine is
a server of its own, spoken to over its OpenAI-compatible HTTP API without blocking anybody here.
"""

import asyncio
from contextlib import suppress
from typing import Any

import httpx

from .errors import ServingError

CONNECT, ANSWER = 5.0, 60.0
"""seconds until the upstream server must have accepted, and until it must have answered"""


class NoUpstream(ServingError):
    """No `vllm serve` is configured."""

    status = 503


class BadUpstream(ServingError):
    """The upstream server cannot be reached, or answered with an error."""

    status = 502


class SlowUpstream(ServingError):
    """The upstream server did not answer in time."""

    status = 504


class Gateway:
    """Speaks to the server at `url`, a base address such as "http://127.0.0.1:8100"; else raises `ValueError`."""

    def __init__(self, url: str | None, connect: float = CONNECT, answer: float = ANSWER) -> None:
        self.url, self.answer = url, answer
        address, timeout = base_address(url) if url else "", httpx.Timeout(None, connect=connect)
        # An idle connection is dropped before vLLM drops it, after five seconds: a request must not cross with that.
        limits = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=2)
        self.client = httpx.AsyncClient(base_url=address, timeout=timeout, limits=limits, trust_env=False)

    async def close(self) -> None:
        """Close the connections."""
        await self.client.aclose()

    async def generate(
        self, prompt: str, max_new_tokens: int, temperature: float, seed: int | None, ignore_eos: bool = False
    ) -> str:
        """The upstream model's continuation. Raises `NoUpstream`, `BadUpstream` or `SlowUpstream`."""
        if not self.url:
            raise NoUpstream("no vLLM server is configured: start `vllm serve MODEL`, then this with --vllm-url URL")
        body: dict[str, Any] = {"prompt": prompt, "max_tokens": max_new_tokens, "temperature": temperature}
        body |= {"seed": seed, "ignore_eos": ignore_eos}
        try:
            async with asyncio.timeout(self.answer):
                body["model"] = (await self.call("GET", "/v1/models"))["data"][0]["id"]
                text = (await self.call("POST", "/v1/completions", body))["choices"][0]["text"]
            str.encode(text)  # raises for what is no text, and for half a surrogate pair, which no answer can hold
            return text
        except (TimeoutError, httpx.TimeoutException) as exc:
            raise SlowUpstream(f"the vLLM server at {self.url} did not answer in time") from exc
        except httpx.HTTPStatusError as exc:
            status, detail = exc.response.status_code, exc.response.text[:200]
            raise BadUpstream(f"the vLLM server at {self.url} answered {status}: {detail}") from exc
        except httpx.HTTPError as exc:
            raise BadUpstream(f"the vLLM server at {self.url} cannot be reached: {exc!r}") from exc
        except (ValueError, LookupError, TypeError) as exc:
            what = f"{type(exc).__name__}: {exc}"
            raise BadUpstream(f"the vLLM server at {self.url} answered what is no completion: {what}") from exc

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request upstream; its JSON."""
        response = await self.client.request(method, path, json=body)
        return response.raise_for_status().json()


def base_address(url: str) -> httpx.URL:
    """Raises `ValueError` with the flag's name if a request could not even be sent there."""
    with suppress(httpx.InvalidURL):
        address = httpx.URL(url)
        if address.scheme in ("http", "https") and address.host and (address.port or 80) < 1 << 16:
            return address
    raise ValueError(f"--vllm-url must be an address such as http://127.0.0.1:8100, not {url}")
