"""A model is evicted between its load and the start of the stream that it was loaded for.

The pin is taken when the stream starts. Between the end of the load and that moment, the model looks idle.

A user sees: under load, a first request now and then hangs or fails, and the model that it asked for loads in vain.

Seen in the wild: a model router evicts a model right after loading it, before the request that asked for it could start
(llama.cpp issue 28698). Take the pin before the load, and hand it to whoever waits.
"""

from ..engine import Engine
from ..parts import Parts
from ..registry import Metadata
from ..residency import Pin, Residency
from ..sequence import Sequence
from ..streams import Streams

TEST = "tests/stage_06/test_pins.py::test_a_model_stays_from_its_load_to_the_start_of_its_stream"
MESSAGE = "evicted between its load and the start of its stream"


class AdmitsWithoutPin(Residency):
    async def admit(self, metadata: Metadata, request_id: str) -> Pin:
        pin = await super().admit(metadata, request_id)
        pin.release()
        return pin


class PinsAtTheStart(Engine):
    def place(self, streams: Streams, sequence: Sequence) -> None:
        sequence.pin = Pin(self.residency, sequence.pin.entry)
        self.residency.policy.pin(sequence.pin.entry)
        super().place(streams, sequence)


PARTS = Parts(residency=AdmitsWithoutPin, engine=PinsAtTheStart)
