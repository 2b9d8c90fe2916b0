"""The routes, and nothing but routes: JSON in, one call to the engine, JSON out."""

import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from .batching import Batching
from .engine import Engine
from .errors import DOCUMENTED, error_response, install_error_handlers
from .hangup import until_hang_up
from .parts import Parts
from .registry import read_registry
from .sequence import Sampling
from .settings import Settings
from .sse import event_stream
from .stats import Stats
from .streaming_worker import StreamingWorker
from .streams import Streams
from .trace import Tracer, file_sink
from .worker import Prediction, Worker


class Predict(BaseModel):
    """The body of `POST /predict`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model_id: str = Field(min_length=1, examples=["2d94e7f3-8c21-4b6f-a1d0-e98b7c5f4d03"])
    input_data: str | list[Any] | dict[str, Any] = Field(
        description="one input or a list of them: a text, an image as base64, a list of numbers, or named tensors",
        examples=["where is my parcel"],
    )


class GenerateStream(BaseModel):
    """The body of `POST /generate_stream`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model_id: str = Field(min_length=1, examples=["3e0f7b52-9c64-4d18-8a2b-6f5d1c90e706"])
    prompt: str = Field(min_length=1, examples=["Count from 3 to 9:"])
    max_new_tokens: int = Field(20, ge=1, le=512)
    temperature: float = Field(0.7, ge=0, le=2, allow_inf_nan=False, description="0 is greedy")
    seed: int | None = Field(None, ge=0, lt=1 << 63, description="the same seed gives the same text")
    top_p: float = Field(1.0, gt=0, le=1, allow_inf_nan=False, description="of the likeliest tokens, this much")
    top_k: int = Field(0, ge=0, lt=1 << 31, description="of the likeliest tokens, so many; 0 is all")
    stop: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(
        [], max_length=4, description="strings before which the text ends"
    )
    ignore_eos: bool = Field(False, description="go on past the stop token; for benchmarks")

    def sampling(self) -> Sampling:
        """How to choose tokens; without a seed, one is drawn."""
        return Sampling(
            self.max_new_tokens,
            self.temperature,
            random.getrandbits(63) if self.seed is None else self.seed,
            self.ignore_eos,
            self.top_p,
            self.top_k,
            tuple(self.stop),
        )


class Predicted(BaseModel):
    """The likeliest label of each input, in order."""

    model_id: str
    predictions: list[Prediction]


async def get_engine(request: Request) -> Engine:
    """The one engine of this process."""
    return request.app.state.engine


TheEngine = Annotated[Engine, Depends(get_engine)]


def create_app(settings: Settings, parts: Parts = Parts()) -> FastAPI:
    """Wire the parts. No model is loaded yet."""
    trace = Tracer(file_sink(settings.trace) if settings.trace else None)
    registry = read_registry(settings.models)
    stats = Stats(time.monotonic())

    def queue_for(worker: Worker, on_thread: Callable[..., Any]) -> Batching | Streams:
        knobs = worker.metadata
        if isinstance(worker, StreamingWorker):
            scheduler = parts.scheduler(worker.slots, knobs.max_queue or settings.max_queue)
            return parts.streams(worker, scheduler, on_thread, stats, trace)
        batcher = parts.batcher(
            knobs.max_batch or settings.max_batch,
            settings.max_delay_ms if knobs.max_delay_ms is None else knobs.max_delay_ms,
            knobs.max_queue or settings.max_queue,
        )
        return parts.batching(worker, batcher, on_thread, stats, trace)

    residency = parts.residency(parts.policy(settings.slots), parts.workers, settings.device, queue_for, trace)
    engine = parts.engine(registry, residency, stats, settings.max_queue, settings.deadline, trace, parts.mailbox)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        engine.start()
        try:
            yield
        finally:
            await engine.stop()

    app = FastAPI(title="06 pinned streams", lifespan=lifespan)
    app.state.engine = engine
    install_error_handlers(app)

    @app.post("/predict", responses=DOCUMENTED)
    async def predict(body: Predict, engine: TheEngine, request: Request) -> Predicted:
        """Classify one input or several; the model is loaded first if need be."""
        predictions = await until_hang_up(request, engine.predict(body.model_id, body.input_data))
        return Predicted(model_id=body.model_id, predictions=predictions)

    @app.post("/generate_stream", responses={**DOCUMENTED, 200: {"content": {"text/event-stream": {}}}})
    async def generate_stream(body: GenerateStream, engine: TheEngine, request: Request) -> StreamingResponse:
        """Continue a prompt, and send each piece of text as it comes; the model is loaded first if need be."""
        sequence = await until_hang_up(request, engine.submit(body.model_id, body.prompt, body.sampling()))
        return event_stream(request, engine, sequence)

    @app.get("/models")
    async def models(engine: TheEngine) -> dict[str, Any]:
        """Which models there are, and which are in memory, least recently used first."""
        return engine.models()

    @app.get("/health", responses={503: DOCUMENTED[503]})
    async def health(engine: TheEngine) -> JSONResponse:
        """Whether a request would be served now."""
        if engine.ready:
            return JSONResponse({"status": "ready"})
        return error_response(503, engine.failure or "the server is closing", {"Retry-After": "1"})

    @app.get("/stats")
    async def counters(engine: TheEngine) -> dict[str, Any]:
        """What the models have done, and what of that was for nothing."""
        return engine.snapshot()

    return app
