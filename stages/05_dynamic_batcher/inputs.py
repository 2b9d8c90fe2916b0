"""From what a client sends to rows that a model takes: the inputs of a request by name, and each prepared, alone."""

import asyncio
from typing import Any

from .errors import Refused
from .residency import attempt
from .worker import Worker

MAX_INPUTS = 64
"""in one request"""


def named(input_data: Any) -> dict[str, Any]:
    """The inputs of a request, by the names that errors give them. A list of numbers is one input. Raises `Refused`."""
    if not isinstance(input_data, list) or (input_data and isinstance(input_data[0], int | float)):
        return {"input_data": input_data}
    if not 0 < len(input_data) <= MAX_INPUTS:
        raise Refused(f"input_data: must hold 1 to {MAX_INPUTS} inputs, not {len(input_data)}", field="input_data")
    return {f"input_data[{place}]": item for place, item in enumerate(input_data)}


async def prepared(worker: Worker, name: str, item: Any) -> Any:
    """An input as the model wants it, on any thread: a pass may be running. Raises `Refused` with its name."""
    row, error = await asyncio.to_thread(attempt, worker.prepare, item)
    if isinstance(error, Refused):
        raise Refused(f"{name}: {error.message}", field=name)
    if error:
        raise error
    return row
