"""The policy alone: pure, so a test is a sequence of calls."""

from typing import Any

import pytest

from tests.serving import Stage

stage = Stage("06_pinned_streams")
lru = stage.lru


def admit(policy: Any, model_id: str) -> Any:
    """A pinned entry, loaded if it was not there, its victim freed first."""
    decision = policy.request(model_id)
    if decision.victim:
        policy.remove(decision.victim)
    if decision.load:
        assert policy.may_load(decision.entry)
        policy.loaded(decision.entry)
    return decision.entry


def resident(policy: Any) -> str:
    return "".join(policy.entries)


def test_with_three_models_on_two_slots_a_b_a_c_evicts_b() -> None:
    policy = lru.Lru(2)
    for name in "ABAC":
        policy.unpin(admit(policy, name))
    assert resident(policy) == "AC"


def test_the_victim_is_the_least_recently_used_that_is_idle() -> None:
    policy = lru.Lru(3)
    admit(policy, "A")
    for name in "BC":
        policy.unpin(admit(policy, name))
    decision = policy.request("D")
    assert decision.victim.model_id == "B"


def test_pins_are_counted() -> None:
    policy = lru.Lru(1)
    entry = admit(policy, "A")
    assert admit(policy, "A") is entry and entry.pins == 2
    policy.unpin(entry)
    with pytest.raises(lru.NoIdleModel):
        policy.request("B")
    policy.unpin(entry)
    assert policy.request("B").victim is entry


def test_who_is_refused_leaves_no_trace() -> None:
    policy = lru.Lru(1)
    admit(policy, "A")
    with pytest.raises(lru.NoIdleModel, match="in use"):
        policy.request("B")
    assert resident(policy) == "A"
    assert policy.entries["A"].state is lru.State.READY


def test_a_model_is_pinned_before_its_load_begins() -> None:
    policy = lru.Lru(1)
    decision = policy.request("A")
    assert decision.load and decision.entry.pins == 1


def test_a_model_that_is_loading_is_never_the_victim(parts: Any) -> None:
    policy = parts.policy(1)
    loading = policy.request("A").entry
    policy.unpin(loading)  # who asked has hung up
    try:
        policy.request("B")
    except lru.NoIdleModel:
        pass
    else:
        pytest.fail("a model that was loading was chosen as victim")
    assert policy.may_load(loading)
    policy.loaded(loading)
    assert policy.request("B").victim is loading


def test_a_model_on_its_way_out_is_waited_for() -> None:
    policy = lru.Lru(1)
    policy.unpin(admit(policy, "A"))
    assert policy.request("B").victim.model_id == "A"
    assert policy.request("A").entry is None
