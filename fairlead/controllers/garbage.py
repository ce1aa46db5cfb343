"""Removes what is finished: requests to leave that have ended, endpoints and ended bindings whose assignment is gone, revisions
beyond a workload's history, events past their retention.

Never removes what is live: the authority refuses that whoever asks. What a slot's epoch depends on is not its business (see
fairlead/decide/queueing.py). One runs in the global plane, one in each region's.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from fairlead.client.plane import Plane
from fairlead.controllers.cache import Indexes, Item, Name, workload_in_spec, workload_of
from fairlead.controllers.contract import Result, View
from fairlead.controllers.gathering import SLOT_INDEXES, condition
from fairlead.decide.defragmenting import HOUR_MS, asked_ms
from fairlead.decide.disruption import is_open
from fairlead.decide.slots import ENDED, millis
from fairlead.model import codec
from fairlead.model.commands import Body, Delete, Put
from fairlead.model.kinds.intent import Workload
from fairlead.model.kinds.work import EvictionRequest, Revision
from fairlead.ports import Clock

_TOGETHER_MS: Final = 1000
EVICTION_KEPT_MS: Final = 60_000  # for people and tools to see how it ended
REVISIONS_KEPT: Final = 10
EVENTS_KEPT_S: Final = 30 * 86_400.0
EVENTS_MAX: Final = 50_000  # of a plane: some 25 MB
_EVENTS_AT_ONCE: Final = 2_000  # a sweep: more than are written between two
_SLICE: Final = 2000


class _Meta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    creation_time: datetime | None = msgspec.field(name="creationTimestamp", default=None)


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    last_time: datetime | None = None


class _Dated(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta
    spec: _Spec = _Spec()


_dated = codec.decoder(_Dated).decode


class _Events:
    """Events are too many to follow: they are listed now and then. Those that did not happen again for so long go, and the oldest
    where there are too many. The narrators write fewer than this removes."""

    sweep_s = 60.0

    def __init__(self, events_kept_s: float = EVENTS_KEPT_S, events_max: int = EVENTS_MAX) -> None:
        self._kept_ms = int(events_kept_s * 1000)
        self._max = events_max

    async def sweep(self, plane: Plane, clock: Clock) -> list[Body]:
        oldest_ms = plane.plane_ms() - self._kept_ms
        dated: list[tuple[int, str, str]] = []
        for at, change in enumerate(await plane.list("events")):
            if at % _SLICE == _SLICE - 1:
                await clock.sleep(0)
            if change.raw is not None:
                found = _dated(change.raw)
                dated.append((millis(found.spec.last_time or found.metadata.creation_time), change.tenant, change.name))
        dated.sort()
        surplus = max(0, len(dated) - self._max)
        going = [each for at, each in enumerate(dated) if at < surplus or each[0] < oldest_ms]
        return [Delete("Event", tenant, name) for _, tenant, name in going[:_EVENTS_AT_ONCE]]


def _ended(item: Item) -> Name | None:
    """The workload of a slot that may be removed with the last of its assignments."""
    return workload_of(item) if item.hot.state in ENDED else None


class GarbageController(_Events):
    """A region's."""

    name = "garbage"
    named = ("assignments", "bindings", "endpoints")
    follows = ("assignments", "evictionrequests", "bindings", "endpoints")
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {**SLOT_INDEXES, "bindings": {**SLOT_INDEXES["bindings"], "ended": _ended}}
    indexes_other: Indexes = {}
    hears = False

    def __init__(self, events_kept_s: float = EVENTS_KEPT_S, events_max: int = EVENTS_MAX) -> None:
        super().__init__(events_kept_s, events_max)
        self._due: dict[Name, int] = {}  # when the requests to leave of a workload are looked at next

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        match item.plural:
            case "assignments":
                key = workload_in_spec(item)
            case "endpoints":
                key = item.key
            case "bindings":
                key = workload_of(item)
            case _:  # one that ends now mostly goes after those that ended before, for which a look is due already
                key, until_ms = workload_of(item), _kept_until_ms(item.hot)
                gone = view.cache.item("evictionrequests", *item.key) is None
                if gone or not until_ms or self._due.get(key, until_ms + 1) <= until_ms:
                    return ()
                self._due.pop(key, None)
                return (key,)
        return () if view.cache.any("assignments", "workload", key) else (key,)  # while it has one, its slots are others'

    def resync(self, view: View) -> Iterable[Name]:
        cache = view.cache
        keys = {item.key: None for item in cache.all("endpoints")}
        return keys | dict.fromkeys([*cache.names("evictionrequests", "workload"), *cache.names("bindings", "ended")])

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        cache = view.cache
        bodies: list[Body] = []
        if now_ms >= self._due.get(key, 0):
            bodies += self._evictions(key, view, now_ms)
        if not cache.by("assignments", "workload", key):
            bodies += [Delete("Binding", *item.key) for item in cache.by("bindings", "ended", key)]
            if cache.item("endpoints", *key) is not None:
                bodies.append(Delete("Endpoints", *key))
        return Result(bodies, self._due.get(key))

    def _evictions(self, key: Name, view: View, now_ms: int) -> list[Body]:
        """Those that were kept long enough, and when to look for the next: of many, not for each by itself."""
        bodies: list[Body] = []
        dues: list[int] = []
        for item in view.cache.each("evictionrequests", "workload", key):
            until_ms = _kept_until_ms(item.hot)
            if until_ms and now_ms >= until_ms:
                bodies.append(Delete("EvictionRequest", *item.key, uid=item.hot.metadata.uid))
            elif until_ms:
                dues.append(until_ms)
        self._due.pop(key, None)
        if dues:
            self._due[key] = max(min(dues), now_ms + _TOGETHER_MS)
        return bodies


def _kept_until_ms(eviction: EvictionRequest) -> int:
    """0: it has not ended. Defragmentation counts its own by those that are kept."""
    done = condition(eviction.status.conditions, "Done")
    if done is None or is_open(eviction):
        return 0
    return millis(done.last_transition_time) + (HOUR_MS if asked_ms(eviction) else EVICTION_KEPT_MS)


class GarbageGlobalController(_Events):
    """The global plane's."""

    name = "garbage-global"
    follows = ("workloads", "assignments", "revisions")
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {"assignments": SLOT_INDEXES["assignments"], "revisions": SLOT_INDEXES["revisions"]}
    indexes_other: Indexes = {}
    hears = False

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        key = item.key if item.plural == "workloads" else workload_in_spec(item)
        workload = view.cache.item("workloads", *key)
        if workload is None or workload.hot.metadata.deletion_time is not None:
            return (key,)
        return (key,) if len(view.cache.by("revisions", "workload", key)) > REVISIONS_KEPT else ()

    def resync(self, view: View) -> Iterable[Name]:
        keys = {item.key: None for item in view.cache.all("workloads")}
        keys |= {workload_in_spec(item): None for item in view.cache.all("revisions")}
        return keys

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        cache = view.cache
        workload: Workload | None = cache.get("workloads", *key)
        orders = [item.hot for item in cache.by("assignments", "workload", key)]
        revisions: list[Revision] = [item.hot for item in cache.by("revisions", "workload", key)]
        revisions.sort(key=lambda r: -r.spec.generation)
        leaving = workload is None or workload.metadata.deletion_time is not None
        if leaving:
            going = [] if orders else revisions
        else:
            used = {n for order in orders for n in (order.spec.generation, *order.status.generations)}
            going = [r for r in revisions[REVISIONS_KEPT:] if r.spec.generation not in used]
        bodies: list[Body] = [Delete("Revision", key[0], r.metadata.name, uid=r.metadata.uid) for r in going]
        if workload is not None and leaving:
            bodies += _finalized(workload, bool(orders or revisions))
        return Result(bodies)


def _finalized(workload: Workload, has_dependents: bool) -> list[Body]:
    """Foreground deletion waits for what the workload owns; an orphaning one waits for nobody."""
    done = {"orphan"} if has_dependents else {"orphan", "foregroundDeletion"}
    left = tuple(f for f in workload.metadata.finalizers if f not in done)
    if left == workload.metadata.finalizers:
        return []
    return [Put("Workload", replace(workload, metadata=replace(workload.metadata, finalizers=left)))]
