"""Who leads after a store lost the end of its history: whoever knows of it, before or instead of those who do not (P6)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.authority.building import Deposed
from fairlead.authority.candidate import PATIENCE, WAITING, Candidate, Timing
from fairlead.authority.follower import Behind
from fairlead.authority.hub import Expired
from fairlead.authority.judge import Settings
from fairlead.authority.term import CLOCK_RATE_ERROR
from fairlead.model import codec
from fairlead.model.journal import NO_COMMAND, Entry, Header, chain_hash, encode_blob
from fairlead.store.contract import Batch, Committed, Fence, Fenced, Head
from fairlead.store.memory import MemoryDisk, MemoryStore

TTL_S = 10.0


class Moving:
    """A clock that moves by as much as anybody sleeps, and by nothing else."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


class Ids:
    def __init__(self) -> None:
        self.number = 0

    def token(self) -> str:
        self.number += 1
        return str(self.number)


class Paced(Candidate):
    """Looks by that clock."""

    async def _pause(self) -> None:
        await self._clock.sleep(self._timing.poll_s)


class Place:
    def __init__(self) -> None:
        self.disk, self.clock, self.ids = MemoryDisk(), Moving(), Ids()
        self.store = MemoryStore(self.disk)

    async def server(self, name: str) -> Candidate:
        timing = Timing(lease_ttl_s=TTL_S, renew_s=3.0, poll_s=0.5)
        made = Paced(MemoryStore(self.disk), self.clock, self.ids, Settings(region="r"), timing, name, lambda: False)
        await made.open()
        return made

    async def lead(self, server: Candidate) -> Fence:
        head = await server.stand_by()
        assert head is not None
        fence, sent = await server.acquire(head)
        assert fence is not None
        return (await server.take_over(fence, sent))[0].fence

    async def write(self, fence: Fence) -> None:
        head = await self.store.head()
        header = Header(1, fence.incarnation, fence.epoch, fence.holder, head.position + 1, 0)
        blob = encode_blob(header, [codec.encode(Entry(NO_COMMAND, (("tenants//gone", None),)))])
        batch = Batch(head.position + 1, head.position + 1, head.hash, chain_hash(head.hash, blob), blob)
        assert isinstance(await self.store.commit(fence, batch), Committed)

    async def alive(self, fence: Fence) -> Any:
        """Whoever leads under this fence renews with every look of others, for as long as it may."""
        head = self.store.head

        async def looked() -> Head:
            await self.store.renew(fence)
            return await head()

        return looked


@pytest.fixture
def place() -> Place:
    return Place()


def once(error: Exception) -> Any:
    async def caught_up(head: Head) -> None:
        raise error

    return caught_up


async def soon(waited: Any) -> Any:
    async with asyncio.timeout(10):
        return await waited


async def test_a_leader_that_notices_leads_again_at_once_in_a_new_incarnation(place: Place) -> None:
    one = await place.server("one")
    fence = await place.lead(one)
    one.forget()
    one.lost_history(1)
    at = place.clock.now
    assert await place.lead(one) == Fence(2, fence.epoch + 1, place.disk.head.holder)
    assert place.clock.now - at < 1.0, "nobody else led, and nobody else may come first"


async def test_a_leader_that_notices_nothing_waits_for_its_own_lease_as_for_any(place: Place) -> None:
    one = await place.server("one")
    await place.lead(one)
    one.forget()
    at = place.clock.now
    assert (await place.lead(one)).incarnation == 1
    assert place.clock.now - at >= TTL_S


async def test_after_its_epoch_was_lost_as_well_it_leads_at_once(place: Place) -> None:
    one, two = await place.server("one"), await place.server("two")
    earlier = await place.lead(two)
    kept = place.disk.head
    await place.store.resign(earlier)
    await place.lead(one)
    place.disk.head = kept  # what a replica had that was behind
    one.forget()
    one.lost_history(1)
    at = place.clock.now
    assert (await place.lead(one)).incarnation == 2
    assert place.clock.now - at < 1.0


@pytest.mark.parametrize("resigned", [True, False])
async def test_whoever_led_in_what_was_lost_is_given_the_rest_of_its_lease(place: Place, resigned: bool) -> None:
    """Nothing that is left of the store shows that it ever led, and it may be talking to nodes all the same (P9)."""
    one, two = await place.server("one"), await place.server("two")
    earlier = await place.lead(one)
    if resigned:
        await place.store.resign(earlier)
    kept = place.disk.head
    one.forget()
    await place.store.resign(earlier)
    await place.lead(two)
    one._seen(await place.store.head())
    place.disk.head = kept
    at = place.clock.now
    assert (await place.lead(one)).incarnation == 2
    assert place.clock.now - at >= TTL_S * (1 + CLOCK_RATE_ERROR)


@pytest.mark.parametrize("writes", [True, False])
async def test_somebody_who_leads_without_knowing_is_deposed_after_a_while_and_given_the_rest_of_its_lease(
    place: Place, writes: bool
) -> None:
    one, two = await place.server("one"), await place.server("two")
    fence = await place.lead(one)
    two._store.head = await place.alive(fence)  # type: ignore[method-assign]
    two.lost_history(1)
    at = place.clock.now
    looking = asyncio.ensure_future(two.stand_by())
    while place.clock.now < at + 1.0:
        await asyncio.sleep(0)
    if writes:
        await place.write(fence)
    observed = await soon(looking)
    waited_s = place.clock.now - at
    assert waited_s >= PATIENCE * TTL_S, "it may be about to begin a new incarnation by itself"
    assert (waited_s < WAITING * TTL_S) is writes, "who writes in the old one is not about to"
    got, sent = await two.acquire(observed)
    assert got is not None
    assert isinstance(await place.store.renew(fence), Fenced)
    term, _ = await two.take_over(got, sent)
    assert term.fence.incarnation == 2
    assert place.clock.now >= sent + TTL_S * (1 + CLOCK_RATE_ERROR), "until then the other one may trust itself"
    assert term.valid(place.clock.now), "it has renewed meanwhile"


async def test_whoever_begins_a_new_incarnation_is_left_in_peace(place: Place) -> None:
    one, two = await place.server("one"), await place.server("two")
    fence = await place.lead(one)
    two.lost_history(1)
    assert isinstance(await place.store.set_incarnation(fence, 2), Committed)
    two._store.head = await place.alive(Fence(2, fence.epoch, fence.holder))  # type: ignore[method-assign]
    at = place.clock.now
    looking = asyncio.ensure_future(two.stand_by())
    while place.clock.now < at + 2 * WAITING * TTL_S:
        await asyncio.sleep(0)
        assert not looking.done()
    looking.cancel()


async def test_whoever_waits_until_the_one_before_trusts_itself_no_more_is_left_in_peace(place: Place) -> None:
    one, two = await place.server("one"), await place.server("two")
    fence = await place.lead(one)
    two.lost_history(1)
    at, head = place.clock.now, place.store.head

    async def looked() -> Head:
        if place.clock.now >= at + TTL_S * (1 + CLOCK_RATE_ERROR) + 1.0:  # a second is enough to begin, after the wait
            await place.store.set_incarnation(fence, 2)
        await place.store.renew(Fence((await head()).incarnation, fence.epoch, fence.holder))
        return await head()

    two._store.head = looked  # type: ignore[method-assign]
    looking = asyncio.ensure_future(two.stand_by())
    while place.clock.now < at + 2 * WAITING * TTL_S:
        await asyncio.sleep(0)
        assert not looking.done()
    assert (await head()).incarnation == 2
    looking.cancel()


async def test_a_standby_that_was_away_for_longer_than_the_journal_reaches_has_lost_nothing(place: Place) -> None:
    one, two = await place.server("one"), await place.server("two")
    fence = await place.lead(one)
    await two.memory.load()
    two.memory.ready = True
    place.disk.head = replace(place.disk.head, position=9, materialised=9, truncated=9)  # written and cut off meanwhile
    two._store.head = await place.alive(fence)  # type: ignore[method-assign]
    with pytest.raises(Behind):
        await two.memory.catch_up(place.disk.head)
    two.memory.catch_up = once(Behind("the journal starts after 9"))  # type: ignore[method-assign]
    looking = asyncio.ensure_future(two.stand_by())
    at = place.clock.now
    while place.clock.now < at + 2 * WAITING * TTL_S:
        await asyncio.sleep(0)
        assert not looking.done(), "it has nothing to depose anybody for"
    looking.cancel()


async def test_one_who_is_deposed_again_while_it_waits_lets_go(place: Place) -> None:
    one, two = await place.server("one"), await place.server("two")
    fence = await place.lead(one)
    two._store.head = await place.alive(fence)  # type: ignore[method-assign]
    two.lost_history(1)
    observed = await soon(two.stand_by())
    got, sent = await two.acquire(observed)
    assert got is not None
    place.disk.acquire("three", place.disk.head)
    at = place.clock.now
    with pytest.raises(Deposed):
        await two.take_over(got, sent)
    assert place.clock.now == at, "as soon as it hears of it"


async def test_a_standby_drops_what_it_has_of_an_incarnation_that_is_over_before_it_reads_on(place: Place) -> None:
    one, two = await place.server("one"), await place.server("two")
    fence = await place.lead(one)
    await two._keep_warm(await place.store.head())
    watch = two.memory.hub.watch("nodes", 0)
    assert isinstance(await place.store.set_incarnation(fence, 2), Committed)
    await two._keep_warm(await place.store.head())
    assert not two.memory.ready, "what comes now would be read as of the incarnation before"
    with pytest.raises(Expired):
        watch.take_nowait()
    await two._keep_warm(await place.store.head())
    assert (two.memory.ready, two.memory.ctx.incarnation) == (True, 2)


async def test_whoever_followed_a_standby_lists_again_when_it_leads_in_a_new_incarnation(place: Place) -> None:
    one, two = await place.server("one"), await place.server("two")
    await place.store.resign(await place.lead(one))
    await two._keep_warm(await place.store.head())
    watch, early = two.memory.hub.watch("nodes", 0), two.memory.early.follow(["nodes"], 0)
    two.lost_history(1)
    assert (await place.lead(two)).incarnation == 2
    for feed in (watch, early):
        with pytest.raises(Expired):
            feed.take_nowait()
    assert two.memory.hub.watch("nodes", 0).take_nowait() == []


async def test_whoever_followed_a_standby_goes_on_when_it_leads_in_the_same_one(place: Place) -> None:
    one, two = await place.server("one"), await place.server("two")
    await place.store.resign(await place.lead(one))
    await two._keep_warm(await place.store.head())
    watch = two.memory.hub.watch("nodes", 0)
    assert (await place.lead(two)).incarnation == 1
    assert watch.take_nowait() == []
