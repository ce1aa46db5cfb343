"""What the resource API asks of a plane, beyond what components ask: lists in pages, one instant of the past, receipts.

Owns the shape only, so that the API speaks with a plane in its own process (fairlead/authority/local.py) and with one in
another region in the same words. Called by fairlead/api.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from fairlead.client.decisions import DecisionQuery, ExplainedPage
from fairlead.client.plane import Change, Feed
from fairlead.model.commands import Command, Outcome
from fairlead.observe.timeline import Step


class Unreachable(Exception):
    """Nobody who could answer for this plane is reached just now."""


class ChangePage(msgspec.Struct, frozen=True):
    items: Sequence[Change]
    revision: int  # at which all of them stood
    next_tenant: str = ""
    next_name: str = ""  # continue after this one; empty: the list is complete


class ResourcePlane(Protocol):
    """All calls may raise Unreachable, those with a revision also Expired. A revision of 0 means now."""

    @property
    def connected(self) -> bool:
        """Whether the plane can be asked at all just now."""

    async def submit(self, commands: list[Command]) -> list[Outcome]: ...

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Change | None: ...

    async def page(
        self,
        plural: str,
        tenant: str | None = None,
        *,
        after: tuple[str, str] = ("", ""),
        limit: int = 500,
        revision: int = 0,
    ) -> ChangePage:
        """Up to `limit` objects in order of tenant and name; of every tenant where none is named."""

    def follow(self, plurals: Sequence[str], after: int) -> Feed: ...

    def revision(self) -> int:
        """The newest this side knows of; 0: none yet."""

    def plane_ms(self) -> int: ...

    async def ask_unwritable_s(self) -> float | None:
        """For how long nobody has been able to write to it, where that is longer than it may be; None: it is written to, as
        far as anybody knows."""

    async def receipt(self, actor: str, key: str) -> Outcome | None:
        """What an Idempotency-Key came to; None: nothing with it has taken effect."""

    async def revision_at(self, time_ms: int) -> int:
        """The newest revision at or before that plane time."""

    async def time_at(self, revision: int) -> int:
        """The plane time at which that revision was committed."""

    async def steps(self, tenant: str, workload: str, since_ms: int) -> Sequence[Step]:
        """What happened to a workload since that plane time, the newest last (fairlead/observe/timeline.py)."""

    async def exported(self, since_ms: int, token: str = "", offset: int = 0) -> tuple[str, int, bytes]:
        """The plane's history since then as a file (fairlead/store/export.py): a token to ask on with, its size, and a piece."""

    async def decisions(self, query: DecisionQuery) -> ExplainedPage:
        """What schedulers of this plane decided, newest first. Nothing where no decisions are kept."""
