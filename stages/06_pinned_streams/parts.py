"""The seam: which class plays which part. A fault, an exercise and a box in the lab each swap one of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .batcher import DynamicBatcher
from .batching import Batching
from .engine import Engine
from .lru import Lru
from .mailbox import Mailbox
from .onnx_worker import OnnxWorker
from .residency import Residency
from .scheduler import Scheduler
from .streaming_worker import StreamingWorker
from .streams import Streams
from .torchvision_worker import TorchVisionWorker
from .transformers_worker import TransformersWorker
from .triton_worker import TritonWorker
from .worker import Worker

WORKERS: dict[str, type[Worker]] = {
    "transformers": TransformersWorker,
    "torchvision": TorchVisionWorker,
    "onnx": OnnxWorker,
    "triton": TritonWorker,
    "causal-lm": StreamingWorker,
}
"""the factory: a model's framework says which worker runs it"""


@dataclass(frozen=True)
class Parts:
    """The players of one server."""

    engine: type[Engine] = Engine
    residency: type[Residency] = Residency
    policy: type[Lru] = Lru
    batcher: type[DynamicBatcher] = DynamicBatcher
    batching: type[Batching] = Batching
    scheduler: type[Scheduler] = Scheduler
    streams: type[Streams] = Streams
    mailbox: type[Mailbox] = Mailbox
    workers: Mapping[str, type[Worker]] = field(default_factory=lambda: WORKERS)
