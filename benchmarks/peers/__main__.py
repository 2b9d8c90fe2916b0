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


def with_event_loop_routes(app: FastAPI) -> FastAPI:
    """The same app, with the two routes."""
    app.get("/heartbeat")(heartbeat)
    app.get("/lag")(lag)
    return app


def serve(app: FastAPI, title: str) -> None:
    """Print the address once the socket is bound, and serve until a signal comes."""
    # IPPROTO_TCP is what makes asyncio set TCP_NODELAY; without it each answer may wait 40 ms for an acknowledgment
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        print(f"{title}: http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=3)).run(sockets=[listener])


if __name__ == "__main__":
    options = parser.parse_args()
    os.environ["MODEL"] = options.model
    serve(with_event_loop_routes(import_module(f"{__package__}.{options.peer}").app), options.peer)
