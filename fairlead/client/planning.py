"""What a plan is asked with and what it says: who would move, be evicted, wait and why, before and after a change.

Shapes only, so that the resource API asks without knowing who answers (fairlead/planning does). Called by fairlead/api.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from fairlead.client.resources import ChangePage
from fairlead.model.commands import Command, Refused

Mark = Literal["+", "~", "-"]


class Readable(Protocol):
    """As much of a plane as a plan looks at (fairlead/client/resources.py). Raises Unreachable."""

    @property
    def connected(self) -> bool: ...

    def plane_ms(self) -> int: ...

    def revision(self) -> int: ...

    async def page(
        self, plural: str, tenant: str | None = None, *, after: tuple[str, str] = ("", ""), limit: int = 500, revision: int = 0
    ) -> ChangePage: ...


class Busy(Exception):
    """So many plans wait already that another would only wait longer."""


class TooLarge(Exception):
    """More objects than one plan reads."""


class Step(NamedTuple):
    """One command of the change, for one plane."""

    plane: str
    command: Command


class _Row(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Everything said is shown, also where it is nothing: scripts read it."""


class InRegion(_Row, frozen=True):
    region: str
    bound_before: int = 0
    bound_after: int = 0
    pending_before: int = 0
    pending_after: int = 0


class WorkloadRow(_Row, frozen=True):
    mark: Mark
    namespace: str
    name: str
    regions: tuple[InRegion, ...]


class SlotRow(_Row, frozen=True):
    """One slot that would not be where it is. `to` empty: it would have no place, for `reason`."""

    mark: Mark
    namespace: str
    workload: str
    slot: str
    region: str
    from_node: str = ""
    to_node: str = ""
    reason: str = ""
    detail: str = ""
    by: str = ""  # the slot whose claim it has to leave for


class PendingRow(_Row, frozen=True):
    """Slots of one workload that would wait for the same reason. `before` of them wait so today."""

    namespace: str
    workload: str
    region: str
    reason: str
    detail: str
    count: int
    before: int


class DrainRow(_Row, frozen=True):
    node: str
    region: str
    left: int
    message: str


class ShortRow(_Row, frozen=True):
    namespace: str
    workload: str
    missing: int
    why: str


class OutlookRow(_Row, frozen=True):
    """If `lost_region` were lost: critical services that would reach their minimum, and those that would not."""

    lost_region: str
    ready_before: int
    ready_after: int
    short_before: int
    short_after: int
    services: tuple[ShortRow, ...] = ()  # short after the change


class BudgetRow(_Row, frozen=True):
    namespace: str
    name: str
    region: str
    held_before: int
    held_after: int
    waiting_before: int
    waiting_after: int


class CostRow(_Row, frozen=True):
    """Of the nodes of a region, and of the share of them that work takes; per hour, in the currency of hourlyCostMillis."""

    region: str
    nodes_before: float
    nodes_after: float
    used_before: float
    used_after: float


class Planned(_Row, frozen=True):
    workloads: tuple[WorkloadRow, ...] = ()
    slots: tuple[SlotRow, ...] = ()
    pending: tuple[PendingRow, ...] = ()
    drains: tuple[DrainRow, ...] = ()
    readiness: tuple[OutlookRow, ...] = ()
    budgets: tuple[BudgetRow, ...] = ()
    cost: tuple[CostRow, ...] = ()
    simulated_seconds: float = 0.0  # of plane time in the trial
    settled: bool = True  # False: it was still changing when the trial had to end
    unreachable: tuple[str, ...] = ()


class PlanRefused(NamedTuple):
    """The change itself would be refused."""

    at: int  # the step, by its place
    refused: Refused


Marks = Mapping[str, Mapping[str, Mapping[str, str]]]  # plane -> kind -> TENANT/NAME -> what it looks like


class PlanBase(NamedTuple):
    """What a plan rests on: per plane the revision it was read at, and of each object what decisions look at, as a short hash."""

    revisions: Mapping[str, int]
    marks: Marks


class Unblocked(_Row, frozen=True):
    """One change after which the slot had a place, when the decision was made again."""

    change: str
    command: str  # how to make it, as far as one command does
    node: str = ""  # where the slot would go
    about: str = ""  # the kind it changes, where only some may know of that


class Planner(Protocol):
    async def plan(self, planes: Mapping[str, Readable], steps: Sequence[Step]) -> tuple[Planned | PlanRefused, PlanBase]:
        """Tries the steps on a copy of the planes. A plane that cannot be read is left out, and named."""

    async def base(self, planes: Mapping[str, Readable]) -> PlanBase:
        """What a plan made now would rest on."""

    async def unblock(
        self, plane: Readable, region: str, tenant: str, slot: str, limit: int, hidden: frozenset[str] = frozenset()
    ) -> list[Unblocked]:
        """The cheapest changes after which a waiting slot has a place, each tried; none about kinds that are hidden."""
