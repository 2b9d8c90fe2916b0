"""What the routes call, and the decode loop: admit, one step for everyone, deliver, repeat.

Knows no tensors and no HTTP. The loop runs on a thread of its own; what it delivers goes to each sequence's mailbox.
The two lanes, `texts` for blocking callers and `pieces` for streams, differ only in how they read it.
"""

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

from .errors import EngineDead, QueueFull, Refused, ServingError, WorkerFailed
from .executor import Executor
from .mailbox import Mailbox
from .scheduler import Scheduler
from .sequence import Sampling, Sequence, Token
from .stats import Stats
from .tokenization import Tokenizer
from .trace import Tracer


class Aborted(ServingError):
    """The sequence was taken out because nobody waits for it."""

    status = 499
    outcome = "hung_up"


class Engine:
    """One for the whole process, built once, before the server listens."""

    def __init__(
        self,
        executor: Executor,
        scheduler: Scheduler,
        tokenizer: Tokenizer,
        trace: Tracer,
        mailbox: type[Mailbox] = Mailbox,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.executor = executor
        self.scheduler = scheduler
        self.tokenizer = tokenizer
        self.trace = trace
        self.mailbox = mailbox
        self.clock = clock
        self.stats = Stats(clock())
        self.steps = 0
        self.changed = threading.Condition()  # guards the scheduler
        self.closing = False
        self._driver = threading.Thread(target=self.drive, name="driver", daemon=True)

    def start(self) -> None:
        """Return once the model is ready. Raises `EngineDead` if it cannot be had."""
        self.executor.start()
        if not self._driver.ident:
            self._driver.start()

    def close(self) -> None:
        """Fail whoever waits, and stop."""
        with self.changed:
            self.closing = True
            self.changed.notify()
        self.executor.close()
        if self._driver.ident:
            self._driver.join()

    def on_fatal(self, stop: Callable[[], object]) -> None:
        """Have `stop` called when the model is lost for good."""
        self.executor.on_fatal = stop

    @property
    def failure(self) -> str | None:
        """Why the model is lost for good."""
        return self.executor.failure

    async def submit(self, prompts: dict[str, str], sampling: Sampling) -> list[Sequence]:
        """Tokenize and queue the prompts of one request, all or none. Keys name them in errors, as in "prompts[2]".

        Raises `Refused` for a prompt that does not fit, `QueueFull` with an estimate of when to come back.
        """
        room, loop = self.tokenizer.context - sampling.max_new_tokens, asyncio.get_running_loop()
        sequences = []
        try:
            for name, prompt in prompts.items():
                ids = await self.tokenizer.encode(prompt)
                if not 0 < len(ids) <= room:
                    limit = f"must be 1 to {room} (a context of {self.tokenizer.context}, less the new tokens)"
                    raise Refused(f"{name}: {len(ids)} tokens; {limit}", field=name)
                sequences.append(Sequence(name, ids, sampling, self.mailbox(loop), self.clock()))
            self.admit(sequences)
        except ServingError as exc:
            self.stats.count(exc.outcome)
            raise
        return sequences

    def admit(self, sequences: list[Sequence]) -> None:
        """Queue all of them, or none."""
        if len(sequences) > self.scheduler.max_queue:
            raise Refused(f"prompts: {len(sequences)}; at most {self.scheduler.max_queue} may wait", field="prompts")
        with self.changed:
            if self.closing:
                raise EngineDead(self.failure or "the server is closing")
            if not self.executor.ready.is_set():
                raise EngineDead("the model is being restarted", retry_after=1)
            try:
                self.scheduler.add(sequences)
            except QueueFull as exc:
                exc.retry_after = max(1, math.ceil(self.scheduler.steps_ahead() * self.stats.seconds_per_pass()))
                raise
            for sequence in sequences:
                waiting, ids = len(self.scheduler.waiting), sequence.prompt_ids
                self.trace.instant("queued", request_id=sequence.request_id, prompt_ids=ids, waiting=waiting)
            self.changed.notify()

    async def texts(self, sequences: list[Sequence]) -> list[str]:
        """The blocking lane: the whole text of each sequence, in order. Raises a `ServingError` that names one."""
        with self.serving(sequences):
            return ["".join([piece async for piece, _ in self.read(sequence)]) for sequence in sequences]

    async def pieces(self, sequence: Sequence) -> AsyncIterator[tuple[str, str | None]]:
        """The streaming lane: pieces of text as they come; the last one comes with "stop" or "length".

        Raises a `ServingError`.
        """
        with self.serving([sequence]):
            async for piece, reason in self.read(sequence):
                yield piece, reason

    @contextmanager
    def serving(self, sequences: list[Sequence]) -> Iterator[None]:
        """Count how a request ends; however it does, its sequences cost no further step."""
        outcome = "hung_up"
        try:
            yield
            outcome = "completed"
        except ServingError as exc:
            outcome = exc.outcome
            raise
        finally:
            self.stats.count(outcome)
            for sequence in sequences:
                self.abort(sequence)

    async def read(self, sequence: Sequence) -> AsyncIterator[tuple[str, str | None]]:
        """Turn the tokens in a mailbox into text."""
        detokenizer, reason = self.tokenizer.detokenizer(), None
        while not reason:
            try:
                token_id, reason = await sequence.mailbox.get()
            except ServingError as exc:
                exc.field, exc.request_id = sequence.name, sequence.request_id
                raise
            piece = detokenizer.add(token_id) + (detokenizer.flush() if reason else "")
            self.trace.instant("piece", request_id=sequence.request_id, token=token_id, text=piece, reason=reason)
            if piece or reason:
                yield piece, reason

    def abort(self, sequence: Sequence) -> None:
        """Nobody waits for this sequence any more: free its place, queued or running. Harmless once it has ended."""
        with self.changed:
            self.scheduler.remove(sequence)
        sequence.mailbox.post(Aborted("aborted"))

    def drive(self) -> None:
        """The decode loop. However it ends, nobody is left waiting."""
        try:
            while batch := self.next_batch():
                self.deliver(batch, self.step(batch))
        except Exception as exc:
            self.executor.give_up(f"the driver failed: {exc!r}")
            raise
        finally:
            with self.changed:
                self.closing = True
                left = [*self.scheduler.running, *self.scheduler.waiting]
            for sequence in left:
                sequence.mailbox.post(EngineDead("the server is closing"))
                self.abort(sequence)

    def next_batch(self) -> list[Sequence]:
        """Wait until there is work; empty when closing."""
        with self.changed:
            while not self.closing:
                if batch := self.scheduler.schedule():
                    self.steps += 1
                    ids, waiting = [sequence.request_id for sequence in batch], len(self.scheduler.waiting)
                    self.trace.instant("scheduled", request_ids=ids, step=self.steps, waiting=waiting)
                    return batch
                self.changed.wait()
        return []

    def step(self, batch: list[Sequence]) -> list[Token | ServingError]:
        """One forward pass; what came of each sequence. If the pass as a whole raises, each is tried alone."""
        try:
            tokens, work = self.executor.execute(self.rows(batch))
            if len(tokens) != len(batch):
                raise WorkerFailed(f"{len(tokens)} tokens for a batch of {len(batch)}")
        except WorkerFailed as exc:
            return [exc] if len(batch) == 1 else [self.step([sequence])[0] for sequence in batch]
        except ServingError as exc:
            return [exc] * len(batch)
        except Exception as exc:  # a worker that returns what is no result
            return [WorkerFailed(repr(exc))] * len(batch)
        self.stats.record(work, [sequence.arrived for sequence in batch if not sequence.output_ids])
        return tokens

    def rows(self, batch: list[Sequence]) -> list[Any]:
        """What crosses the pipe."""
        return [sequence.row() for sequence in batch]

    def deliver(self, batch: list[Sequence], outcomes: list[Token | ServingError]) -> None:
        """Post to each sequence what came of it, unless it left during the step."""
        for sequence, outcome in zip(batch, outcomes, strict=True):
            with self.changed:
                if sequence not in self.scheduler.running:
                    continue
                if sequence.mailbox.overflowed:
                    self.scheduler.remove(sequence)  # its reader has been told
                    continue
                if isinstance(outcome, ServingError):
                    self.scheduler.remove(sequence)
                    delivery = copy(outcome)
                else:
                    delivery = outcome.id, self.scheduler.update(sequence, outcome)
            sequence.mailbox.post(delivery)

    @property
    def ready(self) -> bool:
        """Whether a request would be served now."""
        return self.executor.ready.is_set() and self._driver.is_alive()

    def snapshot(self) -> dict[str, Any]:
        """The counters behind `/stats`."""
        with self.changed:
            running, queued = len(self.scheduler.running), len(self.scheduler.waiting)
        return self.stats.snapshot(self.clock(), running=running, queued=queued)
