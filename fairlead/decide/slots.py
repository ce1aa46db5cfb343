"""A slot as controllers see it, and what of it counts for what. Pure; made from a controller's cache, read by decisions.

A workload may have ten thousand slots, and is looked at with every change of one of them. So decisions read a Table, which keeps
slots in groups and is told of changes one by one: they ask for the slots that need something, and for the numbers of the rest.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from fairlead.model.kinds.intent import PendingReason, StageCounts
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import SchedulingRequest, SchedulingRequestSpec
from fairlead.model.lifecycle import ON_NODE, SlotState

_S = SlotState
RUNNING: Final = frozenset({_S.BOUND, _S.STARTING, _S.READY, _S.SERVING})
STARTED: Final = frozenset({_S.STARTING, _S.READY, _S.SERVING, _S.DRAINING, _S.UNKNOWN})
ENDED: Final = frozenset({_S.RELEASED, _S.SUCCEEDED})
_ADMISSIBLE: Final = frozenset({_S.READY, _S.SERVING})


class Slot(msgspec.Struct, frozen=True, gc=False):
    index: int
    state: SlotState  # Pending and Reserved: it has a request; else a binding
    generation: int
    epoch: int
    token: Token | None = None
    node: str = ""
    attempt: int = 1  # of a request: 0 while no life of this epoch ever began
    ready: bool = False  # the agent says that it can serve
    in_traffic: bool = False  # Endpoints name it
    leaving: bool = False  # somebody asked for its eviction, and that has not ended
    approved: bool = False  # its eviction keeps its workload's budget: traffic is to be withdrawn
    ours: bool = False  # the eviction was asked for by the rollout itself
    held: bool = False  # the eviction waits until more of its workload serve
    lost: bool = False  # its node was declared Lost
    request: SchedulingRequest | None = None
    supersedes: str = ""  # of one that is bound: the slots that it stands in for (P11)

    @property
    def serves(self) -> bool:
        """Counts as available: it serves, and nobody is taking it away."""
        return self.state is _S.SERVING and not self.leaving


class Terms(NamedTuple):
    """What a request takes over from its order, which may change while the slot waits. The rest its generation says."""

    priority: int
    gang_size: int
    gang_timeout_seconds: float
    deadline_time: datetime | None
    may_borrow: bool
    budget_name: str
    min_serving: int


def terms_of(spec: SchedulingRequestSpec) -> Terms:
    return Terms(
        spec.priority,
        spec.gang_size,
        spec.gang_timeout_seconds,
        spec.deadline_time,
        spec.may_borrow,
        spec.budget_name,
        spec.min_serving,
    )


Slots = Mapping[int, Slot]
Group = dict[int, Slot]  # by index, in no order


class Table(Mapping[int, Slot]):
    """Slots by index, and in groups of those that decisions treat alike."""

    __slots__ = ("_slots", "approved", "groups", "in_traffic", "leaving", "may_serve", "waiting")

    def __init__(self, slots: Iterable[Slot] = ()) -> None:
        self._slots: Group = {}
        self.groups: dict[tuple[SlotState, int], Group] = {}  # by state and generation; none is empty
        self.leaving: Group = {}
        self.approved: Group = {}
        self.in_traffic: Group = {}
        self.may_serve: Group = {}  # the agent says so, and nobody has approved that it goes
        self.waiting: dict[Terms, Group] = {}  # Pending, by what their requests say; none is empty
        for slot in slots:
            self.put(slot)

    def put(self, slot: Slot) -> None:
        index = slot.index
        old = self._slots.get(index)
        if old is not None:
            self._take_out(old)
        self._slots[index] = slot
        key = (slot.state, slot.generation)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = {}
        group[index] = slot
        if slot.leaving:
            self.leaving[index] = slot
        if slot.approved:
            self.approved[index] = slot
        if slot.in_traffic:
            self.in_traffic[index] = slot
        if slot.ready and not slot.approved and slot.state in _ADMISSIBLE:
            self.may_serve[index] = slot
        if slot.state is _S.PENDING and slot.request is not None:
            self.waiting.setdefault(terms_of(slot.request.spec), {})[index] = slot

    def remove(self, index: int) -> None:
        old = self._slots.pop(index, None)
        if old is not None:
            self._take_out(old)

    def _take_out(self, old: Slot) -> None:
        index, key = old.index, (old.state, old.generation)
        group = self.groups[key]
        del group[index]
        if not group:
            del self.groups[key]
        self.leaving.pop(index, None)
        self.approved.pop(index, None)
        self.in_traffic.pop(index, None)
        self.may_serve.pop(index, None)
        if old.state is _S.PENDING and old.request is not None:
            terms = terms_of(old.request.spec)
            del self.waiting[terms][index]
            if not self.waiting[terms]:
                del self.waiting[terms]

    def of(self, *states: SlotState) -> Iterator[Slot]:
        """The slots in these states."""
        for (state, _), group in self.groups.items():
            if state in states:
                yield from group.values()

    def count(self, *states: SlotState) -> int:
        return sum(len(group) for (state, _), group in self.groups.items() if state in states)

    def serving(self) -> int:
        """How many serve, and nobody is taking away."""
        return self.count(_S.SERVING) - sum(slot.state is _S.SERVING for slot in self.leaving.values())

    def __getitem__(self, index: int) -> Slot:
        return self._slots[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._slots)

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, index: object) -> bool:
        return index in self._slots

    def keys(self) -> KeysView[int]:
        return self._slots.keys()

    def values(self) -> ValuesView[Slot]:
        return self._slots.values()

    def items(self) -> ItemsView[int, Slot]:
        return self._slots.items()


def grouped(slots: Slots) -> Table:
    return slots if isinstance(slots, Table) else Table(slots.values())


def counts(desired: int, generation: int, slots: Slots) -> StageCounts:
    """Stages counted apart, each including those further on: bound, started, ready, serving."""
    count = grouped(slots).count
    groups = grouped(slots).groups.items()
    return StageCounts(
        desired=desired,
        reserved=count(_S.RESERVED),
        bound=count(*ON_NODE),
        started=count(*STARTED),
        ready=count(_S.READY, _S.SERVING),
        serving=count(_S.SERVING),
        unknown=count(_S.UNKNOWN),
        pending=count(_S.PENDING),
        draining=count(_S.DRAINING),
        failed=count(_S.FAILED),
        succeeded=count(_S.SUCCEEDED),
        updated=sum(len(group) for (state, of), group in groups if of == generation and state in ON_NODE),
    )


def pending_reasons(slots: Slots) -> tuple[PendingReason, ...]:
    """Why slots wait, by reason, the most frequent first."""
    groups: dict[str, list[SchedulingRequest]] = {}
    for slot in grouped(slots).of(_S.PENDING, _S.RESERVED):
        if slot.request is not None:
            groups.setdefault(slot.request.status.reason, []).append(slot.request)
    out = []
    for reason, requests in groups.items():
        since = [r.status.since_time for r in requests if r.status.since_time is not None]
        again = [r.status.next_attempt_time for r in requests if r.status.next_attempt_time is not None]
        first = min(requests, key=lambda r: r.spec.slot.index).status
        out.append(
            PendingReason(
                reason=reason,
                count=len(requests),
                since_time=min(since, default=None),
                next_owner=first.next_owner,
                next_attempt_time=min(again, default=None),
                detail=first.detail,
            )
        )
    return tuple(sorted(out, key=lambda p: (-p.count, p.reason)))


def instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)


def millis(when: datetime | None) -> int:
    return round(when.timestamp() * 1000) if when is not None else 0
