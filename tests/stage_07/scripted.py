"""An engine core in a thread: it speaks the messages over real sockets, and does what its prompts say. No torch.

It repeats each prompt, a token a step, and then stops. A prompt that begins with "die" ends it without a word, "dead"
with a last word, "hang" stops it from ever saying anything again, "stall" does so after its first token, "raise" fails
the request. In `manual` mode it takes
a step only when the test says `step()`.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
import zmq
from tokenizers import Tokenizer

from tests.conftest import ROOT
from tests.serving import Gate, Stage

stage = Stage("07_paged_attention")
TOKENIZER = Tokenizer.from_file(str(ROOT / "models" / "tiny-opt" / "tokenizer.json"))
STOP, BLOCK, VOCABULARY = 1, 16, 896
WAIT = 30.0


class Cores:
    """Plays the part `launch`: starts scripted cores, and remembers them."""

    def __init__(
        self,
        *,
        manual: bool = False,
        num_blocks: int = 256,
        longest: int = 1024,
        losses: dict[int, Any] | None = None,
    ) -> None:
        self.manual, self.num_blocks, self.longest = manual, num_blocks, longest
        self.losses = losses or {}  # by the number of the start: the Dead to send, or None to die, or an Event to await
        self.launched: list[ScriptedCore] = []

    def __call__(self, config: Any, core: int, input_address: str, output_address: str, parts: Any) -> "ScriptedCore":
        number = len(self.launched)
        loss = (self.losses[number],) if number in self.losses else ()
        launched = ScriptedCore(self, config, core, (input_address, output_address), loss)
        self.launched.append(launched)
        launched.start()
        return launched


class ScriptedCore(threading.Thread):
    """Looks like a `multiprocessing` process to whoever launched it."""

    def __init__(self, cores: Cores, config: Any, core: int, addresses: tuple[str, str], loss: tuple[Any, ...]) -> None:
        super().__init__(name=f"scripted core {core}", daemon=True)
        self.cores, self.config, self.core, self.addresses, self.loss = cores, config, core, addresses, loss
        self.sentinel, self._alive = os.pipe()
        self.received: list[Any] = []
        self.running: list[Any] = []
        self.waiting: deque[Any] = deque()
        self.done: dict[str, int] = {}  # tokens of each request
        self.steps = 0
        self.mute = False
        self._changed = threading.Condition()
        self._go = threading.Semaphore(0)
        self._killed = threading.Event()

    def kill(self) -> None:
        self._killed.set()

    def step(self, times: int = 1) -> None:
        """Let it take a step, and wait until it has."""
        for _ in range(times):
            goal = self.steps + 1
            self._go.release()
            self.wait(lambda goal=goal: self.steps >= goal)

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait until something holds; looked at whenever a message came or a step was taken."""
        with self._changed:
            assert self._changed.wait_for(until, WAIT), f"the core never saw it; it got {self.received}"

    def look(self) -> None:
        """Have whoever waits look again."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, kind: str, times: int = 1) -> list[Any]:
        """Wait for as many messages of a kind, "Add" or "Abort"."""

        def got() -> list[Any]:
            return [message for message in self.received if type(message).__name__ == kind]

        self.wait(lambda: len(got()) >= times)
        return got()

    def run(self) -> None:
        context = zmq.Context.instance()
        self.input, self.output = context.socket(zmq.PULL), context.socket(zmq.PUSH)
        self.input.connect(self.addresses[0])
        self.output.connect(self.addresses[1])
        try:
            self.live()
        finally:
            self.input.close(linger=0)
            self.output.close(linger=1000)
            os.close(self._alive)

    def live(self) -> None:
        messages = stage.messages
        if self.config.device.startswith("hold "):  # loads until the end of its days, and a test may know since when
            knock = int(self.config.device.split()[1])
            threading.Thread(target=Gate.knock, args=(knock,), daemon=True).start()
            self._killed.wait()
            return None
        match self.loss:
            case (None,):
                return None
            case (messages.Dead() as last_words,):
                return self.say(last_words)
            case (threading.Event() as gate,):
                while not gate.wait(0.01):
                    if self._killed.is_set():
                        return None
        limits = stage.limits.Limits(self.cores.longest, BLOCK, self.cores.num_blocks, VOCABULARY)
        self.say(messages.Ready(self.core, limits))
        decode = msgspec.msgpack.Decoder(messages.Add | messages.Abort).decode
        while not self._killed.is_set():
            came = len(self.received)
            while self.input.poll(0 if self.busy() else 5):
                self.take(decode(self.input.recv()))
            if len(self.received) > came and not self.mute:
                self.say(self.report([]))
            if self.busy() and not self.turn():
                return None
        return None

    def busy(self) -> bool:
        return bool(self.running or self.waiting) and not self.mute and (not self.cores.manual or self._allowed())

    def _allowed(self) -> bool:
        return self._go._value > 0

    def say(self, message: Any) -> None:
        self.output.send(msgspec.msgpack.encode(message))

    def take(self, message: Any) -> None:
        if isinstance(message, stage.messages.Add):
            self.waiting.append(message)
        else:
            self.running = [request for request in self.running if request.request_id not in message.request_ids]
            self.waiting = deque(request for request in self.waiting if request.request_id not in message.request_ids)
        with self._changed:
            self.received.append(message)
            self._changed.notify_all()

    def turn(self) -> bool:
        """One step; false if it was the last."""
        if self.cores.manual:
            self._go.acquire()
        while self.waiting and len(self.running) < self.config.max_num_seqs:
            self.running.append(self.waiting.popleft())
        outputs = []
        for request in list(self.running):
            match TOKENIZER.decode(request.prompt_token_ids).split():
                case ["die", *_]:
                    return False
                case ["dead", *_]:
                    self.say(stage.messages.Dead(self.core, "scripted last words"))
                    return False
                case ["hold", port]:  # until the end of its days, and a test may know since when
                    threading.Thread(target=Gate.knock, args=(int(port),), daemon=True).start()
                    self.mute = True
                    return True
                case ["hang", *_]:
                    self.mute = True
                    return True
                case ["stall", *_] if self.done.get(request.request_id):
                    self.mute = True
                    return True
            outputs.append(self.next(request))
        self.steps += 1
        self.say(self.report(outputs))
        self.look()
        return True

    def report(self, outputs: list[Any]) -> Any:
        """What goes out after a step, and after messages that came in."""
        blocks = sum(-(-len(request.prompt_token_ids) // BLOCK) for request in self.running)
        work = {
            "steps": self.steps,
            "forward_passes": self.steps,
            "rows": sum(self.done.values()),
            "forward_seconds": 0.0,
        }
        stats = stage.messages.CoreStats(
            running=len(self.running),
            waiting=len(self.waiting),
            blocks_used=blocks,
            blocks_free=self.cores.num_blocks - blocks,
            prefix_queries=32,
            prefix_hits=16,
            preemptions=2,
            work=work,
        )
        return stage.messages.Outputs(self.core, outputs, stats)

    def next(self, request: Any) -> Any:
        """The next token of one request; takes it out when it has ended."""
        ids, count = request.prompt_token_ids, self.done.get(request.request_id, 0) + 1
        self.done[request.request_id] = count
        text, sampling = TOKENIZER.decode(ids), request.sampling
        if text.startswith("raise"):
            self.running.remove(request)
            return stage.messages.Output(request.request_id, [], "error", "scripted trouble")
        token = ids[(count - 1) % len(ids)] if count <= len(ids) or sampling.ignore_eos else STOP
        reason = "stop" if token == STOP else "length" if count == sampling.max_tokens else None
        if reason:
            self.running.remove(request)
        likely = sampling.logprobs
        told = None
        if likely is not None:
            likeliest = [token, *range(3, 2 + likely)][:likely]
            told = [stage.messages.Logprobs(-0.5, likeliest, [-0.5 - place for place in range(likely)])]
        cached = 16 if count == 1 and len(ids) > 16 else 0
        return stage.messages.Output(request.request_id, [token], reason, logprobs=told, cached_tokens=cached)


PLAYERS = {"launch": Cores()}
"""the parts that a whole app is scripted with"""
