"""Owns any live -> Unknown and back, and the health of nodes: Unknown after the lease, Lost after that.

Judges a zone at a time, so that it can tell a dead node from its own deafness (fairlead/decide/nodes.py). Never releases a slot
(repair's) and never drains. Runs in every region plane; what it knows of heartbeats is soft and begins with its own lease.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from fairlead.controllers.cache import Cache, Indexes, Item, Name
from fairlead.controllers.contract import Result, View
from fairlead.controllers.gathering import SLOT_INDEXES, condition, endpoints_of, is_true
from fairlead.controllers.silence import Heard, conditions_of
from fairlead.decide.nodes import TO_UNKNOWN, NodeFacts, NodeRules, NodeVerdict, judge_zone, state_on_return
from fairlead.decide.slots import millis
from fairlead.model.commands import Body, Move, PutStatus
from fairlead.model.hot import BindingHot
from fairlead.model.kinds.capacity import Node
from fairlead.model.kinds.work import Binding
from fairlead.model.lifecycle import SlotState

LOOK_MS: Final = 1000
_S = SlotState


def _zone(item: Item) -> str:
    return str(item.hot.spec.zone)


def _unknown_on(item: Item) -> str | None:
    return str(item.hot.node) if item.hot.state is _S.UNKNOWN else None


class NodeController:
    name = "node"
    follows = ("nodes", "bindings", "instances", "endpoints")
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {"nodes": {"zone": _zone}, "bindings": {**SLOT_INDEXES["bindings"], "unknown": _unknown_on}}
    indexes_other: Indexes = {}
    hears = True
    for_many = True  # a zone has many nodes

    def __init__(self, rules: NodeRules | None = None) -> None:
        self._rules = rules or NodeRules()
        self._back_ms: dict[str, int] = {}  # nodes that are heard again -> since when; soft
        self._deaf_ms = 0  # when nobody at all was heard last; soft
        self._listed_ms: dict[str, int] = {}  # lost nodes that have listed what they run since -> when that was seen; soft

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        if item.plural == "nodes":
            return (("", _zone(item)),)
        if item.plural == "bindings" and item.hot.state is not _S.UNKNOWN:
            node = view.cache.item("nodes", "", item.hot.node)  # bound just as its node fell silent
            if node is not None and node.hot.status.health in ("Unknown", "Lost"):
                return (("", _zone(node)),)
        return ()

    def resync(self, view: View) -> Iterable[Name]:
        return [("", str(zone)) for zone in view.cache.values("nodes", "zone")]

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        zone = view.cache.by("nodes", "zone", key[1])
        if not zone:
            return Result()
        rules = self._rules
        items = {item.name: item for item in zone if not self._is_well(view, item, now_ms)}
        if not items:
            return Result((), now_ms + LOOK_MS)
        facts = [self._facts(view, item.hot, now_ms) for item in items.values()]
        anybody = self._hears_anybody(view, now_ms)
        if not anybody:
            self._deaf_ms = now_ms
        bodies: list[Body] = []
        for verdict in judge_zone(facts, anybody, view.since_ms, now_ms, rules, len(zone) - len(items), self._deaf_ms):
            item = items[verdict.name]
            status = _status(item.hot, verdict, now_ms, listed=self._has_listed(item.hot, now_ms))
            if status != item.hot.status:
                bodies.append(PutStatus("Node", "", verdict.name, status, expected_revision=view.revision(item)))
            bodies += self._slots(view.cache, item.hot, verdict)
        return Result(bodies, now_ms + LOOK_MS)

    def _is_well(self, view: View, item: Item, now_ms: int) -> bool:
        """It was, it is heard, and no slot waits for it: there is nothing to decide. So it is with nearly all of them, every
        second."""
        name = item.name
        if now_ms - max(view.heard.get(name, 0), view.since_ms) > self._rules.lease_ms or name in self._back_ms:
            return False
        if item.derived is None:
            status = item.hot.status
            item.derived = status.health in ("", "Ready") and not is_true(status.conditions, "ObservationSuspect")
        return bool(item.derived) and not view.cache.any("bindings", "unknown", name)

    def _hears_anybody(self, view: View, now_ms: int) -> bool:
        lease_ms, known = self._rules.lease_ms, view.cache.item
        if now_ms - view.since_ms <= lease_ms:
            return True
        return any(now_ms - ms <= lease_ms and known("nodes", "", name) is not None for name, ms in view.heard.items())

    def _facts(self, view: View, node: Node, now_ms: int) -> NodeFacts:
        name, status = node.metadata.name, node.status
        heard_ms = max(view.heard.get(name, 0), millis(node.metadata.creation_time))
        away = status.health in ("Unknown", "Lost")
        if not away or now_ms - heard_ms > self._rules.lease_ms:
            self._back_ms.pop(name, None)
        elif name not in self._back_ms:
            self._back_ms[name] = now_ms
        ready = condition(status.conditions, "Ready")
        changed_ms = millis(ready.last_transition_time) if ready is not None else 0
        suspect = is_true(status.conditions, "ObservationSuspect")
        return NodeFacts(
            name, status.health, status.schedulable, heard_ms, changed_ms, status.flaps, self._back_ms.get(name, 0), suspect
        )

    def _has_listed(self, node: Node, now_ms: int) -> bool:
        """Lost, and its inventory is confirmed all the same: its agent is back, and heartbeats are heard with a delay. Closing it
        again would make it list again at once, as often as the two can write. If nothing is heard for a lease, it was in vain."""
        name, status = node.metadata.name, node.status
        lost = status.health == "Lost" and status.schedulable
        if lost and now_ms - self._listed_ms.setdefault(name, now_ms) <= self._rules.lease_ms:
            return True
        self._listed_ms.pop(name, None)
        return False

    def _slots(self, cache: Cache, node: Node, verdict: NodeVerdict) -> list[Body]:
        out: list[Body] = []
        back = verdict.name in self._back_ms and node.status.schedulable
        for item in cache.by("bindings", "node", verdict.name):
            hot: BindingHot = item.hot
            if verdict.silent and hot.state in TO_UNKNOWN:
                out.append(Move(item.tenant, item.name, hot.token, _S.UNKNOWN, reason=f"{verdict.name}: {verdict.why}"))
            elif hot.state is _S.UNKNOWN and (back or (verdict.health == "Ready" and not verdict.silent)):
                out.append(Move(item.tenant, item.name, hot.token, self._returns(cache, item), reason="heard again"))
        return out

    def _returns(self, cache: Cache, item: Item) -> SlotState:
        binding: Binding = item.object
        served = endpoints_of(cache, (item.tenant, binding.spec.slot.workload))
        in_traffic = served is not None and any(e.slot == binding.spec.slot.index for e in served.spec.endpoints)
        return state_on_return(binding.status.before_unknown, cache.get("instances", *item.key), in_traffic)


def _status(node: Node, verdict: NodeVerdict, now_ms: int, *, listed: bool) -> object:
    """The node's status after a verdict; equal to the one before where nothing changed. `listed`: what it runs was asked for
    since it was lost."""
    status = node.status
    heard = Heard(verdict.health == "Ready", verdict.health == "Lost", verdict.suspect, verdict.why)
    changed = verdict.health != status.health
    conditions = conditions_of(
        status.conditions, heard, "ObservationSuspect", changed=changed, generation=node.metadata.generation, now_ms=now_ms
    )
    # A lost node takes work again only after its inventory (P10): the agent turns this true.
    schedulable = status.schedulable and (verdict.health != "Lost" or listed)
    return replace(status, health=verdict.health, flaps=verdict.flaps, schedulable=schedulable, conditions=conditions)
