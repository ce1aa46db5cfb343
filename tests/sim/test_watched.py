"""What a world's checkers are told of: every plane, before and after its store has lost a tail."""

from __future__ import annotations

from fairlead.model.ids import revision
from fairlead.model.registry import GLOBAL
from fairlead.sim.chaos import Chaos
from fairlead.sim.loop import sleep
from fairlead.sim.people import API
from fairlead.sim.world import World
from tests.sim.test_spells import in_a_world


def test_what_is_told_after_a_store_lost_its_tail_is_asked_as_before() -> None:
    async def work(world: World, chaos: Chaos) -> None:
        for plane in world.platform.planes.values():
            assert plane.store.disk.lose_tail(2)
        asked = {name: watch.feeds.checked for name, watch in world.watches.items()}
        await sleep(20.0)
        assert all(watch.feeds.checked > asked[name] for name, watch in world.watches.items())
        assert await world.people.write("PATCH", f"{API}/nodes/us-east-n0", {"spec": {"unschedulable": True}}, "us-east-n0")
        world._safe()
        assert world.findings == []
        world.watches["us-east"].feeds.told(revision(99, 5), [], revision(99, 4))
        world.answers.accepted(world.answers.send("nobody"), "workloads/risk/none", revision(99, 1_000_000), changes=True)
        world._safe()
        assert {finding.invariant for finding in world.findings} == {"S13", "S15"}

    in_a_world(work)


def test_what_people_do_to_nodes_is_asked_of_the_journal_of_their_region() -> None:
    async def work(world: World, chaos: Chaos) -> None:
        await world.people.write("PATCH", f"{API}/nodes/us-east-n0", {"spec": {"unschedulable": True}}, "us-east-n0")
        sent = world.answers._sent[-1]
        assert (sent.plane, sent.object_key, sent.told) == ("us-east", "nodes//us-east-n0", "accepted")
        assert [plane for plane, _ in world.answers._by_id[sent.id]] == ["us-east"]
        sent.told = "refused"
        world.answers.finish()
        assert [(finding.invariant, finding.plane) for finding in world.findings] == [("S13", GLOBAL)]

    in_a_world(work)


def test_who_may_not_trust_itself_any_more_does_not_pass_for_the_leader_that_is_asked_for() -> None:
    async def work(world: World, chaos: Chaos) -> None:
        plane = world.platform.planes["us-east"]
        assert plane.store.program is not None
        assert plane.vouched() == plane.leaders() != []
        store = plane.store.program.machine
        world.platform.network.cut([(server.machine, store) for server in plane.servers])
        believed = False
        for _ in range(60):
            await sleep(0.5)
            believed |= bool(plane.leaders()) and not plane.vouched()
        assert believed, "it has not heard that its lease is over"
        assert plane.vouched() == []

    in_a_world(work)
