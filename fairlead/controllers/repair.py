"""Owns Unknown, Failed -> Released and Released -> Pending: lets go of a slot once it is safe, and queues its next life.

Safe means: its node is declared Lost and no traffic goes there (Replicated), or the fence time has passed (Exclusive); the
authority judges both again. Waits where an override asks for approval first. Asks slots to leave whose assignment went before
they did: this holder saw it go, or there is none here nor in the global plane, which was listed twice since the slots were seen.
Never declares a node lost. Runs in every region plane.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from fairlead.controllers.above import Above, Listed
from fairlead.controllers.cache import Cache, Indexes, Item, Name, workload_of
from fairlead.controllers.contract import Result, View
from fairlead.controllers.gathering import SLOT_INDEXES, SLOT_OBJECTS, assignment_of, revision_of, slots_of
from fairlead.decide.defragmenting import LEFT_MS, made_room
from fairlead.decide.disruption import concerns, is_open
from fairlead.decide.jobs import counted
from fairlead.decide.overrides import Where, ends_ms
from fairlead.decide.queueing import request_for
from fairlead.decide.repairs import approval_awaited
from fairlead.decide.slots import RUNNING, Slot, instant, millis
from fairlead.decide.wanting import wanted
from fairlead.model.commands import Body, Move, Put
from fairlead.model.hot import BindingHot
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Assignment, Binding, EvictionRequest, EvictionRequestSpec, SchedulingRequest
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata

_S = SlotState
_BROKEN: Final = (_S.UNKNOWN, _S.FAILED, _S.RELEASED)
PAUSE_FIRST_MS: Final = (
    1000  # after a failure, doubled with every one that follows: what fails at once must not keep the queue busy
)
PAUSE_MAX_MS: Final = 60_000
STEADY_MS: Final = 600_000  # a life this long pays for the failures before it
ORPHANS_AT_ONCE: Final = 10  # of one workload, every so often: a mistake is seen before everything has gone
ORPHANS_EVERY_MS: Final = 10_000
# Of a region in each second: 50,000 lost at once are let go within a minute all the same, and whoever sees that they should not
# be can still ask for approval of the rest.
LET_GO_PER_S: Final = 1000
LISTS: Final = 2  # of the global plane: the first may have been under way when the slots were seen
REQUESTER: Final = Role.REPAIR.value


def _paused(cache: Cache, key: Name, region: str, now_ms: int) -> Override | None:
    return approval_awaited((item.hot for item in cache.all("overrides")), Where(*key, region), now_ms)


def _is_asked(eviction: EvictionRequest | None, hot: BindingHot) -> bool:
    """To leave, by a request that has not ended: of those before some are kept for an hour."""
    return eviction is not None and is_open(eviction) and concerns(eviction, hot)


def _request(key: Name, item: Item) -> Put:
    hot = item.hot
    ref = SlotRef(workload=key[1], uid=hot.workload_uid, index=hot.index)
    spec = EvictionRequestSpec(
        slot=ref, reason="repair: its assignment is gone", requester=REQUESTER, epoch=hot.token.epoch
    )  # fmt: skip
    return Put("EvictionRequest", EvictionRequest(metadata=Metadata(name=item.name, namespace=key[0]), spec=spec))


def _kept_off(cache: Cache, request: SchedulingRequest, now_ms: int) -> SchedulingRequest:
    """Of a slot that was moved to make room: its request says where, so that it does not take that room itself."""
    key = (request.metadata.namespace, request.metadata.name)
    bound = cache.item("bindings", *key)
    if bound is None or not made_room(cache.get("evictionrequests", *key), bound.hot):
        return request
    return replace(request, spec=replace(request.spec, left_node=bound.hot.node, left_until_time=instant(now_ms + LEFT_MS)))


def _broken(item: Item) -> Name | None:
    """The workload of a slot that something may have to be done about."""
    return workload_of(item) if item.hot.state in _BROKEN else None


class RepairController:
    name = "repair"
    named = ("endpoints", "schedulingrequests", "instances")
    follows = ("assignments", "revisions", "nodes", "endpoints", "overrides", *SLOT_OBJECTS)
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {**SLOT_INDEXES, "bindings": {**SLOT_INDEXES["bindings"], "broken": _broken}}
    indexes_other: Indexes = {}
    hears = False

    def __init__(self, region: str, above: Above | None = None) -> None:
        self._region = region
        self._above = above or Above(region)
        self._left: set[Name] = set()  # workloads whose assignment went before their slots did
        self._unassigned: dict[Name, Listed] = {}  # that run without one here, and what was listed above when that was first seen
        self._second, self._let_go = 0, set[Name]()  # slots that were let go in that second of plane time; soft
        self._failures: dict[Name, tuple[int, int]] = {}  # slots that failed -> the epoch, and how many lives in a row; soft

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        cache = view.cache
        match item.plural:
            case "assignments" | "revisions":
                key = (item.tenant, item.hot.spec.workload)
                if item.plural == "assignments" and self._is_left(cache, key):
                    return (key,)
            case "endpoints":
                key = item.key
            case "nodes":
                broken = [each for each in cache.by("bindings", "node", item.name) if each.hot.state in _BROKEN]
                return {workload_of(each): None for each in broken}
            case "overrides":
                return self.resync(view) if item.hot.spec.kind == "repair-approval" else ()
            case _:
                key = workload_of(item)
        return (key,) if cache.any("bindings", "broken", key) else ()

    def resync(self, view: View) -> Iterable[Name]:
        self._failures = {key: told for key, told in self._failures.items() if view.cache.item("bindings", *key) is not None}
        self._look_for_left(view.cache)
        return dict.fromkeys([*view.cache.names("bindings", "broken"), *sorted(self._left)])

    def _look_for_left(self, cache: Cache) -> None:
        """Whose assignment went while nobody watched: before this holder began, or in a restore. The planes show it: none is
        here, and none is ordered above, by two lists that were made after the slots were seen. Whoever is cut off has no list,
        and a restored global plane begins to be counted anew."""
        now = self._above.listed
        found = {}
        for key in cache.names("bindings", "workload"):
            if cache.any("assignments", "workload", key) or self._above.orders(key) is not False or not self._running(cache, key):
                continue
            since = found[key] = self._unassigned.get(key, now)
            if since.incarnation != now.incarnation:
                found[key] = now
            elif now.lists >= since.lists + LISTS:
                self._left.add(key)
        self._unassigned = found

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        cache = view.cache
        broken = {item.hot.index for item in cache.by("bindings", "broken", key)}
        if not broken and key not in self._left:
            return Result()
        assignment = assignment_of(cache, key)
        paused = _paused(cache, key, self._region, now_ms)
        if paused is not None:
            return Result((), ends_ms(paused))
        if key in self._left:
            evictions = self._orphans(cache, key)
            if evictions or not broken:
                return Result(evictions, now_ms + ORPHANS_EVERY_MS if key in self._left else None)
        slots = slots_of(cache, key)
        want = wanted(assignment, slots, now_ms)
        bodies: list[Body] = []
        wakes: list[int] = []
        for slot in (slots[index] for index in sorted(broken & slots.keys())):
            name = f"{key[1]}-{slot.index}"
            if slot.token is None:
                continue
            if self._may_go(cache, assignment, slot):
                if not self._is_its_turn((key[0], name), now_ms):
                    wakes.append((self._second + 1) * 1000)
                    continue
                bodies.append(Move(key[0], name, slot.token, _S.RELEASED, reason=f"repair: was {slot.state.value}"))
            elif slot.state is _S.RELEASED and slot.index in want and assignment is not None:
                due_ms = self._due_ms(cache, key[0], name, slot.epoch)
                if now_ms < due_ms:
                    wakes.append(due_ms)
                    continue
                revision = revision_of(cache, key, want[slot.index])
                if revision is not None:
                    request = request_for(assignment, revision, slot.index, slot.epoch + 1)
                    bodies.append(Put("SchedulingRequest", _kept_off(cache, request, now_ms)))
        return Result(bodies, min(wakes, default=None))

    def _is_its_turn(self, slot: Name, now_ms: int) -> bool:
        """Whoever was let go in this second and has not heard of it yet is counted once, however often it is looked at."""
        second = now_ms // 1000
        if second != self._second:
            self._second, self._let_go = second, set()
        if slot not in self._let_go and len(self._let_go) >= LET_GO_PER_S:
            return False
        self._let_go.add(slot)
        return True

    def _is_left(self, cache: Cache, key: Name) -> bool:
        """The last assignment went and slots still run: somebody took its finalizer off by hand. That it was there, and went, is
        the evidence; slots whose assignment has merely not come yet (of a restored plane, or one cut off) are left alone."""
        if cache.by("assignments", "workload", key) or not self._running(cache, key):
            self._left.discard(key)
            return False
        self._left.add(key)
        return True

    def _running(self, cache: Cache, key: Name) -> list[Item]:
        return [item for item in cache.by("bindings", "workload", key) if item.hot.state in RUNNING]

    def _orphans(self, cache: Cache, key: Name) -> list[Body]:
        """Requests to leave for slots that nobody wants: a few at a time, and none twice."""
        running = self._running(cache, key) if not cache.by("assignments", "workload", key) else []
        if not running:
            self._left.discard(key)
        unasked = [item for item in running if not _is_asked(cache.get("evictionrequests", *item.key), item.hot)]
        return [_request(key, item) for item in unasked[:ORPHANS_AT_ONCE]]

    def _may_go(self, cache: Cache, assignment: Assignment | None, slot: Slot) -> bool:
        if slot.state is _S.FAILED:
            job = assignment is not None and assignment.spec.job is not None
            booked = not job or (assignment is not None and counted(assignment.status, slot.index, slot.epoch))
            return booked and not slot.in_traffic
        gone = cache.item("nodes", "", slot.node) is None
        return slot.state is _S.UNKNOWN and (slot.lost or gone) and not slot.in_traffic

    def _due_ms(self, cache: Cache, tenant: str, name: str, epoch: int) -> int:
        """At once, unless the life before failed by itself; then the later, the more in a row did. Lives that ended otherwise (a
        rollout, a drain, a lost node) do not count: the oldest services have had most of them."""
        binding: Binding | None = cache.get("bindings", tenant, name)
        step = binding.status.last_transition if binding is not None else None
        if binding is None or step is None or step.before is not _S.FAILED:
            self._failures.pop((tenant, name), None)
            return 0
        of, failures = self._failures.get((tenant, name), (0, 0))
        if of != epoch:
            steady = millis(step.time) - millis(binding.metadata.creation_time) >= STEADY_MS
            failures = failures + 1 if of == epoch - 1 and not steady else 1
            self._failures[tenant, name] = (epoch, failures)
        return millis(step.time) + min(PAUSE_MAX_MS, PAUSE_FIRST_MS << min(failures - 1, 10))
