"""Which overrides are in force: by evaluation, for their scope, and not a moment longer than their TTL."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.decide.classes import Classes
from fairlead.decide.overrides import (
    AGE_MS,
    Overrides,
    Where,
    all_in_force,
    concerns,
    ends_ms,
    in_force,
    is_in_force,
    soon_ms,
    stage_of,
    words,
)
from fairlead.model.kinds.capacity import Node, NodeSpec
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.meta import Metadata

BORN_MS = 1_700_000_000_000
TTL_S = 600
ENDS_MS = BORN_MS + TTL_S * 1000
RISK = Where("risk", "api", "eu-west", "a")


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)


def override(kind: Any = "hold", *, name: str = "o", ttl_s: int = TTL_S, meta: Any = None, **spec: Any) -> Override:
    scope = spec.pop("scope", OverrideScope(tenants=("risk",)))
    metadata = Metadata(name=name, namespace="risk", creation_time=at(BORN_MS), **(meta or {}))
    made = OverrideSpec(kind=kind, reason="flood", ttl_seconds=ttl_s, requester="ada", scope=scope, **spec)
    return Override(metadata=metadata, spec=made)


@pytest.mark.parametrize(("now_ms", "holds"), [(BORN_MS, True), (ENDS_MS - 1, True), (ENDS_MS, False), (ENDS_MS + 1, False)])
def test_it_has_no_effect_from_the_instant_it_ends(now_ms: int, holds: bool) -> None:
    assert is_in_force(override(), now_ms) is holds
    assert (in_force([override()], "hold", now_ms, RISK) is not None) is holds
    assert soon_ms(override()) == BORN_MS + 480_000


def test_a_copy_ends_with_its_original_however_late_it_was_learnt_and_never_after_its_ttl() -> None:
    learnt_late = override(meta={"annotations": {AGE_MS: "599000"}})
    assert ends_ms(learnt_late) == BORN_MS + 1000
    for nonsense in ("-5", "soon", ""):
        assert ends_ms(override(meta={"annotations": {AGE_MS: nonsense}})) == ENDS_MS


def test_alerts_are_told_of_its_beginning_its_last_fifth_and_its_end() -> None:
    asked = override("emergency-quota")
    agreed = replace(asked, spec=replace(asked.spec, approver="bob"))
    quarter_ms = 15 * 60_000
    for of in (override(), agreed):
        moments = (BORN_MS, BORN_MS + 479_999, BORN_MS + 480_000, ENDS_MS - 1, ENDS_MS, ENDS_MS + quarter_ms - 1)
        assert [stage_of(of, ms) for ms in moments] == ["in-force"] * 2 + ["ends-soon"] * 2 + ["ended"] * 2
        assert stage_of(of, ENDS_MS + quarter_ms) == ""
    assert [stage_of(asked, ms) for ms in (BORN_MS, ENDS_MS - 1, ENDS_MS)] == ["awaiting-approval"] * 2 + [""]
    assert stage_of(override(meta={"deletion_time": at(BORN_MS + 5)}), BORN_MS + 10) == ""


def test_one_that_is_being_revoked_has_no_effect_while_its_finalizer_waits() -> None:
    assert not is_in_force(override(meta={"deletion_time": at(BORN_MS + 5)}), BORN_MS + 10)


def test_what_lifts_a_protection_waits_for_a_second_person_and_what_holds_back_does_not() -> None:
    for kind in ("recovery", "emergency-quota"):
        asked = override(kind)
        assert not is_in_force(asked, BORN_MS)
        assert not is_in_force(replace(asked, spec=replace(asked.spec, approver="ada")), BORN_MS)
        assert is_in_force(replace(asked, spec=replace(asked.spec, approver="bob")), BORN_MS)
    for kind in ("hold", "freeze", "zone-avoidance", "autoscaler-pause", "repair-approval"):
        assert is_in_force(override(kind), BORN_MS)


@pytest.mark.parametrize(
    ("scope", "where", "holds"),
    [
        (OverrideScope(tenants=("risk",)), RISK, True),
        (OverrideScope(tenants=("shop",)), RISK, False),
        (OverrideScope(tenants=("*",)), Where("anybody", "x"), True),
        (OverrideScope(workloads=("api",)), RISK, True),
        (OverrideScope(workloads=("risk/api",)), RISK, True),
        (OverrideScope(workloads=("web",)), RISK, False),
        (OverrideScope(workloads=("api",)), Where("shop", "api"), False),
        (OverrideScope(regions=("eu-west",)), RISK, True),
        (OverrideScope(regions=("us-east",)), RISK, False),
        (OverrideScope(regions=("eu-west",)), Where("risk", "api"), False),
        (OverrideScope(zones=("a",), regions=("eu-west",)), RISK, True),
        (OverrideScope(zones=("b",)), RISK, False),
    ],
)
def test_a_scope_is_all_that_it_names_and_its_own_tenant_where_it_names_none(scope: Any, where: Where, holds: bool) -> None:
    assert concerns(override(scope=scope), where) is holds


def test_of_several_the_one_that_lasts_longest_is_told_and_all_can_be_listed() -> None:
    short, long = override(name="a", ttl_s=10), override(name="b", ttl_s=20)
    found = in_force([long, short], "hold", BORN_MS, RISK)
    assert found is long
    assert "hold risk/b by ada until" in words(long)
    assert all_in_force([long, short, override("freeze")], "hold", BORN_MS + 15_000) == [long]
    assert all_in_force([long, short], "hold", BORN_MS) == [short, long]


def classes_of(*zones: str) -> Classes:
    classes = Classes()
    for zone in zones:
        classes.number_of(Node(metadata=Metadata(name="n"), spec=NodeSpec(region="eu-west", zone=zone)), None)
    return classes


def row(node_class: Any) -> Any:
    return SimpleNamespace(node_class=node_class)


def view(now_ms: int) -> Any:
    return SimpleNamespace(now_ms=now_ms)


@given(zones=st.sets(st.sampled_from("abcd"), min_size=1), late_ms=st.integers(-2, 2), regions=st.booleans())
def test_the_gate_of_avoided_zones_says_the_same_of_one_node_and_of_all(zones: set[str], late_ms: int, regions: bool) -> None:
    book, classes = Overrides(), classes_of(*"abcd")
    scope = OverrideScope(zones=tuple(sorted(zones)), regions=("eu-west",) if regions else ())
    book.set("risk", "o", override("zone-avoidance", scope=scope))
    gate = book.avoidance("risk", "api", classes)
    need: Any = None
    assert gate is not None
    now = view(ENDS_MS + late_ms)
    alone = [bool(gate.check(need, row(number), now)) for number in range(4)]
    together = gate.check(need, row(np.arange(4)), now)
    assert alone == together.tolist() == [zone not in zones or late_ms >= 0 for zone in "abcd"]


def test_the_gate_learns_of_new_zones_and_says_who_keeps_work_out() -> None:
    book, classes = Overrides(), classes_of("a")
    book.set("risk", "o", override("zone-avoidance", scope=OverrideScope(zones=("b",), workloads=("api",))))
    gate = book.avoidance("risk", "api", classes)
    assert gate is not None
    need: Any = None
    assert gate.check(need, row(0), view(BORN_MS))
    number = classes.number_of(Node(metadata=Metadata(name="n"), spec=NodeSpec(region="eu-west", zone="b")), None)
    assert not gate.check(need, row(number), view(BORN_MS))
    assert "zone b is avoided: zone-avoidance risk/o by ada" in gate.why(need, row(number), view(BORN_MS))
    assert book.avoidance("risk", "web", classes) is None
    assert book.tells_workloads_apart()


def test_the_book_forgets_what_is_taken_away_and_knows_when_the_next_one_ends() -> None:
    book = Overrides()
    assert book.next_end_ms(0) is None
    book.set("risk", "a", override(name="a", ttl_s=10))
    book.set("risk", "b", override(name="b", ttl_s=20))
    assert book.next_end_ms(BORN_MS) == BORN_MS + 10_000
    assert book.next_end_ms(BORN_MS + 10_000) == BORN_MS + 20_000
    before = book.version
    book.set("risk", "b", None)
    assert book.version > before
    assert book.found("hold", BORN_MS, RISK) is not None
    book.set("risk", "a", None)
    assert book.found("hold", BORN_MS, RISK) is None
    assert not book.has("hold")
