"""Plans of preemption: where a slot that fits nowhere could go, and who would have to leave. Pure; proposes, touches nothing.

Order between nodes: no disruption budget broken; the lowest highest rank among the victims; fewest; the youngest (of the oldest
victim, to the minute); the smallest; the first row. Every plan has been tried with feasible() on the row without its victims.

For each need and evictor the nodes stay sorted by a bound (preempt_bounds.py) that is computed for all nodes once and then only
for rows that changed, as a score is. Nodes are looked at closely in that order until none that follows can be better; a close
look is kept until its row or a budget it asked about changes. A run of equal slots so costs one close look a plan.

The cycle calls it like this:
  plan = preemptor.plan(need, Evictor(priority, need.borrows, policy), view)
  proposed:  set_use(victim, evictable=False) for each victim, set_use(slot, ...), evictable.claim(slot, plan.row, plan.victims)
  refused:   evictable.unclaim(slot), set_use(slot, None), set_use(victim, as before) for each victim that has not changed
  seen:      evictable.claim(...) for another's binding with startAfter, so that what both book is credited here too
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec
import numpy as np

from fairlead.decide.devices import pick_devices
from fairlead.decide.fit import Need, View, feasible
from fairlead.decide.preempt_bounds import CANDIDATE, CLOSED, SHORT, Bound, Bounds, Picture
from fairlead.decide.preempt_index import Column, Evictable, SlotKey
from fairlead.decide.preempt_node import Blocked, Found, NodeSearch, Relieved
from fairlead.decide.preempt_rules import Evictor, unranked
from fairlead.model.resources import DeviceHold

LOOKED_MAX: Final = 16  # close looks that found victims, per plan: bounds are tight where slots are alike
TRIED_MAX: Final = 512  # close looks that found none, per plan: some 8 ms. The next plan goes on where this one stopped
WINDOW: Final = 2048  # nodes kept sorted; the rest wait until these are used up
SHAPES_MAX: Final = 256
_FULL_SHARE: Final = 4  # with more than a quarter of the rows changed, all are computed again


class Plan(msgspec.Struct, frozen=True, gc=False):
    row: int
    victims: tuple[SlotKey, ...]
    broken: tuple[str, ...] = ()  # uids of the workloads whose disruption budget breaks
    devices: tuple[DeviceHold, ...] = ()


class NoPlan(msgspec.Struct, frozen=True, gc=False):
    """Nodes by what is in the way: `gates` that no eviction opens, `room` that all victims together would not make, `budgets` and
    `devices` found on a close look, `unproven` where the whole of feasible() said no, `barred` by the caller."""

    reasons: dict[str, int]


class _Shape:
    """The nodes for one need and evictor, in order."""

    def __init__(self, need: Need, evictor: Evictor, evictable: Evictable) -> None:
        self.need = need
        self.evictor = evictor
        self.all_ranks = tuple(evictable.ranks)
        self.ranks = tuple(rank for rank in self.all_ranks if evictor.may_evict(*unranked(rank)))
        self.allowed = frozenset(self.ranks)
        self.bounds = Bounds(need, self.ranks, evictable)
        self.read = -1
        self.layout = -1
        self.rows = 0
        self.order: list[Bound] = []
        self.bound_of: dict[int, Bound] = {}  # of the rows in the order
        self.last: Bound | None = None  # the end of the window; None: all candidates are in it
        self.verdicts: Column = np.empty(0, np.int64)
        self.looks: dict[int, Found] = {}
        self.blocked: dict[int, Blocked] = {}
        self.blocked_by: dict[str, set[int]] = {}  # uid -> rows
        self.counts = [0, 0, 0]  # rows by verdict


class _Around:
    """One look around for one plan."""

    def __init__(self, barred: Callable[[int], bool] | None) -> None:
        self.barred = barred
        self.best: tuple[Found, tuple[DeviceHold, ...]] | None = None
        self.tried = 0
        self.unproven: set[int] = set()
        self.left_out: set[int] = set()  # unproven, or barred by the caller
        self.is_open: list[bool] | None = None  # per row, once it is known that bounds are not enough

    def is_barred(self, row: int) -> bool:
        if self.is_open is not None and not self.is_open[row]:
            self.unproven.add(row)
        elif self.barred is None or not self.barred(row):
            return False
        self.left_out.add(row)
        return True


class Preemptor:
    """One per picture and index of evictable slots."""

    def __init__(self, picture: Picture, evictable: Evictable) -> None:
        self._picture = picture
        self._evictable = evictable
        self._shapes: dict[tuple[int, int, bool, int], _Shape] = {}
        self._looked_at: tuple[_Shape, int, Relieved] | None = None  # the row just looked at, for its proof

    def plan(self, need: Need, evictor: Evictor, view: View, barred: Callable[[int], bool] | None = None) -> Plan | NoPlan:
        """`barred`: rows that other conditions of the caller rule out."""
        shape = self._shape(need, evictor)
        self._looked_at = None
        self._sync(shape, view)
        around = _Around(barred)
        while self._look_around(shape, view, around):
            self._compute_all(shape, view, keep_blocked=True, leave_out=around.left_out)  # the window is used up: take the next
        if around.left_out and shape.last is not None:
            shape.read = -1  # rows are missing from the window that the next plan may want
        if around.best is None:
            return self._no_plan(shape, around)
        return _plan(*around.best)

    def plan_on(self, row: int, need: Need, evictor: Evictor, view: View) -> Plan | NoPlan:
        """On this row and no other."""
        shape = self._shape(need, evictor)
        self._looked_at = None
        self._sync(shape, view)
        if int(shape.verdicts[row]) != CANDIDATE:
            return NoPlan({"room" if int(shape.verdicts[row]) == SHORT else "gates": 1})
        found = self._look(shape, row)
        if isinstance(found, Blocked):
            return NoPlan({"budgets" if found.asked else "devices": 1})
        devices = self._prove(shape, found, view)
        return NoPlan({"unproven": 1}) if devices is None else _plan(found, devices)

    def forget(self) -> None:
        """What was found out about rows: something else than the picture has changed."""
        self._shapes.clear()

    def _shape(self, need: Need, evictor: Evictor) -> _Shape:
        wanted = (id(need), evictor.priority, evictor.borrows, id(evictor.rules))
        shape = self._shapes.get(wanted)
        if shape is None or shape.need is not need or len(shape.all_ranks) != len(self._evictable.ranks):
            if len(self._shapes) >= SHAPES_MAX:
                self._shapes.clear()
            shape = self._shapes[wanted] = _Shape(need, evictor, self._evictable)  # holds what the key names by id
        return shape

    # --- the order of nodes --------------------------------------------------------------------------------------------

    def _sync(self, shape: _Shape, view: View) -> None:
        picture, evictable = self._picture, self._evictable
        if evictable.budget_changes:
            changed = list(evictable.budget_changes)
            evictable.budget_changes.clear()
            for other in self._shapes.values():
                self._budgets_changed(other, changed)
        if shape.read == picture.changes and shape.layout == picture.layout:
            return
        behind = picture.changes - shape.read
        stale = shape.read < picture.changed_base or shape.layout != picture.layout
        if stale or behind * _FULL_SHARE > shape.rows + 256:
            self._compute_all(shape, view)
            return
        evictable.refresh()
        for row in dict.fromkeys(picture.changed[shape.read - picture.changed_base :]):
            self._fix(shape, row, view)
        shape.read = picture.changes

    def _compute_all(self, shape: _Shape, view: View, keep_blocked: bool = False, leave_out: Collection[int] = ()) -> None:
        picture, evictable = self._picture, self._evictable
        shape.rows = rows = picture.fleet.rows
        evictable.reach(rows)
        evictable.refresh()
        verdicts, columns = shape.bounds.of_all(picture.fleet.all(), rows, view)
        shape.verdicts = verdicts
        shape.counts = np.bincount(verdicts, minlength=3).tolist()
        shape.looks.clear()
        if not keep_blocked:
            shape.blocked, shape.blocked_by = {}, {}
        known = {row: shape.bound_of[row] for row in shape.blocked}
        candidates = np.flatnonzero(verdicts == CANDIDATE)
        if known or leave_out:
            candidates = candidates[~np.isin(candidates, [*known, *leave_out])]
        rank, count, minute, size = (column[candidates] for column in columns)
        sorting = np.lexsort((candidates, size, minute, count, rank))
        kept = sorting[:WINDOW]
        parts = (rank[kept], count[kept], minute[kept], size[kept], candidates[kept])
        shape.order = list(zip(*(part.tolist() for part in parts), strict=True))
        shape.bound_of = {bound[4]: bound for bound in shape.order} | known
        shape.last = shape.order[-1] if len(sorting) > WINDOW else None
        shape.read, shape.layout = picture.changes, picture.layout

    def _fix(self, shape: _Shape, row: int, view: View) -> None:
        shape.looks.pop(row, None)
        self._unblock(shape, row)
        old = shape.bound_of.pop(row, None)
        if old is not None:
            del shape.order[bisect_left(shape.order, old)]
        found = shape.bounds.of_row(self._picture.row(row), row, view)
        verdict = found if isinstance(found, int) else CANDIDATE
        shape.counts[int(shape.verdicts[row])] -= 1
        shape.counts[verdict] += 1
        shape.verdicts[row] = verdict
        if not isinstance(found, int) and (shape.last is None or found <= shape.last):
            insort(shape.order, found)
            shape.bound_of[row] = found

    def _budgets_changed(self, shape: _Shape, uids: list[str]) -> None:
        """Rows that were blocked by these budgets are candidates again. Close looks check their own budgets themselves."""
        for uid in uids:
            for row in sorted(shape.blocked_by.get(uid, ())):
                self._unblock(shape, row)

    def _block(self, shape: _Shape, row: int, blocked: Blocked) -> None:
        bound = shape.bound_of[row]
        del shape.order[bisect_left(shape.order, bound)]
        shape.blocked[row] = blocked
        for uid, _ in blocked.asked:
            shape.blocked_by.setdefault(uid, set()).add(row)

    def _unblock(self, shape: _Shape, row: int) -> None:
        blocked = shape.blocked.pop(row, None)
        if blocked is None:
            return
        for uid, _ in blocked.asked:
            shape.blocked_by[uid].discard(row)
        insort(shape.order, shape.bound_of[row])

    # --- close looks ---------------------------------------------------------------------------------------------------

    def _look_around(self, shape: _Shape, view: View, around: _Around) -> bool:
        """Looks at nodes from the best bound on. True where the window holds nothing and there are nodes beyond it."""
        at = looked = 0
        while at < len(shape.order) and looked < LOOKED_MAX and around.tried < TRIED_MAX:
            bound = shape.order[at]
            if around.best is not None and around.best[0].key < (0, *bound):
                break
            row = bound[4]
            at += 1
            if around.is_barred(row):
                continue
            found = self._look(shape, row)
            if isinstance(found, Blocked):
                at -= 1
                around.tried += 1
                self._block(shape, row, found)
                continue
            if around.best is None or found.key < around.best[0].key:
                devices = self._prove(shape, found, view)
                if devices is None:
                    self._not_proven(shape, view, around, row)
                    continue
                around.best = (found, devices)
            looked += 1
        is_used_up = around.best is None and at == len(shape.order) and around.tried < TRIED_MAX
        return is_used_up and shape.last is not None

    def _not_proven(self, shape: _Shape, view: View, around: _Around, row: int) -> None:
        """A gate is shut that no eviction opens and no bound knows of. Where one is, many are: ask it of all nodes at once."""
        around.tried += 1
        around.unproven.add(row)
        around.left_out.add(row)
        if around.is_open is None:
            fleet = self._picture.fleet
            around.is_open = shape.bounds.open_now(fleet.all(), fleet.rows, view).tolist()

    def _look(self, shape: _Shape, row: int) -> Found | Blocked:
        found = shape.looks.get(row)
        live = self._evictable.live
        if found is not None and all(live.get(uid, 0) == count for uid, count in found.asked):
            return found
        fleet = self._picture.fleet
        relieved = self._relieved(shape, row)
        self._looked_at = (shape, row, relieved)
        search = NodeSearch(shape.need, shape.evictor, relieved, fleet.devices[row], live)
        allowed = shape.allowed
        candidates = [placed for placed in self._evictable.slots[row].values() if placed.rank in allowed]
        looked = search.best(candidates, row)
        if isinstance(looked, Found):
            shape.looks[row] = looked
        return looked

    def _relieved(self, shape: _Shape, row: int) -> Relieved:
        plain: Any = self._picture.row(row)
        if shape.need.devices:
            fleet = self._picture.fleet
            out = Relieved(plain, fleet.devices[row], fleet.device_used[row])
        else:
            out = Relieved(plain)
        out.credit(self._evictable, row, rare=bool(shape.need.devices or shape.need.scalars))
        return out

    def _prove(self, shape: _Shape, found: Found, view: View) -> tuple[DeviceHold, ...] | None:
        """The devices it would get on the row without its victims, where the whole of feasible() says yes."""
        number, seen = found.key[5], self._looked_at
        row = seen[2] if seen is not None and seen[:2] == (shape, number) else self._relieved(shape, number)
        self._looked_at = None
        for victim in found.victims:
            row.remove(victim)
        if not feasible(shape.need, row, view):
            return None
        if not shape.need.devices:
            return ()
        return pick_devices(shape.need.devices, self._picture.fleet.devices[number], row.device_used)

    def _no_plan(self, shape: _Shape, around: _Around) -> NoPlan:
        budgets = sum(1 for blocked in shape.blocked.values() if blocked.asked)
        reasons = {
            "gates": shape.counts[CLOSED],
            "room": shape.counts[SHORT],
            "budgets": budgets,
            "devices": len(shape.blocked) - budgets,
            "unproven": len(around.unproven),
            "barred": len(around.left_out - around.unproven),
        }
        return NoPlan({name: count for name, count in reasons.items() if count})


def _plan(found: Found, devices: tuple[DeviceHold, ...]) -> Plan:
    return Plan(found.key[5], tuple([victim.key for victim in found.victims]), found.broken, devices)
