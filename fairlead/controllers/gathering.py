"""From a cache to the values decisions read: the slots of a workload in this region, its assignment, its revisions.

Called by the region's controllers before they decide. Looks only; what a controller does not follow is simply not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fairlead.controllers.cache import Cache, Indexes, Item, Name, node_of, workload_in_spec, workload_of
from fairlead.decide.disruption import TOO_FEW, concerns, is_approved, is_open
from fairlead.decide.slots import Slot, Table
from fairlead.model.hot import BindingHot
from fairlead.model.kinds.work import Assignment, Endpoint, Endpoints, EvictionRequest, Instance, Revision, SchedulingRequest
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
DRAIN: Final = "drain:"  # begins the name of who asks for evictions because of a node


def condition(conditions: tuple[Condition, ...], wanted: str) -> Condition | None:
    return next((c for c in conditions if c.type == wanted), None)


def is_true(conditions: tuple[Condition, ...], wanted: str) -> bool:
    found = condition(conditions, wanted)
    return found is not None and found.status == "True"


def is_held(eviction: EvictionRequest) -> bool:
    """It waits until more of its workload serve. One that an API client asks for does not wait: it is taken back, and a slot
    started for it would be for nothing."""
    spec, found = eviction.spec, condition(eviction.status.conditions, "Approved")
    waits = spec.deadline_time is not None or spec.requester.startswith(DRAIN)
    return waits and found is not None and found.reason == TOO_FEW and found.observed_generation == eviction.metadata.generation


def assignment_of(cache: Cache, key: Name) -> Assignment | None:
    for item in cache.each("assignments", "workload", key):
        found: Assignment = item.hot
        return found
    return None


def revision_of(cache: Cache, key: Name, generation: int) -> Revision | None:
    found: Revision | None = cache.get("revisions", key[0], f"{key[1]}.g{generation}")
    return found


def endpoints_of(cache: Cache, key: Name) -> Endpoints | None:
    found: Endpoints | None = cache.get("endpoints", *key)
    return found


def slots_of(cache: Cache, key: Name, requester: str = "") -> Table:
    """Every slot of the workload that has a request or a binding. Kept from look to look: what did not change costs nothing."""
    tables = cache.derived
    if tables is None:
        tables = cache.derived = SlotTables(cache, requester)
    assert isinstance(tables, SlotTables), "a cache is one controller's"
    assert tables.requester == requester, "which asks for the slots of a workload in one way"
    return tables.of(key)


def touched_of(cache: Cache, key: Name) -> set[int]:
    """Which slots changed in any way since this was asked last."""
    tables = cache.derived
    return tables.touched(key) if isinstance(tables, SlotTables) else set()


def served_of(cache: Cache, key: Name) -> Mapping[int, Endpoint]:
    """Whom Endpoints name, by index."""
    return _served(cache.item("endpoints", *key))


class SlotTables:
    """The tables of the workloads that were asked for. Told of every change in the cache; looks again at what that concerns."""

    def __init__(self, cache: Cache, requester: str) -> None:
        self.requester = requester
        self._cache = cache
        self._tables: dict[Name, Table] = {}
        self._changed: dict[Name, dict[str, None]] = {}  # the names of slots to be looked at again, in order
        self._touched: dict[Name, set[int]] = {}  # what was looked at again since somebody asked

    def of(self, key: Name) -> Table:
        table, cache = self._tables.get(key), self._cache
        changed = self._changed.pop(key, {})
        if table is None:
            table = self._tables[key] = Table()
            slots = (*cache.by("schedulingrequests", "workload", key), *cache.by("bindings", "workload", key))
            changed = dict.fromkeys(item.name for item in slots)
        touched = self._touched.setdefault(key, set())
        for name in changed:
            digits = name.rpartition("-")[2]
            if not digits.isdecimal():  # people may call an eviction what they like; then it is about no slot
                continue
            index = int(digits)
            touched.add(index)
            slot = self._slot(key, index, name)
            if slot is None:
                table.remove(index)
            else:
                table.put(slot)
        return table

    def touched(self, key: Name) -> set[int]:
        """Which slots changed in any way since this was asked last."""
        return self._touched.pop(key, set())

    def told(self, old: Item | None, new: Item | None) -> None:
        item = new or old
        assert item is not None
        match item.plural:
            case "schedulingrequests" | "bindings" | "instances" | "evictionrequests":
                key = workload_of(item)
                self._note(key, (item.name,))
                if new is None and not any(
                    self._cache.any(plural, "workload", key) for plural in ("schedulingrequests", "bindings")
                ):
                    self._forget(key)
            case "endpoints":
                self._note(item.key, self._shifted(item.name, old, new))
            case "nodes":
                if _place(old) != _place(new):
                    for each in self._cache.by("bindings", "node", item.name):
                        self._note(workload_of(each), (each.name,))

    def _forget(self, key: Name) -> None:
        for kept in (self._tables, self._changed, self._touched):
            kept.pop(key, None)

    def _note(self, key: Name, names: Iterable[str]) -> None:
        if key in self._tables:
            self._changed.setdefault(key, {}).update(dict.fromkeys(names))

    def _shifted(self, workload: str, old: Item | None, new: Item | None) -> list[str]:
        return [f"{workload}-{index}" for index in _served(old).keys() ^ _served(new).keys()]

    def _slot(self, key: Name, index: int, name: str) -> Slot | None:
        request, binding = self._cache.item("schedulingrequests", key[0], name), self._cache.item("bindings", key[0], name)
        slot = None
        if request is not None:
            asked: SchedulingRequest = request.hot
            spec, status = asked.spec, asked.status
            slot = Slot(index, status.state, spec.generation, spec.epoch, attempt=status.attempt, request=asked)
        if binding is None or (slot is not None and slot.epoch > binding.hot.token.epoch):
            return slot  # a request of a later life replaces the binding
        return self._bound(key, binding, binding.hot)

    def _bound(self, key: Name, item: Item, hot: BindingHot) -> Slot:
        cache = self._cache
        eviction: EvictionRequest | None = cache.get("evictionrequests", *item.key)
        leaving = eviction is not None and is_open(eviction) and concerns(eviction, hot)
        ours = eviction is not None and bool(self.requester) and eviction.spec.requester == self.requester
        node = cache.item("nodes", "", hot.node)
        return Slot(
            hot.index,
            hot.state,
            hot.generation,
            hot.token.epoch,
            token=hot.token,
            node=hot.node,
            ready=_is_ready(cache, item, hot),
            in_traffic=hot.index in _served(cache.item("endpoints", *key)),
            leaving=leaving,
            approved=leaving and eviction is not None and is_approved(eviction),
            ours=leaving and ours,
            held=leaving and eviction is not None and is_held(eviction),
            lost=node is not None and node.hot.status.health == "Lost",
            supersedes=hot.supersedes,
        )


def _served(item: Item | None) -> dict[int, Endpoint]:
    """Who Endpoints name, by index. Kept beside the item: ten thousand are read for every change of one."""
    if item is None:
        return {}
    if item.derived is None:
        item.derived = {endpoint.slot: endpoint for endpoint in item.hot.spec.endpoints}
    found: dict[int, Endpoint] = item.derived
    return found


def _place(node: Item | None) -> tuple[str, bool] | None:
    """What of a node its slots depend on."""
    return (node.hot.spec.address, node.hot.status.health == "Lost") if node is not None else None


def _is_ready(cache: Cache, item: Item, hot: BindingHot) -> bool:
    if hot.state not in (SlotState.READY, SlotState.SERVING):
        return False
    instance: Instance | None = cache.get("instances", item.tenant, item.name)
    return instance is None or (instance.status.ready and instance.spec.token == hot.token)
