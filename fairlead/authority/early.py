"""Feeds for components in the authority's own process that write to its plane only: they are told of a change when it is judged,
while the store is still at it. What they decide on it is judged on top of it and becomes durable after it or not at all, so a
chain of controllers waits for the disk once and not once a link (ADR 0020).

Never for whoever acts elsewhere: agents, watches, other planes and people hear what is durable (hub.py). When a batch is taken
back, every feed ends and its owner lists again. Called by the authority, with what the pipeline says.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from fairlead.authority.state import Rec, State, by_kind
from fairlead.client.plane import Expired
from fairlead.ports import Signal

WAITING_MAX = 50_000  # changes that wait in one feed; beyond that its owner lists again


class EarlyFeed:
    """Several kinds followed together. Within a take they come kind by kind, in the order they were asked for."""

    def __init__(self, early: Early, plurals: Sequence[str], backlog: Sequence[Rec]) -> None:
        self._early = early
        self._waiting: dict[str, list[Rec]] = {plural: [] for plural in plurals}
        self._count = 0
        self._signal = Signal()
        self._signal.set()
        self._ended = ""
        self._position = 0
        for plural, recs in by_kind(backlog).items():
            self.put(plural, recs)

    @property
    def plurals(self) -> Sequence[str]:
        return tuple(self._waiting)

    @property
    def position(self) -> int:
        """Up to where everything was taken. Raises Expired when that is a history which did not happen."""
        self._check()
        return self._position

    def put(self, plural: str, recs: list[Rec]) -> None:
        """Changes of one of its kinds, in order."""
        self._waiting[plural] += recs
        self._count += len(recs)
        if self._count > WAITING_MAX:
            self.end("this feed fell too far behind; list again")
        self._signal.set()

    def end(self, why: str) -> None:
        self._ended = self._ended or why
        for waiting in self._waiting.values():
            waiting.clear()
        self._count = 0
        self._signal.set()

    def take_nowait(self) -> list[Rec]:
        self._signal.clear()
        self._check()
        self._position = self._early.position
        if not self._count:
            return []
        self._count = 0
        out: list[Rec] = []
        for plural, waiting in self._waiting.items():
            if waiting:
                out += waiting
                self._waiting[plural] = []
        return out

    def _check(self) -> None:
        if self._ended:
            raise Expired(self._ended, self._early.horizon)

    def wait(self) -> Coroutine[Any, Any, None]:
        return self._signal.wait()

    def poke(self) -> None:
        self._signal.set()

    def oldest_untaken(self) -> int | None:
        return min((waiting[0].position for waiting in self._waiting.values() if waiting), default=None)

    def close(self) -> None:
        self._early.forget(self)


class Early:
    def __init__(self, state: State) -> None:
        self._state = state
        self._feeds: dict[str, list[EarlyFeed]] = {}  # by kind

    @property
    def position(self) -> int:
        return self._state.position

    @property
    def horizon(self) -> int:
        return self._state.horizon

    def follow(self, plurals: Sequence[str], after: int) -> EarlyFeed:
        state = self._state
        if after < state.horizon:
            raise Expired(f"position {after} is older than the oldest in memory, {state.horizon}", state.horizon)
        wanted = frozenset(plurals)
        feed = EarlyFeed(self, plurals, [rec for rec in state.changes_since(after) if rec.plural in wanted])
        for plural in feed.plurals:
            self._feeds.setdefault(plural, []).append(feed)
        return feed

    def forget(self, feed: EarlyFeed) -> None:
        for plural in feed.plurals:
            feeds = self._feeds.get(plural, [])
            if feed in feeds:
                feeds.remove(feed)

    def tell(self, recs: Sequence[Rec]) -> bool:
        """What was just judged, in order. Says whether there is anybody whom it concerns."""
        told = False
        if self._feeds:
            for plural, same_kind in by_kind(recs).items():
                for feed in self._feeds.get(plural, ()):
                    feed.put(plural, same_kind)
                    told = True
        return told

    def end(self, why: str) -> None:
        """What was told did not happen, or nobody knows."""
        feeds, self._feeds = self._feeds, {}
        for same_kind in feeds.values():
            for feed in same_kind:
                feed.end(why)
