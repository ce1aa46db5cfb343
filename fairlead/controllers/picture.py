"""What the controllers of one process know of one plane: one feed, and one copy of each object with the indexes of all of them.

Told a change, it updates the objects and asks each controller that follows the kind which keys that concerns; only those who have
one are woken. Authorises nothing and decides nothing. When it loses sight of the plane, everybody who looks at it starts over.
Made by the composition root for all controllers of a server, or by a runtime for itself; opened by whoever looks at it first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from fairlead.client.plane import Change, Expired, Feed, Plane
from fairlead.controllers.cache import Item, Objects
from fairlead.model.ids import split_revision
from fairlead.ports import Clock, Signal

log = logging.getLogger(__name__)

SLICE: Final = 400  # changes taken in between two yields to the loop (P17)
LISTED_SLICE: Final = 2000  # objects compared between two yields

# (before, after, found only by listing again) -> whether that is anything to look at
Told = Callable[[Item | None, Item | None, bool], bool]
Pair = tuple[Item | None, Item | None]


class PictureFeed:
    """One controller's place before the picture: woken when there is something to look at. There is never anything to take."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._signal = Signal()
        self._error: BaseException | None = None

    def take_nowait(self) -> Sequence[Change]:
        self._signal.clear()
        if self._error is not None:
            raise self._error
        return ()

    @property
    def revision(self) -> int:
        if self._error is not None:
            raise self._error
        return self._picture.revision

    def wait(self) -> Coroutine[Any, Any, None]:
        return self._signal.wait()

    def poke(self) -> None:
        self._signal.set()

    def end(self, error: BaseException) -> None:
        self._error = self._error or error
        self._signal.set()

    def oldest_untaken(self) -> int | None:
        return self._picture.oldest_untaken()

    def close(self) -> None:
        self._picture.leave(self)


class Picture:
    def __init__(self, plane: Plane, clock: Clock) -> None:
        self._plane = plane
        self._clock = clock
        self._kinds: dict[str, None] = {}
        self._looking: dict[str, list[tuple[PictureFeed, Told]]] = {}  # by kind
        self._feed: Feed | None = None
        self._revision = 0
        self._listed_at = 0.0
        self._opening = asyncio.Lock()
        self._listing = asyncio.Lock()
        self._opened = asyncio.Event()
        self.objects = Objects()
        self.busy = False  # between what was and what is: nobody looks

    def include(self, plurals: Iterable[str]) -> None:
        """Before it is opened: kinds that somebody will look at."""
        self._kinds.update(dict.fromkeys(plurals))

    async def open(self) -> None:
        """Until all kinds are here. Raises Expired when they cannot be listed."""
        async with self._opening:
            if self._feed is not None:
                return
            feed = self._plane.follow(tuple(self._kinds), self._plane.revision())
            objects = Objects()
            try:
                for plural in self._kinds:
                    for change in await self._plane.list(plural):
                        objects.apply(change)
                if split_revision(self._plane.revision())[0] != split_revision(feed.revision)[0]:
                    raise Expired("the plane began a new incarnation while it was listed; list again", 0)
            except BaseException:
                feed.close()
                raise
            self.objects, self._feed, self._revision = objects, feed, feed.revision
            self._listed_at = self._clock.monotonic()
            self._opened.set()

    def join(self, feed: PictureFeed, plurals: Iterable[str], told: Told) -> None:
        """Called right after `open`, before anything else can happen."""
        if self._feed is None:
            raise Expired("the picture was lost; list again", 0)
        for plural in plurals:
            self._looking.setdefault(plural, []).append((feed, told))

    def leave(self, feed: PictureFeed) -> None:
        for plural, looking in self._looking.items():
            self._looking[plural] = [each for each in looking if each[0] is not feed]

    @property
    def revision(self) -> int:
        """Up to where everything is in the picture. Raises Expired when it shows what did not happen (ADR 0020)."""
        if self._feed is None:
            raise Expired("the picture was lost; list again", 0)
        _ = self._feed.revision
        return self._revision

    def oldest_untaken(self) -> int | None:
        oldest = getattr(self._feed, "oldest_untaken", None)
        found: int | None = oldest() if oldest is not None else None
        return found

    # --- keeping it up to date -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """For ever; opened again by whoever looks next after it was lost."""
        try:
            while True:
                await self._opened.wait()
                try:
                    await self._keep_up()
                except Exception as error:  # whoever looks starts over, and opens it again
                    if not isinstance(error, Expired):
                        log.exception("a picture of the plane was lost")
                    self.close(error)
        finally:
            self.close(Expired("nobody keeps the picture up to date any more", 0))

    def stop(self) -> None:
        """Its task is cancelled with those of everybody who looks at it."""

    def close(self, error: BaseException | None = None) -> None:
        feed, self._feed = self._feed, None
        self._opened.clear()
        self.busy = False
        if feed is not None:
            feed.close()
        looking, self._looking = self._looking, {}
        for each in {id(one): one for same_kind in looking.values() for one, _ in same_kind}.values():
            each.end(Expired(str(error or "the picture was closed"), 0))  # each its own: they are raised in several tasks

    async def _keep_up(self) -> None:
        feed = self._feed
        while feed is not None and feed is self._feed:
            await feed.wait()
            changes = feed.take_nowait()
            if changes:
                await self._take_in(changes)
            if feed is self._feed:
                self._revision = feed.revision

    async def _take_in(self, changes: Sequence[Change], by_resync: bool = False) -> None:
        """All of them, before anybody looks or is asked; of many, a slice at a time."""
        if len(changes) <= SLICE:
            self._tell(self._apply(changes), by_resync)
            return
        self.busy = True
        try:
            pairs: list[Pair] = []
            for start in range(0, len(changes), SLICE):
                pairs += self._apply(changes[start : start + SLICE])
                await self._clock.sleep(0)
            for start in range(0, len(pairs), SLICE):
                self._tell(pairs[start : start + SLICE], by_resync)
                await self._clock.sleep(0)
        finally:
            self.busy = False
            for feed, _ in [each for same_kind in self._looking.values() for each in same_kind]:
                feed.poke()

    def _apply(self, changes: Iterable[Change]) -> list[Pair]:
        apply = self.objects.apply
        pairs = [apply(change) for change in changes]
        return [pair for pair in pairs if pair[0] is not pair[1]]

    def _tell(self, pairs: Iterable[Pair], by_resync: bool) -> None:
        looking = self._looking
        for old, new in pairs:
            item = new or old
            assert item is not None, "something has changed"
            for feed, told in looking.get(item.plural, ()):
                try:
                    if told(old, new, by_resync) and not self.busy:
                        feed.poke()
                except Exception as error:  # of one controller: the others go on
                    log.exception("a controller cannot tell what a change of %s concerns", item.plural)
                    feed.end(error)

    async def list_again(self, at_most_s: float) -> None:
        """A change that was never told is found here (L3). Once for all who look, so often."""
        async with self._listing:
            if self._feed is None or self._clock.monotonic() - self._listed_at < at_most_s:
                return
            self._listed_at = self._clock.monotonic()
            objects = self.objects
            for plural in list(self._kinds):
                position = split_revision(self._plane.revision())[1]
                listed = await self._plane.list(plural)
                for start in range(0, len(listed), LISTED_SLICE):
                    if objects is not self.objects:
                        return  # it was lost meanwhile
                    self._tell(self._apply(listed[start : start + LISTED_SLICE]), by_resync=True)
                    await self._clock.sleep(0)
                if objects is self.objects:
                    self._tell(self._apply(objects.unlisted(plural, listed, position)), by_resync=True)
