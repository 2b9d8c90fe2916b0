"""The routes, and nothing but routes: JSON in, one call to the engine, JSON out."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from .engine import Engine
from .errors import DOCUMENTED, error_response, install_error_handlers
from .hangup import until_hang_up
from .parts import Parts
from .sequence import Sampling
from .settings import Settings, find_model
from .sse import event_stream
from .trace import Tracer, file_sink


class Body(BaseModel):
    """What all request bodies share: no field that is not known, no value that is not of its type."""

    model_config = ConfigDict(extra="forbid", strict=True)

    ignore_eos: bool = Field(False, description="go on past the stop token; for benchmarks")


class BasicGenerate(Body):
    """The body of `POST /basic_generate`."""

    prompt: str = Field(min_length=1, examples=["Count from 3 to 9:"])
    max_new_tokens: int = Field(50, ge=1, le=50)


class Generate(Body):
    """The body of `POST /generate`."""

    prompts: list[Annotated[str, Field(min_length=1)]] = Field(
        min_length=1, max_length=64, examples=[["Count from 3 to 9:", "What is a batch?"]]
    )
    max_new_tokens: int = Field(50, ge=1, le=50)


class GenerateStream(Body):
    """The body of `POST /generate_stream`, and of `POST /generate_vllm`."""

    prompt: str = Field(min_length=1, examples=["Count from 3 to 9:"])
    max_new_tokens: int = Field(20, ge=1, le=512)
    temperature: float = Field(0.7, ge=0, le=2, allow_inf_nan=False, description="0 is greedy")
    seed: int | None = Field(None, ge=0, lt=1 << 63, description="the same seed gives the same text")

    def sampling(self) -> Sampling:
        """How to choose tokens; without a seed, one is drawn."""
        seed = random.getrandbits(63) if self.seed is None else self.seed
        return Sampling(self.max_new_tokens, self.temperature, seed, self.ignore_eos)


class Generated(BaseModel):
    """The completion, without the prompt."""

    generated_text: str


class GeneratedMany(BaseModel):
    """The completions, in the order of the prompts."""

    generated_texts: list[str]


async def get_engine(request: Request) -> Engine:
    """The one engine of this process."""
    return request.app.state.engine


TheEngine = Annotated[Engine, Depends(get_engine)]


def create_app(settings: Settings, parts: Parts = Parts()) -> FastAPI:
    """Wire the parts. The engine starts with the app's lifespan, and the server listens only after that."""
    trace, model = Tracer(file_sink(settings.trace) if settings.trace else None), find_model(settings.model)
    engine = parts.engine(
        parts.executor(parts.worker, model, settings.device, settings.deadline, trace),
        parts.scheduler(settings.batch_size, settings.max_queue),
        parts.tokenizer(model),
        trace,
        parts.mailbox,
    )
    gateway = parts.gateway(settings.vllm_url)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(engine.start)
        try:
            yield
        finally:
            await asyncio.to_thread(engine.close)
            await gateway.close()

    app = FastAPI(title="03 continuous streaming", lifespan=lifespan)
    app.state.engine = engine
    install_error_handlers(app)

    @app.post("/basic_generate", responses=DOCUMENTED)
    async def basic_generate(body: BasicGenerate, engine: TheEngine, request: Request) -> Generated:
        """Continue a prompt, greedily."""
        greedy = Sampling(body.max_new_tokens, 0.0, 0, body.ignore_eos)
        sequences = await engine.submit({"prompt": body.prompt}, greedy)
        [text] = await until_hang_up(request, engine.texts(sequences))
        return Generated(generated_text=text)

    @app.post("/generate", responses=DOCUMENTED)
    async def generate(body: Generate, engine: TheEngine, request: Request) -> GeneratedMany:
        """Continue up to 64 prompts, greedily; all of them or none."""
        prompts = {f"prompts[{place}]": prompt for place, prompt in enumerate(body.prompts)}
        sequences = await engine.submit(prompts, Sampling(body.max_new_tokens, 0.0, 0, body.ignore_eos))
        return GeneratedMany(generated_texts=await until_hang_up(request, engine.texts(sequences)))

    @app.post("/generate_stream", responses={**DOCUMENTED, 200: {"content": {"text/event-stream": {}}}})
    async def generate_stream(body: GenerateStream, engine: TheEngine, request: Request) -> StreamingResponse:
        """Continue a prompt, and send each piece of text as it comes."""
        [sequence] = await engine.submit({"prompt": body.prompt}, body.sampling())
        return event_stream(request, engine, sequence)

    @app.post("/generate_vllm", responses={**DOCUMENTED, 502: DOCUMENTED[500], 504: DOCUMENTED[500]})
    async def generate_vllm(body: GenerateStream, request: Request) -> Generated:
        """Have a prompt continued by the vLLM server at `--vllm-url`."""
        work = gateway.generate(body.prompt, body.max_new_tokens, body.temperature, body.seed, body.ignore_eos)
        return Generated(generated_text=await until_hang_up(request, work))

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
