"""A server's own plane as its front door sees it: reads from memory, writes to whoever leads.

A read is not older than the leader was when it was asked for, so that whoever writes through one server and reads through another
finds it: the leader is asked how far it has come, and memory is waited for. Where no leader can be asked, memory answers as it
is. Owns the connection to the leader; decides nothing. Made by plane.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from fairlead.authority.authority import Authority
from fairlead.authority.local import LocalFeed, LocalPlane
from fairlead.authority.reader import PAGE_MAX
from fairlead.authority.state import Rec
from fairlead.client.decisions import DecisionQuery, ExplainedPage
from fairlead.client.plane import Expired
from fairlead.client.remote import Dial, RemotePlane
from fairlead.client.resources import ChangePage, Unreachable
from fairlead.model.commands import Command, Outcome, Refused
from fairlead.model.ids import split_revision
from fairlead.ports import Clock, Random, Tasks

LEADERLESS_S: Final = 5.0  # a write is held for so long while nobody leads; longer, and its sender may try elsewhere
LEADERLESS_LOOK_S: Final = 0.05
LEVEL_S: Final = 1.0  # a leader that does not say in this time how far it has come is not waited for
SEEN_S: Final = 2.0  # nor is a memory that does not come so far: the store is slow, and old is better than nothing
LOOK_S: Final = 0.005  # between two looks at memory that is being brought up to date
MEMORY_LOOK_S: Final = 0.1  # between two looks whether memory is there again
LATE_S: Final = 10.0  # a watch from a revision that is not here in this time begins anew


class ForwardingPlane(LocalPlane):
    def __init__(self, authority: Authority, clock: Clock, dial: Dial, random: Random, own_address: str) -> None:
        super().__init__(authority, clock)
        self._dial = dial
        self._random = random
        self._own_address = own_address
        self._leader: RemotePlane | None = None
        self._waiting: list[asyncio.Future[int]] = []  # reads that want to know how far the leader has come
        self._wanted = asyncio.Event()

    async def run(self) -> None:
        """Keeps a connection to the leader while that is somebody else."""
        while True:
            if self._authority.leading:
                self._leader = None
                await self._authority.wait_not_leading()
            address = self._authority.leader_address
            if self._authority.leading or not address or address == self._own_address:
                self._leader = None
                await self._clock.sleep(0.2)
                continue
            async with Tasks() as tasks:
                self._leader = leader = RemotePlane([address], self._dial, self._clock, self._random, "forward")
                tasks.start(leader.run(), "leader")
                tasks.start(self._tell_how_far(leader), "how far")
                await self._other_than(address)
                self._leader = None
                tasks.cancel()

    async def _other_than(self, address: str) -> None:
        """Until somebody else leads, which its epoch-start batch says."""

        def still() -> bool:
            return self._authority.leader_address == address and not self._authority.leading

        while still():
            try:
                feed = self.follow(("planes",), self.revision())
            except Expired:  # memory is read anew, and will say who leads then
                await self._clock.sleep(MEMORY_LOOK_S)
                continue
            with contextlib.closing(feed), contextlib.suppress(Expired):
                while still():
                    await feed.wait()
                    feed.take_nowait()

    @property
    def connected(self) -> bool:
        """While memory is read anew there is nothing to show, and watches wait."""
        return self._authority.ready

    @property
    def leader(self) -> RemotePlane | None:
        """Whoever leads, where that is another server and can be asked."""
        leader = self._leader
        return leader if leader is not None and leader.connected and not self._authority.leading else None

    # --- writes ----------------------------------------------------------------------------------------------------------

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        """To whoever leads; where nobody does just now, a little later to whoever does then."""
        until = self._clock.monotonic() + LEADERLESS_S
        while True:
            leader = self.leader
            outcomes = await (self._authority if leader is None else leader).submit(commands)
            nobody = all(isinstance(outcome, Refused) and outcome.reason == "NotLeader" for outcome in outcomes)
            if not commands or not nobody or self._clock.monotonic() >= until:
                return outcomes
            await self._clock.sleep(LEADERLESS_LOOK_S)

    async def receipt(self, actor: str, key: str) -> Outcome | None:
        """Only a leader can say that there is none."""
        leader = self.leader
        return await super().receipt(actor, key) if leader is None else await leader.receipt(actor, key)

    async def decisions(self, query: DecisionQuery) -> ExplainedPage:
        """They are kept where they were made; whoever led before may have older ones."""
        leader = self.leader
        return await super().decisions(query) if leader is None else await leader.decisions(query)

    async def ask_unwritable_s(self) -> float | None:
        """Whoever leads knows best; one that cannot be asked is not waited for."""
        leader = self.leader
        if leader is not None:
            with contextlib.suppress(Unreachable, TimeoutError):
                async with asyncio.timeout(LEVEL_S):
                    return await leader.ask_unwritable_s()
        return await super().ask_unwritable_s()

    # --- reads -----------------------------------------------------------------------------------------------------------

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Rec | None:
        await self._seen(revision or await self._how_far())
        return await super().get(plural, tenant, name, revision)

    async def page(
        self,
        plural: str,
        tenant: str | None = None,
        *,
        after: tuple[str, str] = ("", ""),
        limit: int = PAGE_MAX,
        revision: int = 0,
    ) -> ChangePage:
        await self._seen(revision or await self._how_far())
        return await super().page(plural, tenant, after=after, limit=limit, revision=revision)

    def follow(self, plurals: Sequence[str], after: int, *, nodes: Sequence[str] = ()) -> LocalFeed:
        if self._is_ahead(after):
            return LateFeed(self, plurals, after, nodes)
        return super().follow(plurals, after, nodes=nodes)

    def _is_ahead(self, revision: int) -> bool:
        """Seen elsewhere, and not here yet. Of another incarnation it will never be."""
        here = self._authority.view().revision
        return revision > here and split_revision(revision)[0] == split_revision(here)[0] and not self._authority.leading

    async def _seen(self, revision: int) -> None:
        """Waits a little for this server's memory to come as far."""
        until = self._clock.monotonic() + SEEN_S
        while self._is_ahead(revision) and self._clock.monotonic() < until:
            self._authority.hurry()
            await self._clock.sleep(LOOK_S)

    async def wait_seen(self, revision: int, patience_s: float) -> bool:
        until = self._clock.monotonic() + patience_s
        while self._is_ahead(revision) and self._clock.monotonic() < until:
            await self._seen(revision)
        return not self._is_ahead(revision)

    # --- how far the leader has come -------------------------------------------------------------------------------------

    async def _how_far(self) -> int:
        """The leader's revision at some moment after this was asked; 0: nobody can say."""
        if self.leader is None:
            return 0
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._wanted.set()
        try:
            async with asyncio.timeout(LEVEL_S):
                return await answer
        except TimeoutError:
            return 0

    async def _tell_how_far(self, leader: RemotePlane) -> None:
        """One question for all who came before it is asked: a thousand readers cost the leader what one does."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            waiting, self._waiting = self._waiting, []
            revision = 0
            try:
                revision = await leader.now()
            finally:
                for future in waiting:
                    if not future.done():
                        future.set_result(revision)


class LateFeed(LocalFeed):
    """A feed from a revision that this server has not reached: a client has come over from one that is ahead."""

    def __init__(self, plane: ForwardingPlane, plurals: Sequence[str], after: int, nodes: Sequence[str]) -> None:
        self._plane = plane
        self._asked = (plurals, after, nodes)
        self._begun: LocalFeed | None = None
        self._over: Expired | None = None

    def take_nowait(self) -> Sequence[Rec]:
        if self._over is not None:
            raise self._over
        return [] if self._begun is None else self._begun.take_nowait()

    @property
    def revision(self) -> int:
        return self._asked[1] if self._begun is None else self._begun.revision

    async def wait(self) -> None:
        if self._begun is None and self._over is None:
            plurals, after, nodes = self._asked
            try:
                if not await self._plane.wait_seen(after, LATE_S):
                    raise Expired(f"revision {after} lies ahead of this server", 0)
                self._begun = LocalPlane.follow(self._plane, plurals, after, nodes=nodes)
            except Expired as error:
                self._over = error
        if self._begun is not None:
            await self._begun.wait()

    def poke(self) -> None:
        if self._begun is not None:
            self._begun.poke()

    def close(self) -> None:
        if self._begun is not None:
            self._begun.close()
