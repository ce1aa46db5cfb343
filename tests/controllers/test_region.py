"""One region at work: slots queued, bound, started and admitted to traffic; rollouts, undo, jobs, drains, lost nodes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairlead.authority.judge import Settings
from fairlead.controllers.node import NodeController
from fairlead.decide.slots import instant
from fairlead.model.commands import Delete, Put, Report
from fairlead.model.kinds.capacity import DrainOrder
from fairlead.model.kinds.intent import JobRule, RolloutRule
from fairlead.model.kinds.work import InstanceStatus, SlotRange
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Condition
from tests.authority.planes import REGION, agent_of, ok
from tests.controllers.running import RULES, RegionRig, all_controllers, region

_S = SlotState


async def test_an_assignment_comes_to_serve_and_then_nothing_is_written_any_more() -> None:
    async with region() as r:
        r.schedule()
        r.control_all()
        await r.order("api", 3)
        await r.until(lambda: r.serving() == [0, 1, 2])
        await r.until(lambda: r.status().replicas.serving == 3)
        assert r.endpoints() == [0, 1, 2]
        await r.until(lambda: (found := r.condition("Progressing")) is not None and found.reason == "Complete")
        await r.quiet()
        assert sum(runtime.meters.resync_only_progress_total for runtime in r.runtimes) == 0


async def test_a_rollout_replaces_every_slot_and_never_falls_below_what_must_serve() -> None:
    async with region() as r:
        r.schedule()
        r.control_all()
        await r.order("api", 3)
        await r.until(lambda: r.serving() == [0, 1, 2])
        await r.order("api", 3, 2)
        least, most = 3, 0

        def done() -> bool:
            nonlocal least, most
            least = min(least, len(r.serving()))
            most = max(most, sum(state not in (_S.RELEASED,) for state in r.states().values()))
            return r.serving(generation=2) == [0, 1, 2] and len(r.serving()) == 3

        await r.until(done)
        assert (least, most) == (3, 4)
        await r.quiet()
        assert r.endpoints() == [0, 1, 2]
        assert sorted(r.states()) == [0, 1, 2], "the spare slot is gone"
        assert r.status().epoch_floor == r.first_epoch(), "and its epoch is remembered"


async def test_an_undo_reuses_what_still_runs() -> None:
    async with region() as r:
        r.schedule()
        r.control_all()
        await r.order("api", 3)
        await r.until(lambda: r.serving() == [0, 1, 2])
        r.agent.broken.add(2)
        await r.order("api", 3, 2)
        await r.until(lambda: any(generation == 2 for _, generation in r.agent.starts))
        r.agent.starts.clear()
        await r.order("api", 3, 1)
        await r.until(lambda: sorted(r.states()) == [0, 1, 2] and r.serving() == [0, 1, 2])
        await r.quiet()
        assert r.agent.starts == []
        assert set(r.epochs().values()) == {1}


async def test_a_rollout_that_does_not_come_to_serve_says_so_at_its_deadline_and_keeps_the_old_ones() -> None:
    async with region() as r:
        r.schedule()
        r.control_all()
        rule = RolloutRule(progress_deadline_seconds=1)
        await r.order("api", 2, rollout=rule)
        await r.until(lambda: r.serving() == [0, 1])
        r.agent.broken.add(2)
        await r.order("api", 2, 2, rollout=rule)
        await r.until(lambda: (c := r.condition("Progressing")) is not None and c.reason == "ProgressDeadlineExceeded")
        assert r.serving(generation=1) == [0, 1]
        await r.quiet()


async def test_what_serves_for_a_moment_and_dies_lets_no_more_of_the_old_ones_go_than_may_be_missing() -> None:
    async with region() as r:
        r.schedule()
        r.control_all()
        rule = RolloutRule(max_surge=0, max_unavailable=1, min_ready_seconds=2)
        await r.order("api", 3, rollout=rule)
        await r.until(lambda: r.serving() == [0, 1, 2])
        r.agent.short_lived.add(2)
        await r.order("api", 3, 2, rollout=rule)
        await r.until(lambda: sum(generation == 2 for _, generation in r.agent.starts) >= 4, "it is tried again and again")
        assert len(r.serving(generation=1)) == 2
        assert r.condition("Progressing").reason == "RollingOut"  # type: ignore[union-attr]
        r.agent.short_lived.clear()
        await r.until(lambda: r.serving(generation=2) == [0, 1, 2])
        await r.until(lambda: (c := r.condition("Progressing")) is not None and c.reason == "Complete")
        await r.quiet()


async def test_a_new_workload_that_serves_for_a_moment_and_dies_is_not_called_complete() -> None:
    async with region() as r:
        r.schedule()
        r.control_all()
        r.agent.short_lived.add(1)
        said = set[str]()

        def tried_again() -> bool:
            if (found := r.condition("Progressing")) is not None:
                said.add(found.reason)
            return len(r.agent.starts) >= 4 and bool(said)

        await r.order("api", 1, rollout=RolloutRule(min_ready_seconds=2))
        await r.until(tried_again, "it is tried again and again")
        assert "Complete" not in said
        r.agent.short_lived.clear()
        await r.until(lambda: (c := r.condition("Progressing")) is not None and c.reason == "Complete")
        await r.quiet()


async def test_scaling_and_suspending_take_away_the_highest_and_bring_them_back_above_their_epochs() -> None:
    async with region() as r:
        r.schedule()
        r.control_all()
        await r.order("api", 3)
        await r.until(lambda: r.serving() == [0, 1, 2])
        await r.order("api", 1)
        await r.until(lambda: sorted(r.states()) == [0])
        assert r.serving() == [0], "what stays was never disturbed"
        await r.order("api", 3)
        await r.until(lambda: r.serving() == [0, 1, 2])
        assert r.epochs() == {0: 1, 1: 2, 2: 2}
        await r.order("api", 3, suspend=True)
        await r.until(lambda: r.states() == {})
        assert r.endpoints() == []
        await r.order("api", 3)
        await r.until(lambda: r.serving() == [0, 1, 2])
        assert set(r.epochs().values()) == {3}
        await r.quiet()


async def test_a_lost_nodes_work_moves_and_its_endpoint_goes_first() -> None:
    async with region() as r:
        r.schedule()
        r.control_all()
        await r.order("api", 3)
        await r.until(lambda: r.serving() == [0, 1, 2])
        victim = r.slots()[0].node
        moved = [index for index, hot in r.slots().items() if hot.node == victim]
        r.agent.dead.add(victim)
        await r.until(lambda: r.get("nodes", victim, "").status.health == "Lost")
        await r.until(lambda: r.serving() == [0, 1, 2] and all(hot.node != victim for hot in r.slots().values()))
        assert r.epochs() == {i: 2 if i in moved else 1 for i in range(3)}
        assert not r.get("nodes", victim, "").status.schedulable, "it takes work again only after its inventory"
        await r.quiet()


async def test_a_node_that_was_only_silent_for_a_while_keeps_its_slots() -> None:
    patient = NodeController(replace(RULES, lost_after_s=60.0))  # on a busy machine a while is long, and a lost node stays lost
    async with region() as r:
        r.schedule()
        for each in all_controllers():
            r.control(patient if each.name == patient.name else each)
        await r.order("api", 2)
        await r.until(lambda: r.serving() == [0, 1])
        victim = r.slots()[0].node
        r.agent.dead.add(victim)
        await r.until(lambda: _S.UNKNOWN in r.states().values())
        r.agent.dead.clear()
        await r.until(lambda: r.serving() == [0, 1])
        await r.until(lambda: r.get("nodes", victim, "").status.health == "Ready")
        assert set(r.epochs().values()) == {1}
        await r.quiet()


async def test_an_exclusive_slot_moves_only_after_its_fence_time() -> None:
    settings = Settings(region=REGION, node_lease_s=0.6, fence_margin_s=0.6)
    assert settings.fence_s > 2 * RULES.lost_after_s, "else nobody would have to wait for it"
    async with region(region_settings=settings) as r:
        r.schedule()
        r.control_all()
        await r.order("db", 1, execution="Exclusive")
        await r.until(lambda: r.serving("db") == [0])
        node = r.slots("db")[0].node
        r.agent.dead.add(node)
        await r.until(lambda: r.states("db").get(0) is _S.UNKNOWN)
        lost = r.binding("db-0")
        assert lost is not None
        assert lost.status.last_transition is not None
        await r.until(lambda: r.serving("db") == [0] and r.slots("db")[0].node != node)
        assert r.epochs("db")[0] == 2
        moved = r.binding("db-0")
        assert moved is not None
        assert moved.metadata.creation_time is not None
        waited = moved.metadata.creation_time - lost.status.last_transition.time
        assert waited.total_seconds() >= settings.fence_s


async def test_when_nobody_at_all_is_heard_nothing_is_declared() -> None:
    async with region() as r:
        r.schedule()
        r.control_all()
        await r.order("api", 3)
        await r.until(lambda: r.serving() == [0, 1, 2])
        r.agent.dead |= {"n0", "n1", "n2"}
        await r.until(lambda: any(c.type == "ObservationSuspect" for c in r.get("nodes", "n0", "").status.conditions))
        await r.quiet()
        assert r.serving() == [0, 1, 2]
        r.agent.dead.clear()
        await r.until(
            lambda: all(c.status == "False" for n in ("n0", "n1", "n2") for c in r.get("nodes", n, "").status.conditions)
        )


async def test_a_drain_moves_everything_away_within_the_budget_and_says_when_it_is_done() -> None:
    async with region() as r:
        r.schedule()
        r.control_all()
        await r.order("api", 3, min_serving=2)
        await r.until(lambda: r.serving() == [0, 1, 2])
        node = r.slots()[0].node
        least = 3

        def done() -> bool:
            nonlocal least
            least = min(least, len(r.serving()))
            return r.serving() == [0, 1, 2] and all(hot.node != node for hot in r.slots().values())

        await r.set_node(node, unschedulable=True, drain=DrainOrder(reason="new kernel", requester="ada"))
        await r.until(done)
        assert least >= 2
        await r.until(lambda: (c := drained(r, node)) is not None and (c.status, c.reason) == ("True", "Empty"))
        await r.quiet()


@pytest.mark.parametrize("count", [1, 3])
async def test_a_drain_of_a_workload_that_can_spare_nobody_starts_another_first(count: int) -> None:
    own = list(range(count))
    async with region() as r:
        r.schedule()
        r.control_all()
        await r.order("api", count, min_serving=count)
        await r.until(lambda: r.serving() == own)
        node = r.slots()[0].node
        least = count

        def done() -> bool:
            nonlocal least
            least = min(least, len(r.serving()))
            return r.serving() == own and all(hot.node != node for hot in r.slots().values())

        await r.set_node(node, unschedulable=True, drain=DrainOrder(reason="new kernel", requester="ada"))
        await r.until(done)
        assert least == count, "nobody left before another served"
        await r.until(lambda: (c := drained(r, node)) is not None and (c.status, c.reason) == ("True", "Empty"))
        await r.until(lambda: sorted(r.slots()) == own)
        await r.quiet()


async def without_a_spare(r: RegionRig) -> str:
    """A workload that can spare nobody and may have nobody more; and a node it is on."""
    r.schedule()
    r.control_all()
    await r.order("api", 3, min_serving=3, rollout=RolloutRule(max_surge=0, max_unavailable=1))
    await r.until(lambda: r.serving() == [0, 1, 2])
    return r.slots()[0].node


async def test_a_drain_that_a_budget_blocks_names_it_and_gives_up_at_its_deadline() -> None:
    async with region() as r:
        node = await without_a_spare(r)
        later, soon = (instant(r.plane.authority.plane_ms() + ms) for ms in (3_600_000, 500))
        await r.set_node(node, unschedulable=True, drain=DrainOrder(reason="new kernel", deadline_time=later))
        await r.until(lambda: (c := drained(r, node)) is not None and "minServing is 3" in c.message)
        await r.set_node(node, drain=DrainOrder(reason="new kernel", deadline_time=soon))
        await r.until(lambda: (c := drained(r, node)) is not None and c.reason == "DeadlinePassed")
        assert r.serving() == [0, 1, 2]
        await r.quiet()


async def test_a_drain_that_is_taken_back_while_it_is_blocked_asks_nobody_to_leave_any_more() -> None:
    async with region() as r:
        node = await without_a_spare(r)
        await r.set_node(node, unschedulable=True, drain=DrainOrder(reason="new kernel"))
        await r.until(lambda: (c := drained(r, node)) is not None and c.reason == "Blocked")
        await r.set_node(node, unschedulable=False, drain=None)
        await r.until(lambda: drained(r, node) is None and r.get("evictionrequests", "api-0") is None)
        assert r.serving() == [0, 1, 2]
        await r.quiet()


async def test_a_job_completes_each_index_once_with_its_parallelism_kept() -> None:
    async with region() as r:
        r.schedule()
        r.control_all()
        r.agent.finishing = True
        job = JobRule(completions=7, parallelism=2)
        await r.order("fraud", slots=(SlotRange(first=0, last=6),), job=job, execution="Exclusive")
        most = 0

        def done() -> bool:
            nonlocal most
            most = max(most, sum(state in (_S.BOUND, _S.STARTING, _S.READY) for state in r.states("fraud").values()))
            return (found := r.condition("Complete", "fraud")) is not None and found.status == "True"

        await r.until(done)
        assert most <= 2
        assert sorted(name for name, _ in r.agent.starts) == [f"fraud-{n}" for n in range(7)]
        await r.until(lambda: r.states("fraud") == {})
        assert r.status("fraud").replicas.succeeded == 7
        await r.quiet()


async def test_a_job_that_fails_too_often_ends_as_failed_and_each_failure_counts_once() -> None:
    async with region() as r:
        r.schedule()
        r.control_all()
        r.agent.crashing.add("fraud-0")
        job = JobRule(completions=1, parallelism=1, retries=1)
        await r.order("fraud", slots=(SlotRange(first=0, last=0),), job=job, execution="Exclusive")
        await r.until(lambda: (c := r.condition("Failed", "fraud")) is not None and c.status == "True")
        assert (r.status("fraud").failures, r.condition("Failed", "fraud").reason) == (2, "RetriesSpent")  # type: ignore[union-attr]
        await r.until(lambda: r.states("fraud") == {})
        await r.quiet()


async def test_a_job_past_its_deadline_is_stopped() -> None:
    async with region() as r:
        r.schedule()
        r.control_all()
        slots = (SlotRange(first=0, last=1),)
        later, soon = (instant(r.plane.authority.plane_ms() + ms) for ms in (3_600_000, 500))
        job = JobRule(completions=2, parallelism=2, deadline_time=later)
        await r.order("fraud", slots=slots, job=job, execution="Exclusive")
        await r.until(lambda: list(r.states("fraud").values()) == [_S.READY, _S.READY])
        await r.order("fraud", slots=slots, job=replace(job, deadline_time=soon), execution="Exclusive")
        await r.until(lambda: (c := r.condition("Failed", "fraud")) is not None and c.reason == "DeadlinePassed")
        await r.until(lambda: r.states("fraud") == {})
        await r.quiet()


async def test_a_slot_that_loses_readiness_gets_no_traffic_until_it_is_ready_again() -> None:
    async with region() as r:
        r.schedule()
        r.control_all()
        await r.order("api", 2)
        await r.until(lambda: r.serving() == [0, 1])
        hot = r.slots()[0]
        said = Report("risk", "api-0", hot.token, None, InstanceStatus(ready=False, ports={"http": 8000}))
        ok(await r.plane.send(agent_of(hot.node), said))
        await r.until(lambda: r.states()[0] is _S.READY and r.endpoints() == [1])
        said = Report("risk", "api-0", hot.token, None, InstanceStatus(ready=True, ports={"http": 8000}))
        ok(await r.plane.send(agent_of(hot.node), said))
        await r.until(lambda: r.serving() == [0, 1] and r.endpoints() == [0, 1])


async def test_a_paused_rollout_replaces_nothing_and_goes_on_when_resumed() -> None:
    async with region() as r:
        r.schedule()
        r.control_all()
        await r.order("api", 2)
        await r.until(lambda: r.serving() == [0, 1])
        await r.order("api", 2, 2, rollout=RolloutRule(paused=True))
        await r.until(lambda: (c := r.condition("Progressing")) is not None and c.reason == "Paused")
        await r.quiet()
        assert r.serving(generation=1) == [0, 1]
        await r.order("api", 2, 2)
        await r.until(lambda: r.serving(generation=2) == [0, 1])


async def test_a_deleted_assignment_is_emptied_and_then_says_that_it_is_released() -> None:
    async with region() as r:
        r.schedule()
        r.control_all()
        await r.order("api", 2)
        await r.until(lambda: r.serving() == [0, 1])
        assert r.mirror is not None
        ok(await r.plane.send(r.mirror, Delete("Assignment", "risk", "api.local")))
        await r.until(lambda: (c := r.condition("Released")) is not None and c.status == "True")
        assert r.states() == {}
        await r.quiet()


def drained(r: RegionRig, node: str) -> Condition | None:
    return next((c for c in r.get("nodes", node, "").status.conditions if c.type == "Drained"), None)


async def test_a_workload_made_again_under_its_name_gets_tokens_above_all_that_an_agent_may_remember() -> None:
    async with region() as r:
        r.schedule()
        r.control_all()
        await r.order("api", 2)
        await r.until(lambda: r.serving() == [0, 1])
        await r.order("api", 2, 2)
        await r.until(lambda: r.serving(generation=2) == [0, 1])
        highest = max(hot.token for hot in r.slots().values())
        assert r.mirror is not None
        ok(await r.plane.send(r.mirror, Delete("Assignment", "risk", f"api.{REGION}")))
        await r.until(lambda: r.slots() == {} and (c := r.condition("Released")) is not None and c.status == "True")
        gone = r.get("assignments", f"api.{REGION}")
        ok(await r.plane.send(r.mirror, Put("Assignment", replace(gone, metadata=replace(gone.metadata, finalizers=())))))
        await r.until(lambda: r.get("assignments", f"api.{REGION}") is None)
        for generation in (1, 2):
            ok(await r.plane.send(r.mirror, Delete("Revision", "risk", f"api.g{generation}")))
        await r.order("api", 2, 1, uid="another")
        await r.until(lambda: r.serving() == [0, 1])
        assert min(hot.token for hot in r.slots().values()) > highest
