"""The life of a component under a lease, alone: it finds out that the lease is lost, starts over, and gives it up at the end."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from fairlead.authority.local import LocalPlane
from fairlead.client.leased import Health, Leased, Terms, until_next
from fairlead.client.plane import Feed
from fairlead.model.commands import Command, Outcome, Refused
from fairlead.model.kinds.ledger import Lease
from fairlead.model.lifecycle import Role
from fairlead.ports import Tasks
from tests.authority.planes import PlaneForTest, running_plane

WAIT_S = 30.0


class Idle(Leased):
    """Sends nothing but renewals."""

    def __init__(self, plane: PlaneForTest, name: str = "idle", *, fails: Exception | None = None) -> None:
        terms = Terms(name, "one", Role.REPAIR, ttl_s=2.0, renew_s=0.05)
        super().__init__(LocalPlane(plane.authority, plane.clock), plane.clock, random.Random(1), terms, ("nodes",))
        self.restarts: list[BaseException] = []
        self.fails = fails
        self.stalled = ""

    def _restarted(self, error: BaseException) -> None:
        self.restarts.append(error)

    def health(self) -> Health:
        return Health(queue_length=3, stalled=self.stalled, detail="why")

    async def _work(self, feed: Feed, tasks: Tasks) -> None:
        error, self.fails = self.fails, None
        if error is not None:
            raise error
        while not self._stopping:
            await feed.wait()
            feed.take_nowait()


class Forgiving(Idle):
    forgives = (Exception,)


class Rig:
    def __init__(self, plane: PlaneForTest, tasks: Tasks) -> None:
        self.plane = plane
        self.tasks = tasks

    def lease(self, name: str = "idle") -> Lease:
        rec = self.plane.authority.view().get("leases", "", name)
        assert rec is not None
        found: Lease = rec.hot
        return found

    async def until(self, condition: Callable[[], object]) -> None:
        end = self.plane.clock.monotonic() + WAIT_S
        while not condition():
            assert self.plane.clock.monotonic() < end, "this never came"
            await self.plane.clock.sleep(0.005)


@asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    async with running_plane() as plane, Tasks() as tasks:
        yield Rig(plane, tasks)


async def test_one_that_only_renews_learns_that_its_lease_was_taken_and_takes_it_back() -> None:
    async with rig() as r:
        idle = Idle(r.plane)
        r.tasks.start(idle.run(), "idle")
        await idle.wait_serving()
        assert idle.epoch == 1
        await r.plane.as_role(Role.REPAIR, "one", "idle")  # another process of that name
        await r.until(lambda: idle.epoch == 3 and idle.serving)
        assert (len(idle.restarts), "epoch 2" in str(idle.restarts[0])) == (1, True)
        idle.stop()


async def test_one_that_may_not_have_its_lease_says_why_once_and_goes_on_asking(caplog: pytest.LogCaptureFixture) -> None:
    async with rig() as r:
        idle = Idle(r.plane)
        asked, submit = 0, idle._plane.submit

        async def refusing(commands: list[Command]) -> list[Outcome]:
            nonlocal asked
            asked += 1
            return [Refused("Forbidden", "it may not speak as one")] if asked < 4 else await submit(commands)

        idle._plane.submit = refusing  # type: ignore[method-assign]
        r.tasks.start(idle.run(), "idle")
        await idle.wait_serving()
        assert [each.getMessage() for each in caplog.records].count("idle gets no lease: it may not speak as one") == 1
        idle.stop()


async def test_how_it_does_goes_along_with_each_renewal_and_since_when_is_the_planes_to_say() -> None:
    async with rig() as r:
        idle = Idle(r.plane)
        r.tasks.start(idle.run(), "idle")
        await r.until(lambda: idle.serving and r.lease().status.conditions)
        assert (r.lease().status.queue_length, r.lease().status.conditions[0].status) == (3, "True")
        idle.stalled = "Behind"
        await r.until(lambda: r.lease().status.conditions[0].status == "False")
        first = r.lease()
        await r.until(lambda: r.lease().spec.renewed_time != first.spec.renewed_time)
        assert r.lease().status.conditions[0] == first.status.conditions[0]  # it stands since the same moment
        assert first.status.conditions[0].last_transition_time is not None
        idle.stop()


async def test_it_gives_its_lease_up_when_it_stops() -> None:
    async with rig() as r:
        idle = Idle(r.plane)
        running = r.tasks.start(idle.run(), "idle")
        await idle.wait_serving()
        idle.stop()
        await running
        assert (r.lease().spec.holder, r.lease().spec.epoch, idle.serving, idle.epoch) == ("", 1, False, 0)


async def test_what_it_does_not_forgive_ends_it_and_what_it_does_starts_it_over() -> None:
    async with rig() as r:
        forgiving = Forgiving(r.plane, "forgiving", fails=ValueError("a bug"))
        r.tasks.start(forgiving.run(), "forgiving")
        await r.until(lambda: forgiving.serving and forgiving.restarts)
        assert isinstance(forgiving.restarts[0], ValueError)
        forgiving.stop()
        with pytest.raises(ExceptionGroup) as found:
            await Idle(r.plane, "strict", fails=ValueError("a bug")).run()
        assert found.group_contains(ValueError)


@pytest.mark.parametrize(("now", "left"), [(0.5, 2.5), (3.0, 3.0), (2.9999, 3.0001), (100.0, 2.0), (4.0, 2.0)])
def test_components_of_a_process_renew_at_the_same_moments_and_once_a_period(now: float, left: float) -> None:
    assert until_next(now, 3.0) == pytest.approx(left)
