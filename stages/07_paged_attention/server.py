"""07.1 The API server: OpenAI's routes, and nothing but routes. JSON in, one call to the engine, an answer out."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from .engine import Engine
from .errors import DOCUMENTED, error_response, install_error_handlers
from .generation import Generation
from .hangup import until_hang_up
from .openai_errors import OPENAI_DOCUMENTED, NotFound, dress_errors
from .openai_format import ChatWriter, CompletionWriter
from .output_handler import Delta
from .parts import Parts
from .protocol import BasicGenerate, Chat, Completion, Generate
from .settings import Settings, find_model
from .sse import event_stream
from .trace import Tracer, file_sink


def get_request_id(request: Request) -> str | None:
    """What the client calls its request, if it does."""
    return request.headers.get("x-request-id", "")[:64] or None


RequestId = Annotated[str | None, Depends(get_request_id)]


async def whole(request: Request, engine: Engine, generation: Generation) -> list[Delta]:
    """All that comes of a request whose client waits for it."""

    async def collect() -> list[Delta]:
        return [delta async for delta in engine.stream(generation)]

    try:
        return await until_hang_up(request, collect())
    finally:
        engine.abort(generation)


def create_app(settings: Settings, parts: Parts = Parts()) -> FastAPI:
    """Wire the parts. The engine starts with the app's lifespan, and the server listens only after that."""
    trace, model = Tracer(file_sink(settings.trace) if settings.trace else None), find_model(settings.engine.model)
    config = replace(settings.engine, model=model, trace=bool(settings.trace))
    router = parts.router(config.data_parallel_size, config.max_queue)
    client = parts.client(config, parts.launch, parts.for_core(), router, settings.deadline, trace)
    tokenizer = parts.tokenizer(model)
    engine = parts.engine(client, tokenizer, trace, settings.model_name, parts.stops)
    template, started = parts.chat(model, tokenizer), int(time.time())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(engine.start)
        try:
            yield
        finally:
            await asyncio.to_thread(engine.close)

    app = FastAPI(title="07 paged attention", lifespan=lifespan)
    app.state.engine = engine
    install_error_handlers(app)
    dress_errors(app)

    def text_of(token_id: int) -> str:
        return tokenizer.rust.decode([token_id], skip_special_tokens=False)

    def check_model(body: Generate) -> None:
        if body.model not in (None, settings.model_name):
            raise NotFound(f"there is no model {body.model!r}; here is {settings.model_name}", field="model")

    async def answer(
        request: Request, generation: Generation, body: Generate, form: type[CompletionWriter]
    ) -> Response:
        writer = form(generation, settings.model_name, int(time.time()), text_of)
        if body.stream:
            usage = body.stream_options is not None and body.stream_options.include_usage
            return event_stream(request, engine, generation, writer, usage)
        return JSONResponse(writer.answer(await whole(request, engine, generation)))

    @app.post("/v1/completions", responses=OPENAI_DOCUMENTED)
    async def completions(body: Completion, request: Request, request_id: RequestId) -> Response:
        """Continue prompts: texts or token ids, one or a list."""
        check_model(body)
        generation = await engine.submit(body.prompts(), body.wish(), request_id)
        return await answer(request, generation, body, CompletionWriter)

    @app.post("/v1/chat/completions", responses=OPENAI_DOCUMENTED)
    async def chat(body: Chat, request: Request, request_id: RequestId) -> Response:
        """Give a chat its next message."""
        check_model(body)
        ids = await template.prompt_ids([message.plain() for message in body.messages])
        generation = await engine.submit({"messages": ids}, body.wish(), request_id)
        return await answer(request, generation, body, ChatWriter)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The one model, and how many tokens a request may have."""
        limits = engine.client.limits
        model = {"id": settings.model_name, "object": "model", "created": started, "owned_by": "flo"}
        return {"object": "list", "data": [{**model, "max_model_len": limits and limits.max_model_len}]}

    @app.post("/basic_generate", responses=DOCUMENTED)
    async def basic_generate(body: BasicGenerate, request: Request) -> dict[str, str]:
        """Continue a prompt, greedily: the route that every stage of this line has."""
        generation = await engine.submit({"prompt": body.prompt}, body.wish())
        return {"generated_text": "".join(delta.text for delta in await whole(request, engine, generation))}

    @app.get("/health", responses={503: DOCUMENTED[503]})
    async def health() -> JSONResponse:
        """Whether a request would be served now, and how each core is."""
        if engine.ready:
            return JSONResponse({"status": "ready", "cores": engine.client.states()})
        reason = engine.client.failure or "the engine core is being restarted"
        return error_response(503, reason, {"Retry-After": "1"})

    @app.get("/stats")
    async def stats() -> dict[str, Any]:
        """What the cores have done and hold, and how requests ended."""
        return engine.metrics.snapshot(engine.clock())

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        """The same, and more, for Prometheus."""
        return PlainTextResponse(generate_latest(engine.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return app
