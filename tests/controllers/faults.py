"""A plane that meddles with its controllers, in the three ways that found most bugs in real ones: a crash in the middle of a
reconcile, an event that is never told, a read that is stale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from fairlead.authority.local import LocalPlane
from fairlead.client.plane import Change
from fairlead.controllers.contract import part_of
from fairlead.model.commands import Command, LeaseAcquire, LeaseRelease, LeaseRenew, Outcome

Mode = Literal["none", "before", "half", "after", "missed", "stale"]
LEASES = (LeaseAcquire, LeaseRenew, LeaseRelease)


class Meddling:
    """One controller's way to the plane. Each step is met by its fault once: a step is what a submit writes, or which kind of
    object changed."""

    def __init__(self, plane: LocalPlane, mode: Mode) -> None:
        self._plane = plane
        self._mode = mode
        self.met: dict[str, int] = {}
        self._lists: dict[str, Sequence[Change]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plane, name)

    def _first_time(self, step: str) -> bool:
        self.met[step] = self.met.get(step, 0) + 1
        return self.met[step] == 1

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        if isinstance(commands[0].body, LEASES) or self._mode not in ("before", "half", "after"):
            return await self._plane.submit(commands)
        step = ",".join(sorted({part_of(c.body) + str(getattr(c.body, "to", "")) for c in commands}))
        if not self._first_time(step):
            return await self._plane.submit(commands)
        if self._mode == "half":
            await self._plane.submit(commands[: (len(commands) + 1) // 2])
        elif self._mode == "after":
            await self._plane.submit(commands)
        raise ConnectionError(f"crashed {self._mode} {step}")

    async def list(self, plural: str) -> Sequence[Change]:
        now = await self._plane.list(plural)
        if self._mode != "stale":
            return now
        before = self._lists.get(plural, [])  # the first list is empty, each later one is what the one before should have been
        self._lists[plural] = now
        return before

    def follow(self, plurals: Sequence[str], after: int, **options: Any) -> Any:
        return DeafFeed(self, self._plane.follow(plurals, after, **options), self._mode == "missed")


class DeafFeed:
    def __init__(self, owner: Meddling, feed: Any, deaf: bool) -> None:
        self._owner = owner
        self._feed = feed
        self._deaf = deaf

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    def take_nowait(self) -> list[Change]:
        changes: list[Change] = list(self._feed.take_nowait())
        if not self._deaf:
            return changes
        return [change for change in changes if not self._owner._first_time(self._step(change))]

    def _step(self, change: Change) -> str:
        state = getattr(change.hot, "state", "")
        return f"{change.plural} {'gone' if change.raw is None else state}"
