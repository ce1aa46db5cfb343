"""What the global plane's journal says of regions adds up to the same, in whatever order and however often a controller hears it;
and the report after a cut. Reports that arrive late at the plane itself are in tests/autonomy/test_late_reports.py."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.controllers.contract import View
from fairlead.controllers.mirror import MirrorUp
from fairlead.controllers.quota import QuotaController
from fairlead.decide.merging import Local, held_against, merged, words
from fairlead.decide.slots import instant
from fairlead.model.commands import Put, PutStatus
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.kinds.intent import Quota, QuotaSpec, Region
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.kinds.quota import (
    EndedApart,
    GrantOffer,
    GrantTerm,
    GrantTermSpec,
    GrantTermStatus,
    MergeProof,
    MergeReport,
)
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import Binding, BindingSpec, BindingStatus
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.decide.granting_model import Changed

REGIONS = ("east", "north", "west")
LIMIT = Resources(1000)


def said(region: str, position: int, used: int) -> Changed:
    """A region's word, as the global plane's journal has it at that position."""
    spec = GrantSpec(region, 1, Resources(300), Resources(300), lease_seconds=600)
    status = GrantStatus(accepted_version=1, during=spec.during, after=spec.after, incarnation=1, used=Resources(used))
    grant = Grant(Metadata(name=region, namespace="risk", uid=region), spec, status)  # type: ignore[arg-type]
    return Changed("grants", "risk", region, position, b"", grant)


def folded(words_: list[Changed]) -> Any:
    controller = QuotaController()
    view = View(controller.indexes, {})
    for number, region in enumerate(REGIONS):
        view.cache.apply(Changed("regions", "", region, number + 1, b"", Region(Metadata(name=region))))
    quota = Quota(Metadata(name="default", namespace="risk"), QuotaSpec(limits=LIMIT))
    view.cache.apply(Changed("quotas", "risk", "default", 9, b"", quota))
    for word in words_:
        view.cache.apply(word)
    bodies = controller.reconcile(("risk", ""), view, 1000).bodies
    return next(body.status for body in bodies if isinstance(body, PutStatus))


WORDS = st.lists(st.tuples(st.sampled_from(REGIONS), st.integers(0, 300)), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(WORDS, st.data())
def test_usage_adds_up_to_the_same_in_any_order_and_however_often_a_controller_hears_of_it(
    spoken: list[tuple[str, int]], data: Any
) -> None:
    told = [said(region, 100 + at, used) for at, (region, used) in enumerate(spoken)]
    again = data.draw(st.lists(st.sampled_from(told), max_size=6))
    shuffled = data.draw(st.permutations([*told, *again]))
    assert folded(shuffled) == folded(told)
    newest = dict(spoken)
    assert folded(told).used.cpu == sum(newest.values())


ORDERED = [
    Override(
        Metadata(name=f"{region}-{number}", namespace="risk", uid=f"{region}-{number}", creation_time=instant(1000 * number)),  # type: ignore[arg-type]
        OverrideSpec(kind="hold", reason="x", ttl_seconds=60 + number, requester="ada", scope=OverrideScope(workloads=("api",))),
    )
    for region in REGIONS
    for number in range(2)
]


def recorded(told: list[Override]) -> dict[str, Any]:
    """The global plane's records after regions' mirrors have told of these, one after the other."""
    records: dict[str, Any] = {}
    for position, original in enumerate(told, 1):
        region = original.metadata.name.partition("-")[0]
        mirror = MirrorUp(region)
        view = View(mirror.indexes, mirror.indexes_other)
        view.other_ms = 5000
        view.other.apply(Changed("overrides", "risk", original.metadata.name, position, b"", original))
        for record in records.values():
            view.cache.apply(Changed("overrides", "risk", record.metadata.name, position, b"", record))
        for body in mirror.reconcile(("overrides/risk", original.metadata.name), view, 0).bodies:
            assert isinstance(body, Put)
            records[body.object.metadata.name] = body.object
    return records


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_was_ordered_in_regions_merges_to_the_same_in_any_order_and_however_often_it_is_told(data: Any) -> None:
    again = data.draw(st.lists(st.sampled_from(ORDERED), max_size=8))
    shuffled = data.draw(st.permutations([*ORDERED, *again]))
    assert recorded(shuffled) == recorded(ORDERED)
    assert sorted(recorded(shuffled)) == sorted(each.metadata.name for each in ORDERED)


def bound(name: str, at_ms: int, state: SlotState = SlotState.SERVING, until: datetime | None = None) -> Binding:
    slot, token = SlotRef(workload="api", uid="u", index=0), Token(incarnation=1, epoch=1, attempt=1)
    spec = BindingSpec(slot=slot, node="n", token=token, provisional_until_time=until)
    meta = Metadata(name=name, namespace="risk", creation_time=instant(at_ms))
    return Binding(meta, spec, BindingStatus(state=state))


def test_a_report_counts_what_was_decided_apart_and_names_who_is_above_its_offer() -> None:
    until = datetime(2026, 1, 1, tzinfo=UTC)
    bindings = [
        bound("before", 1_000), bound("stays", 6_000), bound("leaves", 7_000, SlotState.DRAINING, until),
        bound("after", 20_000),
    ]  # fmt: skip
    term = GrantTerm(Metadata(name="east"), GrantTermSpec("east"), GrantTermStatus(incarnation=1, end_time=instant(100_000)))
    grant = said("east", 1, 200).hot
    report = merged(5_000, 10_000, bindings, [grant], term, 1)
    assert (report.placed, report.provisional, report.confirmed, report.released) == (2, 1, 1, 1)
    assert report.tenants == {"risk": 2}
    assert report.over == ()
    assert "no tenant is above its offer" in words(report)
    greedy = replace(grant, status=replace(grant.status, used=Resources(301)))
    assert merged(5_000, 10_000, bindings, [greedy], term, 1).over == ("risk",)
    assert merged(5_000, 10_000, bindings, [greedy], term, 2).over == (), "it has lost what it stood on, and keeps what runs"


def test_a_report_proves_each_tenant_s_use_and_tells_what_was_ordered_here() -> None:
    term = GrantTerm(Metadata(name="east"), GrantTermSpec("east"), GrantTermStatus(incarnation=1, end_time=instant(100_000)))
    grant, idle = said("east", 1, 200).hot, said("east", 1, 0).hot
    idle = replace(idle, metadata=replace(idle.metadata, namespace="idle"))
    copy = replace(
        ORDERED[0], metadata=replace(ORDERED[0].metadata, name="copy", annotations={"fairlead.dev/mirrored-age-ms": "0"})
    )
    early = replace(ORDERED[0], metadata=replace(ORDERED[0].metadata, name="early", creation_time=instant(-90_000)))
    other = replace(ORDERED[1], spec=replace(ORDERED[1].spec, scope=OverrideScope(workloads=("web",))))
    local = Local((ORDERED[0], copy, early, other))
    report = merged(5_000, 10_000, [bound("api-0", 6_000), bound("api-1", 1_000)], [idle, grant], term, 1, local)
    assert [(each.tenant, each.version, each.used.cpu, each.offered.cpu) for each in report.proof] == [("risk", 1, 200, 300)]
    assert [(each.name, each.slots, each.requester) for each in report.overrides] == [("east-0", 2, "ada"), ("east-1", 0, "ada")]
    assert "ordered here: hold risk/east-0 by ada" in words(report)


def settled_grant(after: int, used: int) -> Grant:
    grant: Grant = said("east", 1, used).hot
    return replace(grant, status=replace(grant.status, after=Resources(after)))


def test_what_is_gone_is_counted_and_what_stays_only_while_leases_go_on_is_not_called_confirmed() -> None:
    until, ended = (
        datetime(2026, 1, 1, tzinfo=UTC),
        EndedApart(since_time=instant(5_000), tenants={"risk": 3, "ops": 1}, provisional=2),
    )
    status = GrantTermStatus(incarnation=1, end_time=instant(100_000), ended=ended)
    term = GrantTerm(Metadata(name="east"), GrantTermSpec("east"), status)
    there = [bound("firm", 6_000), bound("above", 6_000, until=until), bound("out", 6_000, SlotState.RELEASED, until)]
    for after, confirmed, lasting in ((100, 1, 1), (200, 2, 0)):
        report = merged(5_000, 10_000, there, [settled_grant(after, 200)], term, 1)
        assert (report.placed, report.provisional, report.released) == (7, 4, 5)
        assert (report.confirmed, report.lasting) == (confirmed, lasting), "only what is within what stays is firm"
        assert (report.tenants, report.ended) == ({"risk": 6, "ops": 1}, {"risk": 3, "ops": 1})
    assert "4 of them provisionally, 2 stay, 5 have ended or leave;" in words(report)
    of_another = replace(term, status=replace(status, ended=replace(ended, since_time=instant(4_000))))
    assert merged(5_000, 10_000, there, [], of_another, 1).placed == 3


@pytest.mark.parametrize(
    ("used", "version", "over"),
    [(300, 1, False), (301, 1, False), (500, 1, False), (501, 1, True), (501, 0, False)],
    ids=["its offer", "an older one too", "all of that", "more than is charged", "of an offer that it has left since"],
)
def test_a_report_is_held_against_all_that_the_global_plane_charges_and_not_against_itself(
    used: int, version: int, over: bool
) -> None:
    older = GrantOffer(1, Resources(500), Resources(100), instant(90_000))
    spec = GrantSpec("east", 2, Resources(300), Resources(300), lease_seconds=600, offers=(older,))
    grant = Grant(Metadata(name="east", namespace="risk"), spec, GrantStatus(accepted_version=1))
    proof = MergeProof("risk", version, Resources(used), Resources(9_999))
    report = MergeReport(healed_time=instant(10_000), proof=(proof,))
    checked = held_against(report, {"risk": grant}, 1, 20_000)
    assert [(each.tenant, each.used.cpu, each.offered.cpu) for each in checked.charged] == [("risk", used, 500)]
    assert (checked.healed_time, checked.over) == (instant(10_000), ("risk",) if over else ())


def test_a_tenant_that_nothing_was_granted_to_is_over_with_whatever_it_uses() -> None:
    report = MergeReport(proof=(MergeProof("risk", 1, Resources(1)), MergeProof("ops", 1)))
    assert held_against(report, {}, 1, 0).over == ("risk",)
