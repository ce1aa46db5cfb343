"""Claims at the authority (S19): each refusal with its reason, budgets at commit, and what is freed counted once."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fairlead.authority.judge import Settings, victims
from fairlead.authority.replay import Replay
from fairlead.decide.preempt_rules import VICTIMS_MAX, Evictor
from fairlead.model.commands import Accepted, Bind, BindGang, BindMany, Caller, Outcome, Put, Refused
from fairlead.model.kinds.policy import (
    PolicyChannel,
    PolicyChannelSpec,
    PriorityClass,
    SchedulerPolicy,
    SchedulerPolicySpec,
    WorkloadClass,
)
from fairlead.model.kinds.work import Binding
from fairlead.model.lifecycle import HOLDS_CAPACITY, Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import DeviceAsk, DeviceHold
from fairlead.observe.checkers import JournalChecker
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import (
    OPERATOR,
    PlaneForTest,
    agent_of,
    bind_of,
    gpu,
    move_of,
    no,
    ok,
    report_of,
    running_plane,
)

LOW, MID, HIGH, TOP = 0, 300, 500, 1000  # the built-in priority classes: best-effort, batch, standard, critical-service


class Stage:
    """One plane with a node or two, and slots placed on them by name."""

    def __init__(self, plane: PlaneForTest) -> None:
        self.plane = plane
        self.callers: dict[Role, Caller] = {}
        self.revision = 0

    async def furnish(self, *nodes: str, cpu: int = 2000, **spec: Any) -> None:
        for node in nodes:
            await self.plane.add_node(node, cpu=cpu, **spec)
        for tenant in ("risk", "batch"):
            await self.plane.grant(tenant, gpu=8)
        for role in (Role.ASSIGNMENT, Role.SCHEDULER, Role.DISRUPTION, Role.NODE, Role.REPAIR):
            self.callers[role] = await self.plane.as_role(role)

    async def wait(self, name: str, priority: int, tenant: str = "batch", **spec: Any) -> None:
        workload, _, index = name.rpartition("-")
        ok(await self.plane.request(tenant, workload, int(index), self.callers[Role.ASSIGNMENT], priority=priority, **spec))

    def bind(self, name: str, node: str = "n1", *claimed: str, tenant: str = "batch", **fields: Any) -> Bind:
        full = tuple(victim if "/" in victim else f"batch/{victim}" for victim in claimed)
        return bind_of(tenant, name, node, victims=full, policy_revision=self.revision, **fields)

    async def place(self, name: str, priority: int, node: str = "n1", tenant: str = "batch", **spec: Any) -> None:
        await self.wait(name, priority, tenant, **spec)
        ok(await self.send(self.bind(name, node, tenant=tenant)))

    async def send(self, body: Any) -> Outcome:
        return await self.plane.send(self.callers[Role.SCHEDULER], body)

    async def claim(self, name: str, *claimed: str, node: str = "n1") -> Outcome:
        return await self.send(self.bind(name, node, *claimed))

    def binding(self, name: str, tenant: str = "batch") -> Binding:
        rec = self.plane.authority.view().get("bindings", tenant, name)
        assert rec is not None, name
        binding: Binding = rec.decode()
        return binding

    async def policy(self, revision: int, *classes: PriorityClass) -> None:
        standard = WorkloadClass(name="standard", priority_class_name=classes[0].name)
        spec = SchedulerPolicySpec(revision=revision, priority_classes=classes, workload_classes=(standard,))
        ok(await self.plane.send(OPERATOR, Put("SchedulerPolicy", SchedulerPolicy(Metadata(name=f"r{revision}"), spec))))
        channel = PolicyChannel(Metadata(name="default"), PolicyChannelSpec(current=revision))
        ok(await self.plane.send(OPERATOR, Put("PolicyChannel", channel)))
        self.revision = revision

    async def gone(self, name: str, node: str = "n1") -> None:
        ok(await self.plane.send(agent_of(node), report_of("batch", name, SlotState.RELEASED)))

    def free(self, node: str = "n1") -> tuple[int, int]:
        account = self.plane.authority._ctx.ledger.node(node)
        return account.cpu_free, account.cpu_unlent


def facts(refused: Refused, *wanted: str) -> tuple[Any, ...]:
    return tuple(refused.facts.get(name) for name in wanted)


# --- who may be a victim -------------------------------------------------------------------------------------------------


async def test_a_victim_must_stand_strictly_below() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=1000)
        await stage.place("peer-0", HIGH)
        await stage.wait("same-0", HIGH)
        await stage.wait("less-0", LOW)
        refused = no(await stage.claim("same-0", "peer-0"), "VictimNotAllowed")
        assert "not below" in refused.detail
        assert facts(refused, "victim", "priority", "evictorPriority") == ("batch/peer-0", HIGH, HIGH)
        no(await stage.claim("less-0", "peer-0"), "VictimNotAllowed")


async def test_the_policy_in_force_says_who_preempts_and_who_is_preemptible() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=1000)
        await stage.policy(
            1,
            PriorityClass(name="top", value=3, preempts=True, preempts_only=("low",)),
            PriorityClass(name="idle", value=2),
            PriorityClass(name="safe", value=1, preemptible=False),
            PriorityClass(name="low", value=0),
        )
        await stage.place("safe-0", 1)
        await stage.wait("top-0", 3)
        await stage.wait("idle-0", 2)
        refused = no(await stage.claim("top-0", "safe-0"), "VictimNotAllowed")
        assert "policy revision 1" in refused.detail
        no(await stage.claim("idle-0", "safe-0"), "VictimNotAllowed")
        await stage.policy(2, PriorityClass(name="top", value=3, preempts=True), PriorityClass(name="low", value=0))
        stale = bind_of("batch", "top-0", "n1", victims=("batch/safe-0",), policy_revision=1)
        no(await stage.send(stale), "StalePolicy")
        ok(await stage.claim("top-0", "safe-0"))


async def test_a_victim_on_another_node_an_unknown_one_and_one_named_twice_are_refused() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", "n2", cpu=1000)
        await stage.place("here-0", LOW)
        await stage.place("there-0", LOW, "n2")
        await stage.wait("high-0", HIGH)
        assert facts(no(await stage.claim("high-0", "there-0"), "VictimNotAllowed"), "node") == ("n2",)
        assert "no binding" in no(await stage.claim("high-0", "nobody-0"), "VictimNotAllowed").detail
        assert "twice" in no(await stage.claim("high-0", "here-0", "here-0"), "VictimNotAllowed").detail
        ok(await stage.claim("high-0", "here-0"))


async def test_more_victims_than_one_entry_may_have_are_refused() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1")
        await stage.wait("high-0", HIGH)
        many = [f"low-{n}" for n in range(VICTIMS_MAX + 1)]
        assert facts(no(await stage.claim("high-0", *many), "VictimNotAllowed"), "limit") == (VICTIMS_MAX,)


async def test_nobody_is_evicted_in_vain() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=3000)
        for n in range(3):
            await stage.place(f"low-{n}", LOW)
        await stage.wait("high-0", HIGH)
        refused = no(await stage.claim("high-0", "low-0", "low-1"), "VictimNotAllowed")
        assert facts(refused, "needed") == (False,)
        ok(await stage.claim("high-0", "low-1"))
        assert stage.binding("low-0").status.state is SlotState.BOUND


async def test_a_slot_that_fits_beside_everybody_evicts_nobody() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=2000)
        await stage.place("low-0", LOW)
        await stage.wait("high-0", HIGH)
        no(await stage.claim("high-0", "low-0"), "VictimNotAllowed")
        ok(await stage.claim("high-0"))


async def test_victims_that_do_not_make_enough_room_are_left_alone() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=2000)
        await stage.place("low-0", LOW)
        await stage.place("low-1", LOW)
        await stage.wait("high-0", HIGH, cpu=2000)
        no(await stage.claim("high-0", "low-0"), "NoFit")
        assert stage.binding("low-0").status.state is SlotState.BOUND


@pytest.mark.parametrize("state", [SlotState.UNKNOWN, SlotState.FAILED])
async def test_a_slot_that_is_lost_or_has_failed_is_no_victim(state: SlotState) -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=1000)
        await stage.place("low-0", LOW)
        await stage.wait("high-0", HIGH)
        if state is SlotState.UNKNOWN:
            ok(await plane.send(stage.callers[Role.NODE], move_of("batch", "low-0", state)))
        else:
            ok(await plane.send(agent_of("n1"), report_of("batch", "low-0", state)))
        assert facts(no(await stage.claim("high-0", "low-0"), "VictimNotAllowed"), "state") == (state.value,)


async def test_of_two_preemptors_of_one_victim_the_second_is_refused() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=1000)
        await stage.place("low-0", LOW)
        await stage.wait("a-0", HIGH)
        await stage.wait("b-0", TOP)
        both = await stage.send(BindMany((stage.bind("a-0", "n1", "low-0"), stage.bind("b-0", "n1", "low-0"))))
        [(index, refused)] = ok(both).refused
        assert (index, refused.reason, refused.facts["state"]) == (1, "VictimNotAllowed", "Draining")


async def test_a_victim_cannot_evict_its_evictor() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=1000)
        await stage.place("low-0", MID)
        await stage.wait("high-0", HIGH)
        ok(await stage.claim("high-0", "low-0"))
        await stage.gone("low-0")
        ok(await plane.request("batch", "low", 0, stage.callers[Role.REPAIR], epoch=2, priority=MID))
        again = stage.bind("low-0", "n1", "high-0", epoch=2)
        no(await stage.send(again), "VictimNotAllowed")


# --- budgets -------------------------------------------------------------------------------------------------------------


async def test_a_disruption_budget_holds_at_commit_and_counts_what_drains_already_as_gone() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", "n2", cpu=2000)
        for n in range(4):
            await stage.place(f"web-{n}", LOW, "n1" if n < 2 else "n2", min_serving=3)
        for n in range(2):
            await stage.wait(f"high-{n}", HIGH)
        ok(await stage.claim("high-0", "web-0"))
        refused = no(await stage.claim("high-1", "web-2", node="n2"), "VictimNotAllowed")
        assert facts(refused, "workload", "minServing", "left") == ("batch/web", 3, 2)
        await stage.gone("web-0")
        no(await stage.claim("high-1", "web-2", node="n2"), "VictimNotAllowed")
        ok(await plane.request("batch", "web", 0, stage.callers[Role.REPAIR], epoch=2, priority=LOW, min_serving=3))
        await plane.add_node("n3")
        ok(await stage.send(stage.bind("web-0", "n3", epoch=2)))
        ok(await stage.claim("high-1", "web-2", node="n2"))


async def test_victims_of_one_claim_count_together_against_their_budget() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=2000)
        await stage.place("web-0", LOW, min_serving=1)
        await stage.place("web-1", LOW, min_serving=1)
        await stage.wait("high-0", HIGH, cpu=2000)
        refused = no(await stage.claim("high-0", "web-0", "web-1"), "VictimNotAllowed")
        assert facts(refused, "left") == (0,)


@pytest.mark.parametrize("lost", [SlotState.UNKNOWN, SlotState.FAILED, SlotState.DRAINING])
async def test_slots_that_cannot_serve_do_not_count_for_the_budget(lost: SlotState) -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", "n2", cpu=1000)
        await stage.place("web-0", LOW, min_serving=1)
        await stage.place("web-1", LOW, "n2", min_serving=1)
        await stage.wait("high-0", HIGH)
        if lost is SlotState.FAILED:
            ok(await plane.send(agent_of("n2"), report_of("batch", "web-1", lost)))
        else:
            role = Role.NODE if lost is SlotState.UNKNOWN else Role.DISRUPTION
            ok(await plane.send(stage.callers[role], move_of("batch", "web-1", lost)))
        no(await stage.claim("high-0", "web-0"), "VictimNotAllowed")


async def test_only_a_class_the_policy_names_breaks_a_budget_and_the_victims_record_says_so() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=1000)
        await stage.place("web-0", LOW, min_serving=1)
        await stage.wait("high-0", HIGH)
        await stage.wait("top-0", TOP)
        no(await stage.claim("high-0", "web-0"), "VictimNotAllowed")
        ok(await stage.claim("top-0", "web-0"))
        step = stage.binding("web-0").status.last_transition
        assert step is not None
        assert "claimed by batch/top-0, breaking the disruption budget of u-batch-web: 0 left of at least 1" in step.by
        assert stage.binding("top-0").spec.start_after == ("batch/web-0",)
    assert violations(disk) == []


# --- borrowers -----------------------------------------------------------------------------------------------------------


async def test_a_borrower_leaves_for_any_claim_whatever_its_priority_class_and_budget() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=1000)
        await stage.place("guest-0", TOP, may_borrow=True, min_serving=1)
        assert stage.free() == (1000, 0)
        await stage.wait("low-0", LOW)
        no(await stage.claim("low-0"), "NoFit")
        ok(await stage.claim("low-0", "guest-0"))
        await stage.gone("guest-0")
        assert stage.free() == (0, 0)


async def test_who_borrows_evicts_borrowers_below_itself_and_nobody_else() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", "n2", cpu=1000)
        await stage.place("firm-0", LOW)
        await stage.place("guest-0", LOW, "n2", may_borrow=True)
        await stage.wait("late-0", HIGH, may_borrow=True)
        assert "firm" in no(await stage.claim("late-0", "firm-0"), "VictimNotAllowed").detail
        ok(await stage.claim("late-0", "guest-0", node="n2"))


# --- what is freed is counted once ---------------------------------------------------------------------------------------


async def test_several_claims_stand_on_one_node_and_none_of_them_sells_what_another_frees() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=3000)
        for n in range(3):
            await stage.place(f"low-{n}", LOW)
            await stage.wait(f"high-{n}", HIGH)
        await stage.wait("other-0", LOW, cpu=1)
        for n in range(3):
            ok(await stage.claim(f"high-{n}", f"low-{n}"))
            no(await stage.claim("other-0"), "NoFit")
        await stage.wait("more-0", TOP)
        no(await stage.claim("more-0", "low-0"), "VictimNotAllowed")
        for n in range(3):
            await stage.gone(f"low-{n}")
            no(await stage.claim("other-0"), "NoFit")
        assert stage.free() == (0, 0)
    assert violations(disk) == []


async def test_what_a_large_victim_leaves_over_is_not_sold_before_it_is_gone() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=3000)
        await stage.place("large-0", LOW, cpu=2000)
        await stage.place("low-0", LOW)
        await stage.wait("high-0", HIGH)
        await stage.wait("high-1", HIGH, cpu=2000)
        await stage.wait("other-0", LOW)
        ok(await stage.claim("high-0", "large-0"))
        no(await stage.claim("other-0"), "NoFit")
        no(await stage.claim("high-1", "low-0"), "NoFit")
        await stage.gone("large-0")
        ok(await stage.claim("other-0"))


async def test_a_claim_in_flight_is_over_when_its_victim_is_gone_or_its_claimer_has_started() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", "n2", cpu=2000)
        for node, names in {"n1": ("a-0", "a-1"), "n2": ("b-0", "b-1")}.items():
            for name in names:
                await stage.place(name, LOW, node)
        for n in range(3):
            await stage.wait(f"high-{n}", HIGH)
        await stage.wait("large-0", HIGH, cpu=2000)
        ok(await stage.claim("high-0", "a-0"))
        await stage.gone("a-0")
        no(await stage.claim("large-0", "a-1"), "NoFit")
        ok(await stage.claim("high-1", "b-0", node="n2"))
        ok(await plane.send(agent_of("n2"), report_of("batch", "high-1", SlotState.STARTING)))
        no(await stage.claim("high-2", "b-1", node="n2"), "NoFit")


async def test_shares_of_one_device_are_claimed_one_after_the_other() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=9000, devices=(gpu("g0"),))
        for n, share in enumerate((600, 400)):
            await stage.place(f"low-{n}", LOW, devices=(DeviceAsk(share_thousandths=share),))
            await stage.wait(f"high-{n}", HIGH, devices=(DeviceAsk(share_thousandths=share),))
        ok(await stage.claim("high-0", "low-0"))
        ok(await stage.claim("high-1", "low-1"))
    assert violations(disk) == []


async def test_a_victim_that_is_bound_again_counts_in_full_even_while_its_claimer_still_waits() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=2000)
        await stage.place("low-0", LOW)
        await stage.place("fill-0", LOW)
        await stage.wait("high-0", HIGH)
        ok(await stage.claim("high-0", "low-0"))
        await stage.gone("low-0")
        ok(await plane.send(stage.callers[Role.DISRUPTION], move_of("batch", "fill-0", SlotState.DRAINING)))
        await stage.gone("fill-0")
        ok(await plane.request("batch", "low", 0, stage.callers[Role.REPAIR], epoch=2, priority=LOW))
        ok(await stage.send(stage.bind("low-0", epoch=2)))
        await stage.wait("late-0", HIGH, cpu=1)
        life = stage.binding("low-0").spec.token
        ok(await plane.send(stage.callers[Role.DISRUPTION], move_of("batch", "low-0", SlotState.DRAINING, token=life)))
        account = plane.authority._ctx.ledger.node("n1")
        assert victims._in_flight(plane.authority._ctx, account) == []


async def test_an_exclusive_device_changes_hands_through_start_after() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=9000, devices=(gpu("g0"), gpu("g1")))
        await stage.place("low-0", LOW, devices=(DeviceAsk(count=2),))
        await stage.wait("high-0", HIGH, devices=(DeviceAsk(count=1),))
        await stage.wait("high-1", HIGH, devices=(DeviceAsk(count=1),))
        no(await stage.claim("high-0"), "NoFit")
        ok(await stage.claim("high-0", "low-0"))
        assert stage.binding("high-0").spec.devices == (DeviceHold(id="g0"),)
        no(await stage.claim("high-1"), "NoFit")
        await stage.gone("low-0")
        ok(await stage.claim("high-1"))
        assert stage.binding("high-1").spec.devices == (DeviceHold(id="g1"),)
    assert violations(disk) == []


async def test_a_gang_may_claim_and_is_refused_whole_when_one_claim_is() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=2000)
        await stage.place("low-0", LOW)
        await stage.place("low-1", LOW)
        for n in range(2):
            await stage.wait(f"g-{n}", HIGH, gang="g", gang_size=2)
        same = (stage.bind("g-0", "n1", "low-0"), stage.bind("g-1", "n1", "low-0"))
        no(await stage.send(BindGang(same)), "GangRefused")
        assert stage.binding("low-0").status.state is SlotState.BOUND
        ok(await stage.send(BindGang((stage.bind("g-0", "n1", "low-0"), stage.bind("g-1", "n1", "low-1")))))


# --- at random, and with the guards taken out ----------------------------------------------------------------------------


def violations(disk: MemoryDisk) -> list[Any]:
    checker = JournalChecker()
    for entry in disk.journal:
        checker.feed(entry.batch)
    return checker.violations


class Storm:
    """Claims at random on two small nodes, by proposers that look at nothing."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.draws = random.Random(seed)
        self.accepted = 0

    async def step(self) -> None:
        draws, stage = self.draws, self.stage
        name, node = f"{draws.choice('abc')}-{draws.randrange(6)}", draws.choice(("n1", "n2"))
        plane, what = stage.plane, draws.random()
        rec = plane.authority.view().get("bindings", "batch", name)
        if rec is not None and what < 0.35:
            token = rec.hot.token
            if rec.hot.state is SlotState.DRAINING:
                await plane.send(agent_of(rec.hot.node), report_of("batch", name, SlotState.RELEASED))
            elif what < 0.1:
                await plane.send(stage.callers[Role.DISRUPTION], move_of("batch", name, SlotState.DRAINING, token=token))
            return
        if what < 0.6 and rec is None:
            await plane.request(
                "batch", name[0], int(name[2:]), stage.callers[Role.ASSIGNMENT], priority=draws.choice((LOW, MID, HIGH, TOP)),
                cpu=draws.choice((500, 1000)), may_borrow=draws.random() < 0.2, min_serving={"a": 2, "b": 1, "c": 0}[name[0]],
                devices=(DeviceAsk(count=1),) if name == "c-0" else (),
            )  # fmt: skip
            return
        here = [r.name for r in plane.authority._state.live("bindings", "batch") if r.hot.node == node]
        claimed = draws.sample(sorted(here), min(len(here), draws.choice((0, 1, 1, 1, 2))))
        outcome = await stage.send(stage.bind(name, node, *claimed))
        if isinstance(outcome, Accepted) and claimed:
            self.accepted += 1

    def ledger_equals_the_sum(self) -> None:
        state, ledger = self.stage.plane.authority._state, self.stage.plane.authority._ctx.ledger
        capable: dict[str, int] = {}
        for rec in state.live("bindings"):
            if rec.hot.state in (SlotState.BOUND, SlotState.STARTING, SlotState.READY, SlotState.SERVING):
                capable[rec.hot.workload_uid] = capable.get(rec.hot.workload_uid, 0) + 1
        assert ledger.capable == capable
        for node in ("n1", "n2"):
            uses = [r.hot for r in state.live("bindings") if r.hot.node == node and r.hot.state in HOLDS_CAPACITY]
            account = ledger.node(node)
            assert account.cpu_unlent == account.allocatable.cpu - sum(u.requests.cpu for u in uses)
            assert account.cpu_free == account.allocatable.cpu - sum(u.requests.cpu for u in uses if not u.borrowed)


async def _storm(seed: int, steps: int = 400) -> tuple[MemoryDisk, int]:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        stage = Stage(plane)
        await stage.furnish("n1", "n2", cpu=3000, devices=(gpu("g0"),))
        storm = Storm(stage, seed)
        for _ in range(steps):
            await storm.step()
            plane.authority.heartbeat([("n1", 1), ("n2", 1)])
        storm.ledger_equals_the_sum()
    return disk, storm.accepted


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_is_claimed_the_promises_hold_and_judging_again_gives_the_same(seed: int) -> None:
    disk, accepted = await _storm(seed)
    assert violations(disk) == []
    assert accepted > 3, "claims must succeed for this to mean anything"
    replay = Replay(Settings(region="local"))
    replay.feed([entry.batch for entry in disk.journal])
    assert replay.differences == []


@pytest.mark.parametrize("guard", ["priority", "budget", "record", "draining", "wait"])
async def test_the_checker_finds_each_guard_of_a_claim_that_is_taken_out(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if guard == "priority":
        monkeypatch.setattr(Evictor, "may_evict", lambda *a: True)
    elif guard == "budget":
        monkeypatch.setattr(victims, "breaches", lambda *a: [])
    elif guard == "record":
        real = victims.put_draining
        monkeypatch.setattr(victims, "put_draining", lambda ctx, b, why, caller: real(ctx, b, "because", caller))
    elif guard == "draining":
        monkeypatch.setattr(victims, "SERVING_CAPABLE", HOLDS_CAPACITY)
        monkeypatch.setattr(victims, "may_step", lambda *a: True)
    elif guard == "wait":
        inner = victims.claim_victims

        def forgets(*args: Any) -> Any:
            claim = inner(*args)
            if isinstance(claim, victims.Claim):
                claim.start_after = ()
            return claim

        monkeypatch.setattr("fairlead.authority.judge.placing.claim_victims", forgets)
    words = {
        "priority": "was evicted by",
        "budget": "that must be able to serve",
        "record": "its record does not say so",
        "draining": "did not begin to drain with it",
        "wait": "nobody waits for it",
    }[guard]
    for seed in range(8):
        disk, _ = await _storm(seed, 300)
        if any(found.invariant == "S19" and words in found.detail for found in violations(disk)):
            return
    pytest.fail(f"without the guard {guard} nothing broke S19")
