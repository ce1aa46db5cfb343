"""Gangs: requests that are bound all or none, and so wait, go, fail and are placed as one unit.

Owns who belongs to a gang, whether it is complete, and what is said while it is not. Never places or orders anything.
Called by the queue.
"""

from __future__ import annotations

from fairlead.scheduler.order import least_of
from fairlead.scheduler.units import NO_DEADLINE, TAKEN, Item, Unit

_NAMES_SHOWN = 10


class Gang(Unit, gc=False, eq=False, kw_only=True):
    """`members` are those in the queue now; `taken` those that were handed out together."""

    gang: str
    first_ms: int  # when its first member came; its members' patience counts from here
    size: int = 0  # as the member that came last has it
    timeout_ms: int = 0
    members: dict[str, Item] = {}
    taken: tuple[Item, ...] = ()

    def add(self, item: Item) -> None:
        self.members[item.name] = item
        self._follow(item)

    def discard(self, item: Item) -> None:
        del self.members[item.name]
        if self.members:
            self._follow(next(reversed(self.members.values())))

    def _follow(self, last: Item) -> None:
        self.size = last.request.spec.gang_size
        self.timeout_ms = int(last.request.spec.gang_timeout_seconds * 1000)

    @property
    def is_complete(self) -> bool:
        """All there, and of one mind about how many they are."""
        there = len(self.members)
        return there == self.size > 0 and all(item.request.spec.gang_size == there for item in self.members.values())

    def ordered(self) -> tuple[Item, ...]:
        """In the order of their slots: the same gang always comes out the same way."""
        return tuple(sorted(self.members.values(), key=lambda item: (item.workload, item.request.spec.slot.index)))


def new_gang(item: Item, now_ms: int) -> Gang:
    return Gang(
        item.tenant, item.name, item.workload, item.uid, item.priority, item.deadline_ms, item.created_ms, (), (), now_ms, now_ms,
        gang=item.gang, first_ms=now_ms, members={},
    )  # fmt: skip


def regroup(gang: Gang) -> None:
    """What a gang is ordered by follows from its members: as urgent as the least of them, as old as the oldest.
    Never while it is in somebody's hands: what was charged then must be given back."""
    assert gang.state != TAKEN, "a gang that was handed out is not regrouped"
    members = gang.ordered()
    gang.slots = len(members)
    if not members:
        return
    first = members[0]
    gang.name, gang.workload, gang.uid = first.name, first.workload, first.uid
    gang.priority = min(item.priority for item in members)
    gang.deadline_ms = min((item.deadline_ms for item in members), default=NO_DEADLINE)
    gang.created_ms = min(item.created_ms for item in members)
    total: dict[str, int] = {}
    for item in members:
        for name, amount in item.amounts:
            total[name] = total.get(name, 0) + amount
    gang.amounts = tuple(total.items())
    gang.least = least_of([item.amounts for item in members])


def missing(gang: Gang, now_ms: int) -> tuple[str, str]:
    """The reason and the detail while it is not complete."""
    there, size = len(gang.members), gang.size
    sizes = sorted({item.request.spec.gang_size for item in gang.members.values()})
    if there > size:
        return "Misconfigured", f"gang {gang.gang} has {size} members by its requests, and {there} are there"
    if there == size:
        return "WaitingForGang", f"members of gang {gang.gang} disagree on its size: {', '.join(map(str, sizes))}"
    detail = f"gang {gang.gang} has {there} of {size} members"
    names = _missing_names(gang, size)
    shown = ", ".join(names[:_NAMES_SHOWN]) + (f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else "")
    waited_ms = now_ms - gang.first_ms
    if waited_ms >= gang.timeout_ms:
        detail = f"{detail} after {waited_ms // 1000} s, of which {gang.timeout_ms // 1000} s were allowed"
    return "WaitingForGang", f"{detail}; missing: {shown or f'{size - there} that cannot be named'}"


def _missing_names(gang: Gang, size: int) -> list[str]:
    """A gang that is one workload's slots 0 to size - 1, as most are, can say who is missing."""
    workloads = {item.workload for item in gang.members.values()}
    indexes = {item.request.spec.slot.index for item in gang.members.values()}
    if len(workloads) != 1 or max(indexes) >= size:
        return []
    return [f"{min(workloads)}-{index}" for index in range(size) if index not in indexes]
