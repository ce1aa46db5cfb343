"""What an override is said to touch: by kind, in its regions, of its tenants, and never longer than a warning may be."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.decide.reach import (
    LINE_MAX,
    Work,
    kind_lines,
    quota_lines,
    reach_of,
    repairs_line,
    work_line,
    work_of,
    zone_line,
)
from fairlead.decide.slots import instant
from fairlead.model.kinds.intent import (
    Quota,
    QuotaSpec,
    RecoveryRule,
    Region,
    RegionCounts,
    RegionStatus,
    StageCounts,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from fairlead.model.kinds.ledger import ZoneNodes
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.kinds.repair import Repair, RepairSpec, RepairStatus
from fairlead.model.meta import Condition, Metadata
from fairlead.model.resources import Resources

NOW_MS = 1_000_000
API = Work("risk", "api", {"us": StageCounts(bound=3, serving=2, failed=1), "eu": StageCounts(bound=2, serving=2, pending=1)})
WEB = Work("risk", "web", {"eu": StageCounts(bound=1, serving=1)}, recovered=False)
BILLS = Work("billing", "bills", {"us": StageCounts(bound=4, serving=4, unknown=2)})
WORKS = (API, WEB, BILLS)


def ordered(kind: Any, *, parameters: dict[str, str] | None = None, approver: str = "", **scope: tuple[str, ...]) -> Override:
    made = OverrideSpec(
        kind=kind, reason="flood", ttl_seconds=60, requester="ada", approver=approver, scope=OverrideScope(**scope),
        parameters=parameters or {},
    )  # fmt: skip
    return Override(Metadata(name="stop", namespace="risk", creation_time=instant(NOW_MS)), made)


def said(override: Override, *works: Work) -> list[str]:
    reach = reach_of(override, works or WORKS)
    return [work_line(override, reach), *kind_lines(override, reach)]


@pytest.mark.parametrize(
    ("scope", "line"),
    [
        ({}, "2 workloads of risk with 6 slots in eu, us, 5 of them serving: risk/api, risk/web"),
        ({"regions": ("eu",)}, "2 workloads of risk with 3 slots in eu, 3 of them serving: risk/api, risk/web"),
        ({"regions": ("us",)}, "1 workload of risk with 3 slots in us, 2 of them serving: risk/api"),
        ({"workloads": ("web",)}, "1 workload of risk with 1 slot in eu, 1 of them serving: risk/web"),
        ({"tenants": ("*",), "regions": ("us",)},
         "2 workloads of billing, risk with 7 slots in us, 6 of them serving: billing/bills, risk/api"),
        ({"workloads": ("none",)}, "0 workloads of risk with 0 slots, 0 of them serving"),
    ],
)  # fmt: skip
def test_workloads_are_counted_with_their_slots_in_the_regions_it_is_about(scope: dict[str, Any], line: str) -> None:
    assert said(ordered("hold", **scope))[0] == f"this override touches {line}"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (ordered("hold"), "nothing new of them is bound; 1 slot that waits now will go on"),
        (ordered("freeze"), "rollouts, drains and moves wait"),
        (ordered("autoscaler-pause"), "replicas of services among them stay as they are; no node is added for what waits"),
        (ordered("repair-approval"), "1 slot of them, lost or failed, will not be let go or queued again until another person"),
        (ordered("recovery", regions=("us",)), "once another person approves it, the minimum of 1 workload is ordered elsewhere"),
    ],
    ids=lambda each: each.spec.kind if isinstance(each, Override) else "",
)
def test_each_kind_says_what_it_means_for_that_work(override: Override, words: str) -> None:
    assert words in said(override)[1]


def test_a_recovery_says_how_many_are_not_recovered_whatever_is_ordered() -> None:
    told = said(ordered("recovery", workloads=("api", "web")))
    assert told[1].endswith("elsewhere where it is short")
    assert told[2] == "1 workload of them is not recovered: no minimum is named, or it is a job, a gang or exclusive: region"
    least = RecoveryRule(min_serving=1)
    counts = WorkloadStatus(regions=(RegionCounts("us", StageCounts(bound=1)),))
    for spec, recovered in (({"recovery": least}, True), ({}, False), ({"recovery": least, "gang": True}, False)):
        made: dict[str, Any] = spec
        work = work_of(Workload(Metadata(name="api", namespace="risk"), WorkloadSpec(**made), counts))
        assert (work.recovered, work.regions["us"].bound) == (recovered, 1)


def zoned(name: str, **zones: int) -> Region:
    rows = tuple(ZoneNodes(zone=zone, nodes=count) for zone, count in zones.items())
    return Region(Metadata(name=name), status=RegionStatus(zones=rows))


def test_an_avoidance_counts_the_nodes_of_its_zones_and_names_regions_that_did_not_say() -> None:
    regions = [zoned("us", a=3, b=2), zoned("eu", a=4), zoned("asia")]
    told = zone_line(ordered("zone-avoidance", zones=("a",), regions=("us",)), regions)
    assert told == "3 of 5 nodes, those in a, take nothing new of them; what runs there stays"
    everywhere = zone_line(ordered("zone-avoidance", zones=("a",)), regions)
    assert everywhere.startswith("7 of 9 nodes, those in a,")
    assert everywhere.endswith("; asia did not say which nodes they have")


def test_open_repairs_of_what_it_is_about_are_counted_and_those_of_others_are_not() -> None:
    def repair(regarding: str, *, mended: bool = False) -> Repair:
        conditions = (Condition("Mended", "True"),) if mended else ()
        return Repair(Metadata(name="r"), RepairSpec("LeakedReservation", regarding), RepairStatus(conditions=conditions))

    found = [
        ("us", repair("bindings/risk/api-0")), ("us", repair("bindings/risk/api-1", mended=True)),
        ("eu", repair("assignments/risk/api.eu")), ("eu", repair("bindings/risk/web-0")), ("us", repair("bindings/billing/b-0")),
    ]  # fmt: skip
    assert repairs_line(ordered("repair-approval"), found, []).startswith("3 Repairs of what is theirs are open")
    assert repairs_line(ordered("repair-approval", workloads=("api",)), found, []).startswith("2 Repairs")
    one = repairs_line(ordered("repair-approval", workloads=("api",), regions=("us",)), found, ["asia"])
    assert one == "1 Repair of what is theirs is open and will wait as well; asia could not be asked"


def test_an_emergency_quota_shows_the_limits_before_and_after_with_those_that_are_in_force() -> None:
    quotas = {"risk": [Quota(Metadata(name="q", namespace="risk"), QuotaSpec(limits=Resources(10_000, 8 << 30)))]}
    more = ordered("emergency-quota", tenants=("risk", "lone"), parameters={"cpu": "20", "gpu": "2"})
    lone, told = quota_lines(more, quotas, [], ["us"], NOW_MS)
    assert lone == "tenant lone has no Quota: this gives it nothing"
    assert told == "limits of tenant risk, once another person approves it: cpu 10 -> 30, gpu 0 -> 2"
    first = ordered("emergency-quota", tenants=("risk",), parameters={"cpu": "5"}, approver="bob")
    here = ordered("emergency-quota", tenants=("risk",), parameters={"cpu": "20"}, regions=("us",))
    assert quota_lines(here, quotas, [first], ["us"], NOW_MS) == [
        "limits of tenant risk, for us only, once another person approves it: cpu 15 -> 35"
    ]


@pytest.mark.parametrize("long", ["n" * 253, "t" * 63])
def test_no_line_is_longer_than_a_warning_may_be_and_what_is_not_named_is_counted(long: str) -> None:
    regions = [f"{long[:58]}-{number:03}" for number in range(20)]
    works = [Work(f"{long[:60]}{number:03}", f"{long[:250]}{number:03}", {regions[number]: StageCounts(bound=1)})
             for number in range(20)]  # fmt: skip
    everyone = ("*",)
    for kind in ("hold", "freeze", "autoscaler-pause", "repair-approval", "recovery"):
        for line in said(ordered(kind, tenants=everyone, regions=tuple(regions)), *works):
            assert len(line) <= LINE_MAX, (kind, line)
    zones = tuple(regions)
    assert len(zone_line(ordered("zone-avoidance", zones=zones), [zoned(name) for name in regions])) <= LINE_MAX
    assert len(repairs_line(ordered("repair-approval"), [], regions)) <= LINE_MAX
    parameters = {f"{long[:60]}{number:03}": "1" for number in range(20)}
    tenants = tuple(f"{long[:60]}{number:03}" for number in range(20))
    quotas = {tenant: [Quota(Metadata(name="q", namespace=tenant))] for tenant in tenants}
    more = ordered("emergency-quota", parameters=parameters, tenants=tenants, regions=tuple(regions))
    told = quota_lines(more, quotas, [], ["us"], NOW_MS)
    assert max(map(len, told)) <= LINE_MAX
    assert told[-1] == "and as much more for 15 other tenants"


def test_of_many_workloads_the_first_are_named_and_the_rest_is_counted() -> None:
    works = [Work("risk", f"w{number}", {}) for number in range(9)]
    assert said(ordered("freeze"), *works)[0].endswith("serving: risk/w0, risk/w1, risk/w2, risk/w3, risk/w4, and 4 more")
