"""Leases that a region was given, over a start that nobody has measured the time before: none of them is believed in any more
(P5, P13, P14). A clock that is behind would make them last long after the global plane has given what they were for to others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import pytest
from msgspec.structs import replace

from fairlead.authority.authority import Authority
from fairlead.authority.candidate import Timing
from fairlead.authority.judge import Settings
from fairlead.authority.judge.context import put
from fairlead.decide.cut_off import last_word_ms
from fairlead.decide.granting import answered, lease_end
from fairlead.decide.lapsing import lapsed_grant, lapsed_term
from fairlead.decide.leasing import Versions, policy_end_ms
from fairlead.decide.slots import instant, millis
from fairlead.model.commands import Accepted, Command, Put
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.ports import SystemIds, Tasks
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, FakeClock

HAVE = Versions(3, 4)
OLDER = Versions(2, 4)  # than the last answer leases: it ends with the answer before
LEASE_S = 600


def leased(until: datetime) -> GrantTerm:
    spec = GrantTermSpec("local", incarnation=1, asker=1, answered=7, lease_seconds=LEASE_S, policy=3, residency=4)
    status = GrantTermStatus(
        incarnation=1, asked=7, asked_time=instant(millis(until) - LEASE_S * 1000), taken=7, end_time=until, knows=1,
        policy=3, residency=4, leased_policy=3, leased_residency=4, before_end_time=until,
    )  # fmt: skip
    return GrantTerm(Metadata(name="local"), spec, status)


def offered(until: datetime | None) -> Grant:
    one = Resources(1000, 0)
    spec = GrantSpec(region="local", version=2, during=one, after=one, lease_seconds=LEASE_S)
    status = GrantStatus(accepted_version=2, during=one, after=one, incarnation=1, lease_end_time=until)
    return Grant(Metadata(name="local", namespace="risk"), spec, status)


def test_a_lapsed_term_leases_nothing_and_takes_no_answer_to_an_earlier_question() -> None:
    now = instant(5_000_000)
    term = leased(instant(5_300_000))
    assert policy_end_ms(term, HAVE, 1) == lease_end(offered(None), term, 1) == 5_300_000
    unanswered = replace(term, status=replace(term.status, asked=8), spec=replace(term.spec, answered=8))
    assert answered(unanswered, 1)
    for before in (term, unanswered):
        over = lapsed_term(before, now)
        assert policy_end_ms(before, OLDER, 1) == 5_300_000
        assert policy_end_ms(over, HAVE, 1) == policy_end_ms(over, OLDER, 1) == 0
        assert lease_end(offered(None), over, 1) == 0
        assert not answered(over, 1), "its answer was to a question of before"
        assert last_word_ms(over) == last_word_ms(before) == last_word_ms(lapsed_term(over, now)), "a second start knows it too"
        assert over.status.asked_time == now
    assert lease_end(lapsed_grant(offered(instant(5_200_000))), term, 1) == 0
    own = offered(None)
    assert lapsed_grant(own) is own


class Plane:
    def __init__(self, plane: str) -> None:
        self.disk, self.clock, self.plane = MemoryDisk(), FakeClock(), plane

    def _server(self) -> Authority:
        timing = Timing(lease_ttl_s=2.0, renew_s=0.3, poll_s=0.02)
        settings = Settings(region="local", plane=self.plane)
        return Authority(MemoryStore(self.disk), self.clock, SystemIds(), settings, timing=timing)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Authority]:
        server = self._server()
        async with Tasks() as tasks:
            tasks.start(server.run(), "server")
            yield server
            tasks.cancel()

    async def wait_leading(self, server: Authority) -> None:
        async with asyncio.timeout(60):
            while not server.leading:
                self.clock.offset += 0.1
                await self.clock.sleep(0.005)


async def furnish(server: Authority) -> None:
    """As the mirror and the grant controller would have written it."""
    until = instant(server.plane_ms() + LEASE_S * 1000)
    pipeline = server._pipeline
    assert pipeline is not None
    term, grant = leased(until), offered(until)
    (made,) = await server.submit([Command(OPERATOR, Put("Grant", offered(None)))])
    assert isinstance(made, Accepted)
    await pipeline.commit_own([put("grantterms", "", "local", term, term), put("grants", "risk", "local", grant, grant)])


def term_of(server: Authority) -> GrantTerm:
    term: GrantTerm = server._state.hot("grantterms", "", "local")
    return term


@pytest.mark.parametrize("plane", ["region", "global"])
async def test_after_a_cold_start_a_region_believes_in_no_lease_and_a_global_plane_leaves_the_books_of_others(plane: str) -> None:
    world = Plane(plane)
    async with world.running() as first:
        await world.wait_leading(first)
        await furnish(first)
    async with world.running() as second:
        await world.wait_leading(second)
        term, grant = term_of(second), second._state.hot("grants", "risk", "local")
        lapsed = plane == "region"
        assert (term.status.end_time is None) is lapsed
        assert term.status.asked == (8 if lapsed else 7)
        assert (grant.status.lease_end_time == instant(0)) is lapsed


async def test_a_standby_that_saw_the_last_batch_happen_goes_on_with_the_leases() -> None:
    world = Plane("region")
    async with Tasks() as tasks:
        first = world._server()
        leading = tasks.start(first.run(), "first")
        await world.wait_leading(first)
        second = world._server()
        tasks.start(second.run(), "second")
        async with asyncio.timeout(60):
            while not second.ready:
                await world.clock.sleep(0.005)
        await furnish(first)
        async with asyncio.timeout(60):
            while second._state.hot("grantterms", "", "local") is None:
                await world.clock.sleep(0.005)
        leading.cancel()
        await world.wait_leading(second)
        assert term_of(second).status.end_time is not None
        assert term_of(second).status.asked == 7
        tasks.cancel()
