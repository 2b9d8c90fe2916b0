"""07.6, for speed: small operations between a model's matrices, fused by `torch.compile`. A reader may skip this file.

A norm, a rotation, an activation are each several passes over memory, and on a GPU several launches. The compiler makes
one of them. All layers of a model are alike, so a few are compiled and serve for all: seconds, not minutes, once for
all batch sizes, and kept on disk for the next start. What the compiler cannot look into, attention over blocks and
packed matrices, are operators of our own. Attention finds its cache in a table, by a number that the layer passes as a
tensor: a plain number would be part of the compiled code, and there would have to be one for each layer. (vLLM's
attention finds its cache by the layer's name for the same reason.)
"""

import itertools
import logging
import sys
import threading
import weakref
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch
import torch.fx.experimental._config
from tqdm import tqdm
from transformers import AttentionInterface

from . import attention
from .attention import Paged, attend

NAME = "paged_compiled"
"""what the attention is called in `model.set_attn_implementation`"""
NAMESPACE = f"flo_{__name__.replace('.', '_')}"
OPERATORS = getattr(torch.ops, NAMESPACE)

AT_ONCE = 6
"""layers at most that are compiled into one. A call takes its time in Python, so the fewer calls the better; but the
number must divide that of all layers, since the same code serves for all"""

# a number of a layer, such as a norm's epsilon, is part of the code: it would be made a tensor of at every call
torch._dynamo.config.specialize_float = True
# a step with as many tokens as something else has elements must not make them the same for ever
torch.fx.experimental._config.use_duck_shape = False
tqdm.set_lock(threading.RLock())  # the compiler uses it, and its own lock would outlive a process that is killed
logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # it warns wherever there is no GPU

_library = torch.library.Library(NAMESPACE, "DEF")
_table: dict[int, Any] = {}
_numbers = itertools.count()


def keep(module: torch.nn.Module, thing: Any) -> None:
    """Remember a thing for as long as the module lives. `module.key` is the number that finds it again."""
    number = next(_numbers)
    _table[number] = thing
    weakref.finalize(module, _table.pop, number)
    module.register_buffer("key", torch.tensor(number), persistent=False)


def kept(key: torch.Tensor) -> Any:
    """What was remembered under that number."""
    return _table[int(key.item())]


def define(schema: str, function: Callable[..., torch.Tensor], fake: Callable[..., torch.Tensor]) -> None:
    """An operator that the compiler calls and does not look into; `fake` says what shape comes out."""
    name = schema.partition("(")[0]
    _library.define(schema)
    _library.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)


class Now:
    """What attention must know of the step under way; one for all layers of a model."""

    paged: Paged

    def __call__(self, model: Any, args: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Ahead of each forward pass: take `paged` out of what the layers are called with."""
        self.paged = options.pop("paged")
        return args, options


def paged_compiled(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any,
    scaling: float | None = None, **options: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """`paged_attention` as an operator."""
    return OPERATORS.attention(query, key, value, module.key, scaling), None


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, number: torch.Tensor, scaling: float | None
) -> torch.Tensor:
    now, layer = kept(number)
    return attend(now.paged, layer, query, key, value, scaling)


define(
    "attention(Tensor query, Tensor key, Tensor value, Tensor number, float? scaling) -> Tensor",
    _attention,
    lambda query, *_: query.new_empty(query.transpose(1, 2).shape),
)
AttentionInterface.register(NAME, paged_compiled)


class Group(torch.nn.Module):
    """Layers that follow each other: one tensor into each and one out, and all else that they are called with alike."""

    def __init__(self, layers: list[torch.nn.Module]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, hidden: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        """All of them. Each comes by its class's `forward`, because its own is replaced."""
        for layer in self.layers:
            hidden = type(layer).forward(layer, hidden, *args, **options)
        return hidden


def compile_layers(model: Any) -> Callable[[], None]:
    """Have the layers of a model compiled at their first use. Calling what is returned undoes it.

    The compiler guards what it made against inputs of another kind. Nothing of the kind changes between steps nor
    between layers, and looking would take as long as a layer's small operations do: the guards are dropped. So each
    model has code of its own, for which no other's can be taken. Raises `ValueError` if its layers are not all alike;
    what cannot be seen in them shows in what comes out, which the caller has to compare.
    """
    if hasattr(model, "compiled"):  # for another worker
        return lambda: None
    kinds, now = set(model._no_split_modules or ()), Now()
    stacks = [
        [*stack]
        for stack in model.modules()
        if isinstance(stack, torch.nn.ModuleList) and {type(layer).__name__ for layer in stack} & kinds
    ]
    if any(described(layer) != described(stack[0]) for stack in stacks for layer in stack):
        raise ValueError("its layers are not all alike")
    model.compiled = True
    for module in model.modules():
        if hasattr(module, "layer_idx"):
            keep(module, (now, module.layer_idx))
    hook = model.register_forward_pre_hook(now, with_kwargs=True)
    model.set_attn_implementation(NAME)
    # the rest are small operations of a few rows: sharing them out among threads costs more than it saves
    options: Any = {"guard_filter_fn": lambda guards: [False] * len(guards), "cpp.threads": 1, "size_asserts": False}
    for stack in stacks:
        size = max(size for size in range(1, AT_ONCE + 1) if len(stack) % size == 0)
        compiled = torch.compile(own(Group.forward), dynamic=True, fullgraph=True, options=options)
        for first, *rest in (stack[at : at + size] for at in range(0, len(stack), size)):
            first.forward = MethodType(compiled, Group([first, *rest]))
            for layer in rest:
                layer.forward = lambda hidden, *_, **__: hidden  # the first has done its work

    def undo() -> None:
        del model.compiled
        hook.remove()
        model.set_attn_implementation(attention.NAME)
        for stack in stacks:
            for layer in stack:
                del layer.forward

    return undo


def described(layer: torch.nn.Module) -> list[Any]:
    """What a layer is made of, and all numbers and names in it but its own number."""
    plain = (int, float, str)
    return [
        (type(module), {k: v for k, v in vars(module).items() if isinstance(v, plain) and k != "layer_idx"})
        for module in layer.modules()
    ]


def own(function: Any) -> FunctionType:
    """A copy of a function; what is compiled for it is attached to its code object, and the copy has its own."""
    code, scope, defaults = function.__code__.replace(), function.__globals__, function.__defaults__
    copy = FunctionType(code, scope, function.__name__, defaults, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def tell(text: str, end: str = "\n") -> None:
    """A word to whoever waits for the engine."""
    print(text, end=end, file=sys.stderr, flush=True)
