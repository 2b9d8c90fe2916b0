"""The seam: which class plays which part. A fault, an exercise and a box in the lab each swap one of them."""

from dataclasses import dataclass

from .engine import Engine
from .executor import Executor
from .mailbox import Mailbox
from .scheduler import Scheduler
from .tokenization import Tokenizer
from .vllm_gateway import Gateway


@dataclass(frozen=True)
class Parts:
    """The players of one server. The worker lives in the child, so it is an import path, resolved there."""

    engine: type[Engine] = Engine
    scheduler: type[Scheduler] = Scheduler
    mailbox: type[Mailbox] = Mailbox
    tokenizer: type[Tokenizer] = Tokenizer
    executor: type[Executor] = Executor
    worker: str = f"{__package__}.worker:Worker"
    gateway: type[Gateway] = Gateway
