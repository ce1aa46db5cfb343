"""The feeds of one connection: what is followed is sent as it changes, until its follower ends it, falls behind or is gone.

Owns how many there may be and that one which nobody wants any more costs nothing. What a follower may see is the connection's to
say (service.py), which makes one of these for itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from fairlead.authority.local import LocalFeed, LocalPlane
from fairlead.client.channel import CHANGES, CHANGES_MAX, ENDED, REFUSAL, Row
from fairlead.client.plane import Change, Expired
from fairlead.client.resources import Unreachable
from fairlead.ports import Clock, Tasks

FEEDS_MAX: Final = 5_000  # of one connection: a front door has one for each of its watches, and may have so many
TICK_S: Final = 0.5  # how often a quiet feed says how far it has come


class _Refused(Exception):
    """Nobody can follow that, or not this one."""


class _Followed:
    """One feed, from when it is asked for."""

    def __init__(self) -> None:
        self.feed: LocalFeed | None = None
        self.over = False

    def end(self) -> None:
        self.over = True
        if self.feed is not None:
            self.feed.poke()


class Feeds:
    def __init__(
        self, local: LocalPlane, clock: Clock, tasks: Tasks, send: Callable[[list[Any]], Awaitable[None]],
        known: Callable[[str], None], rows: Callable[[Iterable[Change]], list[Row]],
    ) -> None:  # fmt: skip
        """`known` raises ValueError for kinds this follower may not see; `rows` is what it may see of changes."""
        self._local = local
        self._clock = clock
        self._tasks = tasks
        self._send = send
        self._known = known
        self._rows = rows
        self._open: dict[int, _Followed] = {}
        self.can_end = False  # the follower says when it has had enough of one

    def __len__(self) -> int:
        return len(self._open)

    async def follow(self, number: int, arguments: list[Any]) -> None:
        if number in self._open:
            await self._send([number, REFUSAL, "Invalid", f"follow: {number} is followed already"])
        elif len(self._open) < FEEDS_MAX:
            self._open[number] = followed = _Followed()
            self._tasks.start(self._run(number, followed, arguments), f"follow {number}")
        elif self.can_end:
            await self._send([number, ENDED, f"{FEEDS_MAX} feeds of this connection are open already", 0])
        else:
            self._tasks.cancel()  # most of them are nobody's: it has no way to say so but a new connection

    def unfollow(self, arguments: list[Any]) -> None:
        """Also of one that has ended by itself meanwhile."""
        for number in arguments[:1]:
            if isinstance(number, int) and number in self._open:
                self._open.pop(number).end()

    async def _run(self, number: int, followed: _Followed, arguments: list[Any]) -> None:
        try:
            followed.feed, nodes = self._begun(arguments)
            # Whoever follows nodes acts on what changes there, and is not told every moment that nothing did: agents are many.
            ticking = None if nodes else self._tasks.start(self._tick(followed.feed), "tick")
            try:
                await self._tell(number, followed, followed.feed)
            finally:
                if ticking is not None:
                    ticking.cancel()
                followed.feed.close()
        except _Refused as error:
            await self._send([number, REFUSAL, "Invalid", f"follow: {error}"])
        except (Expired, Unreachable) as error:
            await self._send([number, ENDED, str(error), error.oldest if isinstance(error, Expired) else 0])
        finally:
            if self._open.get(number) is followed:
                del self._open[number]

    def _begun(self, arguments: list[Any]) -> tuple[LocalFeed, Sequence[str]]:
        try:
            plurals, after, *rest = arguments
            nodes = rest[0] if rest else ()
            for plural in plurals:
                self._known(plural)
            return self._local.follow(plurals, after, nodes=nodes), nodes
        except (ValueError, TypeError, KeyError) as error:
            raise _Refused(str(error)) from error

    async def _tell(self, number: int, followed: _Followed, feed: LocalFeed) -> None:
        told = 0
        while True:
            if followed.over:
                return
            await feed.wait()
            if followed.over:
                return
            rows = self._rows(feed.take_nowait())
            if not rows and feed.revision == told:
                continue
            told = feed.revision
            for start in range(0, len(rows) or 1, CHANGES_MAX):
                last = start + CHANGES_MAX >= len(rows)
                await self._send([number, CHANGES, told if last else 0, rows[start : start + CHANGES_MAX]])

    async def _tick(self, feed: LocalFeed) -> None:
        while True:
            await self._clock.sleep(TICK_S)
            feed.poke()
