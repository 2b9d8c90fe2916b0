"""The seam: which class plays which part. A fault, an exercise and a box in the lab each swap one of them."""

from dataclasses import dataclass, fields

from .async_client import AsyncClient, Launch
from .chat import ChatTemplate
from .core_link import spawn_core
from .core_parts import CoreParts
from .engine import Engine
from .output_handler import StopStrings
from .router import Router
from .tokenization import Tokenizer


@dataclass(frozen=True)
class Parts(CoreParts):
    """The players of one server: those of the engine cores, as import paths, and those of the web process."""

    engine: type[Engine] = Engine
    client: type[AsyncClient] = AsyncClient
    router: type[Router] = Router
    launch: Launch = spawn_core
    tokenizer: type[Tokenizer] = Tokenizer
    chat: type[ChatTemplate] = ChatTemplate
    stops: type[StopStrings] = StopStrings

    def for_core(self) -> CoreParts:
        """What an engine core needs of this, without what only the web process can load."""
        return CoreParts(**{field.name: getattr(self, field.name) for field in fields(CoreParts)})
