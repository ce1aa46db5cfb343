"""Silent nodes as values: when one is Unknown, when Lost, and when it is rather us who do not hear."""

from __future__ import annotations

from fairlead.decide.nodes import Health, NodeFacts, NodeRules, NodeVerdict, judge_zone, state_on_return
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import Instance, InstanceSpec, InstanceStatus
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata

RULES = NodeRules()
NOW = 1_000_000
LEASE = RULES.lease_ms


def node(name: str, quiet_ms: int = 0, health: Health = "Ready", **fields: object) -> NodeFacts:
    return NodeFacts(name, health, True, NOW - quiet_ms, 0, 0, 0, False)._replace(**fields)  # type: ignore[arg-type]


def judge(*nodes: NodeFacts, heard: bool = True, since_ms: int = 0) -> dict[str, NodeVerdict]:
    return {v.name: v for v in judge_zone(nodes, heard, since_ms, NOW, RULES)}


def health(*nodes: NodeFacts, **world: object) -> dict[str, Health]:
    return {name: v.health for name, v in judge(*nodes, **world).items()}  # type: ignore[arg-type]


def test_a_node_is_unknown_after_its_lease_and_not_before() -> None:
    assert health(node("a", LEASE), node("b", LEASE + 1), node("c")) == {"a": "Ready", "b": "Unknown", "c": "Ready"}


def test_a_new_observer_says_nothing_before_a_full_lease_of_its_own() -> None:
    assert health(node("a", 10 * LEASE), node("c"), since_ms=NOW - LEASE) == {"a": "Ready", "c": "Ready"}
    assert health(node("a", 10 * LEASE), node("c"), since_ms=NOW - LEASE - 1)["a"] == "Unknown"


def test_a_new_observer_calls_nobody_well_whom_it_has_not_heard() -> None:
    gone = node("a", 10 * LEASE, "Unknown")
    found = judge(gone, node("b", 10 * LEASE, "Lost"), node("c"), since_ms=NOW - 1)
    assert [(v.health, v.silent) for v in found.values()] == [("Unknown", False), ("Lost", False), ("Ready", False)]
    assert health(gone, node("c"), since_ms=NOW - LEASE - 10_001)["a"] == "Lost", "it is judged once it was listened for"


def test_unknown_becomes_lost_later_and_passes_through_unknown_always() -> None:
    late = LEASE + 10_001
    assert health(node("a", late, "Unknown"), node("c"))["a"] == "Lost"
    assert health(node("a", late - 1, "Unknown"), node("c"))["a"] == "Unknown"
    assert health(node("a", late, "Ready"), node("c"))["a"] == "Unknown"


def test_whoever_heard_nobody_declares_nobody_lost_until_it_has_listened_for_as_long_again() -> None:
    late = LEASE + 10_001
    zone = [node("a", 10 * late, "Unknown"), node("c")]

    def found(deaf_ms: int) -> list[Health]:
        return [verdict.health for verdict in judge_zone(zone, True, 0, NOW, RULES, deaf_ms=deaf_ms)]

    assert found(NOW - 1) == ["Unknown", "Ready"], "the others were heard again a moment ago"
    assert found(NOW - late) == ["Lost", "Ready"]


def test_many_silent_at_once_are_suspect_and_lost_one_at_a_time() -> None:
    zone = [node(f"n{i}", 60_000, "Unknown") for i in range(4)] + [node(f"m{i}") for i in range(4)]
    found = judge(*zone)
    assert [v.health for v in found.values()].count("Lost") == 1
    assert sum(v.suspect for v in found.values()) == 3
    just = [zone[0]._replace(health="Lost", changed_ms=NOW - 9_999), *zone[1:]]
    assert [v.health for v in judge(*just).values()].count("Lost") == 1, "not another within the period"
    later = [zone[0]._replace(health="Lost", changed_ms=NOW - 10_000), *zone[1:]]
    assert [v.health for v in judge(*later).values()].count("Lost") == 2


def test_those_of_whom_nothing_is_said_count_against_a_suspicion() -> None:
    zone = [node(f"n{i}", LEASE + 1) for i in range(3)]
    assert all(v.suspect for v in judge_zone(zone, True, 0, NOW, RULES, well=6))
    assert not any(v.suspect for v in judge_zone(zone, True, 0, NOW, RULES, well=7))


def test_a_few_silent_ones_are_no_reason_to_doubt_oneself() -> None:
    found = judge(node("a", 60_000, "Unknown"), node("b", 60_000, "Unknown"), node("c"))
    assert [v.health for v in found.values()] == ["Lost", "Lost", "Ready"]
    assert not any(v.suspect for v in found.values())


def test_a_zone_of_two_is_never_suspect_and_may_be_lost_as_a_whole() -> None:
    late = LEASE + 10_001
    found = judge(node("a", late, "Unknown"), node("b", late, "Unknown"))
    assert [(v.health, v.suspect) for v in found.values()] == [("Lost", False)] * 2


def test_when_nobody_at_all_is_heard_nothing_changes_but_the_doubt() -> None:
    found = judge(node("a", 60_000), node("b", 60_000, "Unknown"), heard=False)
    assert [(v.health, v.silent, v.suspect) for v in found.values()] == [("Ready", False, True), ("Unknown", False, True)]


def test_a_returned_node_is_ready_at_once_and_a_flapping_one_after_a_while() -> None:
    assert health(node("a", 0, "Unknown", back_ms=NOW)) == {"a": "Ready"}
    flapping = node("a", 0, "Unknown", flaps=2, back_ms=NOW - 19_999)
    assert health(flapping, node("c")) == {"a": "Unknown", "c": "Ready"}
    assert health(flapping._replace(back_ms=NOW - 20_000), node("c")) == {"a": "Ready", "c": "Ready"}


def test_where_all_nodes_of_a_zone_flap_the_steadiest_half_is_trusted_after_a_moment() -> None:
    def flapping(name: str, flaps: int, back_s: float, **fields: object) -> NodeFacts:
        return node(name, 0, "Unknown", flaps=flaps, back_ms=NOW - int(back_s * 1000), **fields)

    zone = [flapping("a", 6, 10), flapping("b", 4, 8), flapping("c", 4, 9), flapping("d", 5, 30)]
    assert [name for name, now in health(*zone).items() if now == "Ready"] == ["b", "c"]
    assert [name for name, now in health(*zone, node("e")).items() if now == "Ready"] == ["b", "c", "e"]
    assert [name for name, now in health(*zone[:2], node("e"), node("f")).items() if now == "Ready"] == ["e", "f"]
    assert [v.health for v in judge_zone(zone[:2], True, 0, NOW, RULES, well=2)] == ["Unknown", "Unknown"]
    early = [flapping("a", 6, 4.999), flapping("b", 6, 5, schedulable=False), node("c", LEASE + 1, "Unknown", flaps=6)]
    assert "Ready" not in health(*early).values(), "not before it was heard for a moment, has listed what it runs, and is heard"


def test_falling_silent_soon_after_coming_back_is_a_flap() -> None:
    soon = node("a", LEASE + 1, changed_ms=NOW - 30_000, flaps=1)
    assert judge(soon, node("c"))["a"].flaps == 2
    assert judge(soon._replace(changed_ms=NOW - 700_000), node("c"))["a"].flaps == 0


def test_a_lost_node_that_is_heard_waits_for_its_inventory() -> None:
    assert health(node("a", 0, "Lost", schedulable=False)) == {"a": "Lost"}
    assert health(node("a", 0, "Lost")) == {"a": "Ready"}


def test_a_slot_returns_to_where_it_was_unless_its_process_or_its_traffic_went() -> None:
    token = Token(incarnation=1, epoch=1, attempt=1)

    def instance(code: int | None) -> Instance:
        spec = InstanceSpec(node="a", token=token)
        return Instance(metadata=Metadata(name="x"), spec=spec, status=InstanceStatus(exit_code=code))

    states = SlotState
    assert state_on_return(states.SERVING, instance(None), True) is states.SERVING
    assert state_on_return(states.SERVING, instance(None), False) is states.READY
    assert state_on_return(states.DRAINING, None, False) is states.DRAINING
    assert state_on_return(states.READY, instance(0), False) is states.SUCCEEDED
    assert state_on_return(states.READY, instance(3), False) is states.FAILED
