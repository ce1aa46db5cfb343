"""From the watch to the scheduler's pictures: each change is told to the snapshot, the queue and the policies, and may wake what
waits. Owns no decision. Called by scheduler.py with what it listed and what it follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from fairlead.client.plane import Change
from fairlead.decide.grants import limits_of
from fairlead.decide.label_index import Labels
from fairlead.decide.slots import millis
from fairlead.model.kinds.work import Marks
from fairlead.model.lifecycle import SlotState
from fairlead.scheduler.holding import Holding
from fairlead.scheduler.partition import NEVER, HeadStart, Parts
from fairlead.scheduler.policies import Policies
from fairlead.scheduler.queue import Queue
from fairlead.scheduler.snapshot import SlotKey, Snapshot, Use
from fairlead.scheduler.wakeups import (
    GrantGrew,
    NodeFreed,
    NodeOpened,
    PlacementsChanged,
    PlaneReached,
    PolicyPromoted,
    SlotsCame,
)

# What the scheduler looks at. Nodes before what lies on them, so that a list is applied in an order that makes sense.
FOLLOWED: Final = (
    "regions", "nodepools", "nodes", "grants", "grantterms", "tenants", "schedulerpolicies", "policychannels", "overrides",
    "reservations", "bindings", "schedulingrequests",
)  # fmt: skip

Claimed = Callable[[SlotKey, str, tuple[str, ...]], None]  # slot, node, the victims it waits for
Ended = Callable[[Use], None]


class Observer:
    def __init__(
        self, snapshot: Snapshot, queue: Queue, policies: Policies, region: str, parts: Parts, claimed: Claimed | None = None,
        ended: Ended | None = None,
    ) -> None:  # fmt: skip
        self._snapshot = snapshot
        self._queue = queue
        self._policies = policies
        self._region = region
        self._parts = parts
        self._claimed = claimed
        self._ended = ended
        self._freed: dict[str, None] = {}
        self._opened: dict[str, None] = {}
        self._moved: dict[str, Marks | None] = {}  # workloads whose placements changed, and what their slots bear
        self._came: dict[tuple[str, Labels], None] = {}  # workloads that have slots where they had none, and the labels of those
        self._usage: dict[str, None] = {}
        self._spared: dict[str, None] = {}  # tenants that use less
        self._gone: dict[SlotKey, HeadStart] = {}  # requests of other schedulers' parts that were there
        self.holding = Holding(queue, policies, region)
        self._apply: dict[str, Callable[[Change], None]] = {
            "regions": self._region_changed,
            "nodepools": self._pool,
            "nodes": self._node,
            "grants": self._grant,
            "grantterms": self._term,
            "tenants": self._tenant,
            "schedulerpolicies": self._policy,
            "policychannels": self._channel,
            "overrides": self._override,
            "reservations": self._reservation,
            "bindings": self._binding,
            "schedulingrequests": self._request,
        }

    def observe(self, changes: Sequence[Change]) -> None:
        """In the order they come; afterwards, once each, what they may have opened."""
        apply = self._apply
        for change in changes:
            apply[change.plural](change)
        for key, start in self._gone.items():
            if key in self._snapshot.uses:  # else it was withdrawn, which shows no scheduler at work
                start.seen(self._snapshot.now_ms)
        self._gone.clear()
        self._wake()

    def heard_again(self, nodes: Sequence[str]) -> None:
        """Nodes that were too silent to place on and are not any more."""
        for node in nodes:
            self._opened[node] = None
        self._wake()

    def _wake(self) -> None:
        queue, snapshot, now_ms = self._queue, self._snapshot, self._snapshot.now_ms
        for node in self._opened:
            queue.wake(NodeOpened(node, snapshot.free_of(node)), now_ms)
        for node in self._freed:
            if node not in self._opened:
                queue.wake(NodeFreed(node, snapshot.free_of(node)), now_ms)
        for uid, marks in self._moved.items():
            labels, repels = (marks.labels, bool(marks.repels)) if marks is not None else ((), False)
            queue.wake(PlacementsChanged(uid, labels, repels), now_ms)
        for uid, labels in self._came:
            queue.wake(SlotsCame(uid, labels), now_ms)
        for tenant in self._spared:
            queue.wake(GrantGrew(tenant, self._room(tenant)), now_ms)
        if self._opened:
            queue.set_capacity(snapshot.capacity)
        for tenant in self._usage:
            queue.set_usage(tenant, snapshot.used.get(tenant, {}), with_taken=True)
        for seen in (self._opened, self._freed, self._moved, self._came, self._usage, self._spared):
            seen.clear()

    def _room(self, tenant: str) -> dict[str, int]:
        """What its grant leaves a tenant: only so much of what waits for quota is worth another try."""
        grants, snapshot = self._snapshot.grants, self._snapshot
        grant, used = grants.get(tenant), snapshot.used.get(tenant, {})
        if grant is None:
            return {}
        limits = limits_of(grants.limit(grant, snapshot.revision, snapshot.now_ms))
        return {name: limit - used.get(name, 0) for name, limit in limits.items()}

    # --- kinds -----------------------------------------------------------------------------------------------------------

    def _node(self, change: Change) -> None:
        self._snapshot.set_node(change.name, change.hot if change.raw is not None else None)
        self._opened[change.name] = None

    def _pool(self, change: Change) -> None:
        for node in self._snapshot.set_pool(change.name, change.hot if change.raw is not None else None):
            self._opened[node] = None

    def _region_changed(self, change: Change) -> None:
        region = change.hot if change.raw is not None else None
        self._snapshot.set_region(change.name, region)
        if change.name == self._region:
            self._snapshot.grants.region = region.metadata if region is not None else None
            self._queue.wake(PolicyPromoted(), self._snapshot.now_ms)

    def _binding(self, change: Change) -> None:
        key = (change.tenant, change.name)
        old = self._snapshot.uses.get(key)
        hot = change.hot if change.raw is not None else None
        if hot is not None and hot.state is SlotState.FAILED and old is not None and old.evictable:
            self._snapshot.failed(hot.node)
        is_other = self._snapshot.set_binding(key, hot)
        new = self._snapshot.uses.get(key)
        self._note_arrival(old, new)
        if not is_other:
            return
        if new is not None and self._claimed is not None and (start_after := getattr(hot, "start_after", ())):
            self._claimed(key, change.hot.node, start_after)
        if old is not None and new is None and self._ended is not None:
            self._ended(old)
        if old is not None and (new is None or new.row != old.row):
            self._freed[self._snapshot.names[old.row]] = None
            self._moved[old.uid] = old.marks
        self._note_usage(change.tenant, old, new)

    def _note_arrival(self, old: Use | None, new: Use | None) -> None:
        """Those who wait near to it, or for its spread, can go on now: it came, or it is no longer only assumed."""
        if new is None or not new.uid or not self._queue.awaits_arrivals:
            return
        if old is None or old.row != new.row or old.assumed != new.assumed or old.marks != new.marks:
            self._came[new.uid, new.marks.labels if new.marks is not None else ()] = None

    def _note_usage(self, tenant: str, old: Use | None, new: Use | None) -> None:
        self._usage[tenant] = None
        if old is not None and (new is None or new.requests != old.requests):
            self._spared[tenant] = None

    def _reservation(self, change: Change) -> None:
        key = (change.tenant, change.name)
        old = self._snapshot.uses.get(key)
        self._snapshot.set_reservation(key, change.hot if change.raw is not None else None)
        new = self._snapshot.uses.get(key)
        if old is not None and new is None:
            self._freed[self._snapshot.names[old.row]] = None
        self._note_arrival(old, new)
        self._note_usage(change.tenant, old, new)

    def _request(self, change: Change) -> None:
        if change.raw is None:
            start = self._queue.remove(change.tenant, change.name, self._snapshot.now_ms, settled=False)
            if start is not None:
                self._gone[change.tenant, change.name] = start
            return
        spec = change.hot.spec
        start = self._parts.head_start(change.tenant, spec.slot.uid, spec.gang)
        if start is not NEVER:
            self.holding.seen(change.tenant, self._snapshot.now_ms)
            self._queue.upsert(change.hot, self._snapshot.now_ms, start)

    def _grant(self, change: Change) -> None:
        if change.name != self._region:
            return
        if change.raw is None:
            self._snapshot.grants.pop(change.tenant, None)
        else:
            self._snapshot.grants[change.tenant] = change.hot
            self._queue.wake(GrantGrew(change.tenant), self._snapshot.now_ms)

    def _term(self, change: Change) -> None:
        """Leases that begin, or begin again, give room to everybody who waits for it."""
        if change.name != self._region:
            return
        grants, now_ms = self._snapshot.grants, self._snapshot.now_ms
        old, grants.term = grants.term, change.hot if change.raw is not None else None
        end = old.status.end_time if old is not None else None
        if grants.term is not None and grants.term.status.end_time != end and millis(end) <= now_ms:
            for tenant in grants:
                self._queue.wake(GrantGrew(tenant), now_ms)
        if grants.term is not None and grants.term.status.end_time != end:
            self._queue.wake(PlaneReached(), now_ms)

    def _tenant(self, change: Change) -> None:
        self._queue.set_weight(change.name, change.hot.spec.weight if change.raw is not None else 1)

    def _policy(self, change: Change) -> None:
        self._policies.set_revision(change.name, change.hot if change.raw is not None else None)
        self._queue.wake(PolicyPromoted(), self._snapshot.now_ms)

    def _channel(self, change: Change) -> None:
        if change.name == "default":
            channel = change.hot if change.raw is not None else None
            self._policies.set_channel(channel)
            self._snapshot.grants.channel = channel.metadata if channel is not None else None
            self._queue.wake(PolicyPromoted(), self._snapshot.now_ms)

    def _override(self, change: Change) -> None:
        """A hold keeps its scope's requests from being tried until it expires or is taken away; zones to avoid are a gate."""
        override = change.hot if change.raw is not None else None
        self.holding.changed(change.tenant, change.name, override, self._snapshot.now_ms)
