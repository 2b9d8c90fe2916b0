"""The routes, and nothing but routes: JSON in, one call to the engine, JSON out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from .engine import Engine
from .errors import DOCUMENTED, error_response, install_error_handlers
from .parts import Parts
from .registry import read_registry
from .settings import Settings
from .trace import Tracer, file_sink
from .worker import Prediction


class Predict(BaseModel):
    """The body of `POST /predict`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model_id: str = Field(min_length=1, examples=["2d94e7f3-8c21-4b6f-a1d0-e98b7c5f4d03"])
    input_data: str | list[Any] | dict[str, Any] = Field(
        description="one input or a list of them: a text, an image as base64, a list of numbers, or named tensors",
        examples=["where is my parcel"],
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
    residency = parts.residency(parts.policy(settings.slots), parts.workers, settings.device, trace)
    engine = parts.engine(registry, residency, settings.max_queue, settings.deadline, trace)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        engine.start()
        try:
            yield
        finally:
            await engine.stop()

    app = FastAPI(title="04 LRU models", lifespan=lifespan)
    app.state.engine = engine
    install_error_handlers(app)

    @app.post("/predict", responses=DOCUMENTED)
    async def predict(body: Predict, engine: TheEngine) -> Predicted:
        """Classify one input or several; the model is loaded first if need be."""
        predictions = await engine.predict(body.model_id, body.input_data)
        return Predicted(model_id=body.model_id, predictions=predictions)

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
    async def stats(engine: TheEngine) -> dict[str, Any]:
        """What the models have done, and what of that was for nothing."""
        return engine.snapshot()

    return app
