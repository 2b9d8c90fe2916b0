"""07.3 The engine core: a process of its own that loops schedule -> run -> update for as long as it lives.

Two sockets, both bound by the client, both connected to by the core, both carrying msgspec's MessagePack:

- `input_address`: the client PUSHes `Add` and `Abort`, the core PULLs. One address for each core, and a new one for a
  core that replaces another, so that nothing meant for the dead one reaches it.
- `output_address`: the core PUSHes, the client PULLs. One address for all cores; each message carries `core`.

What comes out, in this order: one `Ready` when the model is loaded; then one `Outputs` after every turn of the loop
that changed anything, even if it has no outputs in it, so that a client with requests outstanding that hears nothing
knows that the core hangs; last, when it must end, one `Dead`. A request gets `Output`s until one has a finish reason,
and none after that. An abort is not answered, and one for an unknown id is harmless. Keeping ids unique is the
client's job.

Start it with `multiprocessing`'s spawn and `daemon=False` (it may have a child of its own); end it with `kill()`. It
ends by itself when its parent does, however that happened.
"""

from .config import EngineConfig, Unusable
from .core_loop import EngineCore
from .core_parts import CoreParts
from .core_sockets import Sockets
from .executor import WorkerDied, load, settle_in
from .messages import Dead, Outputs, Ready
from .trace import Event, Tracer


def run_engine_core(
    config: EngineConfig, core: int, input_address: str, output_address: str, parts: CoreParts = CoreParts()
) -> None:
    """The main function of the core's process. `parts` is `Parts.for_core()` in the parent."""
    settle_in()
    sockets = Sockets(input_address, output_address)
    events: list[Event] = []
    trace = Tracer(events.append if config.trace else None, process=f"engine core {core}")
    executor = None
    try:
        executor = load(config, parts, trace)
        engine = EngineCore.build(config, parts, executor, trace)
        sockets.send(Ready(core, executor.limits))
        busy = False
        while True:
            messages = sockets.messages(wait=not busy)
            with engine.phase("sockets"):
                outputs = [output for message in messages for output in engine.handle(message)]
            busy, more = engine.turn()
            if busy or messages:
                with engine.phase("sockets"):
                    sockets.send(Outputs(core, outputs + more, engine.stats(), events.copy()))
                    events.clear()
    except Exception as exc:
        reason = str(exc) if isinstance(exc, Unusable | WorkerDied) else f"the engine core failed: {exc!r}"
        sockets.send(Dead(core, reason, unusable=isinstance(exc, Unusable)))
    finally:
        if executor:
            executor.close()
        sockets.close()
