"""Overrides of kind recovery: which regions people have given up for a service, where more than one of them is in force."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.decide.slots import instant
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.kinds.work import SlotRange
from fairlead.model.meta import Metadata
from tests.controllers.test_no_place import OWN, OneService


def give_up(rig: OneService, name: str, ttl_s: int, **scope: tuple[str, ...]) -> None:
    spec = OverrideSpec(
        kind="recovery", reason="it flaps", ttl_seconds=ttl_s, requester="ada", approver="bob",
        scope=OverrideScope(tenants=("risk",), **scope),
    )  # fmt: skip
    meta = Metadata(name=name, namespace="risk", creation_time=instant(rig.now_ms))
    rig.put("overrides", "risk", name, Override(meta, spec))


def test_one_that_names_a_region_holds_beside_one_that_lasts_longer_and_names_none() -> None:
    rig = OneService()
    give_up(rig, "api", 3600, workloads=("api",))
    assert rig.looks(2) is None, "all of it serves"
    give_up(rig, "b", 600, regions=("b",))
    assert rig.looks(2).lost == ("b",)
    rig.look(600)
    assert rig.looks(1) is None, "it has ended"


def test_those_that_stand_in_there_are_not_taken_for_the_regions_own() -> None:
    rig = OneService()
    rig.assigned("b", own=OWN, stands_in=SlotRange(first=15_000, last=15_001), serving=5, bound=6)
    found = rig.view.cache.get("assignments", "risk", "api.b")
    rig.put("assignments", "risk", "api.b", replace(found, status=replace(found.status, stood_in=2)))
    give_up(rig, "api", 3600, workloads=("api",))
    assert rig.looks(2).lost == ("b",), "one of its own does not serve"


def test_a_region_that_is_given_up_is_no_place_for_those_of_another() -> None:
    rig = OneService()
    give_up(rig, "a", 600, regions=("a",))
    rig.health("b", "Lost")
    assert rig.looks(2).regions == {"c": 4}, "it has no slots of its own in a"


def test_what_stands_in_for_a_flapping_workload_stays_until_all_of_it_has_served_for_a_while() -> None:
    rig = OneService()
    give_up(rig, "api", 3600, workloads=("api",))
    rig.assigned("b", own=OWN, serving=3, bound=4)
    ordered = rig.looks(2)
    assert (ordered.lost, ordered.regions) == (("b",), {"a": 4})
    for _ in range(3):
        rig.assigned("b", own=OWN, serving=4)
        assert rig.looks(30).regions == {"a": 4}, "it has served for half a minute"
        rig.assigned("b", own=OWN, serving=3, bound=4)
        assert rig.looks(2).regions == {"a": 4}
    rig.assigned("b", own=OWN, serving=4)
    assert rig.looks(58) is not None
    assert rig.looks(4) is None
