"""07.7, for speed: what a CPU does better than plain PyTorch lets it. A reader may skip this file.

Two pieces. Attention in C++ (`paged_attention.cpp`, compiled once and kept) reads blocks where they lie instead of
gathering them first. And matrices are packed: oneDNN, which PyTorch has with it, multiplies a few rows faster with a
matrix that it has laid out for itself, but PyTorch packs none by itself.
"""

import os
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from .attention import Paged
from .compiled import OPERATORS, define, keep, kept, tell

SOURCE = Path(__file__).with_name("paged_attention.cpp")
COMPILER = os.environ.get("CXX", "c++")
FLAGS = [
    "-std=c++20",
    "-O3",
    "-march=native",
    "-ffast-math",
    "-fPIC",
    *(["-fopenmp"] if sys.platform == "linux" else []),
]
"""macOS's own compiler has no OpenMP: there, a single thread computes attention"""
BUILD_SECONDS = 300

TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""what transformers calls layers that multiply the same rows, which is faster with one matrix than with several"""


class CppAttention:
    """Attention on a CPU, for any floating type of model and cache; it computes in float32."""

    graphs = False

    def __init__(self) -> None:
        torch.ops.load_library(library())
        self.kernels = torch.ops.flo_paged

    def write(self, key: torch.Tensor, value: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
        """Put `key` and `value` [T, KV heads, D] into the cache of one layer, at `slots` [T]."""
        self.kernels.store(key, value, cache, slots)

    def attend(self, query: torch.Tensor, cache: torch.Tensor, paged: Paged, scaling: float) -> torch.Tensor:
        """Each token of `query` [T, heads, D] over its own request up to itself: [T, heads, D]."""
        return self.kernels.attention(query, cache, paged.block_tables, paged.query_starts, paged.seq_lens, scaling)


def why_no_kernel() -> str | None:
    """What is in the way of compiling the kernel, in one line; None if it is there."""
    try:
        library()
    except (OSError, subprocess.SubprocessError, RuntimeError) as exc:
        return str(exc).strip().splitlines()[0]
    return None


def library() -> Path:
    """Where the compiled kernel is. It is built at its first use and kept, under a name that tells what it is made of.

    Raises `RuntimeError` if the compiler fails, `OSError` or `subprocess.SubprocessError` if it cannot be run.
    """
    made_of = [SOURCE.read_text("utf-8"), torch.__version__, torch.backends.cpu.get_cpu_capability(), *FLAGS]
    directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flo"
    path = directory / f"{SOURCE.stem}-{sha256(repr(made_of).encode()).hexdigest()[:16]}.so"
    if not path.exists():
        tell(f"compiling {SOURCE.name}, once ...")
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            made, half, torch_is = Path(scratch) / path.name, Path(scratch) / "kernel.o", Path(torch.__file__).parent
            compiling = [*FLAGS, "-c", str(SOURCE), "-o", str(half), f"-I{torch_is / 'include'}"]
            linking = ["-shared", str(half), "-o", str(made), f"-L{torch_is / 'lib'}", "-ltorch_cpu", "-lc10"]
            for step in (compiling, linking):  # in one, -ffast-math would change how the whole process rounds
                done = subprocess.run(
                    [COMPILER, *step], capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
                )
                if done.returncode:
                    raise RuntimeError(f"{COMPILER} could not compile {SOURCE.name}: {done.stderr}")
            made.replace(path)  # at once, so that nobody finds half of it
    return path


class PackedLinear(torch.nn.Module):
    """Linear layers over the same rows, as one matrix, which oneDNN has laid out for about `rows` of them."""

    key: torch.Tensor

    def __init__(self, linears: list[torch.nn.Linear], rows: int) -> None:
        super().__init__()
        self.sizes = [linear.out_features for linear in linears]
        self.in_features, self.out_features = linears[0].in_features, sum(self.sizes)
        weight = torch.cat([linear.weight.detach() for linear in linears])
        bias = None if linears[0].bias is None else torch.cat([linear.bias.detach() for linear in linears])
        keep(self, (torch.ops.mkldnn._reorder_linear_weight(weight, rows), bias))
        self.seen: torch.Tensor | None = None
        self.parts: tuple[torch.Tensor, ...] = ()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] -> [..., out]"""
        return OPERATORS.packed_linear(x, self.key, self.out_features)


class Part(torch.nn.Module):
    """One of the linear layers in a `PackedLinear`. The first that is asked computes for all, the last lets go."""

    def __init__(self, whole: PackedLinear, place: int) -> None:
        super().__init__()
        self.whole = whole
        self.place = place

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] -> [..., its own out]"""
        whole = self.whole
        if whole.seen is not x:
            whole.seen, whole.parts = x, whole(x).split(whole.sizes, dim=-1)
        part = whole.parts[self.place]
        if self.place == len(whole.sizes) - 1:
            whole.seen, whole.parts = None, ()
        return part


def packed_linear(x: torch.Tensor, key: torch.Tensor, out_features: int) -> torch.Tensor:
    """What the compiler does not look into."""
    weight, bias = kept(key)
    return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")


def pack_linears(model: Any, rows: int = 16) -> None:
    """Replace all linear layers of a model, if oneDNN takes its type. The layout is best for about `rows` rows.

    Their own weights are let go, but for one that something else shares.
    """
    bfloat16 = model.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if not torch.backends.mkldnn.is_available() or not (bfloat16 or model.dtype == torch.float32):
        return
    for parent in list(model.modules()):
        linears = {name: child for name, child in parent.named_children() if type(child) is torch.nn.Linear}
        for names in TOGETHER:
            group = [linears[name] for name in names if name in linears]
            alike = {(one.in_features, one.bias is None) for one in group}
            if len(group) == len(names) and len(alike) == 1:
                whole = PackedLinear([linears.pop(name) for name in names], rows)
                for place, name in enumerate(names):
                    setattr(parent, name, Part(whole, place))
        for name, linear in linears.items():
            setattr(parent, name, PackedLinear([linear], rows))


define(
    "packed_linear(Tensor x, Tensor key, int out_features) -> Tensor",
    packed_linear,
    lambda x, key, out_features: x.new_empty((*x.shape[:-1], out_features)),
)
