"""Who may evict whom, and what a claim counts: the rules of preemption that the proposer and the authority share (P12, S19).

Owns no state. The planner (fairlead/decide/preempt.py) and the judge of a claim (fairlead/authority/judge/victims.py) call it.

Order. Firm work stands above borrowers, and within each the priority decides; an evictor must stand strictly above its victim.
That order is total and a victim is always below, so no chain of evictions ever returns to where it began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from fairlead.model.lifecycle import SlotState
from fairlead.model.resources import DeviceHold, Resources

VICTIMS_MAX = 64  # One claim is one entry with one effect a victim; more would hold up the batch it is in.
BORROWED_BELOW = 1 << 40  # Farther than any two priorities are apart, so that every borrower ranks below all firm work.

# A slot in one of these is doing its work or about to: it may be evicted, and it counts for its workload's disruption budget.
# One that drains, is lost or has failed is neither.
SERVING_CAPABLE = frozenset({SlotState.BOUND, SlotState.STARTING, SlotState.READY, SlotState.SERVING})


def rank_of(priority: int, borrowed: bool) -> int:
    return priority - BORROWED_BELOW if borrowed else priority


def unranked(rank: int) -> tuple[int, bool]:
    """The priority behind a rank, and whether it is a borrower's."""
    borrowed = rank < -(BORROWED_BELOW >> 1)
    return (rank + BORROWED_BELOW if borrowed else rank), borrowed


class Rules(Protocol):
    """What the policy in force says of priorities; fairlead/decide/policy.py's compiled revision has it."""

    def may_preempt(self, evictor_priority: int, victim_priority: int) -> bool: ...

    def may_break_budgets(self, evictor_priority: int) -> bool: ...


class Evictor(NamedTuple):
    """Who asks for room, and under which rules."""

    priority: int
    borrows: bool
    rules: Rules

    def may_evict(self, priority: int, borrowed: bool) -> bool:
        if borrowed and not self.borrows:
            return True  # who borrows has agreed to leave when the room is claimed (P12)
        if borrowed != self.borrows or priority >= self.priority:
            return False
        return self.rules.may_preempt(self.priority, priority)

    @property
    def may_break_budgets(self) -> bool:
        return self.rules.may_break_budgets(self.priority)


class Evicted(Protocol):
    @property
    def uid(self) -> str: ...
    @property
    def min_serving(self) -> int: ...
    @property
    def borrowed(self) -> bool: ...


class Breach(NamedTuple):
    """One disruption budget that a set of victims would break."""

    uid: str
    min_serving: int
    left: int  # slots that could serve once the victims are gone


def breaches(victims: Iterable[Evicted], live: Mapping[str, int], evictor: Evictor) -> list[Breach]:
    """The budgets these victims break together. `live` counts each workload's serving-capable slots in this plane, victims
    included; those that drain already are not in it, so capacity given up earlier is not given up again."""
    leaving: dict[str, int] = {}
    floors: dict[str, int] = {}
    for victim in victims:
        leaving[victim.uid] = leaving.get(victim.uid, 0) + 1
        protected = victim.min_serving and not (victim.borrowed and not evictor.borrows)
        if protected:
            floors[victim.uid] = max(floors.get(victim.uid, 0), victim.min_serving)
    out = []
    for uid, floor in floors.items():
        left = live.get(uid, 0) - leaving[uid]
        if left < floor:
            out.append(Breach(uid, floor, left))
    return out


class Holder(Protocol):
    """A use of a node: a binding, or what a planner knows of one."""

    @property
    def requests(self) -> Resources: ...
    @property
    def devices(self) -> tuple[DeviceHold, ...]: ...
    @property
    def borrowed(self) -> bool: ...


class Credit(NamedTuple):
    """What a node's account counts twice while a claimer waits for its victims: both are booked, and only one of them runs at a
    time. Together they take the larger of the two in each dimension, so the smaller is given back until the victims are gone."""

    cpu_free: int
    memory_free: int
    cpu_unlent: int
    memory_unlent: int
    slots: int
    scalars: tuple[tuple[str, int, int], ...] = ()  # name, to what is free, to what is unlent
    devices: tuple[DeviceHold, ...] = ()


def credit_of(claimer: Holder, victims: Sequence[Holder]) -> Credit:
    asks = claimer.requests
    cpu = cpu_firm = memory = memory_firm = 0
    for victim in victims:
        leaves = victim.requests
        cpu += leaves.cpu
        memory += leaves.memory
        if not (victim.borrowed or claimer.borrowed):
            cpu_firm += leaves.cpu
            memory_firm += leaves.memory
    cpu_free, memory_free = min(asks.cpu, cpu_firm), min(asks.memory, memory_firm)
    rare = (_scalars(claimer, victims), _devices(claimer, victims)) if asks.scalars or claimer.devices else ()
    return Credit(cpu_free, memory_free, min(asks.cpu, cpu), min(asks.memory, memory), int(bool(victims)), *rare)


def _scalars(claimer: Holder, victims: Sequence[Holder]) -> tuple[tuple[str, int, int], ...]:
    out = []
    for name, ask in claimer.requests.scalars:
        leaving = [(dict(victim.requests.scalars).get(name, 0), victim.borrowed) for victim in victims]
        firm = 0 if claimer.borrowed else sum(amount for amount, borrowed in leaving if not borrowed)
        out.append((name, min(ask, firm), min(ask, sum(amount for amount, _ in leaving))))
    return tuple(out)


def _devices(claimer: Holder, victims: Sequence[Holder]) -> tuple[DeviceHold, ...]:
    leaving: dict[str, int] = {}
    for victim in victims:
        for hold in victim.devices:
            leaving[hold.id] = leaving.get(hold.id, 0) + hold.thousandths
    both = [(hold.id, min(hold.thousandths, leaving.get(hold.id, 0))) for hold in claimer.devices]
    return tuple(DeviceHold(id=name, thousandths=thousandths) for name, thousandths in both if thousandths)
