"""07.7, for speed: what a CPU does better than plain PyTorch lets it. A reader may skip this file.

Two pieces in C++, compiled once and kept. Attention (`paged_attention.cpp`) reads blocks where they lie instead of
gathering them first. Matrices (`packed_linear.cpp`) are laid out for the few rows of a step: what PyTorch has for this
is made for many rows, and reads the weights more slowly than memory has them.
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
from .compiled import tell

HEADER, *SOURCES = (Path(__file__).with_name(name) for name in ("lanes.h", "paged_attention.cpp", "packed_linear.cpp"))
COMPILER = os.environ.get("CXX", "c++")
FLAGS = [
    "-std=c++20",
    "-O3",
    "-march=native",
    "-ffast-math",
    "-fPIC",
    *(["-fopenmp"] if sys.platform == "linux" else []),
]
"""macOS's own compiler has no OpenMP: there, a single thread computes attention, and matrices stay as they are"""
BUILD_SECONDS = 300

TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""what transformers calls layers that multiply the same rows, which is faster with one matrix than with several"""


class CppAttention:
    """Attention on a CPU, for any floating type of model and cache; it computes in float32."""

    graphs = False

    def __init__(self) -> None:
        self.kernels = kernels()

    def write(self, key: torch.Tensor, value: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
        """Put `key` and `value` [T, KV heads, D] into the cache of one layer, at `slots` [T]."""
        self.kernels.store(key, value, cache, slots)

    def attend(self, query: torch.Tensor, cache: torch.Tensor, paged: Paged, scaling: float) -> torch.Tensor:
        """Each token of `query` [T, heads, D] over its own request up to itself: [T, heads, D]."""
        return self.kernels.attention(query, cache, paged.block_tables, paged.query_starts, paged.seq_lens, scaling)


def why_no_kernels() -> str | None:
    """What is in the way of the operators in C++, in one line; None if they are there."""
    try:
        kernels()
    except (OSError, subprocess.SubprocessError, RuntimeError) as exc:
        return str(exc).strip().splitlines()[0]
    return None


def kernels() -> Any:
    """The operators in C++. Raises what `library` does."""
    torch.ops.load_library(library())
    return torch.ops.flo_cpu


def library() -> Path:
    """Where the compiled C++ is. It is built at its first use and kept, under a name that tells what it is made of.

    Raises `RuntimeError` if the compiler fails, `OSError` or `subprocess.SubprocessError` if it cannot be run.
    """
    texts = [source.read_text("utf-8") for source in (HEADER, *SOURCES)]
    processor = torch.backends.cpu.get_cpu_capability(), torch.cpu._is_avx512_bf16_supported()
    made_of = [*texts, torch.__version__, *processor, COMPILER, *FLAGS]
    directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flo"
    path = directory / f"{sha256(repr(made_of).encode()).hexdigest()[:16]}.so"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            made, torch_is = Path(scratch) / path.name, Path(torch.__file__).parent
            halves = [made.with_name(f"{source.stem}.o") for source in SOURCES]
            for source, half in zip(SOURCES, halves, strict=True):
                tell(f"compiling {source.name}, once ...")
                run_compiler(source.name, *FLAGS, "-c", source, "-o", half, f"-I{torch_is / 'include'}")
            # linked without FLAGS, of which -ffast-math would change how the whole process rounds
            run_compiler("a library", "-shared", *halves, "-o", made, f"-L{torch_is / 'lib'}", "-ltorch_cpu", "-lc10")
            made.replace(path)  # at once, so that nobody finds half of it
    return path


def run_compiler(what: str, *arguments: str | Path) -> None:
    """Raises `RuntimeError` with what the compiler says if it fails."""
    command = [COMPILER, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{COMPILER} could not compile {what}: {done.stderr}")


class PackedLinear(torch.nn.Module):
    """Linear layers over the same rows, as one matrix, laid out as `packed_linear.cpp` reads it. Needs `kernels`."""

    packed: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, linears: list[torch.nn.Linear]) -> None:
        super().__init__()
        self.sizes = [linear.out_features for linear in linears]
        self.in_features, self.out_features = linears[0].in_features, sum(self.sizes)
        weight = torch.cat([linear.weight.detach() for linear in linears])
        bias = None if linears[0].bias is None else torch.cat([linear.bias.detach() for linear in linears])
        self.register_buffer("packed", torch.ops.flo_cpu.pack(weight), persistent=False)
        self.register_buffer("bias", bias, persistent=False)
        self.seen: torch.Tensor | None = None
        self.parts: tuple[torch.Tensor, ...] = ()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] -> [..., out]"""
        return torch.ops.flo_cpu.linear(x, self.packed, self.bias, self.out_features)


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


def pack_linears(model: Any) -> None:
    """Replace the linear layers of a model, on Linux. Their own weights are let go, but for what something else shares.

    A processor with instructions for whole matrices (AMX) may multiply the many rows of a long prompt faster without.
    Raises what `library` does.
    """
    if sys.platform != "linux":
        return
    kernels()
    for parent in list(model.modules()):
        linears = {name: child for name, child in parent.named_children() if can_pack(child)}
        for names in TOGETHER:
            group = [linears[name] for name in names if name in linears]
            alike = {(one.in_features, one.bias is None, one.weight.dtype) for one in group}
            if len(group) == len(names) and len(alike) == 1:
                whole = PackedLinear([linears.pop(name) for name in names])
                for place, name in enumerate(names):
                    setattr(parent, name, Part(whole, place))
        for name, linear in linears.items():
            setattr(parent, name, PackedLinear([linear]))


def can_pack(module: Any) -> bool:
    """Whether this is a linear layer of a type that the C++ knows. Of bfloat16 it reads two inputs at a time."""
    if type(module) is not torch.nn.Linear:
        return False
    dtype = module.weight.dtype
    return dtype == torch.float32 or (dtype == torch.bfloat16 and module.in_features % 2 == 0)
