"""How many replicas a service should have by its load, and how many nodes a pool should have by what waits for them. Pure.

Both read why work waits before they act on how much waits. More replicas help only when those there are serve and are busy: while
ordered ones are still on their way, or most are not ready, the load of the few that serve says nothing about how many are
needed, and acting on it is what makes a small failure large; and where ordered ones wait for what no capacity cures, such as
quota, more of them would only wait beside them. More nodes help only those who wait for capacity that such a node has; never
those who wait for quota, a policy, their gang or a deadline that has passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from fairlead.model.kinds.capacity import NodePool
from fairlead.model.kinds.intent import PendingReason
from fairlead.model.resources import Resources

CURED_BY_NODES: Final = frozenset({"WaitingForCapacity", "NoMatchingCapacity", "TopologyBlocked"})
UNDER_WAY: Final = frozenset(
    {"", "PendingEvaluation", "BackingOff", "WaitingForVictims"}
)  # they are being placed; nothing is short
BLOCKED: Final = "Blocked"
SCALED_DOWN: Final = "fairlead.dev/scaled-down"  # on a node that the node autoscaler closed: how it found it
AGAIN_S_MAX: Final = 3600.0  # between two additions that come to nothing: somebody mends it, and it is noticed within the hour
_DOUBLED_MAX: Final = 16  # times: far above an hour by then


# --- replicas


class ReplicaRule(NamedTuple):
    minimum: int
    maximum: int
    target_permille: int = 700  # how busy a serving replica should be
    tolerance_permille: int = 100  # of the target: closer than this, nothing changes
    step_permille: int = 1000  # the most that one decision adds, of what is there
    surge: int = 1  # ordered replicas that may be on their way while more are ordered
    ready_permille: int = 500  # of the ordered ones must serve before their load is believed
    up_wait_s: float = 30.0
    down_window_s: float = 300.0  # down only to the most that was wanted within this time
    minimum_by: str = ""  # who asks for this minimum, where it is not the autoscaler's own


class Load(NamedTuple):
    ordered: int
    serving: int
    busy_permille: int  # mean over those that serve
    since_up_s: float  # since this autoscaler last added some
    wanted_lately: Sequence[tuple[float, int]] = ()  # (seconds ago, replicas wanted then)
    followed_s: float = 1e9  # for how long the load is known without a gap
    age_s: float = 0.0  # since it was measured
    blocked: Sequence[tuple[str, int]] = ()  # (reason, slots) of those that wait for what more capacity does not cure


class Scaling(NamedTuple):
    replicas: int
    wanted: int  # by the load alone; remembered for the way down
    why: str
    reason: str = "Following"  # as its condition names it


def replicas(rule: ReplicaRule, load: Load) -> Scaling:
    wanted = _by_load(rule, load)
    bounded = max(rule.minimum, min(wanted, rule.maximum))
    # A bound holds at once, whatever the load: an operator moved it.
    settled = max(rule.minimum, min(load.ordered, rule.maximum))
    if settled != load.ordered:
        return Scaling(settled, wanted, "within its bounds" + _floor(rule, min(load.ordered, rule.maximum)))
    if load.serving * 1000 < load.ordered * rule.ready_permille:
        return Scaling(settled, wanted, f"{load.serving} of {load.ordered} serve: their load says nothing of how many are needed")
    if _is_of_before(load):
        return Scaling(settled, wanted, f"added some {load.since_up_s:.0f} s ago; the load was measured before that")
    if bounded > load.ordered:
        if load.blocked:
            return Scaling(load.ordered, wanted, _blocked(load), BLOCKED)
        held = _hold(rule, load)
        if held:
            return Scaling(load.ordered, wanted, held)
        step = load.ordered + max(1, load.ordered * rule.step_permille // 1000)
        return Scaling(min(bounded, step), wanted, f"{load.busy_permille}/1000 busy at {load.serving} serving")
    lately = max((count for ago, count in load.wanted_lately if ago <= rule.down_window_s), default=bounded)
    lowest = max(bounded, min(lately, rule.maximum))
    if lowest < load.ordered and load.followed_s < rule.down_window_s:
        return Scaling(settled, wanted, f"fewer are wanted, but the load is not known for {rule.down_window_s:.0f} s yet")
    if lowest < load.ordered:
        kept = _floor(rule, wanted) if lowest == rule.minimum else ""
        return Scaling(lowest, wanted, f"not more than {lowest} were wanted in {rule.down_window_s:.0f} s{kept}")
    return Scaling(settled, wanted, "as wanted" + _floor(rule, wanted))


def _floor(rule: ReplicaRule, asked: int) -> str:
    """Who keeps it from having as few as this, where that is not the autoscaler itself."""
    return f"; at least {rule.minimum} by {rule.minimum_by}" if rule.minimum_by and asked < rule.minimum else ""


def _by_load(rule: ReplicaRule, load: Load) -> int:
    """What would bring those that serve to their target. With none serving there is no load to go by, nor where it was that of
    fewer: asked for twice, it would be answered twice."""
    if not load.serving or _is_of_before(load):
        return load.ordered
    if abs(load.busy_permille - rule.target_permille) * 1000 <= rule.tolerance_permille * rule.target_permille:
        return max(load.ordered, rule.minimum)
    return -(-load.serving * load.busy_permille // rule.target_permille)


def _is_of_before(load: Load) -> bool:
    return load.age_s >= load.since_up_s


def blocked_by(pending: Iterable[PendingReason]) -> tuple[tuple[str, int], ...]:
    """What of a workload's slots waits for something that neither capacity nor patience cures, by reason."""
    counts: dict[str, int] = {}
    for each in pending:
        if each.reason not in CURED_BY_NODES and each.reason not in UNDER_WAY and each.count > 0:
            counts[each.reason] = counts.get(each.reason, 0) + each.count
    return tuple(sorted(counts.items()))


def _blocked(load: Load) -> str:
    said = ", ".join(f"{count} {reason}" for reason, count in load.blocked)
    return f"of those ordered before, some wait for what no capacity cures ({said}): more would wait beside them"


def _hold(rule: ReplicaRule, load: Load) -> str:
    """Why nothing is added though the load asks for it; empty: nothing speaks against it."""
    under_way = load.ordered - load.serving
    if under_way > rule.surge:
        return f"{under_way} ordered before are not serving yet"
    if load.since_up_s < rule.up_wait_s:
        return f"added some {load.since_up_s:.0f} s ago; waits {rule.up_wait_s:.0f} s"
    return ""


# --- nodes


class PoolRule(NamedTuple):
    minimum: int
    maximum: int
    node: Resources  # what a new one would have to give
    max_slots: int
    up_wait_s: float = 30.0
    idle_s: float = 600.0  # an empty node stays this long
    come_s: float = 180.0  # what has not registered after this is not on its way any more


class Waiting(NamedTuple):
    """Slots alike that wait. `deadline_s` is how long it is until they are given up; negative: that has passed. How long one
    takes is not known."""

    reason: str
    shape: Resources
    slots: int
    deadline_s: float | None = None


class Pool(NamedTuple):
    nodes: int  # without those that are leaving: a machine that goes holds no minimum
    starting: int  # asked for, not there yet
    idle: Sequence[tuple[str, float]] = ()  # (empty node, for how long), of those that may go
    since_up_s: float = 1e9
    start_s: float = 60.0  # until a new node takes work
    busy: Sequence[tuple[str, int]] = ()  # (node that may go, slots on it)
    leaving: int = 0  # no longer ordered, still there: until they are gone they count against the maximum
    lost: Sequence[str] = ()  # of the empty ones: nothing can be placed there, and while they stay nothing comes in their stead
    kept: Sequence[tuple[str, float]] = ()  # as `idle`, of those that somebody keeps closed: only a maximum sends them away
    absent: Sequence[str] = ()  # ordered and not registered yet, the oldest first
    overdue: Sequence[str] = ()  # ordered too long ago to be on their way: counted among those that are leaving
    in_vain: int = 0  # additions in a row of which none came


class PoolScaling(NamedTuple):
    add: int
    remove: tuple[str, ...]
    why: str
    drain: tuple[str, ...] = ()  # more than there may be: what is on these is to leave, then they go
    full: bool = False  # it may have no more, and none is on its way: what waits is for another pool to cure


def nodes(rule: PoolRule, pool: Pool, waiting: Iterable[Waiting]) -> PoolScaling:
    """What does not come is given back, whatever else follows: nothing runs there, and others wait behind it."""
    found = _wanted_nodes(rule, pool, waiting)
    if not pool.overdue:
        return found
    why = f"{found.why}; {len(pool.overdue)} that did not register within {rule.come_s:.0f} s go"
    return found._replace(remove=(*pool.overdue, *found.remove), why=why)


def _wanted_nodes(rule: PoolRule, pool: Pool, waiting: Iterable[Waiting]) -> PoolScaling:
    fitting = [each for each in waiting if each.reason in CURED_BY_NODES and not each.shape.exceeding(rule.node)]
    curable = [each for each in fitting if not _is_hopeless(pool, each)]
    curable.sort(key=lambda each: (-each.shape.cpu, -each.shape.memory))  # the large ones first: fewer nodes hold them all
    needed = packed(rule.node, rule.max_slots, curable)
    count = pool.nodes + pool.starting
    if count > rule.maximum:
        return _fewer(rule, pool, count - rule.maximum)
    most = max(count, rule.maximum - pool.leaving)
    wanted = min(count + needed - pool.starting, most) if needed > pool.starting else count
    lost = tuple(pool.lost[:needed])
    wait_s = again_after_s(rule.come_s, pool.in_vain)
    if pool.since_up_s < wait_s and (count < rule.minimum or wanted > count):
        why = f"no node of the last {pool.in_vain} additions came; the next is ordered {wait_s:.0f} s after the last"
        return PoolScaling(0, lost, why, full=True)
    at_once = 1 if pool.in_vain else rule.maximum  # whether one comes is found out with one
    if count < rule.minimum:
        return PoolScaling(min(rule.minimum - count, most - count, at_once), (), f"at least {rule.minimum}")
    if wanted > count:
        now = [each for each in curable if _is_urgent(rule, pool, each)] if pool.since_up_s < rule.up_wait_s else curable
        add = min(wanted - count, packed(rule.node, rule.max_slots, now) - pool.starting, at_once)
        if add <= 0:
            return PoolScaling(0, lost, f"added some {pool.since_up_s:.0f} s ago; waits {rule.up_wait_s:.0f} s")
        slots = sum(each.slots for each in now)
        urgent = "" if now is curable else ", and would be too late after a wait"
        return PoolScaling(add, lost, f"{slots} slots wait for capacity that {add} more nodes have{urgent}")
    if needed:
        return _enough(rule, pool, needed, lost)
    return _emptied(rule, pool, sum(each.slots for each in fitting if _is_hopeless(pool, each)))


def _enough(rule: PoolRule, pool: Pool, needed: int, lost: tuple[str, ...]) -> PoolScaling:
    went = f"; {len(lost)} that are lost go" if lost else ""
    why = f"{pool.starting} on their way" if pool.starting >= needed else f"no more than {rule.maximum}{went}"
    return PoolScaling(0, lost, why, full=pool.nodes >= rule.maximum and not pool.starting and not lost)


def _emptied(rule: PoolRule, pool: Pool, hopeless: int) -> PoolScaling:
    """Nothing waits that a node cures: those that were empty for long enough go."""
    idle = [name for name, seconds in sorted(pool.idle, key=lambda n: (-n[1], n[0])) if seconds >= rule.idle_s]
    gone = tuple(idle[: max(0, pool.nodes - rule.minimum)])
    if gone:
        return PoolScaling(0, gone, f"empty for {rule.idle_s:.0f} s")
    late = f"; {hopeless} slots wait whose deadline is before a new node would be there" if hopeless else ""
    return PoolScaling(0, (), f"as wanted{late}")


def again_after_s(come_s: float, in_vain: int) -> float:
    """How long after an addition another one follows, where the last ones came to nothing: twice as long each time."""
    return min(come_s * 2 ** min(in_vain, _DOUBLED_MAX), max(come_s, AGAIN_S_MAX)) if in_vain else 0.0


def _fewer(rule: PoolRule, pool: Pool, surplus: int) -> PoolScaling:
    """Those that have not come yet first, the last ordered of them before the others: nothing is lost with them. Then the empty
    ones, of these the ones nobody keeps closed, then those with the least on them."""
    idle = [name for each in (pool.idle, pool.kept) for name, _ in sorted(each, key=lambda n: (-n[1], n[0]))]
    empty = [*reversed(pool.absent), *idle][:surplus]
    busy = [name for name, _ in sorted(pool.busy, key=lambda n: (n[1], n[0]))][: surplus - len(empty)]
    return PoolScaling(0, tuple(empty), f"no more than {rule.maximum}", tuple(busy), full=True)


def _is_hopeless(pool: Pool, waiting: Waiting) -> bool:
    """They are given up before a node that is ordered now takes work: it is not bought for them."""
    return is_too_late(waiting.deadline_s, pool.start_s)


def node_name(pool: NodePool, region: str, number: int) -> str:
    """Of a node that a pool orders. Numbers, and so names, are not used twice."""
    return f"{region}-{pool.metadata.name}-{number}"


def node_number(node: str) -> int:
    """Of one that a pool ordered."""
    number = node.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def has_let_go(pool: NodePool, region: str, node: str) -> bool:
    """It has ordered that node, and does so no longer: whoever provides its machine stops it."""
    if not pool.spec.provider or node in pool.status.ordered:
        return False
    number = node_number(node)
    return 0 < number <= pool.status.numbered and node == node_name(pool, region, number)


def is_too_late(deadline_s: float | None, start_s: float) -> bool:
    return deadline_s is not None and deadline_s < start_s


def _is_urgent(rule: PoolRule, pool: Pool, waiting: Waiting) -> bool:
    """Hopeless once the wait after the last addition is over: for these, which a node still cures, it is not waited."""
    return waiting.deadline_s is not None and waiting.deadline_s < pool.start_s + rule.up_wait_s - pool.since_up_s


def packed(node: Resources, max_slots: int, waiting: Iterable[Waiting]) -> int:
    """Nodes that hold all of it, filled one after the other. An estimate from above: placing is the scheduler's."""
    free: list[tuple[Resources, int]] = []
    for each in waiting:
        left = each.slots
        for index, (room, slots) in enumerate(free):
            fits = min(left, slots, _times(room, each.shape))
            if fits:
                free[index] = (room - each.shape.times(fits), slots - fits)
                left -= fits
        a_node = min(max_slots, _times(node, each.shape))
        while left > 0 and a_node > 0:
            fits = min(left, a_node)
            free.append((node - each.shape.times(fits), max_slots - fits))
            left -= fits
    return len(free)


def _times(room: Resources, shape: Resources) -> int:
    have = room.amounts()
    return min((have.get(name, 0) // amount for name, amount in shape.amounts().items()), default=1 << 31)
