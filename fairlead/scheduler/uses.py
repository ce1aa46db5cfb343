"""What lies on a node, as the scheduler's picture keeps it: one record per slot or standing reservation. Records only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from fairlead.model.kinds.work import Marks
from fairlead.model.lifecycle import SlotState
from fairlead.model.resources import DeviceHold, Resources

FIRM, HELD, LENT = 0, 1, 2  # P12

SlotKey = tuple[str, str]  # tenant, name


class Placed(Protocol):
    """What the scheduler reads of a binding; the authority's hot record has it, and so has a decoded one."""

    @property
    def node(self) -> str: ...
    @property
    def state(self) -> SlotState: ...
    @property
    def requests(self) -> Resources: ...
    @property
    def devices(self) -> tuple[DeviceHold, ...]: ...
    @property
    def borrowed(self) -> bool: ...
    @property
    def priority(self) -> int: ...
    @property
    def workload_uid(self) -> str: ...


class Use(msgspec.Struct, frozen=True, gc=False):
    """One slot's or standing reservation's hold on one node."""

    row: int
    how: int
    requests: Resources
    devices: tuple[DeviceHold, ...] = ()
    priority: int = 0
    uid: str = ""
    marks: Marks | None = None
    evictable: bool = False  # bound and not yet on its way out: preemption may name it
    min_serving: int = 0
    started_ms: int = 0  # when it was first seen here: who came last is the cheaper victim
    assumed: int = 0  # which of the scheduler's own proposals it rests on; 0: a fact, which no refusal takes back
    epoch: int = 0  # of this life of the slot; 0: no slot has one there


Listener = Callable[[SlotKey, Use, int], None]


class Correction(msgspec.Struct, frozen=True, gc=False):
    """How much less a node has than this picture says, until the watch has caught up with the revision that said so."""

    row: int
    revision: int
    cpu: int
    memory: int
    slots: int
