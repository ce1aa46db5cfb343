"""How schedulers, controllers and agents speak with a plane: send commands, list, follow changes. One shape, whether the
authority is in this process (fairlead/authority/local.py), in another one, or in the simulator.

Owns the shape only. What it gives is observation: it may rank options, it never authorises anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from fairlead.model.commands import Command, Outcome


class Change(Protocol):
    """One version of one object, as listed or as it changed. `raw` None means that it is gone; `hot` is what is kept of it
    decoded: the object itself, or a few fields for the kinds of which there are millions."""

    plural: str
    tenant: str
    name: str
    position: int
    raw: bytes | None
    hot: Any


class Expired(Exception):
    """The wanted revision is no longer in memory, the follower was too slow, or leadership moved: list again (410)."""

    def __init__(self, detail: str, oldest: int) -> None:
        super().__init__(detail)
        self.oldest = oldest


class Overloaded(Expired):
    """More is asked of the plane at once than it takes. Nothing is gone: ask again later (429). Whoever keeps a picture of the
    plane begins anew, as after everything that cost it sight of it."""

    def __init__(self, detail: str, retry_after_s: float = 1.0) -> None:
        super().__init__(detail, 0)
        self.retry_after_s = retry_after_s


class Feed(Protocol):
    """The changes of several kinds since a revision. Within a kind they come in order; what one batch changed comes together."""

    def take_nowait(self) -> Sequence[Change]:
        """What is there, possibly nothing. Raises Expired when this follower must list again."""

    @property
    def revision(self) -> int:
        """Up to where everything has been taken."""

    async def wait(self) -> None:
        """Until there is something to take."""

    def poke(self) -> None:
        """Ends a `wait`: its owner has something else to do."""

    def close(self) -> None: ...


class Plane(Protocol):
    async def submit(self, commands: list[Command]) -> list[Outcome]: ...

    async def list(self, plural: str) -> Sequence[Change]:
        """Every object of a kind at the present revision, or later: `follow` from before to miss nothing."""

    def follow(self, plurals: Sequence[str], after: int, *, nodes: Sequence[str] = ()) -> Feed:
        """With `nodes`, of bindings and nodes only what concerns those."""

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Change | None: ...

    def revision(self) -> int: ...

    async def time_at(self, revision: int) -> int:
        """The plane time of the batch that committed that revision."""

    def plane_ms(self) -> int:
        """Plane time, as near as this side knows it."""

    @property
    def vouches(self) -> bool:
        """Whether what is read here is the present and can be written to: its leader may trust itself, so its store answers it.
        From afar, as far as one can tell: there is a connection."""

    async def heard(self, since_ms: int) -> Iterable[tuple[str, int]]:
        """Nodes heard since then, and when, in plane time. Soft."""
