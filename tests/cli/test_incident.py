"""The checks that keep an incident open: each finds what it is for, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.cli.frame import NOT_FOUND
from fairlead.cli.incident import ASKED, checks
from tests.cli.talks import talk
from tests.client.fake_api import FakeApi

NOW_S = 1_800_000_000.0  # 2027-01-15T08:00:00Z
BEFORE, AFTER = "2027-01-15T07:55:00Z", "2027-01-15T08:05:00Z"


def thing(name: str, spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "risk", **meta}, "spec": spec or {}, "status": status or {}}


def well() -> dict[str, list[dict[str, Any]]]:
    serving = {"conditions": [{"type": "Serving", "status": "True", "reason": "MinServingMet"}]}
    found: dict[str, list[dict[str, Any]]] = {plural: [] for plural in ASKED}
    found["regions"] = [thing("us-east", status={"health": "Healthy"})]
    found["nodes"] = [thing("n0", {"region": "us-east"}, {"health": "Ready"})]
    found["workloads"] = [thing("api", status=serving)]
    found["bindings"] = [thing("api-0", {"node": "n0", "provisionalUntilTime": AFTER})]
    found["overrides"] = [thing("old", {"kind": "hold"}, {"expiryTime": BEFORE})]
    found["reservations"] = [thing("standing", {}), thing("fresh", {"expiryTime": AFTER})]
    found["quotas"] = [thing("default", status={"conditions": [{"type": "OverQuota", "status": "False"}]})]
    return found


def failing(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    return [check.name for check in checks(found, NOW_S) if not check.passed]


def test_where_all_is_well_nothing_keeps_an_incident_open() -> None:
    assert failing(well()) == []


SERVING = {"conditions": [{"type": "Serving", "status": "False", "reason": "BelowMinServing"}]}
SUSPENDED = {"conditions": [{"type": "Serving", "status": "False", "reason": "Suspended"}]}
BLOCKED = {"pending": [{"reason": "ResidencyBlocked", "count": 3}]}
QUEUED = {"pending": [{"reason": "WaitingForQuota", "count": 3}]}
UNHEARD = [
    "no reservation is leaked", "no placement waits to be confirmed", "every region is healthy", "every node is heard",
]  # fmt: skip
LEFT = [
    ("overrides", thing("o", {"kind": "hold"}, {"expiryTime": AFTER}), ["no override is in force"]),
    ("overrides", thing("o", {"ttlSeconds": 3600}, creationTimestamp=BEFORE), ["no override is in force"]),
    ("overrides", thing("o", {}, {"expiryTime": AFTER}, deletionTimestamp=BEFORE), []),
    ("grants", thing("g", {"emergency": {"cpu": "1"}, "emergencyEndTime": AFTER}), ["no emergency quota is in force"]),
    ("grants", thing("g", {"emergency": {"cpu": "1"}, "emergencyEndTime": BEFORE}), []),
    (
        "quotas",
        thing("q", status={"conditions": [{"type": "OverQuota", "status": "True", "message": "cpu"}]}),
        ["no tenant uses more than its quota"],
    ),
    ("reservations", thing("r", {"expiryTime": BEFORE}), ["no reservation is leaked"]),
    ("recoveryorders", thing("api", {"lost": ["eu-central"]}), ["recovery budgets are returned"]),
    ("regions", thing("eu-central", status={"health": "Lost"}), UNHEARD),
    ("nodes", thing("n1", {"region": "us-east"}, {"health": "Unknown"}), ["every node is heard"]),
    ("workloads", thing("w", status=SERVING), ["every workload serves what it must"]),
    ("workloads", thing("w", status=SUSPENDED), []),
    ("workloads", thing("w", {"job": {}}, BLOCKED), ["every workload serves what it must"]),
    ("workloads", thing("w", {"job": {}}, QUEUED), []),
]


@pytest.mark.parametrize(("plural", "one", "wanted"), LEFT)
def test_each_thing_that_is_left_is_found_by_its_check(plural: str, one: dict[str, Any], wanted: list[str]) -> None:
    found = well()
    found[plural] = [*found[plural], one]
    assert failing(found) == wanted


def test_a_provisional_placement_of_a_region_that_is_not_heard_is_unconfirmed() -> None:
    found = well()
    found["regions"] = [thing("us-east", status={"health": "Unknown"})]
    assert failing(found) == UNHEARD
    (unconfirmed,) = [check for check in checks(found, NOW_S) if check.name == "no placement waits to be confirmed"]
    assert unconfirmed.left == ["bindings of us-east are not heard of", "risk/api-0"]


def test_a_node_that_is_shown_from_memory_is_not_heard() -> None:
    found = well()
    found["nodes"] = [found["nodes"][0] | {"evidence": {"plane": "us-east", "ageSeconds": 12.0}}]
    assert failing(found) == ["every node is heard"]
    (heard,) = [check for check in checks(found, NOW_S) if not check.passed]
    assert heard.left == ["nodes of us-east are not heard of for 12 s"]


def test_an_incident_that_is_not_there_is_not_found(api: FakeApi) -> None:
    for verb in ("status", "close"):
        ran = talk("incident", verb, "nope")
        assert (ran.code, ran.out) == (NOT_FOUND, "")
        assert "there is no open incident nope" in ran.err
