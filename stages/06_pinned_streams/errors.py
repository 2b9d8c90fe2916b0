"""Every way in which a request can fail, its one HTTP status, and the handlers that put it on the wire.

All errors look alike: `{"error": {"message", "field", "request_id"}}`. No client input is echoed raw: it may
hold what JSON cannot carry (NaN, half a surrogate pair), and an error about bad input must not become a 500.
"""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 8 << 20
"""bytes; a longer request body is answered with 413"""


class ServingError(Exception):
    """A request that cannot be served. `retry_after` is in seconds, `outcome` is for the counters."""

    status = 500
    outcome = "failed"

    def __init__(
        self, message: str, *, field: str | None = None, request_id: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.field, self.request_id, self.retry_after = message, field, request_id, retry_after


class Refused(ServingError):
    """The caller asked for something that cannot be had."""

    status = 422
    outcome = "refused"


class QueueFull(ServingError):
    """As many requests are waiting as may wait."""

    status = 503
    outcome = "refused"


class EngineDead(ServingError):
    """The server is closing."""

    status = 503


class Overdue(ServingError):
    """The caller has waited as long as it may, for a load or for an answer."""

    status = 503


class UnknownModel(Refused):
    """No model has this id."""

    status = 404


class LoadFailed(ServingError):
    """A model cannot be loaded. The message says which, and why."""


class WorkerFailed(ServingError):
    """A model raised an error on this input."""


class WorkerLost(ServingError):
    """The server that runs a model for us is gone."""

    status = 502


class ErrorDetail(BaseModel):
    """What went wrong, in which field of the request, and the id to look for in the trace."""

    message: str
    field: str | None = None
    request_id: str | None = None


class ErrorBody(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorDetail


DOCUMENTED: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorBody} for code in (400, 404, 413, 422, 500, 502, 503)
}
"""for a route's `responses`: all that can go wrong, so that OpenAPI tells it"""


def error_response(status: int, message: str, headers: dict[str, str] | None = None, **detail: Any) -> JSONResponse:
    """The answer to a request that failed; whatever cannot be UTF-8 is replaced."""
    safe = {key: value and value.encode(errors="replace").decode() for key, value in detail.items()}
    message = message.encode(errors="replace").decode()
    return JSONResponse({"error": {"message": message, "field": None, "request_id": None, **safe}}, status, headers)


def install_error_handlers(app: FastAPI) -> None:
    """Map every error, ours and the framework's, to its answer."""

    @app.exception_handler(ServingError)
    async def serving_error(_: Request, exc: ServingError) -> JSONResponse:
        headers = {"Retry-After": str(exc.retry_after)} if exc.retry_after else None
        return error_response(exc.status, exc.message, headers, field=exc.field, request_id=exc.request_id)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, exc: RequestValidationError) -> JSONResponse:
        if "json" not in request.headers.get("content-type", ""):
            return error_response(
                422, "body: must be JSON, with the header Content-Type: application/json", field="body"
            )
        first, *rest = exc.errors()
        inside = first["loc"][1:] if first["type"] != "json_invalid" else ()
        field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in inside)[1:80] or "body"
        more = f" (and {len(rest)} more)" if rest else ""
        return error_response(422, f"{field}: {first['msg']}{more}", field=field)

    @app.exception_handler(HTTPException)
    async def http_error(_: Request, exc: HTTPException) -> JSONResponse:
        if exc.status_code == 400:  # the body could not even be read as JSON
            message = "body: must be JSON in UTF-8, with numbers and nesting of a sane size"
            return error_response(400, message, field="body")
        return error_response(exc.status_code, str(exc.detail), dict(exc.headers or {}))

    @app.exception_handler(Exception)
    async def unexpected(_: Request, exc: Exception) -> JSONResponse:
        return error_response(500, f"internal error: {type(exc).__name__}")

    app.add_middleware(BodyLimit)


class BodyLimit:
    """Stops reading a request body past `MAX_BODY` bytes, whatever its headers claim."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = 0

        async def receive_some() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > MAX_BODY:
                raise HTTPException(413, f"body: at most {MAX_BODY} bytes")
            return message

        await self.app(scope, receive_some, send)
