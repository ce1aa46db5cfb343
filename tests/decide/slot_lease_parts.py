"""The parts of slot_lease_model.py that decide nothing: what each plane and node has, and calls that wait for no loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from msgspec.structs import replace

from fairlead.model.kinds.ledger import Lease
from fairlead.model.kinds.recovery import RecoveryOrder
from fairlead.model.kinds.work import Assignment, AssignmentSpec


class Bound(msgspec.Struct, frozen=True):
    index: int
    supersedes: str
    chain: str  # the home it stands in for in the end, or is


class Above(msgspec.Struct):
    """The global plane; a restore takes all of it back."""

    incarnation: int = 1
    position: int = 0
    leases: dict[str, Lease] = {}
    order: RecoveryOrder | None = None
    assignments: dict[str, Assignment] = {}


class Below(msgspec.Struct):
    """A region's plane; what its nodes run is theirs, and stays."""

    copy: Assignment | None = None
    seen: Assignment | None = None  # what its mirror knows of the global plane
    bound: dict[int, Bound] = {}  # by token


class Node(msgspec.Struct):
    has: dict[int, Bound] = {}  # what it was told to run
    running: dict[int, Bound] = {}
    until_s: float = 0.0
    heard_in: int = 1  # which history of its region


class Seen:
    """A change, as planes list them."""

    tenant, name = "risk", "api"

    def __init__(self, hot: Assignment) -> None:
        self.hot = hot


def copied_of(state: Any) -> Any:
    """What is in its tables never changes."""
    tables = {name: dict(found) for name in state.__struct_fields__ if isinstance(found := getattr(state, name), dict)}
    return replace(state, **tables)


def bound(spec: AssignmentSpec, region: str, index: int) -> Bound:
    supersedes = next((each.supersedes for each in spec.successors if each.index == index), "")
    home = supersedes.split(" ")[-1].partition("@")[0] if supersedes else f"{region}/api-{index}"
    return Bound(index, supersedes, home)


def soon(function: Callable[..., Any]) -> Callable[..., Any]:
    async def called(*args: Any, **named: Any) -> Any:
        return function(*args, **named)

    return called


def driven(work: Coroutine[Any, Any, Any]) -> Any:
    """To its end: nothing in it waits for a loop."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")
