"""B2 asked of a region's journal: what the node autoscaler orders of a pool is within what it promises (docs/autoscaling.md).

Nodes within the pool's limits, those that are on their way out counted; more only for what waits for capacity that such a node
has, and not again before the wait is over; no name twice. A node is closed when it has been empty for long enough, and let go
when it is closed and empty; others only where there are more than there may be. What has not registered is given back when its
time is over, and not before unless there are too many; while some such are left to go, nobody at work does. What people changed
some seconds ago may not have been seen yet. Own sums; shares nothing with who decides but the model. Fed by bounds.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from fairlead.model.kinds.capacity import Node, NodePool
from fairlead.model.lifecycle import HOLDS_CAPACITY
from fairlead.model.resources import Resources
from fairlead.observe.too_soon import LATE_MS, TooSoon

CURED: Final = frozenset({"WaitingForCapacity", "NoMatchingCapacity", "TopologyBlocked"})
CLOSED: Final = "fairlead.dev/scaled-down"  # on a node that the autoscaler lets go
LOOK_MS: Final = 12_000  # in which there is a look: what was on a node for less may not have been seen there
UNDER_WAY: Final = 3  # batches that wait for a slow store at once, at the most: what they hold is in no list that is looked at
COME_TIMES: Final = 3  # of startSeconds: by then it must have registered

Found = Callable[[str, str], None]
Objects = dict[str, dict[tuple[str, str], Any]]
Slot = tuple[str, str]


class Moment(NamedTuple):
    """Of a batch: which one, and its time."""

    batch: int
    ms: int


class Limits(NamedTuple):
    """The lowest and the highest that people allowed lately."""

    least: tuple[int, int]
    most: tuple[int, int]


class PoolChecker:
    """Tell it of every change before it is applied."""

    def __init__(self, objects: Objects, found: Found, checked: dict[str, int], too_soon: TooSoon) -> None:
        self._objects = objects
        self._found = found
        self._checked = checked
        self._too_soon = too_soon
        self._raised_ms: dict[str, int] = {}
        self._names: set[str] = set()  # that were ordered, ever
        self._curable: dict[Slot, Resources] = {}  # what each slot asks that waits for capacity
        self._until: dict[Slot, Moment] = {}  # of those among them that wait for it no longer
        self._holders: dict[str, dict[tuple[str, Slot], Moment]] = {}  # what is on each node, and since when
        self._batches = 0
        self._began_ms: dict[str, int] = {}  # since when something is
        self._emptied_ms: dict[str, int] = {}  # when the last slot left a node, of those that were there for a look
        self._ordered_ms: dict[str, int] = {}  # when each was
        self._came: set[str] = set()  # nodes that an agent has registered, ever
        self._left: dict[str, Moment] = {}  # when a node was deregistered
        self._before: dict[str, list[tuple[Moment, int, int]]] = {}  # until when a pool might have how few, and how many

    # --- whoever writes it ---------------------------------------------------------------------------------------------------

    def waits(self, slot: Slot, old: Any, new: Any, now_ms: int) -> None:
        if new is not None and new.status.reason in CURED:
            self._curable[slot] = new.spec.ask.requests
            self._until.pop(slot, None)
        elif slot in self._curable:
            self._until.setdefault(slot, Moment(self._batches, now_ms))

    def used(self, plural: str, at: Slot, old: Any, new: Any, now_ms: int) -> None:
        """Bindings and reservations."""
        key, now, since = (plural, at), Moment(self._batches, now_ms), {}
        for one, there in ((old, False), (new, True)):
            if one is None or (plural == "bindings" and one.status.state not in HOLDS_CAPACITY):
                continue
            name, holders = one.spec.node, self._holders.setdefault(one.spec.node, {})
            if not there:
                since[name] = holders.pop(key, now)
                continue
            if not holders:
                self._began_ms.setdefault(name, now_ms)
            holders[key] = since.get(name, now)
        for name in {one.spec.node for one in (old, new) if one is not None}:
            if name in self._began_ms and not self._holders.get(name) and now_ms - self._began_ms.pop(name) > LOOK_MS:
                self._emptied_ms[name] = now_ms

    def node(self, old: Node | None, new: Node | None, now_ms: int) -> None:
        """Whoever writes it."""
        if new is not None and _has_come(new):
            self._came.add(new.metadata.name)
        if old is not None and new is None:
            self._left[old.metadata.name] = Moment(self._batches, now_ms)

    def batch_ended(self) -> None:
        self._batches += 1

    def limits(self, name: str, old: NodePool, new: NodePool, now_ms: int) -> None:
        spec = old.spec
        if (spec.min_nodes, spec.max_nodes) != (new.spec.min_nodes, new.spec.max_nodes):
            self._before.setdefault(name, []).append((Moment(self._batches, now_ms), spec.min_nodes, spec.max_nodes))

    # --- what the autoscaler writes ------------------------------------------------------------------------------------------

    def ordered(self, name: str, old: NodePool, new: NodePool, now_ms: int) -> None:
        added = [node for node in new.status.ordered if node not in old.status.ordered]
        gone = [node for node in old.status.ordered if node not in new.status.ordered]
        self._checked["B2/up"] += len(added)
        self._checked["B2/down"] += len(gone)
        if added:
            self._tell(name, self._added(name, old, added, now_ms))
            self._ordered_ms.update(dict.fromkeys(added, now_ms))
        if gone:
            self._tell(name, self._let_go(name, old, len(new.status.ordered), gone, now_ms))
        self._tell(name, self._stuck(old, [node for node in new.status.ordered if node not in added], now_ms))

    def closed(self, old: Node, new: Node | None, now_ms: int) -> None:
        pool: NodePool | None = self._objects["nodepools"].get(("", old.spec.pool))
        if new is None or pool is None or CLOSED in old.metadata.annotations or CLOSED not in new.metadata.annotations:
            return
        name, limits = old.metadata.name, self._limits(old.spec.pool, pool, now_ms)
        used = self._uses(name) - self._unseen(name, now_ms)
        if self._there(pool) - len(self._leaving(pool)) > limits.most[0]:
            # There are more than there may be: then those go as well that have something on them, if the others have come.
            if used and self._stay(pool, name, now_ms) < limits.most[0]:
                self._tell(old.spec.pool, [f"{name} was closed with {used} slots on it before those that have not come"])
            return
        emptied_ms = self._emptied_ms.get(name, 0)
        if used:
            self._tell(old.spec.pool, [f"{name} was closed with {used} slots on it; there may be {limits.most[0]} nodes"])
        elif old.status.health != "Lost":
            due_ms, after = emptied_ms + int(pool.spec.idle_seconds * 1000), f"{(now_ms - emptied_ms) / 1000:.1f} s after"
            self._too_soon.unless(due_ms, now_ms, "B2", f"pool {old.spec.pool}: {name} was closed {after} it had become empty")

    def _added(self, name: str, pool: NodePool, added: list[str], now_ms: int) -> Iterable[str]:
        if again := sorted(self._names.intersection(added)):
            yield f"{', '.join(again)} was ordered before"
        self._names.update(added)
        limits, there, last_ms = self._limits(name, pool, now_ms), self._there(pool), self._raised_ms.get(name)
        self._raised_ms[name] = now_ms
        if there + len(added) > limits.most[1]:
            yield f"{len(added)} nodes were ordered beside {there}; there may be {limits.most[1]}"
        if there - len({*self._leaving(pool), *self._overdue(pool, pool.status.ordered, now_ms, -LATE_MS)}) < limits.least[1]:
            return  # so many are had whatever waits
        for slot in [each for each, until in self._until.items() if not self._is_unseen(until, now_ms)]:
            del self._curable[slot], self._until[slot]
        waits = sum(not ask.exceeding(pool.spec.node) for ask in self._curable.values())
        if waits < len(added):
            yield f"{len(added)} nodes were ordered while {waits} slots waited for capacity that such a node has"
        if last_ms is not None and not self._in_haste():
            due_ms, after = last_ms + int(pool.spec.up_wait_seconds * 1000), f"{(now_ms - last_ms) / 1000:.1f} s after the last"
            self._too_soon.unless(due_ms, now_ms, "B2", f"pool {name}: nodes were ordered {after} ones")

    def _let_go(self, name: str, pool: NodePool, left: int, gone: list[str], now_ms: int) -> Iterable[str]:
        nodes = {node: self._objects["nodes"].get(("", node)) for node in gone}
        for node, found in nodes.items():
            if found is not None and CLOSED not in found.metadata.annotations:
                yield f"{node} was let go before it was closed"
            if used := self._uses(node):
                yield f"{node} was let go with {used} slots on it"
        limits, there = self._limits(name, pool, now_ms), self._there(pool)
        late = self._overdue(pool, gone, now_ms, -LATE_MS)
        early = [node for node in gone if node not in self._came and node not in late and node in self._ordered_ms]
        if early and there - len(self._leaving(pool)) <= limits.most[0]:
            yield f"{', '.join(early)} was let go before it could have come; there may be {limits.most[0]} nodes"
        lost = any(found is not None and found.status.health == "Lost" for found in nodes.values())
        if left < limits.least[0] and not lost and not late:
            yield f"{left} nodes are left; there must be {pool.spec.min_nodes}"

    def _stuck(self, pool: NodePool, kept: list[str], now_ms: int) -> Iterable[str]:
        """What is over due for two looks is closed by now, so that it may go."""
        nodes = {node: self._objects["nodes"].get(("", node)) for node in self._overdue(pool, kept, now_ms, LOOK_MS + LATE_MS)}
        for name, node in nodes.items():
            if node is None or CLOSED not in node.metadata.annotations:
                yield f"{name} has not come since {(now_ms - self._ordered_ms[name]) / 1000:.0f} s, and is ordered still"

    # --- sums ----------------------------------------------------------------------------------------------------------------

    def _in_haste(self) -> bool:
        """A job that is given up soon does not wait for what the last addition brings."""
        return any(one.spec.deadline_time is not None for one in self._objects["schedulingrequests"].values())

    def _limits(self, name: str, pool: NodePool, now_ms: int) -> Limits:
        lately = [each[1:] for each in self._before.get(name, ()) if self._is_unseen(each[0], now_ms)]
        few, many = zip(*lately, (pool.spec.min_nodes, pool.spec.max_nodes), strict=True)
        return Limits((min(few), max(few)), (min(many), max(many)))

    def _names_in(self, pool: NodePool) -> dict[str, Node]:
        return {name: node for (_, name), node in self._objects["nodes"].items() if node.spec.pool == pool.metadata.name}

    def _there(self, pool: NodePool) -> int:
        """With those that are on their way, in or out."""
        return len({*self._names_in(pool), *pool.status.ordered})

    def _overdue(self, pool: NodePool, names: Iterable[str], now_ms: int, over_ms: int) -> list[str]:
        """Ordered so long ago that they must have come, and by so much more; of what was ordered before this began that is not
        known."""
        limit_ms = COME_TIMES * pool.spec.start_seconds * 1000 + over_ms
        nodes = self._objects["nodes"]
        absent = [name for name in names if (node := nodes.get(("", name))) is None or not _has_come(node)]
        return [name for name in absent if name in self._ordered_ms and now_ms - self._ordered_ms[name] >= limit_ms]

    def _stay(self, pool: NodePool, closed: str, now_ms: int) -> int:
        """Nodes that have come and that nobody has let go, without that one; what left a moment ago may not have been seen to."""
        mine = self._names_in(pool).items()
        stay = [name for name, node in mine if CLOSED not in node.metadata.annotations and _has_come(node) and name != closed]
        return len(stay) + sum(self._is_unseen(left, now_ms) for left in self._left.values())

    def _leaving(self, pool: NodePool) -> list[str]:
        mine = self._names_in(pool).items()
        return [name for name, node in mine if name not in pool.status.ordered and CLOSED in node.metadata.annotations]

    def _uses(self, node: str) -> int:
        bound = [one for one in self._objects["bindings"].values() if one.status.state in HOLDS_CAPACITY]
        return sum(one.spec.node == node for one in (*bound, *self._objects["reservations"].values()))

    def _unseen(self, node: str, now_ms: int) -> int:
        """How much of what is on it nobody may have seen who looked before this batch."""
        return sum(self._is_unseen(since, now_ms) for since in self._holders.get(node, {}).values())

    def _is_unseen(self, at: Moment, now_ms: int) -> bool:
        """Whoever ordered something in this batch may have looked before that."""
        return at.batch >= self._batches - UNDER_WAY or now_ms - at.ms <= LATE_MS

    def _tell(self, name: str, details: Iterable[str]) -> None:
        for detail in details:
            self._found("B2", f"pool {name}: {detail}")


def _has_come(node: Node) -> bool:
    """An agent has registered it."""
    return bool(node.status.session or node.status.health or node.status.schedulable)
