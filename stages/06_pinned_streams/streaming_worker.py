"""Language models of the transformers library that write token by token, many streams at a time.

The counterpart of stage 03's worker, with the KV cache that it lacked: a joiner's prompt is computed once, and from
then on each step feeds only the newest id of each stream. Unmodified models; OPT and Llama families have been tried.
"""

import time
import warnings
from collections.abc import Sequence as Many
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from .errors import Refused, WorkerFailed
from .kv_cache import SlotCache
from .sampler import sample
from .sequence import Sequence, Token
from .stats import Work
from .transformers_worker import look, pretrained
from .worker import Prediction, Worker

warnings.filterwarnings("ignore", "`past_key_values` is deprecated", FutureWarning)  # its successor is not there yet

SLOTS = 8
"""streams that share a step, for models whose registry entry does not say (`max_batch`)"""


class StreamingWorker(Worker):
    """Text in, tokens out. `streams` are those that have a slot in the cache, in the order of the slots."""

    streams: list[Sequence]
    cache: Any = None

    def check(self) -> None:
        look(self)

    def load(self) -> None:
        self.tokenizer, model = pretrained(self, AutoModelForCausalLM)
        self.start(model)

    def start(self, model: Any) -> None:
        """Take a loaded model, with an empty cache."""
        self.model = model
        self.context: int = model.config.max_position_embeddings
        self.streams, self.cache = [], self.empty_cache()
        stop = model.generation_config.eos_token_id
        self.stop_ids: set[int] = set(stop if isinstance(stop, list) else [stop])

    @property
    def slots(self) -> int:
        """How many streams share a step; each reserves room for a whole context."""
        return self.metadata.max_batch or SLOTS

    def empty_cache(self) -> SlotCache:
        """A cache in which nobody holds a slot."""
        return SlotCache(self.model.config.num_hidden_layers, self.slots, self.context)

    def prepare(self, item: Any) -> list[int]:
        """The ids of a prompt."""
        if any("\ud800" <= character <= "\udfff" for character in item):
            raise Refused("must be a text, not half a surrogate pair")
        ids: list[int] = self.tokenizer(item)["input_ids"]
        if not ids:
            raise Refused("must hold at least one token")
        return ids

    def predict(self, rows: list[Any]) -> list[Prediction]:
        raise WorkerFailed("this model streams; it predicts nothing")

    def decode(self, ids: list[int]) -> str:
        """Text, without special tokens; bytes that form no character become U+FFFD."""
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    @torch.inference_mode()
    def execute(self, batch: list[Sequence]) -> tuple[list[Token | WorkerFailed], Work]:
        """One token for everyone in the batch, or an error. Whoever is not in it any more loses its slot.

        A prompt that fails is its own stream's trouble. A step that fails ends all who took part in it: what the
        cache holds of them is not known.
        """
        began = time.monotonic()
        self.let_go(batch)
        joiners = [sequence for sequence in batch if sequence not in self.streams]
        outcomes: dict[Sequence, Token | WorkerFailed] = {}
        stepped = len(self.streams)
        if self.streams:
            outcomes.update(self.step())
        for joiner in joiners:
            outcomes[joiner] = self.prefill(joiner)
        work = Work(
            rows=len(batch),
            forward_passes=bool(stepped) + len(joiners),
            row_steps=len(batch),
            positions_computed=stepped + sum(len(joiner.prompt_ids) for joiner in joiners),
            began=began,
            seconds=time.monotonic() - began,
        )
        return [outcomes[sequence] for sequence in batch], work

    def let_go(self, batch: list[Sequence]) -> None:
        """Free the slots of all who are not in the batch. The cache moves its last stream into a gap; so do we."""
        for slot in reversed(range(len(self.streams))):
            if self.streams[slot] not in batch:
                self.cache.leave(slot)
                last = self.streams.pop()
                if slot < len(self.streams):
                    self.streams[slot] = last

    def step(self) -> dict[Sequence, Token | WorkerFailed]:
        """One forward pass for all streams in the cache, over the newest id of each."""
        streams = list(self.streams)
        newest = torch.tensor([[sequence.output_ids[-1]] for sequence in streams], device=self.model.device)
        try:
            tokens = self.choose(self.forward(newest, self.cache.step(newest.device)), streams)
            return dict(zip(streams, tokens, strict=True))
        except Exception as exc:
            self.streams, self.cache = [], self.empty_cache()
            return dict.fromkeys(streams, WorkerFailed(str(exc) or repr(exc)))

    def prefill(self, joiner: Sequence) -> Token | WorkerFailed:
        """The joiner takes a slot: a forward pass over its prompt, and nobody else's."""
        ids = torch.tensor([joiner.prompt_ids], device=self.model.device)
        self.streams.append(joiner)
        arguments = self.cache.join(ids.shape[1], ids.device)
        try:
            [token] = self.choose(self.forward(ids, arguments), [joiner])
            return token
        except Exception as exc:
            self.cache.leave(len(self.streams) - 1)
            self.streams.pop()
            return WorkerFailed(str(exc) or repr(exc))

    def forward(self, ids: torch.Tensor, arguments: dict[str, Any]) -> torch.Tensor:
        """Logits at the last position, [rows, vocabulary]."""
        return self.model(ids, **arguments, logits_to_keep=1).logits[:, -1, :]

    def choose(self, logits: torch.Tensor, streams: Many[Sequence]) -> list[Token]:
        """The next token of each row."""
        samplings = [sequence.sampling for sequence in streams]
        ids = sample(logits, samplings, [len(sequence.output_ids) for sequence in streams])
        return [Token(token_id, self.is_stop(token_id)) for token_id in ids]

    def is_stop(self, token_id: int) -> bool:
        """Whether this id ends a sequence. Ids are compared, never text."""
        return token_id in self.stop_ids

    def free(self) -> None:
        self.streams, self.cache = [], None
        super().free()

    def size(self) -> int:
        return super().size() + self.kv_bytes()[0]

    def kv_bytes(self) -> tuple[int, int]:
        """Bytes reserved for keys and values, and bytes that hold some."""
        cache = self.cache  # another thread may be freeing it
        return cache.bytes() if cache else (0, 0)
