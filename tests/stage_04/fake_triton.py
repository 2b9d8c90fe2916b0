"""A Triton server that behaves as a test wants: an unload that takes its time, an answer that never comes."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SLOW = 3
"""looks at the index until an unload is done"""


class FakeTriton:
    """One model, "wine", with a tensor "features" of two numbers."""

    def __init__(self) -> None:
        self.state = "UNAVAILABLE"
        self.looks = 0
        self.rows: list[list[int]] = []
        self.url = ""

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        """The status and body of an answer."""
        match path:
            case "/v2/repository/index":
                if self.state == "UNLOADING":
                    self.looks += 1
                    self.state = "UNAVAILABLE" if self.looks > SLOW else "UNLOADING"
                return 200, [{"name": "wine", "version": "1", "state": self.state}]
            case "/v2/repository/models/wine/load":
                self.state, self.looks = "READY", 0
            case "/v2/repository/models/wine/unload":
                self.state = "UNLOADING"
            case "/v2/models/wine/ready":
                return (200 if self.state == "READY" else 400), {}
            case "/v2/models/wine":
                tensors = {"inputs": [{"name": "features", "datatype": "FP32", "shape": [-1, 2]}]}
                return 200, tensors | {"outputs": [{"name": "scores", "datatype": "FP32", "shape": [-1, 2]}]}
            case "/v2/models/wine/infer":
                self.rows.append(body["inputs"][0]["shape"])
                return 200, {"outputs": [{"name": "scores", "data": ["0.75:1:red"] * body["inputs"][0]["shape"][0]}]}
            case _:
                return 404, {"error": f"no {path}"}
        return 200, {}


@contextmanager
def fake_triton() -> Iterator[FakeTriton]:
    """Serve a fake for the length of a `with` block."""
    fake = FakeTriton()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
            status, answer = fake.answer(self.path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        fake.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join(30)
