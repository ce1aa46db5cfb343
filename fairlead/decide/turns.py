"""In which order regions carry out a workload's new generation: one after the other. Pure; used by the workload controller.

`maxUnavailable` and `maxSurge` are the workload's. A region keeps them by itself, and knows nothing of the others; so only one at
a time replaces anything, and the others keep the generation they run. One in which nothing comes up keeps its turn: what would
fail in one region does not fail in all; one in which all serve keeps it until they have for `minReadySeconds`. Stated: first
whoever does not serve what it has, then in order of name; where nothing serves nobody waits. But for regions that only stand in
for a lost one: they are to serve, not to try what is new, and begin with what serves elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fairlead.decide.assigning import own_slots
from fairlead.model.kinds.work import Assignment


def kept_back(
    generation: int, assignments: Iterable[Assignment], silent: Collection[str], unproven: Collection[str] = ()
) -> dict[str, int]:
    """Regions whose turn has not come, and the generation each keeps until then. One that is silent waits until it is heard, and
    holds up nobody. `unproven`: those that have done, a moment ago."""
    placed = [a for a in assignments if a.spec.slots and not a.spec.suspend]
    # Where nothing serves there is nothing to lose: an undo mends all of them at once, before anybody else begins.
    behind = {a.spec.region: a for a in placed if a.spec.generation != generation and a.status.replicas.serving}
    first = of_stand_ins(generation, placed, silent, unproven)
    idle = [a.spec.region for a in placed if first != generation and not own_slots(a.spec) and not a.status.replicas.serving]
    begun = [a for a in placed if a.spec.region not in {*behind, *idle, *silent}]
    under_way = any(a.spec.generation != generation or not has_done(a) or a.spec.region in unproven for a in begun)
    heard = sorted((_serves_all(a), region) for region, a in behind.items() if region not in silent)
    if heard and not under_way:
        del behind[heard[0][1]]
    return {region: a.spec.generation for region, a in behind.items()} | dict.fromkeys(idle, first)


def of_stand_ins(
    generation: int, assignments: Iterable[Assignment], silent: Collection[str], unproven: Collection[str] = ()
) -> int:
    """What a region begins with that has nothing of its own: the new generation when a region has done it. Until then, while one
    that is heard can try it on slots of its own, what serves most in a region that runs nothing else."""
    placed = [a for a in assignments if a.spec.slots and not a.spec.suspend]
    done = any(a.spec.generation == generation and has_done(a) and a.spec.region not in unproven for a in placed)
    tried = any(own_slots(a.spec) and a.spec.region not in silent for a in placed)
    others = [a for a in placed if a.spec.generation != generation and a.status.replicas.serving and _runs_one(a)]
    if done or not tried or not others:
        return generation
    return max(others, key=lambda a: (a.status.replicas.serving, a.spec.generation)).spec.generation


def is_changing(assignment: Assignment) -> bool:
    """It has slots in one generation and is to have them in another, or has nothing yet that serves of what it is to have."""
    told = assignment.status
    return bool(own_slots(assignment.spec) and told.generations) and not (_runs_one(assignment) and told.replicas.serving)


def _runs_one(assignment: Assignment) -> bool:
    return set(assignment.status.generations) == {assignment.spec.generation}


def has_done(assignment: Assignment) -> bool:
    """It says that nothing of another generation is left, and that all it has a place for serves. What waits for a place waits
    there, and is no reason to keep the others."""
    status, order = assignment.status, assignment.spec
    told = status.observed_generation == assignment.metadata.generation and status.generation == order.generation
    return told and set(status.generations) <= {order.generation} and status.replicas.bound > 0 and _serves_all(assignment)


def _serves_all(assignment: Assignment) -> bool:
    return assignment.status.replicas.serving >= assignment.status.replicas.bound
