"""Whom a claim may evict at the authority (S19): each refusal with its reason, budgets at commit, and borrowers."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.decide.preempt_rules import VICTIMS_MAX
from fairlead.model.commands import BindMany
from fairlead.model.kinds.intent import JobRule
from fairlead.model.kinds.policy import PriorityClass
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import Binding, BindingSpec, BindingStatus
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.observe.claims import ClaimChecker
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import agent_of, bind_of, move_of, no, ok, report_of, running_plane
from tests.authority.preemption_stage import HIGH, LOW, MID, TOP, Stage, facts, order_of, violations

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


async def test_a_budget_that_was_raised_after_its_slots_were_bound_holds_too() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=2000)
        for n in range(2):
            await stage.place(f"web-{n}", LOW)
        await stage.wait("high-0", HIGH)
        await stage.order("web", 2, min_serving=2)
        refused = no(await stage.claim("high-0", "web-1"), "VictimNotAllowed")
        assert facts(refused, "victim", "workload", "minServing", "left") == ("batch/web-1", "batch/web", 2, 1)
        await stage.order("web", 2, min_serving=1)
        ok(await stage.claim("high-0", "web-1"))
    assert violations(disk) == []


@pytest.mark.parametrize(
    "order",
    [{"workload_uid": "another"}, {"suspend": True}, {"count": 1}, {"job": JobRule()}],
    ids=lambda order: next(iter(order)),
)
async def test_an_order_protects_neither_anothers_slots_nor_more_than_it_wants(order: dict[str, Any]) -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=2000)
        for n in range(2):
            await stage.place(f"web-{n}", LOW)
        await stage.wait("high-0", HIGH)
        await stage.order("web", **{"count": 2, "min_serving": 2, **order})
        ok(await stage.claim("high-0", "web-1"))


def test_the_journal_shows_a_claim_through_a_budget_that_was_raised() -> None:
    found: list[str] = []
    checker = ClaimChecker(
        {"assignments": {("batch", "web.local"): order_of("batch", "web", 1, min_serving=1)}, "schedulerpolicies": {}},
        lambda rule, what: found.append(f"{rule}: {what}"),
        defaultdict(int),
    )
    slot, token = SlotRef(workload="web", uid="u-batch-web", index=0), Token(1, 1, 1)
    before = Binding(Metadata(name="web-0", namespace="batch"), BindingSpec(slot=slot, node="n1", token=token))
    checker.changed(None, before)
    checker.changed(before, replace(before, status=BindingStatus(state=SlotState.DRAINING)))
    high = SlotRef(workload="high", uid="u-batch-high", index=0)
    claims = BindingSpec(slot=high, node="n1", token=token, priority=HIGH, start_after=("batch/web-0",))
    checker.changed(None, Binding(Metadata(name="high-0", namespace="batch"), claims))
    assert found == ["S19: evicting batch/web-0 leaves 0 of 1 that must be able to serve"]


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
