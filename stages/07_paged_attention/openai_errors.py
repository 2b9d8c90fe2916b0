"""07.1 Errors as OpenAI's clients know them: `{"error": {"message", "type", "param", "code"}}`, and 400 for bad input.

What can go wrong, and what is said of it, is in errors.py; the routes under /v1 only tell it in another form.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from .errors import ServingError


class NotFound(ServingError):
    """There is no such model."""

    status = 404


class OpenAIErrorDetail(BaseModel):
    """What went wrong, and in which parameter."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class OpenAIErrorBody(BaseModel):
    """The body of every answer under /v1 that is not a success."""

    error: OpenAIErrorDetail


OPENAI_DOCUMENTED: dict[int | str, dict[str, Any]] = {
    code: {"model": OpenAIErrorBody} for code in (400, 404, 413, 500, 503)
}
"""for a route's `responses`; OpenAPI would list 422 by itself, and these routes never send it"""


def openai_error(status: int, message: str, param: str | None = None) -> dict[str, Any]:
    """The body that tells of an error."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    code = "model_not_found" if status == 404 and param == "model" else None
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def dress_errors(app: FastAPI) -> None:
    """Have the error handlers that are installed answer in OpenAI's form where the path is under /v1."""
    for error, handler in list(app.exception_handlers.items()):
        if getattr(handler, "__module__", "").startswith(__package__ or "-"):
            app.add_exception_handler(error, dressed(handler))


def dressed(handler: Callable[..., Any]) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    """A handler that says what another one says, in OpenAI's form."""

    async def handle(request: Request, exc: Exception) -> JSONResponse:
        answer: JSONResponse = await handler(request, exc)
        if not request.url.path.startswith("/v1/"):
            return answer
        told = json.loads(bytes(answer.body))["error"]
        status = 400 if answer.status_code == 422 else answer.status_code
        headers = {name: answer.headers[name] for name in ("Retry-After", "Allow") if name in answer.headers}
        return JSONResponse(openai_error(status, told["message"], told["field"]), status, headers)

    return handle
