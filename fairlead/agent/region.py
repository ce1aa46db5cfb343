"""What an agent asks of its region: one small interface, so that it runs over a network, in the region's own process, or in the
simulator, unchanged.

Owns the shapes only. Everything may fail: reads raise fairlead.client.plane.Expired when the region cannot be reached or the
follower must list again, `submit` answers with outcomes, `heartbeat` with None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from fairlead.client.plane import Change, Feed
from fairlead.decide.inventory import Running
from fairlead.decide.lasting import GrantWord
from fairlead.model.commands import Command, Outcome


class Ack(msgspec.Struct, frozen=True, gc=False):
    """A heartbeat was heard by a leader that may trust itself (P9). `superseded`: another session of that node is newer.
    `global_valid_s`: how long globally exclusive slots may go on, counted from when the heartbeat was sent (P11); None: as
    long as the node's own lease. `grants`: how long what is provisional may; None: as was said before. `lease_s`: how long it may
    be counted on, and `longest_s` the longest that an earlier agent may have been told; 0: by a server that does not say so."""

    incarnation: int
    epoch: int
    unknown: Sequence[str] = ()
    superseded: Sequence[str] = ()
    global_valid_s: float | None = None
    grants: GrantWord | None = None
    lease_s: float = 0.0
    longest_s: float = 0.0


class Held(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What one session of a node says it runs."""

    node: str
    session: int
    running: tuple[Running, ...] = ()


class Inventory(msgspec.Struct, frozen=True, gc=False):
    """The region's answer at one revision: every binding on those nodes, and what must stop (fairlead/decide/inventory.py)."""

    revision: int
    bindings: Sequence[Change]
    stop: Sequence[tuple[str, Running]] = ()  # (node, what)


class Region(Protocol):
    async def submit(self, commands: list[Command]) -> list[Outcome]: ...

    async def heartbeat(self, nodes: Sequence[tuple[str, int]]) -> Ack | None:
        """(node, session) pairs; None where no leader vouches for it."""

    async def get(self, plural: str, tenant: str, name: str) -> Change | None:
        """Revisions, Configs and Secrets of slots bound here."""

    async def nodes(self, names: Sequence[str]) -> tuple[int, Sequence[Change]]:
        """(revision, the Node objects there are of these names)."""

    async def inventory(self, held: Sequence[Held]) -> Inventory: ...

    def follow(self, nodes: Sequence[str], after: int) -> Feed:
        """Changes of the bindings on these nodes and of these Node objects, since that revision."""

    def plane_ms(self) -> int: ...
