"""What the drill region-cut counts by itself, and how it holds a region's merge report against it."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.drills.cuts import SOLE, exclusive_job, is_sole, over_quota, running_twice, runs_of, services, sole_service
from fairlead.drills.regions import LOST
from fairlead.drills.reports import differs, lacks

CUT, MEANWHILE, HEALED = "2026-01-01T10:00:00Z", "2026-01-01T10:03:00.5Z", "2026-01-01T10:05:00Z"


def binding(tenant: str, created: str = MEANWHILE, cpu: str = "1", state: str = "Serving") -> dict[str, Any]:
    metadata = {"namespace": tenant, "name": "api-0", "creationTimestamp": created}
    return {"metadata": metadata, "spec": {"requests": {"cpu": cpu}}, "status": {"state": state}}


def report(**changed: Any) -> dict[str, Any]:
    usual = {"cutTime": CUT, "healedTime": HEALED, "placed": 3, "confirmed": 3, "tenants": {"risk": 2, "search": 1}}
    return usual | changed


THERE = [binding("risk"), binding("risk"), binding("search"), binding("search", "2026-01-01T09:59:59Z")]


def test_a_report_that_counts_what_is_counted_here_is_correct() -> None:
    assert differs(report(), THERE) == []
    assert differs(report(confirmed=2, released=1), THERE) == []
    ended = report(placed=5, confirmed=2, lasting=1, released=2, tenants={"risk": 3, "search": 1, "fraud": 1})
    assert differs(ended | {"ended": {"risk": 1, "fraud": 1}}, THERE) == [], "what is gone is in no list"
    assert differs(ended, THERE) != []


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"placed": 2, "confirmed": 2, "tenants": {"risk": 1, "search": 1}}, "there are"),
        ({"tenants": {"risk": 3}}, "it counts"),
        ({"confirmed": 2}, "what stays and what leaves"),
        ({"over": ["risk"]}, "more than they were offered"),
        ({"healedTime": CUT}, "it says it was cut off from"),
        ({"cutTime": None}, "it says it was cut off from"),
    ],
)
def test_a_report_that_says_otherwise_is_not(changed: dict[str, Any], why: str) -> None:
    assert any(why in text for text in differs(report(**changed), THERE))


def test_a_report_of_nothing_proves_nothing() -> None:
    assert differs(report(placed=0, confirmed=0, tenants={}), []) != []


def test_a_report_of_a_cut_counts_what_services_placed_whatever_jobs_did() -> None:
    """Of a cut of five minutes: jobs end by themselves, and may be gone when one counts."""
    assert lacks(report(), [binding("risk"), binding("risk")], ["risk", "billing"], 300.0) == []
    assert lacks(report(), [binding("risk")], ["risk"], 300.0) == ["it counts 2 of risk, there are 1"]
    assert lacks(report(), THERE, ["risk"], 301.0) != [], "it begins too late, or ends too early"
    assert lacks({}, THERE, ["risk"], 300.0) != []
    assert lacks(report(over=["risk"]), THERE, ["risk"], 300.0) != []
    assert lacks(report(placed=2, confirmed=2), THERE, ["risk"], 300.0) != []
    assert lacks(report(placed=1, confirmed=1, tenants={"search": 1}), THERE[2:], ["risk", "billing"], 300.0) == [
        "nothing of theirs was placed there meanwhile"
    ]


def test_a_tenant_that_uses_more_than_its_quota_in_all_regions_together_is_named() -> None:
    quotas = [
        {"metadata": {"namespace": tenant}, "spec": {"limits": {"cpu": "3", "memory": "1Gi"}}} for tenant in ("risk", "search")
    ]
    reservation = {"metadata": {"namespace": "risk"}, "spec": {"requests": {"cpu": "1"}}}
    within = [binding("risk"), binding("risk"), binding("risk", state="Succeeded"), binding("search", cpu="3")]
    assert over_quota(quotas, within, [reservation]) == []
    (said,) = over_quota(quotas, [*within, binding("risk", cpu="1m")], [reservation])
    assert said.startswith("risk uses")


def test_a_slot_that_runs_on_two_nodes_is_seen() -> None:
    once = {"agent-a": ["risk/api-0", "risk/api-0"], "agent-b": ["risk/api-1"]}
    assert running_twice(once) == []
    assert running_twice(once | {"agent-c": ["risk/api-0"]}) == ["risk/api-0"]


def test_slots_of_jobs_end_by_themselves_and_are_not_missed() -> None:
    slots = {"agent-a": ["risk/risk-api-0", "fraud/fraud-batch-12"], "agent-b": ["fraud/fraud-batch-api-1"]}
    assert services(slots, ["fraud/fraud-batch"]) == {"agent-a": {"risk/risk-api-0"}, "agent-b": {"fraud/fraud-batch-api-1"}}


@pytest.mark.parametrize("work", [exclusive_job("/w"), sole_service("/w")])
def test_exclusive_work_would_rather_be_where_the_cut_is(work: dict[str, Any]) -> None:
    (wish,) = work["placement"]["preferences"]
    assert wish["locality"]["regions"] == [LOST]
    assert len(work["placement"]["regions"]["allowed"]) == 3, "else nobody could run it twice"
    assert work["exclusive"] == "global"


def test_the_slot_that_is_stood_in_for_is_known_by_its_workload() -> None:
    assert is_sole({"metadata": {"namespace": SOLE[0]}, "spec": {"slot": {"workload": SOLE[1]}}})
    assert not is_sole({"metadata": {"namespace": SOLE[0]}, "spec": {"slot": {"workload": "risk-api"}}})


def test_a_run_lasts_from_its_first_word_to_its_last() -> None:
    assert runs_of("1.1.1 a 5.0\n1.1.1 a 7.5\nhalf a\n1.2.1 b 9.0\n") == {("1.1.1", "a"): (5.0, 7.5), ("1.2.1", "b"): (9.0, 9.0)}
