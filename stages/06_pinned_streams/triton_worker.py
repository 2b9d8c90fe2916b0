"""Someone else's depot: a worker that loads nothing, but asks a Triton server to, over its HTTP repository API.

Our LRU keeps the policy, Triton keeps the mechanism. Its unload answers at once while the model is still there, so
`free` looks at the index until it is gone. Protocol: KServe v2, with Triton's repository and classification extensions.
"""

import math
import ssl
import time
from functools import cache
from typing import Any

import httpx

from .errors import Refused, WorkerFailed, WorkerLost
from .worker import Prediction, Worker, numbers

PATIENCE = 30.0
"""seconds for one answer, and for a model to be unloaded"""
LOOK_SECONDS = 0.02
"""between two looks at the index"""


class TritonWorker(Worker):
    """Named tensors in, label out."""

    def check(self) -> None:
        if not self.metadata.url:
            raise self.failed("the registry gives it no url")
        if self.state() is None:
            raise self.failed(f"the Triton server at {self.metadata.url} does not have it")

    def load(self) -> None:
        answer = self.post(f"/v2/repository/models/{self.metadata.name}/load")
        if answer.is_error:
            raise self.failed(answer.json()["error"])
        self.model = self.ask("GET", f"/v2/models/{self.metadata.name}").json()

    def prepare(self, item: Any) -> dict[str, list[float]]:
        """The numbers of each named tensor."""
        shapes = {tensor["name"]: tensor["shape"][1:] for tensor in self.model["inputs"]}
        if not isinstance(item, dict) or set(item) != set(shapes):
            expected = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise Refused(f"must be an object of the tensors {expected}")
        rows: dict[str, list[float]] = {}
        for name, shape in shapes.items():
            try:
                rows[name] = numbers(item[name], math.prod(shape))
            except Refused as exc:
                raise Refused(f"{name} {shape} {exc.message}") from exc
        return rows

    def predict(self, rows: list[dict[str, list[float]]]) -> list[Prediction]:
        inputs = [
            {
                "name": tensor["name"],
                "datatype": tensor["datatype"],
                "shape": [len(rows), *tensor["shape"][1:]],
                "data": [number for row in rows for number in row[tensor["name"]]],
            }
            for tensor in self.model["inputs"]
        ]
        best_one = {"name": self.model["outputs"][0]["name"], "parameters": {"classification": 1}}
        answer = self.post(f"/v2/models/{self.metadata.name}/infer", {"inputs": inputs, "outputs": [best_one]})
        if answer.is_error:
            raise WorkerFailed(f"{self.metadata.name}: {answer.json()['error']}")
        found = [text.split(":", 2) for text in answer.json()["outputs"][0]["data"]]
        return [Prediction(label, float(score)) for score, _, label in found]

    def free(self) -> None:
        """Unload, and wait until it is done. A server that is gone has nothing loaded."""
        self.model = None
        try:
            self.post(f"/v2/repository/models/{self.metadata.name}/unload")
            self.wait_unloaded()
        except WorkerLost:
            return

    def wait_unloaded(self) -> None:
        """Return when the index no longer has the model in memory. Raises `WorkerFailed`."""
        deadline = time.monotonic() + PATIENCE
        while self.state() in ("READY", "LOADING", "UNLOADING"):
            if time.monotonic() > deadline:
                raise WorkerFailed(f"{self.metadata.name} was not unloaded within {PATIENCE:g} s")
            time.sleep(LOOK_SECONDS)

    def state(self) -> str | None:
        """What the index says of this model: "" if it was never loaded, None if there is no such model."""
        index = self.post("/v2/repository/index").json()
        return next((model.get("state", "") for model in index if model["name"] == self.metadata.name), None)

    def post(self, path: str, body: Any = None) -> httpx.Response:
        """One POST; the caller looks at the status."""
        return self.ask("POST", path, body or {})

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """One request. Raises `WorkerLost` if the server cannot be reached or breaks off."""
        try:
            url, options = f"{self.metadata.url}{path}", {"timeout": PATIENCE, "verify": certificates()}
            return httpx.request(method, url, json=body, trust_env=False, **options)
        except httpx.TransportError as exc:
            raise WorkerLost(f"{self.metadata.name}: the Triton server at {self.metadata.url} is gone: {exc}") from exc

    def size(self) -> int:
        return 0  # all of it is Triton's


@cache
def certificates() -> ssl.SSLContext:
    """Whom to trust over https. Read once: httpx would read them for every request, which takes longer than a pass."""
    return httpx.create_ssl_context()
