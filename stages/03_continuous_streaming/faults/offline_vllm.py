"""An async route calls a blocking API of vLLM.

`vllm.LLM.generate` returns when the answer is complete, and so does a synchronous HTTP client. Called from a
coroutine, either keeps the event loop, and with it every other request, every stream and the time-out that should end
the call. Here it is the HTTP client, one function away from the coroutine, where no linter looks for it.

A user sees: `/health` and all streams stand still while vLLM answers somebody else.

Seen in the wild: coroutines around `LLM` run one after the other (vLLM issue 3996); `LLM.generate` behind FastAPI fails
when a second request comes before the first is answered (3248); vLLM itself once did its own work on the event loop,
and streams came in lumps (1629).
"""

import asyncio
from typing import Any

import httpx

from ..parts import Parts
from ..vllm_gateway import Gateway

TEST = "tests/stage_03/test_vllm_gateway.py::test_other_requests_are_served_while_vllm_thinks"
MESSAGE = "the event loop was blocked while vLLM was thinking"


class Blocks(Gateway):
    async def call(self, method: str, path: str, body: Any = None) -> Any:
        return self.blocking_call(method, path, body)

    def blocking_call(self, method: str, path: str, body: Any) -> Any:
        response = httpx.request(method, f"{self.url}{path}", json=body, timeout=self.answer, trust_env=False)
        return response.raise_for_status().json()


class BlocksAThread(Blocks):
    async def call(self, method: str, path: str, body: Any = None) -> Any:
        return await asyncio.to_thread(self.blocking_call, method, path, body)


PARTS = Parts(gateway=Blocks)


class InAThread:
    """Tempting: call it in a thread. The loop is free then, but no thread can be canceled: vLLM goes on for whoever
    has hung up."""

    PARTS = Parts(gateway=BlocksAThread)
    TEST = "tests/stage_03/test_vllm_gateway.py::test_a_hang_up_ends_the_request_to_vllm"
    MESSAGE = "vLLM went on thinking for a client that had hung up"


NAIVE_FIXES = {"in_a_thread": InAThread}
