"""07.1 What the routes call: prompts become token ids, token ids become requests, and what comes back finds its caller.

Knows no tensors, no sockets and no HTTP. It runs on the web's event loop; only `_outputs` and `_lost` are called from
the client's thread, and they do no more than to hand their arguments over to that loop, once a step for all requests.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import msgspec

from .async_client import AsyncClient
from .errors import EngineDead, QueueFull, Refused, ServingError
from .generation import Aborted, Generation, Prompt, Wish, failure_of
from .messages import Add, Output, Outputs, SamplingParams
from .metrics import Metrics
from .output_handler import Choice, Delta, StopStrings
from .tokenization import Tokenizer
from .trace import Tracer

SEEDS = 1 << 63


class Engine:
    """One for the whole process, built once, before the server listens."""

    def __init__(
        self,
        client: AsyncClient,
        tokenizer: Tokenizer,
        trace: Tracer,
        model_name: str,
        stops: type[StopStrings] = StopStrings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = client
        self.tokenizer = tokenizer
        self.trace = trace
        self.stops = stops
        self.clock = clock
        self.metrics = Metrics(model_name, client.stats, lambda: client.limits, clock())
        self.open: dict[str, tuple[Generation, Choice]] = {}  # by the id under which the core knows the choice
        self.loop: asyncio.AbstractEventLoop | None = None
        client.on_outputs, client.on_lost = self._outputs, self._lost

    def start(self) -> None:
        """Return once every core is ready. Raises `EngineDead` if one cannot be had."""
        self.client.start()

    def close(self) -> None:
        """Fail whoever waits, and stop."""
        self.client.close()

    def on_fatal(self, stop: Callable[[], object]) -> None:
        """What to call when the cores are given up."""
        self.client.on_fatal = stop

    @property
    def failure(self) -> str | None:
        """Why the cores were given up, if they were."""
        return self.client.failure

    async def submit(self, prompts: dict[str, Prompt], wish: Wish, request_id: str | None = None) -> Generation:
        """Tokenize and send the prompts of one request, all or none. Keys name them in errors, as in "prompt[2]".

        Raises `Refused` for what could never be served, `QueueFull` with an estimate of when to come back.
        """
        self.loop, arrived = asyncio.get_running_loop(), self.clock()
        generation = Generation(self.internal_id(request_id), [], arrived)
        count, most = len(prompts) * wish.n, self.client.router.capacity
        try:
            if count > most:
                raise Refused(f"{count} sequences; at most {most} may wait at a time")
            requests = [add for name in prompts for add in await self.requests(generation, name, prompts[name], wish)]
            self.send(generation, requests)
        except ServingError as exc:
            self.metrics.requests[exc.outcome] += 1
            raise
        return generation

    async def requests(self, generation: Generation, name: str, prompt: Prompt, wish: Wish) -> list[Add]:
        """What a core is to do for one prompt: `n` requests, each of which is a choice of the generation."""
        ids = await self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        sampling, requests = self.sampling(name, ids, wish), []
        seed = random.randrange(SEEDS) if wish.seed is None else wish.seed
        for number in range(wish.n):
            index = len(generation.choices)
            one, seeded = f"{generation.request_id}-{index}", (seed + number) % SEEDS
            choice = Choice(one, index, ids, self.tokenizer.detokenizer(), self.stops(wish.stop))
            generation.choices.append(choice)
            requests.append(Add(one, ids, msgspec.structs.replace(sampling, seed=seeded), generation.arrived))
            self.trace.instant("tokenized", request_id=one, prompt=prompt, prompt_ids=ids)
        return requests

    def internal_id(self, request_id: str | None) -> str:
        """The id by which server and cores know a request: clients may repeat theirs, so it gets a part of our own."""
        return f"{request_id}-{uuid4().hex[:8]}" if request_id else uuid4().hex

    def sampling(self, name: str, ids: list[int], wish: Wish) -> SamplingParams:
        """How to sample for this prompt. Raises `Refused`, with both numbers, for what can never fit."""
        limits, new = self.client.limits, wish.sampling.max_tokens
        if not limits:
            raise EngineDead("the model is being loaded", retry_after=1)
        longest = min(limits.max_model_len, limits.num_blocks * limits.block_size + 1)
        sampling = msgspec.structs.replace(wish.sampling, max_tokens=new or max(1, longest - len(ids)))
        if reason := limits.refusal(ids, sampling.max_tokens):
            raise Refused(f"{name}: {reason}", field=name)
        return sampling

    def send(self, generation: Generation, requests: list[Add]) -> None:
        """Send the requests of one caller to the cores, all or none."""
        try:
            self.client.send(requests)
        except QueueFull as exc:
            exc.retry_after = self.metrics.retry_after(len(self.open), self.clock())
            raise
        generation.unfinished = len(generation.choices)
        self.open.update((choice.request_id, (generation, choice)) for choice in generation.choices)

    async def stream(self, generation: Generation) -> AsyncIterator[Delta]:
        """What comes of the choices. Raises a `ServingError`. However it ends, nothing more is computed."""
        try:
            while generation.unfinished:
                delta = await generation.deltas.get()
                if isinstance(delta, ServingError):
                    raise delta
                generation.unfinished -= delta.finish_reason is not None
                yield delta
        finally:
            self.abort(generation)

    def abort(self, generation: Generation) -> None:
        """Nobody waits for this any more: free its place, queued or running. Harmless once it has ended."""
        self.end(generation, "hung_up", Aborted("aborted"))

    def end(self, generation: Generation, outcome: str, error: ServingError | None = None) -> None:
        """A generation is over, and its outcome is counted; whoever still waits is told of the error."""
        if generation.over:
            return
        generation.over = True
        self.metrics.requests[outcome] += 1
        left = [choice.request_id for choice in generation.choices if self.open.pop(choice.request_id, None)]
        if left:
            self.client.abort(left)
        if error:
            error.request_id = generation.request_id
            generation.deltas.put_nowait(error)

    def take(self, outputs: list[Output]) -> None:
        """Hand one step's outputs to those who wait for them. Nobody may: they have hung up a moment ago."""
        now = self.clock()
        for output in outputs:
            generation, choice = self.open.get(output.request_id, (None, None))
            if not generation or not choice:
                continue
            if output.finish_reason == "error":
                failure = failure_of(output)
                self.end(generation, failure.outcome, failure)
                continue
            delta = choice.take(output)
            self.metrics.observe(choice, delta, generation.arrived, now)
            self.trace.instant("text", request_id=choice.request_id, token_ids=delta.token_ids, text=delta.text)
            generation.deltas.put_nowait(delta)
            if delta.finish_reason:
                del self.open[choice.request_id]
                if not output.finish_reason:  # a stop string ended it, and the core does not know
                    self.client.abort([choice.request_id])
                if not any(other.request_id in self.open for other in generation.choices):
                    self.end(generation, "completed")
        self.metrics.text_seconds += self.clock() - now

    def fail(self, request_ids: list[str], reason: str) -> None:
        """The core that had these is lost."""
        for request_id in request_ids:
            if request_id in self.open:
                self.end(self.open[request_id][0], "failed", EngineDead(reason, retry_after=1))

    @property
    def ready(self) -> bool:
        """Whether a request would be served now."""
        return "ready" in self.client.states()

    def _outputs(self, message: Outputs) -> None:
        if message.outputs:
            self._hand_over(self.take, message.outputs)

    def _lost(self, request_ids: list[str], reason: str) -> None:
        self._hand_over(self.fail, request_ids, reason)

    def _hand_over(self, function: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop has closed: nobody is left to read
            if self.loop:
                self.loop.call_soon_threadsafe(function, *arguments)
