"""A gateway to a running `vllm serve`: the same request, answered by an engine that has all that is still to come here.

vLLM's offline API, `LLM.generate`, is no way to serve: it blocks, and admits nothing while it runs. So the engine is
a server of its own, spoken to over its OpenAI-compatible HTTP API without blocking anybody here.
"""

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
    """Speaks to the server at `url`, a base address such as "http://127.0.0.1:8100"."""

    def __init__(self, url: str | None, connect: float = CONNECT, answer: float = ANSWER) -> None:
        self.url = url
        self.timeout = httpx.Timeout(answer, connect=connect)
        self.client = httpx.AsyncClient(base_url=url or "", timeout=self.timeout, trust_env=False)

    async def close(self) -> None:
        """Close the connections."""
        await self.client.aclose()

    async def generate(self, prompt: str, max_new_tokens: int, temperature: float, seed: int | None) -> str:
        """The upstream model's continuation. Raises `NoUpstream`, `BadUpstream` or `SlowUpstream`."""
        if not self.url:
            raise NoUpstream("no vLLM server is configured: start `vllm serve MODEL`, then this with --vllm-url URL")
        body: dict[str, Any] = {"prompt": prompt, "max_tokens": max_new_tokens, "temperature": temperature}
        try:
            models = await self.call("GET", "/v1/models")
            body |= {"model": models["data"][0]["id"], **({} if seed is None else {"seed": seed})}
            return (await self.call("POST", "/v1/completions", body))["choices"][0]["text"]
        except httpx.TimeoutException as exc:
            raise SlowUpstream(f"the vLLM server at {self.url} did not answer in time") from exc
        except httpx.HTTPStatusError as exc:
            status, detail = exc.response.status_code, exc.response.text[:200]
            raise BadUpstream(f"the vLLM server at {self.url} answered {status}: {detail}") from exc
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise BadUpstream(f"the vLLM server at {self.url} cannot be reached: {exc!r}") from exc
        except (ValueError, LookupError, TypeError) as exc:
            raise BadUpstream(f"the vLLM server at {self.url} answered what is no completion: {exc!r}") from exc

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request upstream; its JSON."""
        response = await self.client.request(method, path, json=body)
        return response.raise_for_status().json()
