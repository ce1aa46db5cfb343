"""One region at work: slots queued, bound, started and admitted to traffic; rollouts, undo, jobs, drains, lost nodes."""

from __future__ import annotations

from fairlead.model.kinds.intent import RolloutRule
from fairlead.model.lifecycle import SlotState
from tests.controllers.running import region

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
        assert r.status().epoch_floor == 1, "and its epoch is remembered"


async def test_an_undo_reuses_what_still_runs() -> None:
    async with region() as r:
        r.schedule()
        r.control_all()
        await r.order("api", 3)
        await r.until(lambda: r.serving() == [0, 1, 2])
        r.agent.broken.add(2)
        await r.order("api", 3, 2)
        await r.until(lambda: any(hot.generation == 2 for hot in r.slots().values()))
        r.agent.starts.clear()
        await r.order("api", 3, 1)
        await r.until(lambda: sorted(r.states()) == [0, 1, 2] and r.serving() == [0, 1, 2])
        await r.quiet()
        assert r.agent.starts == []
        assert {hot.token.epoch for hot in r.slots().values()} == {1}


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
