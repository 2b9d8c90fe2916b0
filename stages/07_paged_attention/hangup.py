"""Notices that a client has hung up, and stops working for it. Knows HTTP connections, nothing of models."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request
from starlette.exceptions import HTTPException

T = TypeVar("T")


class HungUp(HTTPException):
    """The client is gone. The status is for the record only: there is nobody to answer."""

    def __init__(self) -> None:
        super().__init__(499, "the client has hung up")


async def until_hang_up(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled if the client hangs up first. Raises `HungUp` then."""
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(hang_up(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise HungUp
        return working.result()
    finally:
        gone.cancel()
        working.cancel()
        await asyncio.wait({working})


async def hang_up(request: Request) -> None:
    """Return when the client has closed the connection. The request's body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
