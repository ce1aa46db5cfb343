"""From a cache to the values decisions read: the slots of a workload in this region, its assignment, its revisions.

Called by the region's controllers before they decide. Looks only; what a controller does not follow is simply not there.
"""

from __future__ import annotations

from fairlead.controllers.cache import Cache, Indexes, Item, Name, node_of, workload_in_spec, workload_of
from fairlead.decide.slots import ENDED, Slot
from fairlead.model.hot import BindingHot
from fairlead.model.kinds.work import Assignment, Endpoints, EvictionRequest, Instance, Revision, SchedulingRequest
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Condition

SLOT_INDEXES: Indexes = {
    "assignments": {"workload": workload_in_spec},
    "revisions": {"workload": workload_in_spec},
    "schedulingrequests": {"workload": workload_of},
    "bindings": {"workload": workload_of, "node": node_of},
    "evictionrequests": {"workload": workload_of},
}
SLOT_OBJECTS = ("schedulingrequests", "bindings", "instances", "evictionrequests")


def condition(conditions: tuple[Condition, ...], wanted: str) -> Condition | None:
    return next((c for c in conditions if c.type == wanted), None)


def is_true(conditions: tuple[Condition, ...], wanted: str) -> bool:
    found = condition(conditions, wanted)
    return found is not None and found.status == "True"


def is_open(eviction: EvictionRequest) -> bool:
    """It has not ended; one that was filed again since it ended is open again."""
    done = condition(eviction.status.conditions, "Done")
    return done is None or done.status != "True" or done.observed_generation < eviction.metadata.generation


def concerns(eviction: EvictionRequest, hot: BindingHot) -> bool:
    """It is about this life of the slot, not about one that is over."""
    return eviction.spec.slot.uid == hot.workload_uid and eviction.spec.epoch in (0, hot.token.epoch)


def is_approved(eviction: EvictionRequest) -> bool:
    found = condition(eviction.status.conditions, "Approved")
    return found is not None and found.status == "True" and found.observed_generation == eviction.metadata.generation


def assignment_of(cache: Cache, key: Name) -> Assignment | None:
    """The workload controller's; slots of a recovery budget have an assignment of their own."""
    found: list[Assignment] = [item.hot for item in cache.by("assignments", "workload", key)]
    return next((one for one in found if not one.spec.budget_name), None)


def revision_of(cache: Cache, key: Name, generation: int) -> Revision | None:
    found: Revision | None = cache.get("revisions", key[0], f"{key[1]}.g{generation}")
    return found


def endpoints_of(cache: Cache, key: Name) -> Endpoints | None:
    found: Endpoints | None = cache.get("endpoints", *key)
    return found


def slots_of(cache: Cache, key: Name, requester: str = "") -> dict[int, Slot]:
    """Every slot of the workload that has a request or a binding, by index, in order."""
    named = endpoints_of(cache, key)
    served = {e.slot for e in named.spec.endpoints} if named is not None else set()
    evictions = {item.name: item.hot for item in cache.by("evictionrequests", "workload", key)}
    out: dict[int, Slot] = {}
    for item in cache.by("schedulingrequests", "workload", key):
        request: SchedulingRequest = item.hot
        spec = request.spec
        out[spec.slot.index] = Slot(
            spec.slot.index, request.status.state, spec.generation, spec.epoch, attempt=request.status.attempt, request=request
        )
    for item in cache.by("bindings", "workload", key):
        slot = _bound(cache, item, item.hot, served, evictions.get(item.name), requester)
        waiting = out.get(slot.index)
        if waiting is None or waiting.epoch <= slot.epoch:  # a request of a later life replaces the binding
            out[slot.index] = slot
    return dict(sorted(out.items()))


def _bound(cache: Cache, item: Item, hot: BindingHot, served: set[int], eviction: EvictionRequest | None, requester: str) -> Slot:
    leaving = eviction is not None and is_open(eviction) and concerns(eviction, hot)
    approved = leaving and eviction is not None and is_approved(eviction)
    node = cache.item("nodes", "", hot.node)
    return Slot(
        hot.index,
        hot.state,
        hot.generation,
        hot.token.epoch,
        token=hot.token,
        node=hot.node,
        ready=_is_ready(cache, item, hot),
        in_traffic=hot.index in served,
        leaving=leaving,
        approved=approved,
        ours=leaving and eviction is not None and bool(requester) and eviction.spec.requester == requester,
        lost=node is not None and node.hot.status.health == "Lost",
    )


def _is_ready(cache: Cache, item: Item, hot: BindingHot) -> bool:
    if hot.state not in (SlotState.READY, SlotState.SERVING):
        return False
    instance: Instance | None = cache.get("instances", item.tenant, item.name)
    return instance is None or (instance.status.ready and instance.spec.token == hot.token)


def live(slots: dict[int, Slot]) -> dict[int, Slot]:
    """Without those that have ended."""
    return {index: slot for index, slot in slots.items() if slot.state not in ENDED}
