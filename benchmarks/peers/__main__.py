"""Serves one peer on a free loopback port, with two more routes that tell how its event loop fares.

`python -m benchmarks.peers ten_line_server --model DIRECTORY` prints the address when it is ready to answer.
"""

import argparse
import asyncio
import os
import socket
from importlib import import_module

import uvicorn
from fastapi import FastAPI

TICK = 0.005
"""seconds that the event loop is asked to sleep, again and again, while its lag is measured"""

parser = argparse.ArgumentParser(prog=__package__, description="Serve what the stages are compared with.")
parser.add_argument("peer", help="a module of this package, such as ten_line_server")
parser.add_argument("--model", required=True, help="directory or hub id")


async def heartbeat() -> dict[str, str]:
    """The least that an async route can do."""
    return {"status": "alive"}


async def lag(seconds: float) -> list[float]:
    """By how many seconds each of many short sleeps was late: how long the event loop keeps a ready task waiting."""
    clock = asyncio.get_running_loop().time
    end, late = clock() + seconds, []
    while (began := clock()) < end:
        await asyncio.sleep(TICK)
        late.append(clock() - began - TICK)
    return late


def serve(app: FastAPI, title: str) -> None:
    """Print the address once the socket is bound, and serve until a signal comes."""
    app.get("/heartbeat")(heartbeat)
    app.get("/lag")(lag)
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        print(f"{title}: http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=3)).run(sockets=[listener])


if __name__ == "__main__":
    options = parser.parse_args()
    os.environ["MODEL"] = options.model
    serve(import_module(f"{__package__}.{options.peer}").app, options.peer)
