"""When slots of an Exclusive service may be given to another region: not before the one that had them has let go of them. Pure.

Each slot stands for one identity, and no index is used in two regions; so a slot that goes from one region to another ends under
one number and begins under another, and nothing but the old region's word says that it has ended (P11). Until then it counts as
there: `leaving` of its Assignment. One that the old region may have again goes back to it. Jobs and gangs move as a whole, and
wait for this elsewhere; what recovery stands in for waits for leases (succession.py). Used by the workload controller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from fairlead.decide.assigning import Choice, own_slots
from fairlead.decide.spans import Spans, index_set, size, spans_of
from fairlead.decide.succession import homes_of
from fairlead.model.kinds.recovery import StandIn
from fairlead.model.kinds.work import Assignment, AssignmentSpec

REASON = "WaitingForFence"


def lingering(assignment: Assignment) -> int:
    """How many slots may run in a region still of those that were taken from it."""
    order, here = assignment.spec, assignment.status
    if not order.leaving or here.observed_generation != assignment.metadata.generation:
        return size(order.leaving)
    there = here.replicas.bound + here.replicas.reserved + here.replicas.pending  # all that a server of an earlier version tells
    return min(size(order.leaving), max(here.unwanted, there - size(order.slots)))


def leaving_of(old: Assignment | None, new: AssignmentSpec) -> Spans:
    """What a new order takes from a region, with what earlier ones took and is not gone. What another stands in for is gone: the
    region's slot lease was taken from it first."""
    if old is None or new.job is not None or new.execution != "Exclusive":
        return ()
    recovery = old.spec.recovery
    stand_ins = index_set((recovery,)) if recovery is not None else frozenset()
    had = index_set(old.spec.slots) - stand_ins
    before = index_set(old.spec.leaving) if lingering(old) else frozenset()
    return spans_of((had | before) - set(homes_of(new)))


def handed_over(
    choice: Choice, slots: int, able: Collection[str], assignments: Iterable[Assignment], stand_ins: Iterable[StandIn] = ()
) -> Choice:
    """The choice, with no region given more before others have let go of as many. `able`: the regions that may carry it."""
    there = {a.spec.region: a for a in assignments}
    held = {region: own_slots(a.spec) + lingering(a) for region, a in there.items()}
    room = max(0, slots - sum(held.values()) - _homeless(there, stand_ins))
    counts: dict[str, int] = {}
    for region, count in sorted(choice.counts.items()):
        more = max(0, count - held.get(region, 0))
        given = min(more, room)
        room -= given
        counts[region] = count - more + given
    short = sum(choice.counts.values()) - sum(counts.values())
    for region in sorted(held.keys() & set(able)):
        back = min(short, max(0, held[region] - counts.get(region, 0)))
        short -= back
        if back:
            counts[region] = counts.get(region, 0) + back
    if not short:
        return choice._replace(counts=counts)
    where = ", ".join(sorted(region for region, a in there.items() if lingering(a))) or "the regions that stood in for it"
    return Choice(counts, REASON, f"{short} may run in {where} still, and no second one starts before that has ended")


def _homeless(there: Mapping[str, Assignment], stand_ins: Iterable[StandIn]) -> int:
    """Stand-ins of slots that no region has any more: they leave, and count until recovery knows that they are gone."""
    homes = {region: {*homes_of(a.spec), *index_set(a.spec.leaving)} for region, a in there.items()}
    return sum(one.slot not in homes.get(one.home, ()) for one in stand_ins)
