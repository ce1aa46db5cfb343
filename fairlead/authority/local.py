"""The plane's client interface for components in the authority's own process: the calls made from afar, with nothing copied."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from fairlead.authority.authority import Authority
from fairlead.authority.early import EarlyFeed
from fairlead.authority.hub import Expired, Feed
from fairlead.authority.reader import PAGE_MAX
from fairlead.authority.state import Rec
from fairlead.client.decisions import DecisionQuery, DecisionSource, ExplainedPage, explained
from fairlead.client.resources import ChangePage, Unreachable
from fairlead.model.commands import Command, Outcome
from fairlead.model.ids import revision, split_revision
from fairlead.observe.timeline import Step
from fairlead.ports import Clock

_SLICE = 5000  # nodes looked at between two yields to the loop: about a millisecond


class LocalFeed:
    """A feed that speaks in revisions."""

    def __init__(self, feed: Feed | EarlyFeed, incarnation: int) -> None:
        self._feed = feed
        self._incarnation = incarnation

    def take_nowait(self) -> Sequence[Rec]:
        return self._feed.take_nowait()

    def wait(self) -> Coroutine[Any, Any, None]:
        return self._feed.wait()

    def poke(self) -> None:
        self._feed.poke()

    def close(self) -> None:
        self._feed.close()

    def oldest_untaken(self) -> int | None:
        return self._feed.oldest_untaken()

    @property
    def revision(self) -> int:
        return revision(self._incarnation, self._feed.position)


class LocalPlane:
    def __init__(self, authority: Authority, clock: Clock, *, early: bool = False) -> None:
        """`early`: feeds tell what is judged and not durable yet, for whoever writes to this plane and acts nowhere else."""
        self._authority = authority
        self._early = early
        self._clock = clock
        self.explains: DecisionSource | None = None  # where its schedulers' decisions are kept, if they are

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        return await self._authority.submit(commands)

    def plane_ms(self) -> int:
        return self._authority.plane_ms()

    @property
    def vouches(self) -> bool:
        """A store that renews leases and takes no batch is no better than none: a full disk may have room for the one only."""
        return self._authority.vouches and not self._authority.stuck_s

    def _check_ready(self) -> None:
        if not self._authority.ready:
            raise Expired("this server has not read its plane yet", 0)

    async def list(self, plural: str) -> Sequence[Rec]:
        self._check_ready()
        view, after = self._authority.view(), ("", "")
        out: list[Rec] = []
        while True:
            page = await view.page(plural, after=after)
            out += page.items
            if not page.next_name:
                return out
            after = (page.next_tenant, page.next_name)

    def follow(self, plurals: Sequence[str], after: int, *, nodes: Sequence[str] = ()) -> LocalFeed:
        self._check_ready()
        early = self._early and not nodes
        feed = self._authority.follow_early(plurals, after) if early else self._authority.follow(plurals, after, nodes=nodes)
        return LocalFeed(feed, split_revision(after)[0])

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Rec | None:
        self._check_ready()
        return await self._authority.past.get(plural, tenant, name, revision)

    @property
    def connected(self) -> bool:
        return True

    async def page(
        self,
        plural: str,
        tenant: str | None = None,
        *,
        after: tuple[str, str] = ("", ""),
        limit: int = PAGE_MAX,
        revision: int = 0,
    ) -> ChangePage:
        """As fairlead/client/resources.py says; a revision that memory has forgotten is looked up in the archive."""
        if not self._authority.ready:
            raise Unreachable("this server has not read its plane yet")
        try:
            page = await self._authority.view(revision).page(plural, tenant, after=after, limit=min(limit, PAGE_MAX))
        except Expired:
            return await self._past_page(plural, tenant, after, limit, revision)
        return ChangePage(page.items, page.revision, page.next_tenant, page.next_name)

    async def _past_page(
        self, plural: str, tenant: str | None, after: tuple[str, str], limit: int, revision: int
    ) -> ChangePage:  # fmt: skip
        found = await self._authority.past.list(plural, tenant, revision)
        found.sort(key=lambda rec: (rec.tenant, rec.name))
        rest = [rec for rec in found if (rec.tenant, rec.name) > after]
        if len(rest) <= limit:
            return ChangePage(rest, revision)
        return ChangePage(rest[:limit], revision, rest[limit - 1].tenant, rest[limit - 1].name)

    async def ask_unwritable_s(self) -> float | None:
        return self._authority.unwritable_s

    async def receipt(self, actor: str, key: str) -> Outcome | None:
        return self._authority.receipt(actor, key)

    async def revision_at(self, time_ms: int) -> int:
        return await self._authority.past.revision_at(time_ms)

    async def time_at(self, revision: int) -> int:
        return await self._authority.past.time_at(revision)

    async def steps(self, tenant: str, workload: str, since_ms: int) -> Sequence[Step]:
        return await self._authority.telling.steps(tenant, workload, since_ms)

    async def exported(self, since_ms: int, token: str = "", offset: int = 0) -> tuple[str, int, bytes]:
        return await self._authority.telling.exported(since_ms, token, offset)

    async def decisions(self, query: DecisionQuery) -> ExplainedPage:
        return ExplainedPage() if self.explains is None else explained(await self.explains.query(query))

    def revision(self) -> int:
        return self._authority.view().revision

    async def heard(self, since_ms: int) -> Sequence[tuple[str, int]]:
        accounts = self._authority.observed()
        out: list[tuple[str, int]] = []
        for start in range(0, len(accounts), _SLICE):
            if start:
                await self._clock.sleep(0)
            out += [(a.name, a.observed_ms) for a in accounts[start : start + _SLICE] if a.observed_ms > since_ms]
        return out
