"""The region of an agent as a plane, near or far: fairlead/client/remote.py over a network, anything of its shape elsewhere.

Owns how an inventory is answered from the bindings of a node. Called by main.py and tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fairlead.agent.region import Ack, Held, Inventory
from fairlead.client.plane import Change, Feed
from fairlead.decide.inventory import to_stop
from fairlead.decide.lasting import GrantWord
from fairlead.model.commands import Command, Outcome


class Heard(Protocol):
    @property
    def incarnation(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def unknown(self) -> Sequence[str]: ...

    @property
    def superseded(self) -> Sequence[str]: ...

    @property
    def global_valid_s(self) -> float | None: ...

    @property
    def lease_s(self) -> float: ...

    @property
    def longest_s(self) -> float: ...

    @property
    def grants(self) -> GrantWord | None: ...


class AgentPlane(Protocol):
    """What an agent needs of a plane."""

    async def submit(self, commands: list[Command]) -> list[Outcome]: ...

    async def heartbeat(self, nodes: Sequence[tuple[str, int]]) -> Heard | None: ...

    async def get(self, plural: str, tenant: str, name: str) -> Change | None: ...

    async def bound_to(self, nodes: Sequence[str]) -> tuple[int, Sequence[Change]]: ...

    async def named(self, plural: str, tenant: str, names: Sequence[str]) -> tuple[int, Sequence[Change]]: ...

    def follow(self, plurals: Sequence[str], after: int, *, nodes: Sequence[str] = ()) -> Feed: ...

    def plane_ms(self) -> int: ...


class PlaneRegion:
    def __init__(self, plane: AgentPlane) -> None:
        self._plane = plane

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        return await self._plane.submit(commands)

    async def heartbeat(self, nodes: Sequence[tuple[str, int]]) -> Ack | None:
        heard = await self._plane.heartbeat(nodes)
        if heard is None:
            return None
        return Ack(
            heard.incarnation, heard.epoch, heard.unknown, heard.superseded, heard.global_valid_s, heard.grants, heard.lease_s,
            heard.longest_s,
        )  # fmt: skip

    async def get(self, plural: str, tenant: str, name: str) -> Change | None:
        return await self._plane.get(plural, tenant, name)

    async def nodes(self, names: Sequence[str]) -> tuple[int, Sequence[Change]]:
        return await self._plane.named("nodes", "", names)

    async def inventory(self, held: Sequence[Held]) -> Inventory:
        """Answered by the node's own bindings: what runs under no present one of them is not the region's any more."""
        revision, bindings = await self._plane.bound_to([item.node for item in held])
        known = {(change.tenant, change.name): (change.hot.node, change.hot.state, change.hot.token) for change in bindings}
        stop = [
            (item.node, what)
            for item in held
            for what in to_stop(item.node, item.running, lambda tenant, name: known.get((tenant, name)))
        ]
        return Inventory(revision, bindings, stop)

    def follow(self, nodes: Sequence[str], after: int) -> Feed:
        return self._plane.follow(("nodes", "bindings"), after, nodes=nodes)

    def plane_ms(self) -> int:
        return self._plane.plane_ms()
