"""The policy alone: pure, so a test is a sequence of calls."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.serving import Stage

stage = Stage("04_lru_models")


def load(policy: Any, model_id: str) -> Any:
    """Request a model that is not there, and have it loaded, the victim first freed; its entry, without a call."""
    decision = policy.request(model_id)
    assert decision.load
    if decision.victim:
        policy.remove(decision.victim)
    assert policy.may_load(decision.entry)
    policy.loaded(decision.entry)
    policy.release(decision.entry)
    return decision


def use(policy: Any, model_id: str) -> None:
    decision = policy.request(model_id)
    assert decision.entry and not decision.load
    policy.release(decision.entry)


def resident(policy: Any) -> str:
    return "".join(policy.entries)


def test_with_three_models_on_two_slots_a_b_a_c_evicts_b() -> None:
    policy = stage.lru.Lru(2)
    load(policy, "A")
    load(policy, "B")
    use(policy, "A")
    decision = load(policy, "C")
    assert decision.victim.model_id == "B"
    assert resident(policy) == "AC"


def test_a_model_that_is_loading_is_not_loaded_again(parts: Any) -> None:
    policy = parts.policy(2)
    first, second = policy.request("A"), policy.request("A")
    assert first.load
    assert not second.load, "the same model was loaded twice"
    assert second.entry is first.entry
    assert first.entry.calls == 2


def test_two_servers_have_nothing_in_common(parts: Any) -> None:
    one, other = parts.policy(2), parts.policy(2)
    load(one, "A")
    decision = other.request("A")
    assert decision.load, "one server's model showed up in another"
    assert resident(one) == resident(other) == "A"


def test_a_load_waits_for_its_predecessors_memory() -> None:
    policy = stage.lru.Lru(1)
    load(policy, "A")
    decision = policy.request("B")
    assert decision.victim.model_id == "A"
    assert not policy.may_load(decision.entry)
    policy.remove(decision.victim)
    assert policy.may_load(decision.entry)


def test_a_draining_model_takes_no_calls_and_is_loaded_anew_when_it_has_gone() -> None:
    policy = stage.lru.Lru(1)
    load(policy, "A")
    busy = policy.request("A").entry
    newcomer = policy.request("B")
    assert policy.request("A").entry is None
    policy.release(busy)
    policy.remove(busy)
    assert policy.may_load(newcomer.entry)
    assert policy.request("A").entry is None  # B is still loading: there is nobody to evict
    policy.loaded(newcomer.entry)
    again = policy.request("A")
    assert again.load and again.victim is newcomer.entry


def test_a_model_that_loads_is_no_victim() -> None:
    policy = stage.lru.Lru(2)
    policy.request("A")
    load(policy, "B")
    assert policy.request("C").victim.model_id == "B"
    assert policy.request("D").entry is None


def test_a_failed_load_leaves_no_entry() -> None:
    policy = stage.lru.Lru(1)
    decision = policy.request("A")
    assert policy.may_load(decision.entry)
    policy.remove(decision.entry)
    assert resident(policy) == ""
    assert policy.request("B").load


moves = st.lists(
    st.tuples(st.sampled_from(["request", "load", "fail", "release", "free"]), st.integers(0, 11)), max_size=80
)


@given(moves, st.integers(1, 3))
def test_whatever_happens_memory_suffices_and_no_busy_model_is_freed(moves: list[tuple[str, int]], slots: int) -> None:
    State = stage.lru.State
    policy, callers = stage.lru.Lru(slots), []
    for move, number in moves:
        everyone = list(policy.entries.values())
        loading = [entry for entry in everyone if entry.state is State.LOADING]
        if move == "request":
            before = {entry: entry.state for entry in everyone}
            decision = policy.request("ABCDEF"[number % 6])
            if decision.entry:
                callers.append(decision.entry)
                assert decision.entry.state in (State.LOADING, State.READY)
            if decision.load:
                assert decision.entry not in before
            if decision.victim:
                assert before[decision.victim] is State.READY
                assert decision.victim is next(entry for entry in before if before[entry] is State.READY)
        elif move in ("load", "fail") and loading:
            entry = loading[number % len(loading)]
            if policy.may_load(entry):
                if move == "load":
                    policy.loaded(entry)
                else:
                    policy.remove(entry)
        elif move == "release" and callers:
            policy.release(callers.pop(number % len(callers)))
        elif move == "free":
            for entry in everyone:
                if entry.state is State.DRAINING and not entry.calls:
                    policy.remove(entry)
        assert sum(entry.in_memory for entry in policy.entries.values()) <= slots
        assert sum(entry.state is not State.DRAINING for entry in policy.entries.values()) <= slots
        for entry in policy.entries.values():
            assert entry.calls == callers.count(entry)
    # however it went, everything comes to rest, and then any model can be had
    for entry in callers:
        policy.release(entry)
    for _ in range(3):
        for entry in list(policy.entries.values()):
            if entry.state is State.DRAINING:
                policy.remove(entry)
            elif entry.state is State.LOADING and policy.may_load(entry):
                policy.loaded(entry)
    assert policy.request("Z").load
