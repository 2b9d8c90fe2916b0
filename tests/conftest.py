"""Shared by all tests: the shipped model, loaded once, and the fault matrix."""

import os
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["pytester", "tests.fault_matrix"]

ROOT = Path(__file__).resolve().parents[1]
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # a tiny model gains nothing from two threads, and loses where cores are shared


@pytest.fixture(scope="session")
def tiny_opt() -> tuple[Any, Any]:
    """The shipped model and its tokenizer, in process."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = ROOT / "models" / "tiny-opt"
    return AutoModelForCausalLM.from_pretrained(path).eval(), AutoTokenizer.from_pretrained(path)
