"""How the components of a leader's process do, told for all of them together."""

from __future__ import annotations

from fairlead.client.leased import TELL_S, Terms
from fairlead.client.reporting import Reporting
from fairlead.model.lifecycle import Role
from fairlead.ports import Tasks
from tests.authority.planes import FakeClock, running_plane
from tests.client.test_leased import Idle, Rig


def of_term(r: Rig, name: str) -> Idle:
    made = Idle(r.plane, name)
    made.terms = Terms(name, "one", Role.REPAIR, of_term=True)
    return made


async def test_what_matters_is_told_at_the_next_look_and_the_rest_only_now_and_then() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane, Tasks() as tasks:
        r = Rig(plane, tasks)
        both = [of_term(r, "a"), of_term(r, "b")]
        for each in both:
            tasks.start(each.run(), each.terms.name)
            await each.wait_serving()
        reporting = Reporting(both[0]._plane, clock, both)

        def working() -> list[str]:
            return [c.status for name in "ab" for c in r.lease(name).status.conditions]

        await reporting.tell()
        assert working() == ["True", "True"]
        before = plane.authority.view().revision
        await reporting.tell()
        assert plane.authority.view().revision == before, "nobody has anything to say"
        both[1].stalled = "Behind"
        await reporting.tell()
        assert (working(), plane.authority.view().revision - before) == (["True", "False"], 1)
        clock.offset += TELL_S
        await reporting.tell()
        assert plane.authority.view().revision - before == 3, "so that whoever lists them sees that they are there"
        for each in both:
            each.stop()


async def test_one_whose_lease_was_taken_starts_over() -> None:
    async with running_plane() as plane, Tasks() as tasks:
        r = Rig(plane, tasks)
        one = of_term(r, "a")
        tasks.start(one.run(), "a")
        await one.wait_serving()
        await plane.as_role(Role.REPAIR, "one", "a")  # another of that name
        await Reporting(one._plane, plane.clock, [one]).tell()
        await r.until(lambda: one.epoch == 3 and one.serving)
        assert "epoch 2" in str(one.restarts[0])
        one.stop()
