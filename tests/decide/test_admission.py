"""Admission tells every fault of an object at once, each where it is and with what would be right."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.decide.admission import OBJECT_BYTES_MAX, RULES, execution_of, faults, slots_of
from fairlead.decide.sharing import emergency_of
from fairlead.model.ids import Uid
from fairlead.model.kinds import capacity, policy, work
from fairlead.model.kinds.capacity import BudgetShape, Grant, GrantSpec, Node, NodeSpec, Taint
from fairlead.model.kinds.intent import JobRule, QuotaSpec, WorkloadSpec
from fairlead.model.kinds.policy import Canary, Override, PriorityClass, ScoreWeight, WorkloadClass
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.meta import OwnerReference, Record
from fairlead.model.registry import BY_KIND, KINDS
from fairlead.model.report import FAULTS_MAX
from fairlead.model.resources import NOTHING, Device, Resources
from tests.model.examples import SMALL, filled, valid, workload


def told(new: Record, old: Record | None = None) -> dict[str, str]:
    return {fault.path: fault.message for fault in faults(BY_KIND[type(new).__name__], new, old)}


def example(kind: str, **spec: Any) -> Any:
    """The valid example of a kind with parts of its spec changed."""
    record: Any = valid()[kind]
    return replace(record, spec=replace(record.spec, **spec))


def _override(kind: Any, scope: policy.OverrideScope | None = None, **parameters: str) -> Any:
    record: Any = valid()["Override"]
    return replace(record, spec=replace(record.spec, kind=kind, scope=scope or record.spec.scope, parameters=parameters))


def _quota(tenants: tuple[str, ...] = ("risk",), **parameters: str) -> Any:
    return _override("emergency-quota", policy.OverrideScope(tenants=tenants), **parameters)


def with_meta(record: Any, **meta: Any) -> Any:
    return replace(record, metadata=replace(record.metadata, **meta))


def test_every_kind_has_its_rules_or_says_that_it_needs_none() -> None:
    assert set(RULES) == {info.kind for info in KINDS.values()}


def test_a_pool_is_told_of_everything_for_which_its_nodes_would_be_refused_at_once() -> None:
    found = faults(BY_KIND["NodePool"], example("NodePool", provider="local", max_slots=20_000), None)
    assert {fault.path for fault in found} == {"spec.maxSlots", "spec.node"}


@pytest.mark.parametrize("kind", sorted(BY_KIND))
def test_an_object_with_nothing_wrong_is_admitted_new_and_unchanged(kind: str) -> None:
    record = valid()[kind]
    assert told(record) == {}
    assert told(record, record) == {}


@pytest.mark.parametrize("info", KINDS.values(), ids=lambda info: info.kind)
def test_an_object_full_of_nonsense_gives_faults_and_no_exception(info: Any) -> None:
    for seed in (1, 2):
        found = faults(info, filled(info.record, seed), None)
        assert found
        assert all(fault.message for fault in found)


# --- metadata -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "path", "says"),
    [
        (with_meta(workload(), name="Api"), "metadata.name", "must be 1 to 63 of a-z"),
        (with_meta(workload(), name="a.b"), "metadata.name", "must be 1 to 63 of a-z"),
        (with_meta(workload(), name="a" * 64), "metadata.name", "must be 1 to 63 of a-z"),
        (with_meta(workload(), name=""), "metadata.name", "got ''"),
        (with_meta(workload(), name="a\n"), "metadata.name", r"got 'a\n'"),
        (with_meta(workload(), name="-a"), "metadata.name", "a letter or digit at both ends"),
        (with_meta(valid()["Node"], name="a..b"), "metadata.name", "must be 1 to 253 of a-z"),
        (with_meta(valid()["Node"], name="a" * 254), "metadata.name", "must be 1 to 253 of a-z"),
        (with_meta(workload(), namespace=""), "metadata.namespace", "is required: a Workload belongs to a tenant"),
        (with_meta(workload(), namespace="a/b"), "metadata.namespace", "got 'a/b'"),
        (with_meta(valid()["Node"], namespace="risk"), "metadata.namespace", "must be left out: a Node belongs to no tenant"),
        (with_meta(workload(), labels={"a b": "x"}), "metadata.labels", "the name in 'a b' must be 1 to 63"),
        (with_meta(workload(), labels={"A_/b": "x"}), "metadata.labels", "the prefix of 'A_/b'"),
        (with_meta(workload(), labels={"": "x"}), "metadata.labels", "the name in ''"),
        (with_meta(workload(), labels={"a": "x" * 64}), "metadata.labels[a]", "must be empty or 1 to 63"),
        (with_meta(workload(), labels={"a": "-"}), "metadata.labels[a]", "must be empty or 1 to 63"),
        (with_meta(workload(), annotations={"a//b": ""}), "metadata.annotations", "the prefix of 'a//b'"),
        (with_meta(workload(), annotations={"a": "x" * 262144}), "metadata.annotations", "may have 262144 bytes, have 262145"),
        (with_meta(workload(), finalizers=("my/own",)), "metadata.finalizers[0]", "'my/own' is not registered"),
        (with_meta(workload(), finalizers=("orphan", "orphan")), "metadata.finalizers[1]", "repeats metadata.finalizers[0]"),
    ],
)
def test_metadata_that_is_wrong_is_told(record: Record, path: str, says: str) -> None:
    found = told(record)
    assert says in found[path]
    assert set(found) == {path}


def test_labels_and_annotations_as_kubernetes_has_them_are_fine() -> None:
    labels = {"app.kubernetes.io/name": "Risk_API.v2", "x": "", "a" * 63: "b" * 63}
    assert told(with_meta(workload(), labels=labels, annotations={"a/b": "any text, \n whatever"})) == {}


def test_a_machine_name_fits_for_the_longest_workload_name() -> None:
    slot = SlotRef(workload="a" * 63, uid="u", index=9999)
    request = with_meta(example("SchedulingRequest", slot=slot), name=slot.object_name)
    assert told(request) == {}


def test_a_finalizer_already_on_the_object_may_stay_and_none_may_come_while_it_is_deleted() -> None:
    old = with_meta(workload(), finalizers=("from/the-future",), deletion_time=datetime(2026, 1, 1, tzinfo=UTC))
    assert told(with_meta(old, finalizers=("from/the-future",)), old) == {}
    found = told(with_meta(old, finalizers=("from/the-future", "orphan")), old)
    assert found == {"metadata.finalizers[1]": "may not be added: the object is being deleted"}


def test_owners_are_complete_known_and_not_oneself() -> None:
    owners = (
        OwnerReference(kind="", name="", uid=Uid("")),
        OwnerReference(kind="Pod", name="x", uid=Uid("u1"), controller=True),
        OwnerReference(kind="Workload", name="api", uid=Uid("u2"), controller=True),
        OwnerReference(kind="Tenant", name="risk", uid=Uid("self")),
    )
    found = told(with_meta(workload(), uid=Uid("self"), owner_references=owners))
    path = "metadata.ownerReferences"
    assert found[f"{path}[0].kind"] == found[f"{path}[0].name"] == found[f"{path}[0].uid"] == "is required, is empty"
    assert found[f"{path}[1].kind"].startswith("'Pod' is not a kind; use one of AccessBinding, AccessRole")
    assert found[f"{path}[2]"] == found[f"{path}[3]"] == "an object may not own itself"
    assert found[path] == "may name one controller at most"


def test_a_tenants_object_may_not_own_one_that_belongs_to_nobody() -> None:
    owner = OwnerReference(kind="Workload", name="api", uid=Uid("u"))
    found = told(with_meta(valid()["Node"], owner_references=(owner,)))
    assert "a tenant's Workload may not own it" in found["metadata.ownerReferences[0].kind"]


def test_identity_does_not_change() -> None:
    old = with_meta(workload(), uid=Uid("one"))
    assert told(with_meta(old, uid=Uid("")), old) == {}
    assert told(with_meta(old, uid=Uid("two")), old) == {
        "metadata.uid": "'two' is not this object, which is 'one'; read it again"
    }
    assert told(with_meta(old, name="other"), old) == {"metadata.name": "may not change; it is 'api'"}


def test_an_object_that_is_too_large_is_told_where_its_size_is_known() -> None:
    info = BY_KIND["Workload"]
    assert faults(info, workload(), None, encoded_bytes=OBJECT_BYTES_MAX) == ()
    (fault,) = faults(info, workload(), None, encoded_bytes=OBJECT_BYTES_MAX + 1)
    assert fault.message == "the object may have 262144 bytes, has 262145"


def test_a_flood_of_faults_is_cut_with_the_number_left_out() -> None:
    found = faults(BY_KIND["Workload"], with_meta(workload(), labels={f"!{n}": "" for n in range(500)}), None)
    assert len(found) == FAULTS_MAX + 1
    assert found[-1].message == "400 more faults are not listed; mend these first"


def test_a_fault_never_repeats_a_strangers_text_at_length() -> None:
    found = faults(BY_KIND["Workload"], with_meta(workload(), name="A" * 100_000, labels={"!" * 100_000: "?" * 100_000}), None)
    assert all(len(fault.path) < 200 and len(fault.message) < 400 for fault in found)


# --- the other kinds; Workload has a file of its own ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "path", "says"),
    [
        (example("Tenant", weight=0), "spec.weight", "must be 1 to 1000, got 0"),
        (example("Tenant", max_pending=-1), "spec.maxPending", "must be 0 to"),
        (example("Quota", limits=Resources(cpu=-1)), "spec.limits.cpu", "must be 0 or more, is negative"),
        (example("Quota", limits=Resources(memory=1 << 54)), "spec.limits.memory", "is too large"),
        (example("Quota", limits=Resources(scalars=[("a b", 1)])), "spec.limits.a b", "the name in 'a b'"),
        (example("Quota", limits=NOTHING, protected={"eu": SMALL}), "spec.protected", "more memory than spec.limits has"),
        (example("Region", zones=("a", "a")), "spec.zones[1]", "repeats spec.zones[0]"),
        (example("Region", areas=("EU",)), "spec.areas[0]", "got 'EU'"),
        (example("Grant", version=0), "spec.version", "must be 1 to"),
        (example("Grant", region=""), "spec.region", "must be 1 to 63"),
        (example("Grant", after=Resources(cpu=501)), "spec.after.cpu", "at most what `during` has of it, 500 units, got 501"),
        (example("Grant", after=Resources(scalars=[("gpu", 1)])), "spec.after.gpu", "0 units, got 1"),
        (
            example("RecoveryBudget", shapes=(BudgetShape(requests=NOTHING),)),
            "spec.shapes[0].requests",
            "must ask for cpu or memory",
        ),
        (example("RecoveryBudget", shapes=(BudgetShape(requests=SMALL, count=0),)), "spec.shapes[0].count", "must be 1 to 10000"),
        (example("Node", allocatable=NOTHING), "spec.allocatable", "must offer cpu or memory"),
        (example("Node", max_slots=0), "spec.maxSlots", "must be 1 to 10000, got 0"),
        (example("Node", devices=(Device(id="a"), Device(id="a"))), "spec.devices[1].id", "repeats spec.devices[0]"),
        (example("Node", devices=(Device(id=""),)), "spec.devices[0].id", "is required"),
        (example("Node", taints=(Taint(key=""),)), "spec.taints[0].key", "the name in ''"),
        (example("Node", taints=(Taint(key="a"), Taint(key="a", value="b"))), "spec.taints[1]", "repeats spec.taints[0]"),
        (example("Node", hourly_cost_millis=-1), "spec.hourlyCostMillis", "must be 0 to"),
        (example("NodePool", min_nodes=4), "spec.minNodes", "may be at most maxNodes, which is 3, got 4"),
        (example("NodePool", allowed_tenants=("a", "a")), "spec.allowedTenants[1]", "repeats spec.allowedTenants[0]"),
        (example("NodePool", max_slots=20_000), "spec.maxSlots", "must be 1 to 10000, got 20000"),
        (example("NodePool", provider="local"), "spec.node", "must have cpu or memory"),
        (example("NodePool", provider="local", node=Resources(scalars=[("gpu", 1)])), "spec.node", "must have cpu or memory"),
        (
            with_meta(example("NodePool", provider="local", node=SMALL), name="p" * 179),
            "metadata.name",
            "may have 178 characters, has 179: its nodes are named after it",
        ),
        (example("EvictionRequest", reason=" "), "spec.reason", "is required: say why"),
        (example("EvictionRequest", slot=SlotRef(workload="api", uid="u", index=0)), "metadata.name", "must be 'api-0', as spec"),
        (example("EvictionRequest", slot=SlotRef(workload="api", uid="", index=3)), "spec.slot.uid", "is required"),
        (example("Endpoints", version=-1), "spec.version", "must be 0 to"),
        (
            example("Endpoints", endpoints=(work.Endpoint(slot=0, node="n", address=""),)),
            "spec.endpoints[0].address",
            "is required",
        ),
        (
            example("Endpoints", endpoints=(work.Endpoint(slot=0, node="n", address="a", ports={"http": 0}),)),
            "spec.endpoints[0].ports.http",
            "must be 1 to 65535, got 0",
        ),
    ],
)
def test_capacity_and_work_that_is_wrong_is_told(record: Record, path: str, says: str) -> None:
    found = told(record)
    assert says in found[path], found
    assert len(found) == 1 or path == "spec.protected", found


@pytest.mark.parametrize(
    ("record", "path", "says"),
    [
        (example("SchedulerPolicy", revision=8), "metadata.name", "must be 'r8', as spec.revision says, got 'r7'"),
        (with_meta(example("SchedulerPolicy", revision=0), name="r0"), "spec.revision", "must be 1 to"),
        (example("SchedulerPolicy", gates=("cpu", "vibes")), "spec.gates[1]", "'vibes' is not a gate; use one of regions"),
        (
            example("SchedulerPolicy", scores=(ScoreWeight(name="packing", weight=1001),)),
            "spec.scores[0].weight",
            "must be 0 to 1000, got 1001",
        ),
        (
            example("SchedulerPolicy", scores=(ScoreWeight(name="cost"), ScoreWeight(name="cost"))),
            "spec.scores[1].name",
            "repeats spec.scores[0]",
        ),
        (
            example("SchedulerPolicy", workload_classes=(WorkloadClass(name="batch", priority_class_name="low"),)),
            "spec.workloadClasses[0].priorityClassName",
            "'low' is not in spec.priorityClasses, which has none",
        ),
        (
            example(
                "SchedulerPolicy",
                priority_classes=(PriorityClass(name="x", value=1 << 40),),
                workload_classes=(WorkloadClass(name="w", priority_class_name="x"),),
            ),
            "spec.priorityClasses[0].value",
            "must be -1000000000 to 1000000000",
        ),
        (example("SchedulerPolicy", max_observation_age_seconds=0.0), "spec.maxObservationAgeSeconds", "must be above 0"),
        (example("SchedulerPolicy", max_observation_age_seconds=float("nan")), "spec.maxObservationAgeSeconds", "got nan"),
        (
            example("SchedulerPolicy", residency=(policy.ResidencyRule(tenants=("a",)),)),
            "spec.residency[0].areas",
            "at least one",
        ),
        (example("SchedulerPolicy", residency=(policy.ResidencyRule(areas=("eu",)),)), "spec.residency[0]", "say whom it binds"),
        (with_meta(valid()["PolicyChannel"], name="other"), "metadata.name", "must be 'default': a plane has one channel"),
        (example("PolicyChannel", current=0), "spec.current", "must be 1 to"),
        (example("PolicyChannel", canary=Canary(revision=7, tenants=("a",))), "spec.canary.revision", "is the current revision"),
        (example("PolicyChannel", canary=Canary(revision=8)), "spec.canary", "needs tenants, sharePercent or regions"),
        (example("PolicyChannel", canary=Canary(revision=8, share_percent=101)), "spec.canary.sharePercent", "must be 0 to 100"),
        (example("PolicyChannel", history=(1, 1)), "spec.history[1]", "repeats spec.history[0]"),
        (example("Override", ttl_seconds=0), "spec.ttlSeconds", "must be 1 to 14400, got 0"),
        (example("Override", ttl_seconds=14_401), "spec.ttlSeconds", "must be 1 to 14400, got 14401"),
        (example("Override", reason=" \n"), "spec.reason", "is required: say why"),
        (example("Override", requester="ann", approver="ann"), "spec.approver", "must be another person than the requester"),
        (example("Override", scope=policy.OverrideScope()), "spec.scope", "needs at least one of tenants"),
        (_override("hold"), "spec.scope.zones", "zones are for zone-avoidance"),
        (example("Override", scope=policy.OverrideScope(regions=("r",))), "spec.scope.zones", "name the zones to be avoided"),
        (_override("recovery", policy.OverrideScope(tenants=("risk",))), "spec.scope", "name them"),
        (_quota(), "spec.parameters", "say how much more"),
        (_quota(cpu="lots"), "spec.parameters[cpu]", "is not a quantity"),
        (_quota(cpu="1P"), "spec.parameters[cpu]", "is too large"),
        (_quota(cpu="100u"), "spec.parameters[cpu]", "is finer than the smallest unit, 1m"),
        (_quota(memory="500m"), "spec.parameters[memory]", "is finer than the smallest unit"),
        (_quota(cpu="2", gpu="0"), "spec.parameters[gpu]", "adds nothing"),
        (_quota(("*",), cpu="1"), "spec.scope.tenants", "for tenants that are named, not for all"),
    ],
)
def test_a_policy_that_is_wrong_is_told(record: Record, path: str, says: str) -> None:
    found = told(record)
    assert says in found[path], found
    assert set(found) == {path}


def test_an_override_needs_no_approver_yet_when_it_is_asked_for() -> None:
    assert told(example("Override", requester="ann")) == {}
    assert told(example("Override", requester="ann", approver="bob")) == {}


@pytest.mark.parametrize(
    ("spec", "path", "says"),
    [
        ({"epoch": 0}, "spec.epoch", "must be 1 to"),
        ({"generation": 0}, "spec.generation", "must be 1 to"),
        ({"gang": "g"}, "spec.gangSize", "must be 1 to 10000, got 0"),
        ({"gang_size": 3}, "spec.gangSize", "must be left out without a gang, got 3"),
        ({"exclusive": "global"}, "spec.exclusive", "global needs execution: Exclusive"),
        ({"ask": work.Ask()}, "spec.ask.requests", "must ask for cpu or memory"),
        ({"ask": work.Ask(requests=SMALL, ports=(0,))}, "spec.ask.ports[0]", "must be 1 to 65535, got 0"),
        ({"ask": work.Ask(requests=SMALL, ports=(80, 80))}, "spec.ask.ports[1]", "repeats spec.ask.ports[0]"),
        ({"slot": SlotRef(workload="api", uid="u", index=4)}, "metadata.name", "must be 'api-4', as spec.slot says"),
    ],
)
def test_a_scheduling_request_that_is_wrong_is_told(spec: dict[str, Any], path: str, says: str) -> None:
    found = told(example("SchedulingRequest", **spec))
    assert says in found[path], found
    assert set(found) == {path}


@pytest.mark.parametrize(
    ("spans", "path", "says"),
    [
        ([(0, 3), (3, 4)], "spec.slots[1].first", "must be above 3, where the range before ends"),
        ([(5, 6), (0, 1)], "spec.slots[1].first", "must be above 6"),
        ([(0, 9), (2, 3), (5, 6)], "spec.slots[2].first", "must be above 9"),
        ([(4, 3)], "spec.slots[0].last", "must be first or more, which is 4, got 3"),
        ([(-1, 3)], "spec.slots[0].first", "must be 0 to"),
    ],
)
def test_ranges_of_an_assignment_are_ordered_and_disjoint(spans: list[tuple[int, int]], path: str, says: str) -> None:
    slots = tuple(work.SlotRange(first=first, last=last) for first, last in spans)
    assert says in told(example("Assignment", slots=slots))[path]


# --- changes ----------------------------------------------------------------------------------------------------------------


def test_an_immutable_kind_never_changes_its_spec() -> None:
    old = valid()["SchedulerPolicy"]
    assert told(example("SchedulerPolicy", packing="Balance"), old) == {
        "spec": "a SchedulerPolicy never changes; create a new one instead"
    }


@pytest.mark.parametrize(
    ("new", "path", "says"),
    [
        (example("Node", region="us"), "spec.region", "may not change; it is 'eu-west'"),
        (example("Grant", region="us", version=2), "spec.region", "may not change; it is 'eu-west'"),
        (example("Grant", during=SMALL.times(2)), "spec.version", "must grow with every change, above 1, got 1"),
        (example("Grant", version=0), "spec.version", "must grow with every change"),
        (example("Assignment", workload_uid="other"), "spec.workloadUid", "may not change; it is 'uid-api'"),
        (example("Assignment", region="us"), "spec.region", "may not change"),
        (
            example("SchedulingRequest", slot=SlotRef(workload="api", uid="new", index=3)),
            "spec.slot",
            "may not change; it is api-3",
        ),
    ],
)
def test_what_may_not_change_is_told_with_what_it_is(new: Record, path: str, says: str) -> None:
    assert says in told(new, valid()[type(new).__name__])[path]


def test_a_grant_may_change_with_a_higher_version() -> None:
    old: Grant = example("Grant")
    spec = GrantSpec(region="eu-west", version=2, during=SMALL.times(3), after=SMALL)
    assert told(replace(old, spec=spec), old) == {}


def test_epochs_and_versions_never_go_back() -> None:
    old = example("SchedulingRequest", epoch=3, generation=5)
    assert told(example("SchedulingRequest", epoch=4, generation=5), old) == {}
    assert told(example("SchedulingRequest", epoch=2, generation=4), old) == {
        "spec.epoch": "may not go back: it is 3, got 2",
        "spec.generation": "may not go back: it is 5, got 4",
    }
    assert told(example("Endpoints", version=1), example("Endpoints", version=2)) == {
        "spec.version": "may not go back: it is 2, got 1"
    }


def test_a_node_without_a_region_may_be_given_one_once() -> None:
    bare: Node = replace(example("Node"), spec=NodeSpec(allocatable=SMALL))
    assert told(example("Node"), bare) == {}
    assert set(told(bare, example("Node"))) == {"spec.region"}


def test_an_approval_covers_what_was_read_and_nothing_else() -> None:
    asked: Override = example("Override", requester="ann")
    approved = example("Override", requester="ann", approver="bob")
    assert told(approved, asked) == {}
    wider = example("Override", requester="ann", approver="bob", ttl_seconds=14_400)
    assert told(wider, approved) == {"spec": "may not change after 'bob' approved it; ask for another override"}
    assert told(example("Override", requester="eve"), asked) == {"spec.requester": "may not change; it is 'ann'"}


def test_an_absent_execution_means_exclusive_for_jobs_and_replicated_for_services() -> None:
    assert execution_of(WorkloadSpec()) == "Replicated"
    assert execution_of(WorkloadSpec(job=JobRule())) == "Exclusive"
    assert execution_of(WorkloadSpec(job=JobRule(), execution="Replicated")) == "Replicated"
    assert slots_of(WorkloadSpec(replicas=4)) == 4
    assert slots_of(WorkloadSpec(job=JobRule(parallelism=7))) == 7


def test_a_quota_that_protects_exactly_what_it_has_is_fine() -> None:
    quota = example("Quota")
    spec = QuotaSpec(limits=SMALL.times(2), protected={"eu-west": SMALL, "us-east": SMALL})
    assert told(replace(quota, spec=spec)) == {}


def test_a_device_is_counted_in_one_place_only() -> None:
    both = capacity.NodeSpec(allocatable=Resources(1, 1, [("gpu", 1)]), devices=(Device(id="g0"),))
    assert "may be counted in one place only" in told(replace(example("Node"), spec=both))["spec.devices[0].resource"]


def test_an_eviction_of_a_slot_made_again_under_its_name_takes_the_place_of_the_earlier_one() -> None:
    """A rollout would otherwise file it in vain until the earlier one is cleaned away."""
    info, slot = BY_KIND["EvictionRequest"], SlotRef(workload="api", uid="u-1", index=3)
    old = example("EvictionRequest", slot=slot)
    assert faults(info, example("EvictionRequest", slot=replace(slot, uid="u-2")), old) == ()
    (fault,) = faults(info, example("EvictionRequest", slot=replace(slot, index=4)), old)
    assert (fault.path, fault.message) == ("spec.slot", "may not change; file another request")


@pytest.mark.parametrize(("text", "thousandths"), [("500m", 500), ("1.5", 1500), ("2", 2000)])
def test_what_an_emergency_quota_is_admitted_with_is_what_it_adds(text: str, thousandths: int) -> None:
    asked = _quota(cpu=text, memory="4Gi")
    assert told(asked) == {}
    assert emergency_of(asked) == Resources(thousandths, 4 << 30)


def test_an_emergency_quota_that_stands_can_end_whatever_it_says() -> None:
    stands = with_meta(_quota(cpu="1P"), finalizers=("fairlead.dev/override",))
    assert told(with_meta(stands, finalizers=()), stands) == {}
    assert "spec.parameters[cpu]" in told(replace(stands, spec=replace(stands.spec, approver="eve")), stands)
