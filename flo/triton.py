"""A real Triton Inference Server, taken out of a PyPI package and started on loopback: `flo triton`.

nvidia-pytriton's wheel carries the server and its Python backend. It is unpacked, not installed, because its
requirements clash with ours; the backend needs numpy 1, which gets a folder of its own. Linux on x86-64 only.
"""

import os
import platform
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from .catalog import ROOT
from .errors import UserError

WHEEL, NUMPY = "nvidia-pytriton==0.7.0", "numpy<2"
CACHE = ROOT / "models" / ".triton"
"""where the server is unpacked; git ignores it"""
REPOSITORY = ROOT / "models" / "triton"
PORT = 8100
START_SECONDS = 60.0
STOP_SECONDS = 10.0


class TritonError(UserError):
    """Triton cannot be had, or did not start."""


def install(cache: Path = CACHE) -> Path:
    """The folder with the unpacked server; fetched if it is not there yet. Raises `TritonError`."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise TritonError("nvidia-pytriton has Triton for Linux on x86-64 only")
    target = cache / f"python{sys.version_info.major}.{sys.version_info.minor}"
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="unpacking-") as scratch:
        built = Path(scratch, "built")
        _pip("download", "--no-deps", "--dest", scratch, WHEEL)
        _pip("install", "--no-deps", "--target", str(built / "numpy"), NUMPY)
        [wheel] = Path(scratch).glob("nvidia_pytriton-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            inside = [
                name
                for name in archive.namelist()
                if name.startswith(("pytriton/tritonserver/", "nvidia_pytriton.libs/"))
            ]
            archive.extractall(built, inside)
        server = built / "pytriton" / "tritonserver"
        stub = server / "python_backend_stubs" / target.name.removeprefix("python") / "triton_python_backend_stub"
        if not stub.is_file():
            raise TritonError(f"this Triton has no Python backend for {target.name}")
        shutil.copy(stub, server / "backends" / "python")
        for program in (server / "bin" / "tritonserver", server / "backends" / "python" / stub.name):
            program.chmod(0o755)
        with suppress(OSError):  # somebody else was faster
            built.rename(target)
    return target


def command(installed: Path, repository: Path, port: int) -> list[str]:
    """The command line of a server that loads nothing until it is asked to."""
    server = installed / "pytriton" / "tritonserver"
    return [
        str(server / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={server / 'backends'}",
        "--model-control-mode=explicit",
        "--http-address=127.0.0.1",
        f"--http-port={port}",
        "--allow-grpc=false",
        "--allow-metrics=false",
        "--log-info=false",
    ]


def environment(installed: Path) -> dict[str, str]:
    """This process's environment, with the libraries that the server and its Python backend look for."""
    libraries = [str(path) for path in installed.glob("*.libs")]
    libraries += [str(sysconfig.get_config_var("LIBDIR")), os.environ.get("LD_LIBRARY_PATH", "")]
    path = os.pathsep.join(part for part in libraries if part)
    return {**os.environ, "LD_LIBRARY_PATH": path, "TRITON_NUMPY": str(installed / "numpy")}


@contextmanager
def running_triton(
    repository: Path = REPOSITORY, port: int = PORT, cache: Path = CACHE
) -> Iterator["subprocess.Popen[bytes]"]:
    """Serve a model repository on loopback for the length of a `with` block. Raises `TritonError`."""
    installed = install(cache)
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command(installed, repository, port),
            env=environment(installed),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # its backends are processes of their own, and end with their group
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _is_live(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise TritonError(f"Triton did not start:\n{log.read().decode(errors='replace')[-2000:]}")
                time.sleep(0.05)
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, 9)
            process.wait(STOP_SECONDS)


def free_port() -> int:
    """A port that nobody has at this moment; unlike a stage, Triton cannot be told to find one itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def serve_triton(port: int) -> None:
    """Serve the shipped repository until interrupted."""
    with running_triton(port=port) as process:
        print(
            f"Triton: http://127.0.0.1:{port} (models are loaded when they are asked for; Ctrl-C ends it)", flush=True
        )
        process.wait()


def _is_live(port: int) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"http://127.0.0.1:{port}/v2/health/live", timeout=2, trust_env=False).is_success
    return False


def _pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check", "--no-input"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if line.startswith("ERROR")), "pip failed")
        raise TritonError(f"pip could not fetch {arguments[-1]} ({reason}): check the network, then try again")
