"""Faults as a user meets them: served by the command line, asked over HTTP, beside the reference."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from flo.servers import Server, running_stage
from tests.serving import eventually

USERS = 16


def counting(a: int, b: int) -> tuple[str, str]:
    return f"Count from {a} to {b}:", "".join(f" {number}" for number in range(a, b + 1))


def wrong_answers(server: Server) -> list[str]:
    """What so many users at once get that is not theirs; each asks for a count of its own."""
    pairs = [counting(first, first + 2 + first % 5) for first in range(USERS)]

    def ask(pair: tuple[str, str]) -> str:
        answer = httpx.post(f"{server.url}/basic_generate", json={"prompt": pair[0]}, timeout=60)
        return answer.raise_for_status().json()["generated_text"]

    with ThreadPoolExecutor(USERS) as pool:
        answers = list(pool.map(ask, pairs))
    return [answer for answer, (_, expected) in zip(answers, pairs, strict=True) if answer != expected]


@pytest.fixture(scope="module")
def reference() -> Iterator[Server]:
    with running_stage("01") as server:
        yield server


def test_crossed_replies_hands_out_other_peoples_text(reference: Server) -> None:
    with running_stage("01", fault="crossed_replies") as broken:
        wrong = eventually(lambda: wrong_answers(broken), "a wrong answer")
        others = {expected for _, expected in (counting(first, first + 2 + first % 5) for first in range(USERS))}
        assert set(wrong) <= others  # right for somebody else
    assert [wrong_answers(reference) for _ in range(5)] == [[]] * 5


def test_glued_prompt_repeats_the_question(reference: Server) -> None:
    prompt, expected = counting(3, 9)
    with running_stage("01", fault="glued_prompt") as broken:
        said = [
            httpx.post(f"{server.url}/basic_generate", json={"prompt": prompt}, timeout=60).json()["generated_text"]
            for server in (broken, reference)
        ]
    assert said == [prompt + expected, expected]
