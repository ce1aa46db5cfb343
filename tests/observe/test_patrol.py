"""The patrol finds what the authority would never commit, and is not fooled by what it would."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from fairlead.compose.patrolling import Patrolling
from fairlead.model.hot import BindingHot
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus, Node, NodeSpec, Reservation, ReservationSpec
from fairlead.model.kinds.slot import Token
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import DeviceHold, Resources
from fairlead.observe.patrol import Breach, Patrol, Seen
from tests.observe.servers import served
from tests.observe.test_metrics import one, scraped

_S = SlotState


class Row(NamedTuple):
    tenant: str
    name: str
    hot: Any


def node(cpu: int = 4000, max_slots: int = 10) -> Row:
    spec = NodeSpec(region="eu", allocatable=Resources(cpu, 1 << 40), max_slots=max_slots)
    return Row("", "n1", Node(metadata=Metadata(name="n1"), spec=spec))


def bound(name: str, cpu: int = 1000, state: SlotState = _S.SERVING, **more: Any) -> Row:
    workload, _, index = name.rpartition("-")
    hot = BindingHot(
        "n1", state, Token(1, 1, 1), Resources(cpu, 1), more.get("devices", ()), more.get("borrowed", False), 0, 1,
        more.get("uid", f"u-{workload}"), int(index), start_after=more.get("start_after", ()),
    )  # fmt: skip
    return Row("t", name, hot)


def reserved(cpu: int, budget: str = "") -> Row:
    spec = ReservationSpec(node="n1", requests=Resources(cpu, 1), budget=budget)
    return Row("t", "r-0", Reservation(metadata=Metadata(name="r-0", namespace="t"), spec=spec))


def grant(cpu: int = 1 << 40) -> Row:
    limit = Resources(cpu, 1 << 50)
    return Row(
        "t", "eu", Grant(metadata=Metadata(name="eu", namespace="t"), spec=GrantSpec(region="eu", version=1, during=limit))
    )


def look(
    patrol: Patrol, *bindings: Row, of: Row | None = None, reservations: tuple[Row, ...] = (), given: Row | None = None
) -> list[str]:
    seen = Seen([of or node()], bindings, reservations, [given or grant()])
    news: list[Breach] = [breach for found in patrol.look(seen) for breach in found]
    return [f"{breach.invariant} {breach.subject}: {breach.detail}" for breach in news]


def four() -> list[Row]:
    return [bound(f"a-{index}") for index in range(4)]


def test_a_full_node_is_well_and_one_slot_more_is_a_breach_told_once() -> None:
    patrol = Patrol()
    assert look(patrol, *four()) == []
    assert look(patrol, *four(), bound("b-0")) == ["S2 n1: firm + held cpu is 5000 of 4000"]
    assert look(patrol, *four(), bound("b-0"), bound("b-1")) == []
    assert look(patrol, *four()) == []
    assert len(look(patrol, *four(), bound("b-0"))) == 1
    assert patrol.breaches_total["S2"] == 2


def test_a_node_that_shrank_under_its_work_breaks_no_promise() -> None:
    patrol = Patrol()
    assert look(patrol, *four()) == look(patrol, *four(), of=node(2000)) == look(patrol, *four(), of=node(2000)) == []
    assert look(Patrol(), *four(), bound("b-0")) == []  # it was so when we came


def test_an_evictor_takes_the_place_of_its_victims_before_they_are_gone() -> None:
    patrol = Patrol()
    assert look(patrol, *four()) == []
    leaving = bound("a-0", state=_S.DRAINING)
    claimed = [leaving, *four()[1:], bound("b-0", start_after=("t/a-0",))]
    assert look(patrol, *claimed) == []
    assert look(patrol, *claimed, bound("c-0")) != []


def test_what_is_lent_is_held_for_another_and_neither_may_be_sold_twice() -> None:
    patrol = Patrol()
    standing = (reserved(2000, "gold"),)
    fine = [bound("a-0"), bound("a-1"), bound("lent-0", 2000, borrowed=True)]
    assert look(patrol, *fine, reservations=standing) == []
    assert look(patrol, *fine, bound("a-2"), reservations=standing) == ["S2 n1: firm + held cpu is 5000 of 4000"]


def test_slots_without_capacity_do_not_count() -> None:
    patrol = Patrol()
    assert look(patrol, *four()) == look(patrol, *four(), bound("b-0", state=_S.RELEASED)) == []


def test_one_slot_bound_under_two_names_is_found() -> None:
    assert look(Patrol(), bound("a-0"), bound("b-0", uid="u-a")) == ["S1 t/b-0: slot 0 of u-a is bound as t/a-0 and as t/b-0"]


def test_a_device_held_twice_is_found() -> None:
    whole = (DeviceHold(id="gpu-0", thousandths=1000),)
    assert look(Patrol(), bound("a-0", devices=whole)) == []
    assert look(Patrol(), bound("a-0", devices=whole), bound("a-1", devices=whole)) == ["S3 n1: device gpu-0 is held 2000/1000"]


def test_a_tenant_beyond_its_grant_is_found_unless_the_grant_was_lowered() -> None:
    patrol = Patrol()
    assert look(patrol, *four(), given=grant(4000)) == []
    assert look(patrol, *four(), given=grant(3000)) == []
    patrol = Patrol()
    assert look(patrol, *four()[:3], given=grant(3000)) == []
    assert look(patrol, *four(), given=grant(3000)) == ["S4 t: cpu is 4000 of 3000"]


def test_of_a_leased_grant_the_offer_counts_that_the_region_stands_on() -> None:
    def leased(offered: int, stands: int) -> Row:
        spec = GrantSpec(region="eu", version=2, during=Resources(offered, 1 << 50), lease_seconds=600)
        status = GrantStatus(accepted_version=1, during=Resources(stands, 1 << 50))
        return Row("t", "eu", Grant(Metadata(name="eu", namespace="t"), spec, status))

    patrol = Patrol()
    assert look(patrol, *four()[:1], given=leased(500, 2000)) == []
    assert look(patrol, *four()[:2], given=leased(500, 2000)) == [], "a smaller offer is not taken yet"
    assert look(patrol, *four()[:3], given=leased(5000, 2000)) == ["S4 t: cpu is 3000 of 2000"]


async def test_a_breach_on_a_leader_shows_in_the_metrics(tmp_path: Path) -> None:
    async with served(tmp_path) as s:
        token = await s.token("metrics-reader")
        (part,) = [part for part in s.server._parts if isinstance(part, Patrolling)]
        await s.until(lambda: part._patrol.looks_total, "the first round")
        assert await part.round() == []
        list(part._patrol.look(Seen([], [bound("a-0"), bound("b-0", uid="u-a")], [], [])))
        found = await scraped(s, token)
        assert one(found, "invariant_violations_total", invariant="S1") == 1
        assert one(found, "invariant_violations_total", invariant="S2") == 0
        assert one(found, "invariant_checks_total") >= 3
