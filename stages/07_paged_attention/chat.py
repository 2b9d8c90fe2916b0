"""07.1 From the messages of a chat to the token ids of a prompt, by the template that the model brings along.

A template is a program in jinja2, written by whoever published the model; it runs in a sandbox, off the event loop.
Nothing is made up for a model without one: what it was trained on is for its makers to say.
"""

import asyncio
import json
from datetime import datetime
from typing import Any, NoReturn

from huggingface_hub.errors import EntryNotFoundError
from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .errors import Refused
from .tokenization import Tokenizer

SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")


def raise_exception(message: str) -> NoReturn:
    """What templates call when they cannot render something."""
    raise TemplateError(message)


class ChatTemplate:
    """Of a model in a directory, or on the hub."""

    def __init__(self, model: str, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        config = json.loads(self.read(model, "tokenizer_config.json") or "{}")
        source = self.read(model, "chat_template.jinja") or config.get("chat_template")
        if isinstance(source, list):  # several, each with a name
            source = next((one["template"] for one in source if one["name"] == "default"), None)
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = lambda value, **how: json.dumps(value, ensure_ascii=False, **how)
        environment.globals["raise_exception"] = raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self.template = environment.from_string(source) if source else None
        tokens = {name: config.get(name) for name in SPECIAL}
        self.tokens = {
            name: token["content"] if isinstance(token, dict) else token for name, token in tokens.items() if token
        }

    @staticmethod
    def read(model: str, name: str) -> str | None:
        """A file of the model; None if there is none."""
        try:
            return Tokenizer.find(model, name).read_text(encoding="utf-8")
        except (FileNotFoundError, EntryNotFoundError):
            return None

    async def prompt_ids(self, messages: list[dict[str, Any]]) -> list[int]:
        """The prompt that asks for the next message. Raises `Refused` with the template's own words."""
        return await asyncio.to_thread(self.render, messages)

    def render(self, messages: list[dict[str, Any]]) -> list[int]:
        """Text by the template, and its ids: the special tokens are in the text already."""
        if not self.template:
            raise Refused("messages: this model has no chat template; /v1/completions takes a prompt", field="messages")
        try:
            text = self.template.render(messages=messages, add_generation_prompt=True, **self.tokens)
        except Exception as exc:  # a template may do anything
            raise Refused(f"messages: the chat template refuses them: {exc}", field="messages") from exc
        return self.tokenizer.rust.encode_batch([text], add_special_tokens=False)[0].ids  # lets go of the GIL
