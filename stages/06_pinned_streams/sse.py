"""Server-sent events: one frame for each piece of text, a last one with how it ended, and then `[DONE]`.

Trouble on the way is an `error` event, because the status line has long been sent. Never a silent end. Non-ASCII
travels as JSON escapes: some clients split lines where Unicode, but not SSE, sees a line end.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse

from .engine import Aborted, Engine
from .errors import ServingError
from .hangup import hang_up
from .sequence import Sequence


def event_stream(request: Request, engine: Engine, sequence: Sequence) -> StreamingResponse:
    """The answer to a streaming request whose sequence has been queued. A client that hangs up frees the sequence."""
    watch = asyncio.ensure_future(hang_up(request))
    watch.add_done_callback(lambda _: engine.abort(sequence))

    async def frames() -> AsyncIterator[str]:
        try:
            async for piece, reason in engine.pieces(sequence):
                if piece:
                    yield frame({"token": piece, "sequence_id": sequence.request_id})
                if reason:
                    usage = {"prompt_tokens": len(sequence.prompt_ids), "completion_tokens": len(sequence.output_ids)}
                    yield frame({"finish_reason": reason, "usage": usage, "sequence_id": sequence.request_id})
                    yield "data: [DONE]\n\n"
        except Aborted:
            return  # nobody reads this any more
        except Exception as exc:
            message = exc.message if isinstance(exc, ServingError) else f"internal error: {type(exc).__name__}"
            yield "event: error\n" + frame({"message": message, "sequence_id": sequence.request_id})
        finally:
            watch.cancel()

    return StreamingResponse(frames(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def frame(data: dict[str, Any]) -> str:
    """One event."""
    return f"data: {json.dumps(data)}\n\n"
