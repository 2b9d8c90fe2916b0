"""07.1 What clients may send, as OpenAI's API has it, with vLLM's additions (`top_k`, `ignore_eos`).

An option that this server does not have is refused by name, not ignored; unless its value is the one that asks for
nothing. Limits are in the error and in `/openapi.json`.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WrapValidator, model_validator
from pydantic_core import PydanticCustomError

from .errors import MAX_BODY, Refused
from .generation import Prompt, Wish
from .messages import SamplingParams

NEUTRAL: dict[str, Any] = {
    "best_of": 1,
    "echo": False,
    "frequency_penalty": 0,
    "logit_bias": {},
    "min_p": 0,
    "presence_penalty": 0,
    "repetition_penalty": 1,
    "suffix": "",
    "tools": [],
}
"""options that this server does not have, and what says so"""
Unicode = Annotated[str, Field(max_length=MAX_BODY)]  # any limit has pydantic look for halves of surrogate pairs
Text = Annotated[str, Field(min_length=1)]
Ids = list[Annotated[int, Field(ge=0)]]


def plainly(said: str) -> WrapValidator:
    """One sentence, instead of one complaint for each member of a union."""

    def check(value: Any, validate: Callable[[Any], Any]) -> Any:
        try:
            return validate(value)
        except ValidationError:
            raise PydanticCustomError("union", "{said}", {"said": said}) from None

    return WrapValidator(check)


class Body(BaseModel):
    """What all request bodies share: no field that is not known, no value that is not of its type."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def drop_what_asks_for_nothing(cls, data: Any) -> Any:
        """Null is as good as absent."""
        if not isinstance(data, dict):
            return data
        known = cls.model_fields
        return {k: v for k, v in data.items() if v is not None and (k in known or k not in NEUTRAL or v != NEUTRAL[k])}


class BasicGenerate(Body):
    """The body of `POST /basic_generate`."""

    prompt: str = Field(min_length=1, examples=["Count from 3 to 9:"])
    max_new_tokens: int = Field(50, ge=1, le=512)
    ignore_eos: bool = Field(False, description="go on past the stop token; for benchmarks")

    def wish(self) -> Wish:
        """Greedy."""
        return Wish(SamplingParams(self.max_new_tokens, temperature=0.0, ignore_eos=self.ignore_eos), seed=0)


class StreamOptions(Body):
    """What a stream says beside the text."""

    include_usage: bool = Field(False, description="a last chunk with the numbers of tokens")


class Generate(Body):
    """What completions and chats have in common."""

    model: str | None = Field(None, description="as in /v1/models; may be left out")
    max_tokens: int | None = Field(None, ge=1, lt=1 << 31)
    n: int = Field(1, ge=1, le=128, description="choices for each prompt")
    temperature: float = Field(1.0, ge=0, le=2, allow_inf_nan=False, description="0 is greedy")
    top_p: float = Field(1.0, gt=0, le=1, allow_inf_nan=False)
    top_k: int = Field(0, ge=-1, lt=1 << 31, description="0 and -1 are off")
    seed: int | None = Field(None, ge=0, lt=1 << 63, description="the same seed gives the same text")
    stop: Annotated[
        Text | Annotated[list[Text], Field(max_length=16)] | None, plainly("should be a text, or a list of up to 16")
    ] = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    ignore_eos: bool = Field(False, description="go on past the stop token; for benchmarks")

    def wish(self) -> Wish:
        """What the engine is asked for. Raises `Refused` for options that need another one."""
        if self.stream_options and not self.stream:
            raise Refused("stream_options: only for stream: true", field="stream_options")
        sampling = SamplingParams(
            self.new_tokens(), self.temperature, self.top_p, max(0, self.top_k), 0, self.ignore_eos, self.likeliest()
        )
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return Wish(sampling, self.seed, self.n, stop)

    def new_tokens(self) -> int:
        """At most so many; 0 is as many as fit."""
        return self.max_tokens or 0

    def likeliest(self) -> int | None:
        """How many of the likeliest tokens to report; None reports nothing."""
        return None


class Completion(Generate):
    """The body of `POST /v1/completions`."""

    prompt: Annotated[
        Unicode | Ids | list[Unicode] | list[Ids], plainly("should be text, a list of token ids, or a list of either")
    ] = Field(examples=["Count from 3 to 9:"])
    logprobs: int | None = Field(None, ge=0, le=20, description="how many of the likeliest tokens to report")

    def prompts(self) -> dict[str, Prompt]:
        """Each prompt, and what to call it in an error."""
        many: Any = self.prompt
        if isinstance(many, str) or not many or isinstance(many[0], int):
            return {"prompt": many}
        return {f"prompt[{place}]": prompt for place, prompt in enumerate(many)}

    def new_tokens(self) -> int:
        return self.max_tokens or 16

    def likeliest(self) -> int | None:
        return self.logprobs


class TextPart(Body):
    """A piece of a message."""

    type: Literal["text"]
    text: Unicode


class Message(Body):
    """One turn of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[Unicode | list[TextPart], plainly('should be text, or parts of {"type": "text", "text": ...}')]
    name: Unicode | None = None

    def plain(self) -> dict[str, str]:
        """As templates know it."""
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": self.role, "content": content} | ({"name": self.name} if self.name else {})


class Chat(Generate):
    """The body of `POST /v1/chat/completions`."""

    messages: list[Message] = Field(min_length=1, examples=[[{"role": "user", "content": "What is a batch?"}]])
    max_completion_tokens: int | None = Field(None, ge=1, lt=1 << 31, description="the newer name of max_tokens")
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=20, description="how many of the likeliest tokens to report")

    def new_tokens(self) -> int:
        return self.max_completion_tokens or self.max_tokens or 0

    def likeliest(self) -> int | None:
        if self.top_logprobs is not None and not self.logprobs:
            raise Refused("top_logprobs: only for logprobs: true", field="top_logprobs")
        return (self.top_logprobs or 0) if self.logprobs else None
