"""What a controller is to the runtime: which kinds it follows, which keys a change concerns, what to do about a key.

Shapes only. Implemented by every controller; called by the runtime.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from fairlead.client.plane import Plane
from fairlead.controllers.cache import Cache, Indexes, Item, Name
from fairlead.model.commands import Body, Delete, Enqueue, Move, Put, PutStatus
from fairlead.model.ids import revision
from fairlead.model.kinds.ledger import ZoneNodes
from fairlead.ports import Clock


class Result(NamedTuple):
    """What is to be done about a key, and when to look again by the clock alone."""

    bodies: Sequence[Body] = ()
    wake_ms: int | None = None


class View:
    """What a reconcile function may look at."""

    def __init__(self, indexes: Indexes, others: Indexes) -> None:
        self.cache = Cache(indexes)  # until there is a picture
        self.other = Cache(others)  # of the second plane, where a controller follows one
        self.heard: dict[str, int] = {}  # node -> when it was heard last, in plane time
        self.other_ms = 0  # the second plane's time, as near as is known here
        self.other_incarnation = 1  # of the second plane, when what is known of it was read
        self.since_ms = 0  # when this holder began: what it has not observed for a full lease it does not judge
        self.incarnation = 1
        self.moves_held: dict[Name, int] = {}  # workload -> until when none of it goes to another region for want of room

    def revision(self, item: Item) -> int:
        """The resourceVersion of an item, for writes that must not lose another's."""
        return revision(self.incarnation, item.position)


class Controller(Protocol):
    """Also `named`, where it has that: the kinds of which an object's name and the present picture tell its keys, so that one
    version of it is asked for, and not the one before as well. `by_spec`: the kinds of which it reads no status, so that a
    change of that alone wakes nobody. `touch`: told when its plane has answered about its lease. And `judges_silence`, of one
    that hears no nodes and yet tells who is silent: `since_ms` of its view begins anew when its process stood still.
    `speaks_for_other`: its lease is the second plane's sign of life, and is renewed only while that plane vouches for itself.
    `for_many`: a key of it stands for many objects, none of which waits for another: a fight over one holds back that one."""

    @property
    def name(self) -> str:
        """As in fairlead/model/controllers.py."""

    @property
    def follows(self) -> tuple[str, ...]: ...

    @property
    def follows_other(self) -> tuple[str, ...]: ...

    @property
    def indexes(self) -> Indexes: ...

    @property
    def indexes_other(self) -> Indexes: ...

    @property
    def hears(self) -> bool: ...

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        """Which keys a change of this item concerns; it is asked for the version before as well."""

    def resync(self, view: View) -> Iterable[Name]:
        """Every key there is."""

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result: ...


@runtime_checkable
class Sweeping(Protocol):
    """A controller that also reads, now and then, what is too much to keep in a cache."""

    sweep_s: float

    async def sweep(self, plane: Plane, clock: Clock) -> list[Body]: ...


@runtime_checkable
class Counting(Protocol):
    """A controller that speaks for a region, and says with its lease what nodes that has."""

    def zones(self, view: View) -> tuple[ZoneNodes, ...]: ...


class SweepsOnly:
    """What a controller says that keeps no picture and looks only when it sweeps."""

    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {}
    indexes_other: Indexes = {}
    hears = False

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        return ()

    def resync(self, view: View) -> Iterable[Name]:
        return ()

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        return Result()


def part_of(body: Body) -> str:
    """What a command writes, in the words of the declarations."""
    match body:
        case Put():
            return f"{body.kind}.spec"
        case PutStatus():
            return f"{body.kind}.status"
        case Delete():
            return f"{body.kind}.delete"
        case Enqueue():
            return "SchedulingRequest.spec"
        case Move():
            return "Binding.state"
        case _:
            return type(body).__name__
