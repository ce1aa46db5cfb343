"""Decisions that a real scheduler and a real authority made, taken again from the journal: under their policy and another."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlead.model.commands import Enqueue, Put
from fairlead.model.kinds.capacity import BudgetShape, Holding, HoldingSpec
from fairlead.model.kinds.intent import Locality, Placement, Preference
from fairlead.model.kinds.policy import (
    PriorityClass,
    ResidencyRule,
    SchedulerPolicy,
    SchedulerPolicySpec,
    ScoreWeight,
    WorkloadClass,
)
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.scheduler.forking import Fork, Otherwise
from fairlead.store.contract import Batch
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import GI, REGION, ok, request_of
from tests.scheduler.running import Rig, rig

SEED = 5


@asynccontextmanager
async def recorded(disk: MemoryDisk) -> AsyncIterator[Rig]:
    """A plane whose journal stays, with six nodes of three sizes and a scheduler."""
    async with rig(store=MemoryStore(disk)) as found:
        for n in range(6):
            await found.plane.add_node(f"n{n}", cpu=(8_000, 16_000, 32_000)[n % 3], zone="ab"[n % 2])
        await found.schedule()
        yield found


def batches_of(disk: MemoryDisk) -> list[Batch]:
    return [entry.batch for entry in disk.journal]


def again(disk: MemoryDisk) -> Fork:
    fork = Fork("local")
    fork.feed(batches_of(disk))
    return fork


def forked(disk: MemoryDisk, **spec: object) -> Fork:
    fork = Fork("local")
    fork.fork(SchedulerPolicy(metadata=Metadata(name="r9"), spec=SchedulerPolicySpec(revision=9, **spec)))  # type: ignore[arg-type]
    fork.feed(batches_of(disk))
    return fork


@pytest.fixture(scope="module")
def busy() -> MemoryDisk:
    return asyncio.run(_busy())


async def _busy() -> MemoryDisk:
    """A few dozen slots of all sizes come, a third of them end, more come; one is too large for any node."""
    disk, draw = MemoryDisk(), random.Random(SEED)
    async with recorded(disk) as found:
        names = [await found.ask(f"w{n % 5}", n, cpu=draw.choice((500, 1000, 2000))) for n in range(30)]
        await found.bound(*names)
        for name in draw.sample(names, 10):
            await found.end(name)
        more = [await found.ask(f"x{n % 3}", n, cpu=draw.choice((700, 1500))) for n in range(20)]
        await found.bound(*more)
        await found.ask("huge", 0, cpu=64_000)
        await found.waits("huge-0", "NoMatchingCapacity")
    return disk


async def test_every_placement_comes_out_again_under_its_own_policy(busy: MemoryDisk) -> None:
    fork = again(busy)
    assert fork.tally.decided == 50, fork.tally
    assert (fork.tally.same, fork.not_same) == (50, []), "a scheduler's decision is a function of what it looked at"
    assert (fork.tally.waits, fork.tally.waits_same) == (1, 1)
    recorded, now = fork.hashes
    assert recorded == now
    assert fork.otherwise == [], "nothing was forked"


async def test_the_same_fork_of_the_same_history_says_the_same(busy: MemoryDisk) -> None:
    once, twice = forked(busy, packing="Balance"), forked(busy, packing="Balance")
    assert once.otherwise == twice.otherwise
    assert once.hashes == twice.hashes


async def test_standing_room_and_slots_that_claim_it_together_come_out_again() -> None:
    disk, shape = MemoryDisk(), Resources(6_000, GI)
    async with rig(store=MemoryStore(disk)) as found:
        await found.schedule()
        recovery = await found.plane.as_role(Role.RECOVERY)
        holding = HoldingSpec(budget="eu", budget_uid="u-eu", region=REGION, shapes=(BudgetShape(requests=shape, count=2),))
        ok(await found.plane.send(recovery, Put("Holding", Holding(Metadata(f"eu.{REGION}", "risk"), holding))))
        like: dict[str, Any] = {"cpu": shape.cpu, "memory": shape.memory, "budget_name": "eu"}

        def standing() -> int:
            held = [found.plane.authority.view().get("reservations", "risk", f"standing.eu-{index}") for index in (0, 1)]
            return sum(one is not None for one in held)

        for index in (0, 1):  # each on a node of its own, both of which have room for more
            await found.plane.add_node(f"n{index}", cpu=32_000)
            ok(await found.plane.request("risk", "standing.eu", index, recovery, standing=True, **like))
            await found.until(lambda wanted=index + 1: standing() == wanted)  # type: ignore[misc]
            await found.plane.add_node(f"n{index}", cpu=32_000, unschedulable=True)
        for index in (0, 1):
            await found.plane.add_node(f"n{index}", cpu=32_000)
        ok(await found.plane.send(found.roles[Role.ASSIGNMENT], Enqueue(request_of("risk", "api", 0, priority=900, **like), 2)))
        await found.bound("api-0", "api-1")
        assert {found.node_of("api-0"), found.node_of("api-1")} == {"n0", "n1"}
        assert not standing(), "both were claimed"
    fork = again(disk)
    assert (fork.tally.decided, fork.tally.refused, fork.not_same) == (4, 0, [])


async def test_a_policy_that_balances_would_have_placed_elsewhere_and_its_score_is_named(busy: MemoryDisk) -> None:
    fork = forked(busy, packing="Balance")
    moved = [one for one in fork.otherwise if one.then.node and one.forked.node]
    assert moved == fork.otherwise
    assert moved, "packing and balancing are opposites"
    assert set(fork.causes()) == {"score balance"}
    assert all(f"{one.forked.node} is better than {one.then.node}: balance 40 x" in one.why for one in moved), moved[0]


async def test_the_built_in_policy_forked_from_itself_changes_nothing(busy: MemoryDisk) -> None:
    fork = Fork("local")
    fork.fork(None)
    fork.feed(batches_of(busy))
    assert fork.tally.decided == 50
    assert fork.otherwise == []


async def test_a_residency_rule_would_have_kept_slots_waiting_and_its_gate_is_named(busy: MemoryDisk) -> None:
    fork = forked(busy, residency=(ResidencyRule(tenants=("risk",), areas=("eu",)),))
    waiting = [one for one in fork.otherwise if one.then.node]
    assert len(waiting) == 50
    assert {(one.forked.reason, one.by) for one in waiting} == {("ResidencyBlocked", "gate residency")}
    assert waiting[0].why.startswith(f"{waiting[0].then.node} is ruled out by residency: "), waiting[0].why
    huge = _of(fork, "risk/huge-0")
    assert (huge.then.reason, huge.forked.reason, huge.by) == ("NoMatchingCapacity", "ResidencyBlocked", "gate residency")


async def test_a_policy_without_the_class_of_a_workload_would_have_refused_it(busy: MemoryDisk) -> None:
    fork = forked(busy, workload_classes=(WorkloadClass(name="other", priority_class_name="standard"),))
    assert len(fork.otherwise) == 51
    assert {(one.forked.reason, one.by) for one in fork.otherwise} == {("Misconfigured", "class")}
    assert "policy revision 9 has no class" in fork.otherwise[0].why


async def test_a_policy_with_other_weights_is_told_by_the_score_that_turned_it() -> None:
    disk = MemoryDisk()
    async with recorded(disk) as found:
        near = Placement(preferences=(Preference(weight=10, locality=Locality(zones=("b",))),))
        await found.ask("api", 0, placement=near)
        await found.bound("api-0")
    fork = forked(disk, scores=(ScoreWeight(name="packing", weight=40),))
    told = [one for one in fork.otherwise if one.slot == "risk/api-0"]
    assert again(disk).tally.same == 1
    assert [one.by for one in told] == ["score locality"], told
    assert f"{told[0].then.node} was better than {told[0].forked.node} then" in told[0].why


async def test_a_slot_that_waited_would_have_been_placed_and_who_leaves_is_named() -> None:
    disk = MemoryDisk()
    async with recorded(disk) as found:
        await found.promote(1, priority_classes=MEEK)
        full = [await found.ask("low", n, cpu=8_000, priority=0) for n in range(14)]
        await found.bound(*full)
        await found.ask("high", 0, cpu=8_000)
        await found.waits("high-0", "WaitingForCapacity")
    assert again(disk).tally.waits_same == 1
    fork = Fork("local")
    fork.fork(None)
    fork.feed(batches_of(disk))
    told = _of(fork, "risk/high-0")
    assert told.forked.node
    assert (told.then.reason, told.by) == ("WaitingForCapacity", "preemption")
    assert told.forked.victims
    assert told.forked.victims[0].startswith("risk/low-")


async def test_a_policy_whose_classes_evict_nobody_would_have_kept_the_claimer_waiting() -> None:
    disk = MemoryDisk()
    async with recorded(disk) as found:
        full = [await found.ask("low", n, cpu=8_000, priority=0) for n in range(14)]
        await found.bound(*full)
        await found.bound(await found.ask("high", 0, cpu=8_000))
    fork = again(disk)
    assert fork.tally.same == fork.tally.decided == 15, fork.not_same
    told = _of(forked(disk, priority_classes=MEEK), "risk/high-0")
    assert told.then.victims
    assert told.forked.reason == "WaitingForCapacity"
    assert told.by == "preemption"
    assert "it would not evict risk/low-" in told.why


async def test_what_was_decided_under_one_revision_is_decided_again_under_that_one() -> None:
    disk = MemoryDisk()
    async with recorded(disk) as found:
        await found.bound(*[await found.ask("a", n) for n in range(4)])
        await found.promote(1, packing="Balance")
        await found.bound(*[await found.ask("b", n) for n in range(4)])
    fork = again(disk)
    assert (fork.tally.decided, fork.not_same) == (8, [])
    balanced = {one.slot.partition("-")[0] for one in forked(disk, packing="Balance").otherwise}
    packed = {one.slot.partition("-")[0] for one in forked(disk, packing="Pack").otherwise}
    assert (balanced, packed) == ({"risk/a"}, {"risk/b"}), "each half differs from the policy that it was not decided under"


MEEK = (PriorityClass(name="critical-service", value=1000), PriorityClass(name="standard", value=500),
        PriorityClass(name="batch", value=300), PriorityClass(name="best-effort", value=0))  # fmt: skip


def _of(fork: Fork, slot: str) -> Otherwise:
    (found,) = [one for one in fork.otherwise if one.slot == slot]
    return found
