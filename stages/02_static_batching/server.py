"""The routes, and nothing but routes: JSON in, one call to the engine, JSON out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from .engine import Engine
from .errors import DOCUMENTED, error_response, install_error_handlers
from .hangup import until_hang_up
from .parts import Parts
from .settings import MAX_NEW_TOKENS, Settings, find_model
from .trace import Tracer, file_sink


class BasicGenerate(BaseModel):
    """The body of `POST /basic_generate`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    prompt: str = Field(min_length=1, examples=["Count from 3 to 9:"])
    max_new_tokens: int = Field(MAX_NEW_TOKENS, ge=1, le=MAX_NEW_TOKENS)
    ignore_eos: bool = Field(False, description="go on past the stop token; for benchmarks")


class Generated(BaseModel):
    """The completion, without the prompt."""

    generated_text: str


class Generate(BaseModel):
    """The body of `POST /generate`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    prompts: list[Annotated[str, Field(min_length=1)]] = Field(
        min_length=1, max_length=64, examples=[["Count from 3 to 9:", "What is a batch?"]]
    )
    max_new_tokens: int = Field(MAX_NEW_TOKENS, ge=1, le=MAX_NEW_TOKENS)
    ignore_eos: bool = Field(False, description="go on past the stop token; for benchmarks")


class GeneratedMany(BaseModel):
    """The completions, in the order of the prompts."""

    generated_texts: list[str]


async def get_engine(request: Request) -> Engine:
    """The one engine of this process."""
    return request.app.state.engine


TheEngine = Annotated[Engine, Depends(get_engine)]


def create_app(settings: Settings, parts: Parts = Parts()) -> FastAPI:
    """Wire the parts. The engine starts with the app's lifespan, and the server listens only after that."""
    trace = Tracer(file_sink(settings.trace) if settings.trace else None)
    executor = parts.executor(parts.worker, find_model(settings.model), settings.device, settings.deadline, trace)
    engine = parts.engine(executor, parts.scheduler(settings.batch_size, settings.max_queue), trace)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(engine.start)
        try:
            yield
        finally:
            await asyncio.to_thread(engine.close)

    app = FastAPI(title="02 static batching", lifespan=lifespan)
    app.state.engine = engine
    install_error_handlers(app)

    @app.post("/basic_generate", responses=DOCUMENTED)
    async def basic_generate(body: BasicGenerate, engine: TheEngine, request: Request) -> Generated:
        """Continue a prompt, greedily."""
        work = engine.generate({"prompt": body.prompt}, body.max_new_tokens, body.ignore_eos)
        [text] = await until_hang_up(request, work)
        return Generated(generated_text=text)

    @app.post("/generate", responses=DOCUMENTED)
    async def generate(body: Generate, engine: TheEngine, request: Request) -> GeneratedMany:
        """Continue up to 64 prompts, greedily; all of them or none."""
        prompts = {f"prompts[{place}]": prompt for place, prompt in enumerate(body.prompts)}
        texts = await until_hang_up(request, engine.generate(prompts, body.max_new_tokens, body.ignore_eos))
        return GeneratedMany(generated_texts=texts)

    @app.get("/health", responses={503: DOCUMENTED[503]})
    async def health(engine: TheEngine) -> JSONResponse:
        """Whether a request would be served now."""
        if engine.ready:
            return JSONResponse({"status": "ready"})
        return error_response(503, engine.failure or "the model is being restarted", {"Retry-After": "1"})

    @app.get("/stats")
    async def stats(engine: TheEngine) -> dict[str, Any]:
        """What the model has done, and what of that was for nothing."""
        return engine.snapshot()

    return app
