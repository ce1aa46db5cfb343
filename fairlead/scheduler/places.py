"""Where each unit of the queue is, and every way from one place to another: ready, taken, waiting, held, gone.

Owns the counts, the timers, the reasons, the gangs and the holds, so that no step can forget one of them. Decides no order and
maps no change; the queue, which is the only caller, does.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop
from itertools import count

from fairlead.model.kinds.work import SchedulingRequest
from fairlead.model.lifecycle import SlotState
from fairlead.model.resources import DeviceAsk
from fairlead.ports import Random
from fairlead.scheduler.gangs import Gang, missing, new_gang, regroup
from fairlead.scheduler.order import Order, Tenant
from fairlead.scheduler.units import (
    GONE,
    HELD,
    IN_GANG,
    NEXT_OWNER,
    NO_DEADLINE,
    READY,
    TAKEN,
    WAITING,
    Amounts,
    Item,
    LazyHeap,
    Pending,
    QueueLimits,
    Unit,
    amounts_of,
    deadline_of,
    to_ms,
)

_SHAPES_MAX = 50_000
_UNSAID_MAX = 4_096  # then those that are gone are swept out
# Said by whoever keeps it from being tried; no longer true once it may be.
_OF_A_HOLD = frozenset({"OnHold", "Suspended", "WaitingForGang", "WaitingForVictims", "Misconfigured"})


class Places:
    def __init__(self, random: Random, limits: QueueLimits) -> None:
        self._random = random
        self._limits = limits
        self._order = Order()
        self._tenants: dict[str, Tenant] = {}
        self._gangs: dict[tuple[str, str], Gang] = {}
        self._capacity: dict[str, int] = {}
        self._stays = count(1)
        self._counts = [0, 0, 0, 0]  # slots by state
        self._timers = LazyHeap(lambda entry: entry[2].stay == entry[1])  # (at_ms, stay, unit)
        self._ages = LazyHeap(lambda entry: entry[2].present)  # (created_ms, number, item)
        self._deadlines = LazyHeap(lambda entry: entry[2].present)  # (hopeless from, number, item)
        self._hopeless: dict[tuple[str, str], Item] = {}
        self._hold_ends = LazyHeap(self._is_hold)  # (until_ms, tenant, workload)
        self._parked: dict[tuple[str, str], dict[str, Unit]] = {}  # units of a workload on hold that came up
        self._unparking: deque[tuple[int, Unit]] = deque()  # (stay, unit)
        self._shapes: dict[tuple[int, int, Amounts, tuple[DeviceAsk, ...]], Amounts] = {}
        self._unsaid: deque[Item] = deque()  # reasons that changed and were not asked for since
        self._unsaid_max = _UNSAID_MAX
        self._now_ms = 0

    # --- making ------------------------------------------------------------------------------------------------------

    def _tenant(self, name: str) -> Tenant:
        found = self._tenants.get(name)
        if found is None:
            found = self._tenants[name] = Tenant(name)
            found.set_factors(self._capacity)
        return found

    def _item(self, request: SchedulingRequest, now_ms: int) -> Item:
        metadata, spec, status = request.metadata, request.spec, request.status
        created_ms = now_ms if metadata.creation_time is None else to_ms(metadata.creation_time)
        requests, devices = spec.ask.requests, spec.ask.devices
        shape = (requests.cpu, requests.memory, requests.scalars, devices)
        amounts = self._shapes.get(shape)
        if amounts is None:
            if len(self._shapes) > _SHAPES_MAX:
                self._shapes.clear()
            amounts = self._shapes[shape] = amounts_of(requests, devices)
        deadline_ms = NO_DEADLINE
        if spec.deadline_time is not None or spec.start_target_seconds > 0:
            deadline_ms = deadline_of(request, created_ms)
        slot = spec.slot
        item = Item(
            metadata.namespace, metadata.name, slot.workload, slot.uid, spec.priority, deadline_ms, created_ms, amounts, amounts,
            now_ms, now_ms, request=request, gang=spec.gang,
        )  # fmt: skip
        if status.since_time is not None and status.reason in NEXT_OWNER and status.reason not in _OF_A_HOLD:
            # Another scheduler, or this one before a restart, has said why it waits: that holds until it is tried again.
            item.reason, item.detail, item.since_ms = status.reason, status.detail, to_ms(status.since_time)
        return item

    # --- from place to place -----------------------------------------------------------------------------------------

    def _ready(self, tenant: Tenant, unit: Unit, now_ms: int) -> None:
        unit.state = READY
        unit.stay = next(self._stays)
        unit.next_attempt_ms = now_ms
        self._counts[READY] += unit.slots
        self._order.put(tenant, unit)

    def _admit(self, tenant: Tenant, unit: Unit, now_ms: int) -> None:
        """It may be tried: now if it is ours, else when those whose it is have had their time."""
        if unit.head_start is None:
            self._ready(tenant, unit, now_ms)
        else:
            self._wait(unit, WAITING, unit.head_start.over_ms(now_ms))

    def _wait(self, unit: Unit, state: int, at_ms: int) -> None:
        """WAITING or HELD, until something changes or the time has come."""
        unit.state = state
        unit.stay = next(self._stays)
        unit.next_attempt_ms = at_ms
        self._counts[state] += unit.slots
        self._timers.push((at_ms, unit.stay, unit))

    def _leave(self, unit: Unit) -> None:
        """From READY, WAITING or HELD to nowhere: the next step puts it elsewhere or lets it go."""
        if unit.state == GONE:
            return
        assert unit.state in (READY, WAITING, HELD), f"{unit.name} cannot leave state {unit.state}"
        self._counts[unit.state] -= unit.slots
        if unit.state == READY:
            self._order.drop(self._tenants[unit.tenant], unit)
        unit.state = GONE
        unit.stay = next(self._stays)

    def _say(self, tenant: Tenant, unit: Unit, reason: str, detail: str, now_ms: int) -> None:
        assert reason in NEXT_OWNER, f"{reason} is not a pending reason"
        unit.detail = detail
        if reason != unit.reason:
            reasons = tenant.reasons
            reasons[unit.reason] -= unit.slots
            reasons[reason] = reasons.get(reason, 0) + unit.slots
            unit.reason = reason
            unit.since_ms = now_ms
            if isinstance(unit, Gang):
                for member in unit.members.values():
                    self._to_say(member)
            elif isinstance(unit, Item):
                self._to_say(unit)

    def _to_say(self, item: Item) -> None:
        if not item.unsaid:
            item.unsaid = True
            self._unsaid.append(item)
            if len(self._unsaid) > self._unsaid_max:
                self._unsaid = deque(other for other in self._unsaid if other.present)
                self._unsaid_max = max(_UNSAID_MAX, 2 * len(self._unsaid))

    def _hold_back(self, tenant: Tenant, unit: Unit, reason: str, detail: str, now_ms: int) -> None:
        self._say(tenant, unit, reason, detail, now_ms)
        self._wait(unit, HELD, now_ms + self._limits.resync_ms)

    def _backoff_ms(self, times: int) -> int:
        """Doubling, with jitter, and never beyond the resync: what nobody wakes is looked at within that time."""
        limits, drawn = self._limits, self._random.random()
        longest = min(limits.backoff_max_ms, limits.resync_ms / (1 + limits.jitter))
        base = min(limits.backoff_first_ms << min(times - 1, 20), longest)
        return int(base * (1 - limits.jitter + 2 * limits.jitter * drawn))

    # --- leaving the queue -------------------------------------------------------------------------------------------

    def _remove(self, tenant: Tenant, item: Item) -> None:
        gang = self._gang_of(item)
        if gang is not None:
            self._part(tenant, gang, item)
            if gang.state != TAKEN:
                self._leave(gang)
                self._gather(tenant, gang)
            return
        self._forget(tenant, item, item.reason)
        if item.state != TAKEN:  # else whoever has it will report it
            self._leave(item)

    def _forget(self, tenant: Tenant, item: Item, reason: str) -> None:
        item.present = False
        del tenant.items[item.name]
        tenant.reasons[reason] -= 1
        if item.hopeless:
            self._hopeless.pop((item.tenant, item.name), None)

    # --- what was handed out -----------------------------------------------------------------------------------------

    def _gang_of(self, item: Item) -> Gang | None:
        """The gang the item is a member of now."""
        if item.state != IN_GANG:
            return None
        gang = self._gangs.get((item.tenant, item.gang))
        return gang if gang is not None and gang.members.get(item.name) is item else None

    def _in_hand(self, item: Item) -> Unit | None:
        """The unit that was handed out with this item and is not reported yet."""
        if not item.gang:
            return item if item.state == TAKEN else None
        gang = self._gangs.get((item.tenant, item.gang))
        if gang is None or gang.state != TAKEN:
            return None
        return gang if any(item is member for member in gang.taken) else None

    def _returned(self, item: Item, now_ms: int) -> Unit | None:
        """Takes it back, uncharged. None where there is nothing left to queue: withdrawn, replaced, or held meanwhile."""
        unit = self._in_hand(item)
        if unit is None:
            return None
        tenant = self._tenants[item.tenant]
        tenant.settle(unit.amounts, bound=False)
        self._order.reweighed(tenant)
        self._counts[TAKEN] -= unit.slots
        unit.state = GONE
        if isinstance(unit, Gang):
            unit.taken = ()
            if unit.is_complete:
                regroup(unit)
                return unit
            self._gather(tenant, unit)
            return None
        if not item.present:
            return None
        if item.request.status.state is not SlotState.PENDING:
            self._hold_back(tenant, item, "WaitingForVictims", f"it is {item.request.status.state.value}", now_ms)
            return None
        return unit

    # --- gangs -------------------------------------------------------------------------------------------------------

    def _join(self, tenant: Tenant, item: Item, now_ms: int) -> None:
        key = (item.tenant, item.gang)
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = new_gang(item, now_ms)
        item.state = IN_GANG
        tenant.reasons[item.reason] -= 1
        tenant.reasons[gang.reason] = tenant.reasons.get(gang.reason, 0) + 1
        if gang.state != TAKEN:
            self._leave(gang)
        gang.add(item)
        gang.head_start = item.head_start
        if gang.state != TAKEN:
            self._gather(tenant, gang)
        if gang.reason != item.request.status.reason:
            self._to_say(item)  # it waits for what the others wait for; a gang says so when that changes

    def _part(self, tenant: Tenant, gang: Gang, item: Item) -> None:
        gang.discard(item)
        self._forget(tenant, item, gang.reason)

    def _gather(self, tenant: Tenant, gang: Gang) -> None:
        """A gang that is nowhere goes where its members allow: ready when complete, held while not, gone when empty."""
        now_ms = self._now_ms
        gang.slots = len(gang.members)
        if not gang.members:
            del self._gangs[gang.tenant, gang.gang]
            return
        if gang.is_complete:
            regroup(gang)
            if gang.reason in _OF_A_HOLD:
                self._say(tenant, gang, "PendingEvaluation", "", now_ms)
            self._admit(tenant, gang, now_ms)
            return
        reason = "Misconfigured" if gang.slots > gang.size else "WaitingForGang"
        self._say(tenant, gang, reason, "", now_ms)  # who is missing is worked out when somebody asks
        patience_ms = gang.first_ms + gang.timeout_ms - now_ms
        self._wait(gang, HELD, now_ms + min(self._limits.resync_ms, patience_ms if patience_ms > 0 else self._limits.resync_ms))

    def _gang_placed(self, tenant: Tenant, gang: Gang) -> None:
        gang.state = GONE
        for item in gang.taken:
            item.state = GONE
            if gang.members.get(item.name) is item:
                self._part(tenant, gang, item)
        gang.taken = ()
        self._gather(tenant, gang)

    # --- holds -------------------------------------------------------------------------------------------------------

    def _is_hold(self, entry: tuple[int, str, str]) -> bool:
        until_ms, tenant, workload = entry
        found = self._tenants[tenant].holds.get(workload)
        return found is not None and found.until_ms == until_ms

    def _set_aside(self, tenant: Tenant, unit: Unit) -> bool:
        """A unit that came up and whose workload is on hold. The order has let it go already."""
        if unit.workload not in tenant.holds:
            return False
        self._counts[READY] -= unit.slots
        unit.state = GONE
        self._hold_back(tenant, unit, "OnHold", "", self._now_ms)
        self._parked.setdefault((unit.tenant, unit.workload), {})[unit.name] = unit
        return True

    def _look_again(self, unit: Unit, now_ms: int) -> int:
        """Its time has come. Returns 1 if it is ready now."""
        tenant, start = self._tenants[unit.tenant], unit.head_start
        on_hold = unit.reason == "OnHold" and unit.workload not in tenant.holds
        if start is not None and unit.state == WAITING and (start.alive_ms + start.wait_ms > now_ms or "" in tenant.holds):
            self._leave(unit)  # whoever has that part was seen at work meanwhile, or may not work on it either
            self._wait(unit, WAITING, start.over_ms(now_ms if "" in tenant.holds else 0))
            return 0
        if start is not None and unit.state == WAITING and not start.admits(now_ms):
            self._leave(unit)
            self._wait(unit, WAITING, start.next_ms)
            return 0
        if unit.state == WAITING or on_hold:
            if unit.state == WAITING:  # what backs off, or is another's, has nothing to wait for but the time
                unit.by_timer = unit.reason != "BackingOff" and start is None
            self._leave(unit)
            if on_hold:
                self._say(tenant, unit, "PendingEvaluation", "", now_ms)
                self._admit(tenant, unit, now_ms)
            else:
                self._ready(tenant, unit, now_ms)
            return int(unit.state == READY)
        state = unit.state
        self._leave(unit)
        self._wait(unit, state, now_ms + self._limits.resync_ms)
        return 0

    def _find_hopeless(self, now_ms: int) -> None:
        heap = self._deadlines.heap
        for _ in range(self._limits.due_max):
            if not heap or heap[0][0] > now_ms:
                return
            item = heappop(heap)[2]
            if item.present:
                item.hopeless = True
                self._hopeless[item.tenant, item.name] = item

    # --- what is said ------------------------------------------------------------------------------------------------

    def _pending(self, tenant: Tenant, item: Item, incomplete: dict[tuple[str, str], tuple[str, str]]) -> Pending:
        unit: Unit = item
        reason, detail = "", ""
        gang = self._gang_of(item)
        if gang is not None:
            unit = gang
            if gang.state == HELD and gang.reason != "OnHold":
                key = (gang.tenant, gang.gang)
                if key not in incomplete:
                    incomplete[key] = missing(gang, self._now_ms)
                reason, detail = incomplete[key]
        reason, detail = reason or unit.reason, detail or unit.detail
        since_ms, next_ms = unit.since_ms, unit.next_attempt_ms
        hold = tenant.holds and (tenant.holds.get("") or tenant.holds.get(item.workload))
        if hold:
            reason, since_ms, next_ms = "OnHold", hold.since_ms, hold.until_ms
            detail = f"held by {hold.who}" + (f"; before that {unit.reason}" if unit.reason != "OnHold" else "")
        if item.hopeless:
            late = f"its deadline cannot be met, {max(0, self._now_ms - item.deadline_ms) // 1000} s past it"
            detail = f"{detail}; {late}" if detail else late
        return Pending(item.tenant, item.name, reason, since_ms, NEXT_OWNER[reason], next_ms, detail, item.hopeless)
