"""The web process's tokenizer: ids from prompts, and text from ids. Needs `tokenizers` alone, not torch.

It also knows how long a context the model has, because a prompt that does not fit must be refused before it queues.
"""

import asyncio
import json
from pathlib import Path

from huggingface_hub import hf_hub_download
from tokenizers import Tokenizer as Rust

from .detokenizer import Detokenizer


class Tokenizer:
    """Of a model in a directory, or on the hub. Raises `ValueError` with one line if there is none."""

    def __init__(self, model: str) -> None:
        try:
            tokenizer, config = (self.find(model, name) for name in ("tokenizer.json", "config.json"))
            self.rust = Rust.from_file(str(tokenizer))
            known: dict[str, int] = json.loads(config.read_text(encoding="utf-8"))
            self.context = known.get("max_position_embeddings") or known["n_positions"]  # GPT-2's name for it
        except Exception as exc:  # tokenizers raises bare ones
            raise ValueError(f"--model {model}: no usable tokenizer: {str(exc).strip().splitlines()[0]}") from exc
        self.rust.no_padding()
        self.rust.no_truncation()

    @staticmethod
    def find(model: str, name: str) -> Path:
        """A file of the model, here or out of the hub's cache."""
        return Path(model) / name if Path(model).is_dir() else Path(hf_hub_download(model, name))

    async def encode(self, text: str) -> list[int]:
        """Token ids. A long prompt takes a while, so this happens off the event loop.

        `encode_batch` lets go of the GIL meanwhile; `encode` does not, and a thread alone would not help.
        """
        return (await asyncio.to_thread(self.rust.encode_batch, [text]))[0].ids

    def decode(self, ids: list[int]) -> str:
        """Text, without special tokens; bytes that form no character become U+FFFD."""
        return self.rust.decode(ids, skip_special_tokens=True)

    def detokenizer(self) -> Detokenizer:
        """A fresh one for one sequence."""
        return Detokenizer(self.decode)
