"""The simulated store: the contract's guards behind a network, and an engine's faults one by one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fairlead.authority.follower import TAIL_LAG_S
from fairlead.sim import loop as sim
from fairlead.sim.loop import SimLoop, sleep
from fairlead.sim.machines import Machines, for_ever
from fairlead.sim.network import Network
from fairlead.sim.store import STALE_MAX, SimStore, StoreService, Trap
from fairlead.store.contract import AlreadyThere, Committed, Fence, Fenced, OutcomeUnknown, StoreUnreachable, Unavailable
from tests.store.batches import chain


class Rig:
    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.machines = Machines(loop)
        self.network = Network(self.machines)
        self.service = StoreService(self.network, "plane")
        self.service.program = self.machines.program("store", self.machines.machine("a/store"), lambda running: for_ever())
        self.service.program.start()
        server = self.machines.program("server", self.machines.machine("a/server"), lambda running: for_ever())
        server.start()
        assert server.running is not None
        self.store = SimStore(self.service, server.running)
        self.batches = chain(5)

    async def lead(self) -> Fence:
        fence = await self.store.acquire("me", await self.store.open())
        assert isinstance(fence, Fence)
        return fence


def rigged(work: Callable[[Rig], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    async def main(loop: SimLoop) -> None:
        await work(Rig(loop))

    sim.run(main, seed)


def test_a_commit_takes_time_and_lands_once() -> None:
    async def work(rig: Rig) -> None:
        fence = await rig.lead()
        before = rig.loop.now
        assert await rig.store.commit(fence, rig.batches[0]) == Committed()
        assert rig.loop.now > before
        assert await rig.store.commit(fence, rig.batches[0]) == AlreadyThere()
        assert await rig.store.tail(0) == [rig.batches[0]]

    rigged(work)


def test_an_answer_that_is_lost_leaves_its_sender_in_doubt_and_the_batch_in_place() -> None:
    async def work(rig: Rig) -> None:
        fence = await rig.lead()
        rig.service.faults.unheard = 1.0
        assert isinstance(await rig.store.commit(fence, rig.batches[0]), OutcomeUnknown)
        rig.service.faults.unheard = 0.0
        assert await rig.store.commit(fence, rig.batches[0]) == AlreadyThere()
        assert rig.machines.counts["F10"] == 1

    rigged(work)


def test_whoever_builds_on_the_head_is_in_doubt_no_more() -> None:
    async def work(rig: Rig) -> None:
        fence = await rig.lead()
        rig.service.faults.unheard = 1.0
        assert isinstance(await rig.store.commit(fence, rig.batches[0]), OutcomeUnknown)
        assert list(rig.service.in_doubt) == [rig.batches[0].hash]
        rig.service.faults.unheard = 0.0
        assert await rig.store.commit(fence, rig.batches[1]) == Committed()  # the first may never be asked for again
        assert not rig.service.in_doubt

    rigged(work)


def test_a_request_that_is_late_lands_after_its_sender_has_given_up() -> None:
    async def work(rig: Rig) -> None:
        fence = await rig.lead()
        rig.service.faults.late = 1.0
        assert isinstance(await rig.store.commit(fence, rig.batches[0]), OutcomeUnknown)
        rig.service.faults.late = 0.0
        assert await rig.store.tail(0) == []
        await sleep(10.0)
        assert await rig.store.tail(0) == [rig.batches[0]]

    rigged(work)


def test_a_full_disk_refuses_for_sure() -> None:
    async def work(rig: Rig) -> None:
        fence = await rig.lead()
        rig.service.faults.full = True
        assert isinstance(await rig.store.commit(fence, rig.batches[0]), Unavailable)
        rig.service.faults.full = False
        assert await rig.store.tail(0) == []

    rigged(work)


def test_a_paused_store_answers_nobody_and_what_was_sent_lands_when_it_goes_on() -> None:
    async def work(rig: Rig) -> None:
        fence = await rig.lead()
        assert rig.service.program is not None
        rig.service.program.pause()
        assert isinstance(await rig.store.commit(fence, rig.batches[0]), OutcomeUnknown)
        with pytest.raises(StoreUnreachable):
            await rig.store.head()
        rig.service.program.resume()
        await sleep(0.1)
        assert await rig.store.commit(fence, rig.batches[0]) == AlreadyThere()

    rigged(work)


def test_a_store_that_is_not_there_refuses_for_sure() -> None:
    async def work(rig: Rig) -> None:
        fence = await rig.lead()
        assert rig.service.program is not None
        rig.service.program.kill()
        assert isinstance(await rig.store.commit(fence, rig.batches[0]), Unavailable)
        rig.service.program.start()
        assert await rig.store.commit(fence, rig.batches[0]) == Committed()

    rigged(work)


def test_a_commit_under_an_old_fence_is_refused_however_late_it_lands() -> None:
    async def work(rig: Rig) -> None:
        fence = await rig.lead()
        rig.service.faults.late = 1.0
        assert isinstance(await rig.store.commit(fence, rig.batches[0]), OutcomeUnknown)
        rig.service.faults.late = 0.0
        newer = await rig.store.acquire("other", await rig.store.head())
        assert isinstance(newer, Fence)
        await sleep(10.0)
        assert await rig.store.tail(0) == []
        assert isinstance(await rig.store.commit(fence, rig.batches[0]), Fenced)

    rigged(work)


def test_whoever_watches_the_disk_is_told_of_every_batch_and_of_a_lost_tail() -> None:
    async def work(rig: Rig) -> None:
        told: list[Any] = []
        rig.service.disk.committed = lambda batch: told.append(batch.first)
        rig.service.disk.tail_lost = lambda position, incarnation: told.append(("lost", position))
        fence = await rig.lead()
        for batch in rig.batches:
            await rig.store.commit(fence, batch)
        rig.service.disk.lose_tail(2)
        assert told == [*(batch.first for batch in rig.batches), ("lost", rig.batches[2].last)]

    rigged(work)


def test_a_commit_is_counted_as_lost_after_the_fact_only_where_it_was_one() -> None:
    async def work(rig: Rig) -> None:
        fence = await rig.lead()
        rig.service.faults.unheard = 1.0
        await rig.store.renew(fence)
        with pytest.raises(StoreUnreachable):
            await rig.store.head()
        assert rig.machines.counts["F10"] == 0
        await rig.store.commit(fence, rig.batches[0])
        await rig.store.commit(fence, rig.batches[0])  # is there already: nothing is lost with this answer
        assert rig.machines.counts["F10"] == 1

    rigged(work)


def test_a_stale_read_is_counted_only_where_it_hides_something() -> None:
    async def work(rig: Rig) -> None:
        rig.service.faults.stale = 1.0
        assert await rig.store.tail(0) == []
        assert rig.machines.counts["F12"] == 0
        fence = await rig.lead()
        await rig.store.commit(fence, rig.batches[0])
        assert await rig.store.tail(0) == []
        assert rig.machines.counts["F12"] == 1

    rigged(work)


def test_a_request_that_lands_twice_takes_effect_once() -> None:
    async def work(rig: Rig) -> None:
        told: list[int] = []
        rig.service.disk.committed = lambda batch: told.append(batch.first)
        rig.service.faults.twice = 1.0
        fence = await rig.lead()
        for batch in rig.batches:
            assert await rig.store.commit(fence, batch) == Committed()
        await sleep(5.0)
        assert told == [batch.first for batch in rig.batches]
        assert rig.service.disk.head.epoch == fence.epoch
        assert rig.machines.counts["F2"] == 1 + len(rig.batches)

    rigged(work)


def test_of_a_write_on_a_broken_disk_nobody_knows_whether_it_is_there() -> None:
    there = set()
    for seed in range(6):

        async def work(rig: Rig) -> None:
            fence = await rig.lead()
            rig.service.faults.broken = 1.0
            assert isinstance(await rig.store.commit(fence, rig.batches[0]), OutcomeUnknown)
            with pytest.raises(StoreUnreachable, match="I/O error"):
                await rig.store.head()
            assert rig.machines.counts["F13"] == 2
            there.add(bool(rig.service.disk.journal))
            rig.service.faults.broken = 0.0
            assert isinstance(await rig.store.commit(fence, rig.batches[0]), Committed | AlreadyThere)

        rigged(work, seed)
    assert there == {True, False}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_process_dies_at_the_very_call_before_it_is_sent_or_when_it_has_taken_effect(call: int, after: bool) -> None:
    async def work(rig: Rig) -> None:
        server = rig.machines.programs["server"]
        fence = await rig.lead()
        rig.service.traps["server"] = Trap(call, after, server.kill)
        assert server.running is not None

        async def commits() -> None:
            for batch in rig.batches:
                await rig.store.commit(fence, batch)

        rig.loop.spawn(server.running, commits(), "commits")
        await sleep(5.0)
        assert not server.alive
        assert len(rig.service.disk.journal) == call - (not after)
        assert not rig.service.traps

    rigged(work)


def test_nobody_is_shown_the_past_for_as_long_as_it_takes_to_call_a_store_damaged() -> None:
    async def work(rig: Rig) -> None:
        fence = await rig.lead()
        await rig.store.commit(fence, rig.batches[0])
        rig.service.faults.stale = 1.0
        shown = [bool(await rig.store.tail(0)) for _ in range(2 * len(TAIL_LAG_S))]
        assert shown == ([False] * STALE_MAX + [True]) * (len(shown) // (STALE_MAX + 1)) + [False]
        assert len(TAIL_LAG_S) > STALE_MAX

    rigged(work)
