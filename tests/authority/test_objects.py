"""Plain objects by Kubernetes' rules: generation, revision, uid, finalizers, owners, and who may write what."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.authority.judge import Settings, objects
from fairlead.authority.replay import Replay
from fairlead.decide.generations import PER_INCARNATION
from fairlead.model.commands import Caller, Command, Delete, Put, PutStatus
from fairlead.model.kinds.capacity import Node, NodeSpec, NodeStatus
from fairlead.model.kinds.intent import (
    ResourceSpec,
    Template,
    Tenant,
    TenantSpec,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from fairlead.model.kinds.policy import SchedulerPolicy, SchedulerPolicySpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata, OwnerReference
from fairlead.model.resources import Resources
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, PlaneForTest, agent_of, bind_of, no, ok, running_plane

USER = Caller("uma", Role.USER, tenant="risk")


def workload(name: str = "api", replicas: int = 1, **metadata: object) -> Workload:
    spec = WorkloadSpec(
        replicas=replicas, template=Template(command=("serve",)), resources=ResourceSpec(requests=Resources(100, 1 << 20))
    )
    return Workload(metadata=Metadata(name=name, namespace="risk", **metadata), spec=spec)  # type: ignore[arg-type]


def current(plane: PlaneForTest, name: str = "api") -> Workload:
    rec = plane.authority.view().get("workloads", "risk", name)
    assert rec is not None
    found: Workload = rec.hot
    return found


async def test_generation_grows_with_the_spec_only_and_a_write_that_changes_nothing_makes_no_revision() -> None:
    async with running_plane() as plane:
        first = ok(await plane.send(USER, Put("Workload", workload())))
        assert current(plane).metadata.generation == 1
        same = ok(await plane.send(USER, Put("Workload", current(plane))))
        assert same.revision == first.revision
        labelled = msgspec.structs.replace(
            current(plane), metadata=msgspec.structs.replace(current(plane).metadata, labels={"tier": "x"})
        )
        second = ok(await plane.send(USER, Put("Workload", labelled)))
        assert second.revision > first.revision
        assert current(plane).metadata.generation == 1
        ok(await plane.send(USER, Put("Workload", msgspec.structs.replace(labelled, spec=workload(replicas=3).spec))))
        assert current(plane).metadata.generation == 2
        assert current(plane).metadata.uid == first.uid


async def test_a_workload_that_lost_its_last_change_does_not_give_that_ones_generation_to_another() -> None:
    """A region compares generations to tell what its slots run: it would not notice (L4)."""
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        for replicas in (1, 2):
            ok(await plane.send(USER, Put("Workload", workload(replicas=replicas))))
        ok(await plane.send(OPERATOR, Put("Tenant", Tenant(metadata=Metadata(name="risk")))))
        kept = disk.head.position
        ok(await plane.send(USER, Put("Workload", workload(replicas=3))))
        lost = current(plane).metadata
    disk.lose_tail(disk.head.position - kept)
    fence = disk.head.fence()
    disk.set_incarnation(fence, fence.incarnation + 1)
    async with running_plane(MemoryStore(disk)) as plane:
        assert current(plane).metadata.generation == 2
        labelled = msgspec.structs.replace(current(plane).metadata, labels={"tier": "x"})
        ok(await plane.send(USER, Put("Workload", msgspec.structs.replace(current(plane), metadata=labelled))))
        assert current(plane).metadata.generation == 2, "nothing else is wanted than was"
        for count in (4, 5):
            ok(await plane.send(USER, Put("Workload", workload(replicas=count))))
        now = current(plane).metadata
        assert (now.uid, now.generation) == (lost.uid, PER_INCARNATION + 1)
        risk = Tenant(metadata=Metadata(name="risk"), spec=TenantSpec(display_name="Risk"))
        ok(await plane.send(OPERATOR, Put("Tenant", risk)))
        found = plane.authority.view().get("tenants", "", "risk")
        assert found is not None
        assert found.hot.metadata.generation == 2, "of other kinds it names nothing"


async def test_a_stale_revision_or_another_uid_is_a_conflict_with_the_facts() -> None:
    async with running_plane() as plane:
        first = ok(await plane.send(USER, Put("Workload", workload())))
        second = ok(await plane.send(USER, Put("Workload", workload(replicas=2))))
        refused = no(await plane.send(USER, Put("Workload", workload(replicas=3), expected_revision=first.revision)), "Conflict")
        assert refused.facts["revision"] == second.revision
        no(await plane.send(USER, Put("Workload", workload(uid="other"))), "Conflict")
        no(await plane.send(USER, Put("Workload", workload(), mode="create")), "AlreadyExists")
        no(await plane.send(USER, Put("Workload", workload("none"), mode="update")), "NotFound")
        no(await plane.send(USER, Delete("Workload", "risk", "api", expected_revision=first.revision)), "Conflict")


async def test_status_belongs_to_its_owner_and_observed_generation_never_goes_back() -> None:
    async with running_plane() as plane:
        ok(await plane.send(USER, Put("Workload", workload())))
        ok(await plane.send(USER, Put("Workload", workload(replicas=2))))
        status = PutStatus("Workload", "risk", "api", WorkloadStatus(observed_generation=2))
        no(await plane.send(USER, status), "NotOwner")
        controller = await plane.as_role(Role.WORKLOAD)
        ok(await plane.send(controller, status))
        back = PutStatus("Workload", "risk", "api", WorkloadStatus(observed_generation=1))
        assert no(await plane.send(controller, back), "Invalid").faults[0].path == "status.observedGeneration"
        ahead = PutStatus("Workload", "risk", "api", WorkloadStatus(observed_generation=3))
        no(await plane.send(controller, ahead), "Invalid")
        ok(await plane.send(USER, Put("Workload", workload(replicas=5))))
        assert current(plane).status.observed_generation == 2, "a put keeps the status"


async def test_every_fault_of_an_object_is_reported_with_its_path() -> None:
    async with running_plane() as plane:
        bad = Workload(
            metadata=Metadata(name="API", namespace="risk", labels={"-bad": "x"}),
            spec=WorkloadSpec(replicas=-1, template=Template(command=())),
        )
        paths = {fault.path for fault in no(await plane.send(USER, Put("Workload", bad)), "Invalid").faults}
        assert {"metadata.name", "spec.replicas", "spec.template.command"} <= paths
        assert any(path.startswith("metadata.labels") for path in paths)


async def test_finalizers_hold_a_deleted_object_until_the_last_is_removed_and_none_can_be_added() -> None:
    async with running_plane() as plane:
        ok(await plane.send(USER, Put("Workload", workload())))
        assert current(plane).metadata.finalizers == ("fairlead.dev/slots-released",)
        ok(await plane.send(USER, Delete("Workload", "risk", "api")))
        going = current(plane)
        assert going.metadata.deletion_time is not None
        ok(await plane.send(USER, Delete("Workload", "risk", "api")))
        more = msgspec.structs.replace(
            going, metadata=msgspec.structs.replace(going.metadata, finalizers=(*going.metadata.finalizers, "orphan"))
        )
        no(await plane.send(USER, Put("Workload", more)), "Invalid")
        done = msgspec.structs.replace(going, metadata=msgspec.structs.replace(going.metadata, finalizers=()))
        ok(await plane.send(USER, Put("Workload", done)))
        assert current(plane).metadata.finalizers, "a finalizer goes by its owner's hand"
        controller = await plane.as_role(Role.WORKLOAD)
        changed = msgspec.structs.replace(done, spec=workload(replicas=9).spec)
        no(await plane.send(controller, Put("Workload", changed)), "NotOwner")
        ok(await plane.send(controller, Put("Workload", done)))
        assert plane.authority.view().get("workloads", "risk", "api") is None


def tenant(name: str, *owners: OwnerReference) -> Put:
    return Put("Tenant", Tenant(metadata=Metadata(name=name, owner_references=owners), spec=TenantSpec()))


def owner(name: str, uid: str) -> OwnerReference:
    return OwnerReference(kind="Tenant", name=name, uid=uid)  # type: ignore[arg-type]


async def _gone(plane: PlaneForTest, *names: str) -> None:
    while any(plane.authority.view().get("tenants", "", name) is not None for name in names):
        await plane.clock.sleep(0.01)


async def test_background_deletion_takes_dependents_of_dependents_with_it() -> None:
    async with running_plane() as plane:
        a = ok(await plane.send(OPERATOR, tenant("a")))
        b = ok(await plane.send(OPERATOR, tenant("b", owner("a", a.uid))))
        ok(await plane.send(OPERATOR, tenant("c", owner("b", b.uid))))
        ok(await plane.send(OPERATOR, Delete("Tenant", "", "a")))
        assert plane.authority.view().get("tenants", "", "a") is None
        await _gone(plane, "b", "c")


async def test_foreground_deletion_keeps_the_owner_until_its_dependents_are_gone() -> None:
    async with running_plane() as plane:
        a = ok(await plane.send(OPERATOR, tenant("a")))
        ok(await plane.send(OPERATOR, tenant("b", owner("a", a.uid))))
        ok(await plane.send(OPERATOR, Delete("Tenant", "", "a", propagation="Foreground")))
        rec = plane.authority.view().get("tenants", "", "a")
        assert rec is not None
        assert rec.hot.metadata.finalizers == ("foregroundDeletion",)
        after = plane.authority.view().revision
        await _gone(plane, "a", "b")
        order = [r.name for r in plane.authority.watch("tenants", after).take_nowait() if r.raw is None]
        assert order == ["b", "a"]


async def test_orphaning_deletion_leaves_dependents_without_an_owner() -> None:
    async with running_plane() as plane:
        a = ok(await plane.send(OPERATOR, tenant("a")))
        ok(await plane.send(OPERATOR, tenant("b", owner("a", a.uid))))
        ok(await plane.send(OPERATOR, Delete("Tenant", "", "a", propagation="Orphan")))
        await _gone(plane, "a")
        rec = plane.authority.view().get("tenants", "", "b")
        assert rec is not None
        assert rec.hot.metadata.owner_references == ()


async def test_a_tenants_caller_touches_nothing_of_another_tenant() -> None:
    async with running_plane() as plane:
        other = msgspec.structs.replace(workload(), metadata=Metadata(name="api", namespace="billing"))
        no(await plane.send(USER, Put("Workload", other)), "WrongTenant")
        no(await plane.send(USER, Delete("Workload", "billing", "api")), "WrongTenant")


async def test_kinds_that_live_elsewhere_or_nowhere_are_named_in_the_refusal() -> None:
    async with running_plane() as plane:
        no(await plane.send(OPERATOR, Put("Quota", Tenant(metadata=Metadata(name="q")))), "UnknownKind")
        no(await plane.send(OPERATOR, Delete("Pod", "risk", "x")), "UnknownKind")
        no(await plane.send(OPERATOR, Put("Node", Tenant(metadata=Metadata(name="q")))), "Invalid")


async def test_a_node_with_work_is_not_deleted_and_a_policy_is_not_changed() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "api", 0, assigner))
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        refused = no(await plane.send(OPERATOR, Delete("Node", "", "n1")), "InUse")
        assert refused.facts["first"] == ["bindings/risk/api-0"]
        policy = SchedulerPolicy(metadata=Metadata(name="r1"), spec=SchedulerPolicySpec(revision=1))
        ok(await plane.send(OPERATOR, Put("SchedulerPolicy", policy)))
        changed = msgspec.structs.replace(policy, spec=SchedulerPolicySpec(revision=1, packing="Balance"))
        no(await plane.send(OPERATOR, Put("SchedulerPolicy", changed)), "Immutable")


async def test_an_agent_registers_its_own_node_and_no_cordon_taint_or_other_region() -> None:
    async with running_plane() as plane:
        node = Node(metadata=Metadata(name="n1"), spec=NodeSpec(region="local", allocatable=Resources(1000, 1 << 30)))
        no(await plane.send(agent_of("n2"), Put("Node", node)), "WrongNode")
        moved = msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, region="elsewhere"))
        no(await plane.send(agent_of("n1"), Put("Node", moved)), "WrongNode")
        ok(await plane.send(agent_of("n1"), Put("Node", node)))
        cordoned = msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=True))
        no(await plane.send(agent_of("n1"), Put("Node", cordoned)), "NotOwner")
        no(await plane.send(agent_of("n2"), PutStatus("Node", "", "n1", NodeStatus(session=1))), "WrongNode")


async def test_a_manifest_applied_again_keeps_the_finalizers_others_rely_on() -> None:
    async with running_plane() as plane:
        ok(await plane.send(USER, Put("Workload", workload())))
        ok(await plane.send(USER, Put("Workload", workload(replicas=2))))
        assert current(plane).metadata.finalizers == ("fairlead.dev/slots-released",)


async def test_a_command_that_breaks_a_judge_is_refused_and_the_plane_goes_on() -> None:
    async with running_plane() as plane:
        poison = msgspec.structs.replace(workload(), spec=WorkloadSpec(replicas="x"))  # type: ignore[arg-type]
        no(await plane.send(USER, Put("Workload", poison)), "JudgeFailed")
        ok(await plane.send(USER, Put("Workload", workload())))


async def test_a_dry_run_answers_and_leaves_nothing() -> None:
    async with running_plane() as plane:
        before = plane.authority.view().revision
        ok(await plane.send(USER, Put("Workload", workload(), dry_run=True)))
        no(await plane.send(USER, Put("Workload", workload(replicas=-1), dry_run=True)), "Invalid")
        assert plane.authority.view().revision == before


@pytest.mark.parametrize("size", [300_000, 2_000_000])
async def test_an_object_too_large_to_keep_is_refused(size: int) -> None:
    async with running_plane() as plane:
        huge = workload()
        huge = msgspec.structs.replace(huge, spec=msgspec.structs.replace(huge.spec, template=Template(command=("x" * size,))))
        no(await plane.send(USER, Put("Workload", huge)), "TooLarge")
        ok(await plane.send(USER, Put("Workload", workload())))


async def test_too_many_commands_in_one_call_are_refused_whole() -> None:
    async with running_plane() as plane:
        commands = [Command(USER, Put("Workload", workload(f"w{n}"))) for n in range(2001)]
        outcomes = await plane.authority.submit(commands)
        assert {no(outcome, "TooLarge").reason for outcome in outcomes} == {"TooLarge"}


SPELLED_OUT = b'{"ports":[{"name":"http","protocol":"TCP"}],"probes":{"liveness":{"httpGet":{"path":"/"}}},"stopGraceSeconds":10}'


async def probed(plane: PlaneForTest) -> None:
    """A workload as a manifest has it that says what need not be said, and what a controller says of it."""
    template = msgspec.structs.replace(msgspec.json.decode(SPELLED_OUT, type=Template), command=("serve",))
    spec = msgspec.structs.replace(workload().spec, template=template)
    ok(await plane.send(USER, Put("Workload", msgspec.structs.replace(workload(), spec=spec))))
    controller = await plane.as_role(Role.WORKLOAD)
    ok(await plane.send(controller, PutStatus("Workload", "risk", "api", WorkloadStatus(observed_generation=1, revision="r"))))


def judged_again(disk: MemoryDisk) -> Replay:
    replay = Replay(Settings(plane="global"))
    replay.feed(entry.batch for entry in disk.journal)
    assert replay.judged > 2
    return replay


async def test_a_replay_gives_the_bytes_that_were_stored_whatever_the_manifest_spelled_out() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk), settings=Settings(plane="global")) as plane:
        await probed(plane)
    replay = judged_again(disk)
    assert replay.differences == []
    assert replay.hashes[0] == replay.hashes[1]


async def test_a_replay_finds_nothing_where_an_older_server_stored_the_same_in_another_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk), settings=Settings(plane="global")) as plane:
        with monkeypatch.context() as older:
            older.setattr(objects, "settled", lambda record: record)
            await probed(plane)
    replay = judged_again(disk)
    assert replay.differences == []
    assert replay.hashes[0] == replay.hashes[1]


async def test_people_make_no_workload_in_a_tenant_that_is_not_there() -> None:
    elsewhere = msgspec.structs.replace(workload(), metadata=Metadata(name="api", namespace="serach"))
    uma = Caller("uma", Role.USER, tenant="serach")
    async with running_plane(settings=Settings(plane="global")) as plane:
        for caller in (uma, OPERATOR, Caller("root", Role.BREAK_GLASS)):
            refused = no(await plane.send(caller, Put("Workload", elsewhere)), "NotFound")
            assert refused.facts["missing"] == "tenants//serach"
            assert "create Tenant serach" in refused.detail
        ok(await plane.send(OPERATOR, Put("Tenant", Tenant(metadata=Metadata(name="serach")))))
        ok(await plane.send(uma, Put("Workload", elsewhere)))
    async with running_plane() as region:
        ok(await region.send(OPERATOR, Put("Workload", elsewhere)))
