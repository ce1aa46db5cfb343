"""The queue of one scheduler: the durable SchedulingRequests in the order in which they are tried. Memory only orders them.

Owns where each request is (ready, taken, waiting, held), its reason, and when it is looked at again. Every request that has no
place has at every moment a reason, a since, a next owner and a next attempt. Never talks to a plane, never reads a clock: time
comes in as `now_ms`, chance as a Random. Called by the scheduler's cycle, which reports each item it takes exactly once as
placed, failed or given back.

`order.py` says who is next, `wakeups.py` whom a change may help, `gangs.py` who goes together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from heapq import heappop

from fairlead.model.kinds.work import SchedulingRequest
from fairlead.model.lifecycle import SlotState
from fairlead.ports import Random
from fairlead.scheduler.gangs import Gang
from fairlead.scheduler.moved import kept_off_until_ms
from fairlead.scheduler.order import Hold, Tenant
from fairlead.scheduler.partition import HeadStart
from fairlead.scheduler.places import Places
from fairlead.scheduler.units import (
    GONE,
    HELD,
    NO_DEADLINE,
    READY,
    STATE_NAMES,
    TAKEN,
    WAITING,
    Item,
    Meters,
    Pending,
    QueueLimits,
    Unit,
)
from fairlead.scheduler.wakeups import Change, Wakeups, topics_of


class Queue(Places):
    def __init__(self, random: Random, limits: QueueLimits | None = None) -> None:
        super().__init__(random, limits or QueueLimits())
        self._wakeups = Wakeups()
        self._stalled: dict[str, int] = {}  # tenant to until when
        self._resync_only = 0

    # --- what there is -----------------------------------------------------------------------------------------------

    def upsert(self, request: SchedulingRequest, now_ms: int, head_start: HeadStart | None = None) -> None:
        """A request as the plane has it now. A change of status alone keeps its place. With a head start it is another
        scheduler's to try first, now and whenever something changes for it."""
        self._now_ms = now_ms
        metadata = request.metadata
        tenant = self._tenants.get(metadata.namespace) or self._tenant(metadata.namespace)
        old = tenant.items.get(metadata.name)
        if old is not None:
            before = old.request
            same = before.spec is request.spec or before.spec == request.spec
            if same and (before.status.state is request.status.state or self._in_hand(old) is not None):
                old.request = request
                return
            self._remove(tenant, old)
        item = self._item(request, now_ms)
        item.head_start = head_start
        tenant.items[item.name] = item
        number = next(self._stays)
        self._ages.push((item.created_ms, number, item))
        if item.deadline_ms != NO_DEADLINE:
            self._deadlines.push((item.deadline_ms - self._limits.min_start_ms, number, item))
        tenant.reasons[item.reason] = tenant.reasons.get(item.reason, 0) + 1
        if "" in tenant.holds:
            self._to_say(item)
        spec = request.spec
        if spec.suspend:
            self._hold_back(tenant, item, "Suspended", "spec.suspend is set", now_ms)
        elif request.status.state is not SlotState.PENDING:
            reason = "WaitingForGang" if spec.gang else "WaitingForVictims"
            self._hold_back(tenant, item, reason, f"it is {request.status.state.value}", now_ms)
        elif spec.gang:
            self._join(tenant, item, now_ms)
        else:
            self._admit(tenant, item, now_ms)

    def remove(self, tenant: str, name: str, now_ms: int | None = None, *, settled: bool = True) -> HeadStart | None:
        """Bound, withdrawn or expired: the plane has it no longer. What is in somebody's hands is still to be reported. Where it
        was another scheduler's and is not known to be `settled`, the answer is that one's head start."""
        found = self._tenants.get(tenant)
        item = found.items.get(name) if found else None
        if found is None or item is None:
            return None
        start = item.head_start if self._in_hand(item) is None else None
        if start is not None and settled:
            start.seen(self._now_ms if now_ms is None else now_ms)  # that part is looked after
        self._remove(found, item)
        return start

    def set_capacity(self, totals: Mapping[str, int]) -> None:
        """Of the plane, by dimension as the ledger names them: what shares are shares of."""
        if totals == self._capacity:
            return
        self._capacity = dict(totals)
        for tenant in self._tenants.values():
            tenant.set_factors(self._capacity)
            self._order.reweighed(tenant)

    def set_usage(self, tenant: str, used: Mapping[str, int], with_taken: bool = False) -> None:
        """What the tenant uses. `with_taken` says that it includes what this queue has handed out and not heard of since, as a
        snapshot does that assumes its own proposals; otherwise that is added."""
        found = self._tenant(tenant)
        found.set_used(used, with_taken)
        self._order.reweighed(found)

    def set_weight(self, tenant: str, weight: int) -> None:
        found = self._tenant(tenant)
        found.weight = max(1, weight)
        found.set_factors(self._capacity)
        self._order.reweighed(found)

    # --- handing out and hearing back --------------------------------------------------------------------------------

    def take(self, limit: int, now_ms: int) -> list[Item]:
        """The next in order; a gang whole and adjacent. More than `limit` only where the first gang alone is larger."""
        self._now_ms = now_ms
        if self._stalled:
            self._end_stalls(now_ms)
        units = self._order.take(limit, self._set_aside)
        for unit in units:
            unit.state = TAKEN
        out: list[Item] = self._with_members(units) if self._gangs else units  # type: ignore[assignment]
        self._counts[READY] -= len(out)
        self._counts[TAKEN] += len(out)
        return out

    def placed(self, item: Item) -> None:
        """Bound. Of a gang, whichever member is reported first stands for all."""
        unit = self._in_hand(item)
        if unit is None:
            return
        tenant = self._tenants[item.tenant]
        tenant.settle(unit.amounts, bound=True)
        self._counts[TAKEN] -= unit.slots
        if unit.by_timer:
            self._resync_only += unit.slots
        tenant.failures = 0
        if tenant.stalled:
            self._stand(tenant, stalled=False)
        if isinstance(unit, Gang):
            self._gang_placed(tenant, unit)
            return
        unit.state = GONE
        if item.present:
            self._forget(tenant, item, item.reason)

    def give_back(self, item: Item, now_ms: int) -> None:
        """Another scheduler was faster. It goes again at once, ahead of those of its age; if that goes on, after a wait."""
        unit = self._returned(item, now_ms)
        if unit is None:
            return
        tenant = self._tenants[item.tenant]
        unit.races += 1
        extra = unit.races - self._limits.races_at_once
        if unit.head_start is not None:
            unit.head_start.seen(now_ms)
        if extra <= 0:
            unit.rank = 0
            self._admit(tenant, unit, now_ms)
            return
        self._say(tenant, unit, "BackingOff", f"lost {unit.races} races for a place", now_ms)
        self._wait(unit, WAITING, now_ms + self._backoff_ms(extra))

    def put_off(self, item: Item, after_ms: int, why: str, now_ms: int) -> None:
        """There is a place, and it may not be taken before then: no race was lost. Where that is not known for sure it is asked
        again now and then, and soon once it may be."""
        unit = self._returned(item, now_ms)
        if unit is None:
            return
        unit.attempts += 1
        if unit.head_start is not None:
            unit.head_start.seen(now_ms)
        self._say(self._tenants[item.tenant], unit, "BackingOff", why, now_ms)
        asked_ms = min(self._backoff_ms(unit.attempts), self._limits.put_off_max_ms)
        self._wait(unit, WAITING, now_ms + min(max(after_ms, asked_ms), self._limits.resync_ms))

    def gone(self, item: Item, now_ms: int) -> None:
        """It needs no place any more: somebody has bound or withdrawn it, and the watch has yet to say so. Not for gangs: which
        of their members has gone, only the watch can say."""
        assert not item.gang, f"{item.name} is a member of a gang"
        if self._returned(item, now_ms) is not None:
            if item.head_start is not None:
                item.head_start.seen(now_ms)
            self._forget(self._tenants[item.tenant], item, item.reason)

    def failed(self, item: Item, reason: str, gates: Collection[str] | Mapping[str, int], detail: str, now_ms: int) -> None:
        """No place for it now. It waits for a change that may open one of the gates, or for its next look."""
        unit = self._returned(item, now_ms)
        if unit is None:
            return
        tenant = self._tenants[item.tenant]
        unit.attempts += 1
        unit.races = 0  # what was contended is gone: those after it are lost for another place
        unit.rank = 1
        tenant.failures += 1
        if tenant.failures >= self._limits.stall_after and not tenant.stalled:
            self._stand(tenant, stalled=True)
            self._stalled[tenant.name] = now_ms + self._limits.stall_ms
        self._say(tenant, unit, reason, detail, now_ms)
        again_ms = now_ms + self._backoff_ms(unit.attempts)
        self._wait(unit, WAITING, min(again_ms, kept_off_until_ms(item, now_ms) or again_ms))
        topics = topics_of(reason, tuple(gates))
        if topics:
            self._wakeups.add(unit, topics, item.request.spec.ask)

    # --- waking ------------------------------------------------------------------------------------------------------

    def wake(self, change: Change, now_ms: int) -> int:
        """Readies what the change may help, at most what it could take. Returns how many slots."""
        woken = 0
        for unit in self._wakeups.woken_by(change, self._limits.wake_max):
            unit.by_timer = False
            self._leave(unit)
            self._admit(self._tenants[unit.tenant], unit, now_ms)
            woken += unit.slots
        return woken

    @property
    def awaits_arrivals(self) -> bool:
        """Whether it is worth telling it of slots that were bound."""
        return self._wakeups.awaits_arrivals

    def due(self, now_ms: int) -> int:
        """Readies what its timer brings back, looks again at what is held, ends holds, finds the hopeless. Returns how many units
        became ready. Bounded; `next_due_ms` says when to call again."""
        self._now_ms = now_ms
        self._end_holds(now_ms)
        self._find_hopeless(now_ms)
        moved, heap = 0, self._timers.heap
        for _ in range(self._limits.due_max):
            if self._unparking:
                stay, unit = self._unparking.popleft()
            elif heap and heap[0][0] <= now_ms:
                _, stay, unit = heappop(heap)
            else:
                break
            if unit.stay == stay:
                moved += self._look_again(unit, now_ms)
        return moved

    def next_due_ms(self) -> int | None:
        """When `due` has something to do next; None: never, as things stand."""
        if self._unparking:
            return self._now_ms
        found = []
        timers, deadlines, holds = self._timers.heap, self._deadlines.heap, self._hold_ends.heap
        while timers and timers[0][2].stay != timers[0][1]:
            heappop(timers)
        while deadlines and not deadlines[0][2].present:
            heappop(deadlines)
        found += [heap[0][0] for heap in (timers, deadlines, holds) if heap]
        return min(found, default=None)

    # --- holds -------------------------------------------------------------------------------------------------------

    def hold(self, tenant: str, workload: str, who: str, until_ms: int, now_ms: int) -> None:
        """Nobody tries the tenant's requests, or one workload's, until then. An empty workload means all."""
        self._now_ms = now_ms
        found = self._tenant(tenant)
        found.holds[workload] = Hold(who, now_ms, until_ms)
        self._hold_ends.push((until_ms, tenant, workload))
        self._say_of(found, workload)

    def release(self, tenant: str, workload: str, now_ms: int) -> None:
        self._now_ms = now_ms
        found = self._tenant(tenant)
        if found.holds.pop(workload, None) is None:
            return
        self._say_of(found, workload)
        if workload:
            parked = self._parked.pop((tenant, workload), {})
            self._unparking.extend(
                (unit.stay, unit) for unit in parked.values() if unit.state == HELD and unit.reason == "OnHold"
            )
        self._order.reweighed(found)

    def _say_of(self, tenant: Tenant, workload: str) -> None:
        """That they are on hold, or not any more: of those that wait for something else as well nothing would say it."""
        for item in tenant.items.values():
            if not workload or item.workload == workload:
                self._to_say(item)

    # --- what is said ------------------------------------------------------------------------------------------------

    @property
    def ready_slots(self) -> int:
        return self._counts[READY]

    @property
    def has_ready(self) -> bool:
        """Whether `take` is worth a call. A take may come back short or empty while this is true; call it again."""
        return self._order.has_ready

    def pending(self, tenant: str | None = None) -> Iterator[Pending]:
        tenants = self._tenants.values() if tenant is None else [self._tenants[tenant]] if tenant in self._tenants else []
        incomplete: dict[tuple[str, str], tuple[str, str]] = {}
        for found in tenants:
            for item in found.items.values():
                yield self._pending(found, item, incomplete)

    def said(self, limit: int) -> list[tuple[Pending, SchedulingRequest]]:
        """Requests whose reason has changed since it was last asked for here, the longest unsaid first: what the status of the
        request should say. Those that found a place meanwhile, and those whose status says it already, are left out."""
        out: list[tuple[Pending, SchedulingRequest]] = []
        incomplete: dict[tuple[str, str], tuple[str, str]] = {}
        while self._unsaid and len(out) < limit:
            item = self._unsaid.popleft()
            item.unsaid = False
            if not item.present:
                continue
            pending = self._pending(self._tenants[item.tenant], item, incomplete)
            status = item.request.status
            if (status.reason, status.detail) != (pending.reason, pending.detail):
                out.append((pending, item.request))
        return out

    def say_again(self, tenant: str, name: str) -> None:
        """What was said of it did not arrive."""
        found = self._tenants.get(tenant)
        item = found.items.get(name) if found is not None else None
        if item is not None:
            self._to_say(item)

    def hopeless(self) -> Iterator[Item]:
        """Requests whose deadline can no longer be met, as of the last `due`. They are still tried."""
        return iter(self._hopeless.values())

    def meters(self, now_ms: int) -> Meters:
        reasons: dict[str, int] = {}
        for tenant in self._tenants.values():
            for reason, slots in tenant.reasons.items():
                said = "OnHold" if "" in tenant.holds else reason
                reasons[said] = reasons.get(said, 0) + slots
        ages = self._ages.heap
        while ages and not ages[0][2].present:
            heappop(ages)
        oldest_ms = max(0, now_ms - ages[0][0]) if ages else 0
        counts = dict(zip(STATE_NAMES, self._counts, strict=True))
        shown = {reason: slots for reason, slots in reasons.items() if slots}
        return Meters(counts, shown, oldest_ms, self._resync_only, len(self._hopeless))

    # --- standing ----------------------------------------------------------------------------------------------------

    def _stand(self, tenant: Tenant, stalled: bool) -> None:
        tenant.stalled = stalled
        tenant.failures = 0
        if not stalled:
            self._stalled.pop(tenant.name, None)
        self._order.reweighed(tenant)

    def _end_stalls(self, now_ms: int) -> None:
        for name in [name for name, until_ms in self._stalled.items() if until_ms <= now_ms]:
            self._stand(self._tenants[name], stalled=False)

    def _end_holds(self, now_ms: int) -> None:
        heap = self._hold_ends.heap
        while heap and heap[0][0] <= now_ms:
            entry = heappop(heap)
            if self._is_hold(entry):
                self.release(entry[1], entry[2], now_ms)

    def _with_members(self, units: list[Unit]) -> list[Item]:
        """Each gang replaced by its members."""
        out: list[Item] = []
        for unit in units:
            if isinstance(unit, Gang):
                unit.taken = unit.ordered()
                out.extend(unit.taken)
            else:
                assert isinstance(unit, Item)
                out.append(unit)
        return out
