"""What a slot could ask for instead: one hard rule less, or less room. Pure; called by unblocking.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from fairlead.model.kinds.intent import Placement
from fairlead.model.kinds.work import Ask, SchedulingRequest
from fairlead.model.resources import Resources
from fairlead.planning.words import MI, amounts_text

Instead = tuple[str, Ask]  # in words, and as it would be asked


def without_rules(request: SchedulingRequest) -> Iterator[Instead]:
    """Each hard rule left out, one at a time; then all of them. Residency is never offered: it is not the operator's to drop."""
    ask, place = request.spec.ask, request.spec.ask.placement
    found = list(_softer(place))
    yield from ((words, replace(ask, placement=made)) for words, made in found)
    if ask.isolation == "TenantExclusive":
        yield "share nodes with other tenants (isolation: Shared)", replace(ask, isolation="Shared")
    if len(found) > 1:
        bare = Placement(regions=place.regions, residency=place.residency, tolerations=place.tolerations)
        yield "drop all placement rules but residency and regions", replace(ask, placement=bare)


def _softer(place: Placement) -> Iterator[tuple[str, Placement]]:
    for index, rule in enumerate(place.spread):
        if rule.when_unsatisfiable == "DoNotSchedule":
            soft = replace(rule, when_unsatisfiable="ScheduleAnyway")
            rules = (*place.spread[:index], soft, *place.spread[index + 1 :])
            yield f"make the spread over {rule.topology_key} a preference (ScheduleAnyway)", replace(place, spread=rules)
    if place.anti_affinity:
        yield "remove the anti-affinity", replace(place, anti_affinity=())
    if place.affinity:
        yield "remove the affinity", replace(place, affinity=())
    if place.max_per_node:
        yield f"allow more than {place.max_per_node} on one node (maxPerNode)", replace(place, max_per_node=0)
    if place.zones:
        yield f"allow zones other than {', '.join(place.zones)}", replace(place, zones=())
    if place.node_labels:
        yield "remove the required node labels", replace(place, node_labels=())


def smaller(request: SchedulingRequest, free: Iterable[Resources], left: Resources) -> Iterator[Instead]:
    """As much of the ask as the roomiest node has free and the tenant has left."""
    ask = request.spec.ask
    want = ask.requests
    if not want.cpu and not want.memory:
        return

    def share(room: Resources) -> float:
        parts = [min(1.0, max(0, have) / need) for have, need in ((room.cpu, want.cpu), (room.memory, want.memory)) if need]
        return min(parts)

    rooms = [Resources(min(room.cpu, left.cpu), min(room.memory, left.memory), room.scalars) for room in free]
    best = max(rooms, key=lambda room: (share(room), room.cpu, room.memory), default=None)
    if best is None or not 0 < share(best) < 1:
        return
    memory = want.memory if want.memory <= best.memory else best.memory // MI * MI  # told in whole Mi, and that must fit
    made = Resources(min(want.cpu, best.cpu), memory, want.scalars)
    if want.memory and not memory:
        return
    yield f"ask for {amounts_text(made)} instead of {amounts_text(want)}", replace(ask, requests=made)
