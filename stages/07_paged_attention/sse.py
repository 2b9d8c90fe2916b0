"""07.9 Server-sent events: a chunk for each piece of text, and `[DONE]`.

Trouble on the way is a chunk with an `error`, because the status line has long been sent. Never a silent end. Non-ASCII
travels as JSON escapes: some clients split lines where Unicode, but not SSE, sees a line end.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse

from .engine import Engine
from .errors import ServingError
from .generation import Aborted, Generation
from .hangup import hang_up
from .openai_errors import openai_error
from .openai_format import CompletionWriter


def event_stream(
    request: Request, engine: Engine, generation: Generation, writer: CompletionWriter, usage: bool
) -> StreamingResponse:
    """The answer to a streaming request that has been sent to a core. A client that hangs up ends it."""
    watch = asyncio.ensure_future(hang_up(request))
    watch.add_done_callback(lambda _: engine.abort(generation))

    async def frames() -> AsyncIterator[str]:
        try:
            for chunk in writer.opening():
                yield frame(chunk)
            async for delta in engine.stream(generation):
                if delta.text or delta.logprobs or delta.finish_reason:
                    yield frame(writer.chunk(delta))
            if usage:
                yield frame(writer.last())
        except Aborted:
            return  # nobody reads this any more
        except ServingError as exc:
            yield frame(openai_error(exc.status, exc.message, exc.field))
        finally:
            watch.cancel()
        yield "data: [DONE]\n\n"

    return StreamingResponse(frames(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def frame(data: dict[str, Any]) -> str:
    """One event."""
    return f"data: {json.dumps(data)}\n\n"
