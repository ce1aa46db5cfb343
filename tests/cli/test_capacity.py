"""`fairlead capacity`: sums over nodes, bindings, reservations and grants."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.cli.capacity import Amount, Capacity, _ready, amount_of, shape_of
from fairlead.cli.frame import Told

GI = 1 << 30


def node(name: str, cpu: str = "4", memory: str = "8Gi", cost: int = 100, health: str = "Ready") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"region": "us-east", "allocatable": {"cpu": cpu, "memory": memory}, "hourlyCostMillis": cost},
        "status": {"health": health, "schedulable": True},
    }


def binding(name: str, on: str, cpu: str = "1", memory: str = "1Gi", state: str = "Serving") -> dict[str, Any]:
    spec = {"node": on, "requests": {"cpu": cpu, "memory": memory}, "slot": {"workload": "api"}}
    return {"metadata": {"name": name, "namespace": "risk"}, "spec": spec, "status": {"state": state}}


def test_used_and_held_room_is_not_free_and_gone_slots_use_none() -> None:
    found = Capacity([node("a"), node("b")], Amount(1000, GI))
    found.bound([binding("api-0", "a"), binding("api-1", "a", state="Released")], {("risk", "api"): "critical"})
    found.reserved([{"metadata": {"namespace": "risk"}, "spec": {"node": "b", "requests": {"cpu": "500m", "memory": "1Gi"}}}])
    (region,) = found.regions()
    assert region["used"] == {"cpu": "1000m", "memory": "1024Mi"}
    assert region["held"] == {"cpu": "500m", "memory": "1024Mi"}
    assert region["free"] == {"cpu": "6500m", "memory": "14336Mi"}
    assert region["fits"] == 3 + 3
    assert found.classes() == [
        {"class": "critical", "slots": 1, "used": {"cpu": "1000m", "memory": "1024Mi"}, "costPerHour": 0.025}
    ]


def test_free_room_in_pieces_is_fragmented() -> None:
    found = Capacity([node("a", "2", "8Gi"), node("b", "2", "8Gi")], Amount(1500, GI))
    (region,) = found.regions()
    assert region["fits"] == 2
    found.bound([binding("api-0", "a"), binding("api-1", "b")], {})
    (region,) = found.regions()
    assert region["fits"] == 0
    assert region["fragmentation"] == 1.0, "two cores are free in all, and no node has one and a half"


def test_nodes_that_take_no_work_have_no_headroom() -> None:
    (region,) = Capacity([node("a", health="Unknown"), node("b")], Amount(1000, GI)).regions()
    assert (region["ready"], region["nodes"], region["fits"]) == (1, 2, 4)


def test_a_region_that_cannot_be_reached_has_no_headroom_and_says_how_old_its_sums_are() -> None:
    copy = node("a") | {"evidence": {"plane": "us-east", "ageSeconds": 12.0}}
    (region,) = Capacity([copy], Amount(1000, GI)).regions()
    assert (region["ready"], region["fits"], region["ageSeconds"]) == (0, 0, 12.0)
    assert _ready(region) == "0/1 (12s old)"
    (region,) = Capacity([node("a")], Amount(1000, GI)).regions()
    assert _ready(region) == "1/1"


def test_a_tenants_headroom_is_what_its_grant_leaves_after_use_and_what_is_held_for_it() -> None:
    found = Capacity([node("a")], Amount(1000, GI))
    found.bound([binding("api-0", "a")], {})
    found.reserved([{"metadata": {"namespace": "risk"}, "spec": {"node": "a", "requests": {"cpu": "500m", "memory": "1Gi"}}}])
    grants = {("risk", "us-east"): Amount(2000, 4 * GI), ("billing", "us-east"): Amount(1000, GI)}
    billing, risk = found.tenants(grants)
    assert risk["headroom"] == {"cpu": "500m", "memory": "2048Mi"}
    assert billing["headroom"] == {"cpu": "1000m", "memory": "1024Mi"}
    (without,) = [one for one in found.tenants({}) if one["tenant"] == "risk"]
    assert without["headroom"] is None


def test_a_shape_is_understood_or_refused_in_words() -> None:
    assert shape_of("cpu=500m,memory=1Gi") == Amount(500, GI)
    for text in ("", "gpu=1", "cpu=much", "cpu"):
        with pytest.raises(Told):
            shape_of(text)
    assert amount_of(None) == Amount()
