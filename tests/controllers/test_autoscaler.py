"""The replica autoscaler, looked at as a value: a picture in, commands out; and a slow service under load, minute by minute."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.controllers.autoscaler import MANAGER, AutoscalerController
from fairlead.controllers.contract import View
from fairlead.decide.admission import faults
from fairlead.decide.loads import LOAD, reported, taken_over
from fairlead.decide.regional import record_of
from fairlead.decide.slots import instant
from fairlead.model.commands import Put, PutStatus
from fairlead.model.ids import Uid
from fairlead.model.kinds.intent import (
    Autoscaler,
    AutoscalerSpec,
    AutoscalerStatus,
    DisruptionRule,
    JobRule,
    PendingReason,
    Placement,
    RecoveryRule,
    RegionCounts,
    RegionRule,
    ResourceSpec,
    StageCounts,
    Template,
    WantedThen,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.meta import FieldsV1, ManagedFields, Metadata
from fairlead.model.registry import BY_KIND
from fairlead.model.resources import Resources
from tests.controllers.test_overrides import fill

NOW = 1_700_000_000_000


def load(permille: int, at_ms: int = NOW) -> dict[str, str]:
    return {LOAD: f"{permille}@{instant(at_ms).isoformat()}"}


def scaler(annotations: dict[str, str], name: str = "s", status: Any = None, **spec: Any) -> Autoscaler:
    meta = Metadata(name=name, namespace="risk", uid=Uid("u-s"), generation=1, annotations=annotations)
    made = Autoscaler(metadata=meta, spec=AutoscalerSpec(**{"workload": "api", "max_replicas": 20, **spec}))
    return replace(made, status=status) if status is not None else made


def service(ordered: int, serving: int, generation: int = 1, seen: int = 1, **spec: Any) -> Workload:
    meta = Metadata(name="api", namespace="risk", uid=Uid("u-w"), generation=generation)
    status = WorkloadStatus(observed_generation=seen, replicas=StageCounts(desired=ordered, serving=serving))
    return Workload(metadata=meta, spec=WorkloadSpec(replicas=ordered, **spec), status=status)


def decided(*objects: tuple[str, Any], now_ms: int = NOW, key: str = "s") -> tuple[int | None, Any]:
    """The replicas it orders, if it does, and its status, if it says something."""
    result = AutoscalerController().reconcile(("risk", key), fill(View(AutoscalerController.indexes, {}), *objects), now_ms)
    assert result.wake_ms is None or result.wake_ms > now_ms
    ordered = [body.object.spec.replicas for body in result.bodies if isinstance(body, Put)]
    said = [body.status for body in result.bodies if isinstance(body, PutStatus)]
    return ordered[0] if ordered else None, said[0] if said else None


def test_a_busy_service_gets_more_in_the_autoscaler_s_own_name() -> None:
    view = fill(View(AutoscalerController.indexes, {}), ("autoscalers", scaler(load(1400))), ("workloads", service(4, 4)))
    put, told = AutoscalerController().reconcile(("risk", "s"), view, NOW).bodies
    assert isinstance(put, Put)
    assert put.object.spec.replicas == 8
    assert put.expected_revision, "not over what somebody scaled meanwhile"
    assert put.object.metadata.managed_fields[-1].manager == MANAGER
    assert isinstance(told, PutStatus)
    assert (told.status.replicas, told.status.last_up_time) == (8, instant(NOW))


def test_nothing_is_ordered_while_an_ordered_one_waits_for_quota() -> None:
    waits = service(5, 4)
    for reason, ordered in (("WaitingForQuota", None), ("WaitingForCapacity", 10)):
        pending = replace(waits, status=replace(waits.status, pending=(PendingReason(reason, 1),)))
        got, told = decided(("autoscalers", scaler(load(2000))), ("workloads", pending))
        assert got == ordered
        condition = told.conditions[0]
        assert (condition.status, condition.reason) == (("True", "Following") if ordered else ("False", "Blocked"))
        assert ordered or reason in condition.message


def followed(seconds: int, wanted: int = 2, every: int = 5, until_ms: int = NOW) -> AutoscalerStatus:
    """The memory of one that has wanted as many for so long."""
    ago = range(seconds, 0, -every)
    return AutoscalerStatus(wanted_lately=tuple(WantedThen(time=instant(until_ms - s * 1000), replicas=wanted) for s in ago))


@pytest.mark.parametrize(
    ("rules", "left", "why"),
    [
        ({}, 2, "not more than 2 were wanted in 300 s"),
        (
            {"recovery": RecoveryRule(min_serving=4, budget_name="eu"), "disruption": DisruptionRule(min_serving=3)},
            4,
            "not more than 4 were wanted in 300 s; at least 4 by recovery.minServing",
        ),
        (
            {"disruption": DisruptionRule(min_serving=8)},
            None,
            "as wanted; at least 8 by disruption.minServing",
        ),
        (
            {"placement": Placement(regions=RegionRule(allowed=("eu", "us"), per_region_minimum=3))},
            6,
            "not more than 6 were wanted in 300 s; at least 6 by perRegionMinimum",
        ),
    ],
)
def test_it_goes_no_lower_than_the_workload_itself_may_go(rules: dict[str, Any], left: int | None, why: str) -> None:
    runs: dict[str, Any] = {"template": Template(command=("x",)), "resources": ResourceSpec(requests=Resources(100, 1 << 20))}
    work = service(8, 8, **runs, **rules)
    found = scaler(load(100), status=followed(300))
    ordered, said = decided(("autoscalers", found), ("workloads", work))
    assert (ordered, said.replicas) == (left, left or 8)
    assert said.conditions[0].message == why
    made = replace(work, spec=replace(work.spec, replicas=ordered or 8))
    assert not faults(BY_KIND["Workload"], made, work), "what it orders is taken"


def test_a_maximum_below_what_the_workload_must_have_is_not_held() -> None:
    work = service(8, 8, disruption=DisruptionRule(min_serving=6))
    ordered, said = decided(("autoscalers", scaler(load(700), max_replicas=4)), ("workloads", work))
    assert ordered == 6
    assert said.conditions[0].message == "within its bounds; at least 6 by disruption.minServing"


def test_a_load_of_before_the_last_addition_adds_nothing_more() -> None:
    status = replace(followed(300), last_up_time=instant(NOW - 40_000))

    def after(measured_s: int) -> int | None:
        annotations = load(1400, NOW - measured_s * 1000)
        return decided(("autoscalers", scaler(annotations, status=status)), ("workloads", service(4, 4)))[0]

    assert after(39) == 8
    assert after(41) is None


def test_nothing_goes_before_the_load_is_known_for_the_whole_window() -> None:
    def after(status: AutoscalerStatus) -> int | None:
        return decided(("autoscalers", scaler(load(100), status=status)), ("workloads", service(8, 8)))[0]

    ordered, said = decided(("autoscalers", scaler(load(100))), ("workloads", service(8, 8)))
    assert ordered is None, "the first that it hears of"
    assert said.conditions[0].message == "fewer are wanted, but the load is not known for 300 s yet"
    assert after(followed(295)) is None
    assert after(followed(300)) == 2
    assert after(followed(700, until_ms=NOW - 400_000)) is None, "nobody reported for longer than the window"
    gap = replace(followed(300), wanted_lately=tuple(t for t in followed(300).wanted_lately if not 90 < _ago_s(t) < 120))
    assert after(gap) is None


def test_of_what_is_older_than_the_window_the_last_is_remembered() -> None:
    found = scaler(load(100), status=followed(315, wanted=8, every=6))
    _, said = decided(("autoscalers", found), ("workloads", service(8, 8)))
    assert [_ago_s(then) for then in said.wanted_lately[:2]] == [303, 297]
    assert _ago_s(said.wanted_lately[-1]) == 3, "the part of the window that goes on"


def _ago_s(then: WantedThen) -> float:
    return (instant(NOW) - then.time).total_seconds()


def test_a_load_that_changes_at_every_look_goes_down_all_the_same_after_its_window() -> None:
    found, second, ordered = scaler({}), 0, None
    while ordered is None and second < 400:
        now_ms = NOW + second * 1000
        found = replace(found, metadata=replace(found.metadata, annotations=load(100 + 150 * (second % 3), now_ms)))
        ordered, said = decided(("autoscalers", found), ("workloads", service(20, 20)), now_ms=now_ms)
        found = replace(found, status=said or found.status)
        second += 1
    assert 300 <= second <= 306
    assert ordered == 12, "the most that was wanted: twenty that are 400/1000 busy"
    assert len(found.status.wanted_lately) <= 62


def test_one_that_is_being_deleted_contests_nothing() -> None:
    gone = scaler({}, "a")
    gone = replace(gone, metadata=replace(gone.metadata, deletion_time=instant(NOW)))
    assert decided(("autoscalers", scaler(load(1400), "z")), ("workloads", service(4, 4)), ("autoscalers", gone), key="z")[0] == 8


def pause(**scope: Any) -> Override:
    spec = OverrideSpec(kind="autoscaler-pause", reason="x", ttl_seconds=60, requester="a", scope=OverrideScope(**scope))
    return Override(metadata=Metadata(name="p", namespace="risk", creation_time=instant(NOW)), spec=spec)


@pytest.mark.parametrize(
    ("found", "work", "more", "reason"),
    [
        (scaler({}), service(4, 4), (), "NoLoad"),
        (scaler(load(1400, NOW - 61_000)), service(4, 4), (), "NoLoad"),
        (scaler({LOAD: "lots@now"}), service(4, 4), (), "NoLoad"),
        (scaler(load(1400)), service(4, 4), (("overrides", pause(workloads=("api",))),), "Paused"),
        (scaler(load(1400)), service(4, 4, generation=2), (), "NotSeen"),
        (scaler(load(1400)), service(4, 4, job=JobRule()), (), "NotScaled"),
        (scaler(load(1400), "z"), service(4, 4), (("autoscalers", scaler({}, "a")),), "Contested"),
        (scaler(load(1400), workload="other"), service(4, 4), (), "NoWorkload"),
        (scaler(load(1400)), service(8, 4), (), "Following"),  # four are on their way
        (scaler(load(1400)), service(20, 20), (), "Following"),  # no more than its maximum
    ],
)
def test_nothing_is_ordered_and_the_reason_is_said(found: Autoscaler, work: Workload, more: Any, reason: str) -> None:
    name = found.metadata.name
    ordered, said = decided(("autoscalers", found), ("workloads", work), *more, key=name)
    assert ordered is None
    assert said.conditions[0].reason == reason


def test_a_pause_ends_by_itself_and_one_for_others_pauses_nobody_else() -> None:
    objects = (("autoscalers", scaler(load(1400, NOW + 60_000))), ("workloads", service(4, 4)))
    assert decided(*objects, ("overrides", pause(workloads=("api",))), now_ms=NOW + 60_000)[0] == 8
    assert decided(*objects, ("overrides", pause(workloads=("web",))))[0] == 8


@pytest.mark.parametrize(
    ("scope", "paused"),
    [
        ({"regions": ("eu",)}, True),
        ({"regions": ("eu", "us"), "tenants": ("*",)}, True),
        ({"regions": ("eu",), "workloads": ("api",)}, True),
        ({"regions": ("us",)}, False),
        ({"regions": ("eu",), "tenants": ("billing",)}, False),
        ({"regions": ("eu",), "workloads": ("web",)}, False),
    ],
)
def test_a_pause_that_names_regions_is_about_work_that_has_slots_there(scope: dict[str, Any], paused: bool) -> None:
    work = service(4, 4)
    work = replace(work, status=replace(work.status, regions=(RegionCounts(region="eu"), RegionCounts(region="apac"))))
    objects = (("autoscalers", scaler(load(1400))), ("workloads", work))
    assert decided(*objects, ("overrides", pause(**scope)))[0] == (None if paused else 8)


def test_what_a_region_paused_on_its_own_pauses_no_service_elsewhere() -> None:
    work = service(4, 4)
    work = replace(work, status=replace(work.status, regions=(RegionCounts(region="eu"),)))
    record = record_of(pause(workloads=("api",)), None, "eu", NOW)
    assert decided(("autoscalers", scaler(load(1400))), ("workloads", work), ("overrides", record))[0] == 8


def test_who_managed_the_replicas_before_does_not_any_more_and_keeps_the_rest() -> None:
    before = (
        ManagedFields(manager="kubectl", fields_v1=FieldsV1('{"f:spec":{"f:gang":{},"f:replicas":{}}}')),
        ManagedFields(manager="ci", fields_v1=FieldsV1('{"f:spec":{"f:replicas":{},"f:suspend":{}}}')),
        ManagedFields(manager=MANAGER, fields_v1=FieldsV1("{}")),
    )
    after = [(entry.manager, entry.fields_v1.text) for entry in taken_over(before, MANAGER, "v1")]
    assert after == [
        ("kubectl", '{"f:spec":{"f:gang":{}}}'),
        ("ci", '{"f:spec":{"f:suspend":{}}}'),
        (MANAGER, '{"f:spec":{"f:replicas":{}}}'),
    ]


def test_a_load_beyond_reason_is_a_wrong_unit() -> None:
    assert reported(Metadata(name="s", annotations=load(850)), NOW) == (850, "", 0.0)
    assert reported(Metadata(name="s", annotations=load(850, NOW - 9_000)), NOW).age_s == 9
    assert reported(Metadata(name="s", annotations=load(900_000)), NOW)[0] is None
    assert reported(Metadata(name="s", annotations={LOAD: "85%"}), NOW)[1].startswith("'85%' is not a load")
    assert reported(Metadata(name="s"), NOW)[1].startswith("nobody reports a load")


@pytest.mark.parametrize(
    ("time", "why"),
    [
        ("2030-01-01T12:00:00Z", "ahead: the clock of whoever reports it is wrong"),
        ("9999-12-31T23:59:59Z", "ahead"),
        ("2023-11-14T22:13:20", "has no time zone"),
        ("0001-01-01T00:00:00", "has no time zone"),
        ("0001-01-01T00:00:00+14:00", "s ago"),
        ("2023-11-14T22:14:21Z", "61 s ahead"),
    ],
)
def test_a_time_that_is_ahead_or_has_no_zone_is_not_believed(time: str, why: str) -> None:
    busy, said, _ = reported(Metadata(name="s", annotations={LOAD: f"850@{time}"}), NOW)
    assert busy is None
    assert why in said


def test_clocks_may_differ_by_a_minute_and_zones_are_understood() -> None:
    assert reported(Metadata(name="s", annotations=load(850, NOW + 60_000)), NOW) == (850, "", -60.0)
    assert reported(Metadata(name="s", annotations={LOAD: "850@2023-11-15T00:13:20+02:00"}), NOW) == (850, "", 0.0)


def ordered_at_most(naive: bool) -> int:
    """A service that needs six replicas at its target; half of it falls, and a new one takes ninety seconds to serve. The load of
    those left doubles: the naive one orders by it at every look."""
    needed, starts_s = 6, 90
    serving, ordered, coming, most = 3, 6, list[tuple[int, int]](), 6
    coming.append((starts_s, 3))
    found = scaler({}, max_replicas=100)
    for second in range(0, 600, 5):
        serving += sum(count for due, count in coming if due <= second)
        coming = [(due, count) for due, count in coming if due > second]
        busy = needed * 700 // max(1, serving)
        now_ms = NOW + second * 1000
        if naive:
            wanted: int | None = -(-ordered * busy // 700)
        else:
            found = replace(found, metadata=replace(found.metadata, annotations=load(busy, now_ms)))
            wanted, said = decided(("autoscalers", found), ("workloads", service(ordered, min(serving, ordered))), now_ms=now_ms)
            found = replace(found, status=said) if said is not None else found
        if wanted is not None and wanted > ordered:
            coming.append((second + starts_s, min(wanted, 100) - ordered))
        ordered = min(wanted, 100) if wanted is not None else ordered
        most = max(most, ordered)
    return most


def test_in_an_outage_a_naive_one_orders_twice_as_many_and_this_one_no_more_than_needed_and_its_surge() -> None:
    assert ordered_at_most(naive=True) >= 2 * 6
    assert ordered_at_most(naive=False) <= 6 + 1
