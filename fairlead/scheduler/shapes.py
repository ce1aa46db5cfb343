"""Shapes: what is equal about slots that are decided alike. Each has its need, compiled, and its ranking of the nodes.

Slots of different workloads and tenants share a shape when everything that decides about them is equal: amounts, devices, the
verdicts by node class, the scores and their weights. Rules about neighbours (topology) are a workload's own, so such a shape is
too. The book forgets everything when what shapes are compiled from has changed (a new node class, another policy).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final

import numpy as np

from fairlead.decide.fit import GATES, Need, feasible, has_room, reasons
from fairlead.decide.policy import ClassRules, CompiledPolicy
from fairlead.decide.topology import marks_of
from fairlead.model.hot import intern_marks
from fairlead.model.kinds.work import Ask, Marks, SchedulingRequest
from fairlead.model.resources import SHARE_WHOLE, DeviceHold
from fairlead.scheduler.doors import Doors
from fairlead.scheduler.fleet import Column, OneRow, Rows
from fairlead.scheduler.homes import NAME as HOME
from fairlead.scheduler.homes import Homes, weight_of
from fairlead.scheduler.lineup import Lineup
from fairlead.scheduler.needs import WishesOf, compile_for_ranking
from fairlead.scheduler.policies import Policies
from fairlead.scheduler.ranking import FEW, NOWHERE, Ranking
from fairlead.scheduler.snapshot import Snapshot, Use
from fairlead.scheduler.terms import DomainTerms, own_rate

_RANKING_BYTES_MAX: Final = 256 << 20  # all rankings together; the least recently used go first
_FOUND_MAX: Final = 50_000
_UNRANKED_MAX: Final = 6  # slots of a shape placed from the lineup, before it is worth a ranking


class Shape:
    """One need over all nodes. Rates rows for its ranking."""

    def __init__(
        self, snapshot: Snapshot, ask: Ask, need: Need, columns: Need, rules: ClassRules, policy: CompiledPolicy,
        doors: Doors, homes: Homes | None = None,
    ) -> None:  # fmt: skip
        self.snapshot = snapshot
        self._doors = doors
        self.ask = ask
        self.need = need  # for one row: tables as bytes
        self.columns = columns  # for all rows: tables as arrays
        self.rules = rules
        self.policy = policy
        self.scores = rules.ranked_by(need)
        self.gates = (*GATES, *need.extra)
        terms = DomainTerms(self) if need.topology is not None and need.topology.keys else None
        self._own = need if terms is None else terms.own_need
        self._own_columns = columns if terms is None else terms.own_columns
        # With terms, what a domain score says of the domain is the term's; the row keeps what it says of the node.
        rates = [(own_rate(score) if terms is not None else score.rate, weight) for score, weight in self.scores]
        self._homes = homes
        self._home_weight = weight_of(self.scores) if homes is not None else 0
        if homes is not None:
            rates.append((homes.rate, self._home_weight))
        self._rates = (*rates, *((point.rate, weight) for point, weight in policy.extensions.scores))
        self.around = need.topology.around if need.topology is not None and need.topology.looks_around else None
        self.has_more_rates = homes is not None or bool(policy.extensions.scores)
        self._terms = terms
        self.ranking = Ranking(snapshot, self, terms)
        self.lines_up = Lineup.understands(self)
        self.placed_unranked = 0
        self.learning: tuple[Any, ...] = tuple(score for score, _ in self.scores if hasattr(score, "observe"))
        self.few = 1 if self.learning else FEW  # what such a score knows it knows in columns
        self._epochs: tuple[int, ...] = ()
        self.dropped = False
        self._words: dict[str, str] = {}

    def learn(self, requests: int) -> None:
        """So many requests of this shape have come, each told once: some scores learn the mix of work from them. Their opinion of
        every node changes now and then, and the ranking with it."""
        for score in self.learning:
            score.observe(self.need, self.snapshot, requests)

    def prepare(self) -> bool:
        """A part of what `catch_up` would do, where that may take long; True when nothing is left."""
        return all(score.prepare(self.need, self.snapshot) for score in self.learning)

    def is_rare(self, slots: int) -> bool:
        """Whether so many more slots of it are placed cheaper from the lineup than by a ranking that is yet to be made."""
        return self.lines_up and self.placed_unranked + slots <= _UNRANKED_MAX and not self.ranking.is_made

    def catch_up(self) -> None:
        """Brings the ranking up to date, before a run."""
        epochs = tuple(score.epoch(self.snapshot) for score in self.learning)
        if epochs != self._epochs:
            self._epochs = epochs
            self.ranking.refresh()
        self.ranking.sync()

    def drop(self) -> None:
        """The book needs the room. Whoever still finds this shape by its ask makes another."""
        self.dropped = True
        self.ranking = Ranking(self.snapshot, self, self._terms)

    def rate_rows(self, rows: Rows) -> Column:
        columns, view = self._own_columns, self.snapshot
        if rows.are_all:
            fits = self._doors.open_to(columns) & has_room(columns, rows, view)
        else:
            fits = feasible(columns, rows, view)
        total: Any = 0
        for rate, weight in self._rates:
            total = total + weight * rate(columns, rows, view)
        return np.where(fits, total, NOWHERE)

    def rate_row(self, row: OneRow) -> int:
        need, view = self._own, self.snapshot
        if not feasible(need, row, view):
            return NOWHERE
        total = 0
        for rate, weight in self._rates:
            total += weight * rate(need, row, view)
        return total

    def breakdown(self, row: OneRow) -> tuple[tuple[str, int, int], ...]:
        """(score, weight, rate) of one node."""
        parts = [(score.name, weight, int(score.rate(self.need, row, self.snapshot))) for score, weight in self.scores]
        if self._homes is not None:
            parts.append((HOME, self._home_weight, int(self._homes.rate(self.need, row, self.snapshot))))
        return tuple(parts)

    def why(self, row: int) -> dict[str, str]:
        """Every gate one node fails, with the reason."""
        return reasons(self.need, self.snapshot.row(row), self.snapshot)

    def nearest(self, count: int) -> list[int]:
        """Of the nodes that are ruled out, those that came farthest through the gates."""
        snapshot = self.snapshot
        left = np.arange(snapshot.fleet.rows)
        for gate in self.gates:
            passes = np.broadcast_to(gate.check(self.columns, snapshot.fleet.some(left), snapshot), len(left))
            if not passes.any():
                break
            left = left[passes]
        return [int(row) for row in left[:count]]

    def too_large(self) -> bool:
        """Larger than every node that its class, tenant and rules let it use, even an empty one: only another node can help. One
        that is closed or silent counts, because it may come back."""
        columns, rows, need = self.snapshot.fleet.columns, self.snapshot.fleet.rows, self.need
        allowed = self.columns.classes.allowed[columns["node_class"][:rows]] == 1
        holds = allowed & (columns["cpu_total"][:rows] >= need.cpu) & (columns["memory_total"][:rows] >= need.memory)
        return not bool(holds.any())

    def pick_devices(self, row: int) -> tuple[DeviceHold, ...] | None:
        """What a score that looks at single devices would take; None: it has no opinion."""
        for score, _ in self.scores:
            pick = getattr(score, "pick_devices", None)
            if pick is not None:
                picked: tuple[DeviceHold, ...] | None = pick(self.need, self.snapshot.row(row), self.snapshot)
                return picked
        return None

    def in_words(self) -> dict[str, str]:
        if not self._words:
            self._words = self.ask.requests.as_quantities()
            for ask in self.ask.devices:
                share = "" if ask.share_thousandths == SHARE_WHOLE else f" ({ask.share_thousandths}/1000)"
                self._words[ask.resource] = f"{ask.count}{share}"
        return self._words

    def ruled_out(self) -> dict[str, int]:
        """For each gate how many nodes failed it first; what a person can least change comes first."""
        snapshot = self.snapshot
        rows = snapshot.fleet.all()
        left = np.arange(snapshot.fleet.rows)[~np.broadcast_to(feasible(self.columns, rows, snapshot), snapshot.fleet.rows)]
        out: dict[str, int] = {}
        for gate in self.gates:
            if not len(left):
                break
            passes = np.broadcast_to(gate.check(self.columns, snapshot.fleet.some(left), snapshot), len(left))
            failed = len(left) - int(np.count_nonzero(passes))
            if failed:
                out[gate.name] = failed
                left = left[passes]
        return out


class ShapeBook:
    def __init__(self, snapshot: Snapshot, policies: Policies, homes: Homes | None = None) -> None:
        self._snapshot = snapshot
        self._policies = policies
        self._homes = homes
        self._doors = Doors(snapshot)
        self._found: dict[Hashable, tuple[Ask, Shape]] = {}
        self._shapes: OrderedDict[Hashable, Shape] = OrderedDict()
        self._epoch: Hashable = None
        self._wishes: WishesOf = {}
        self._learning: dict[Any, None] = {}  # scores that any shape was ranked by
        self._marks: dict[int, tuple[Ask, Marks | None]] = {}

    def ended(self, use: Use) -> None:
        """A slot is gone: what learns the mix of work should hear of it."""
        for score in self._learning:
            score.ended(use.requests, use.devices, self._snapshot)

    def marks_of(self, ask: Ask) -> Marks | None:
        """What a slot with this ask bears, as the authority will say it of its binding. No shape can say it: workloads that are
        decided alike may bear different labels."""
        found = self._marks.get(id(ask))
        if found is not None and found[0] is ask:
            return found[1]
        if len(self._marks) > _FOUND_MAX:
            self._marks.clear()
        made = marks_of(ask)
        marks = made if made is None else intern_marks(made)
        self._marks[id(ask)] = (ask, marks)
        return marks

    def shape_of(self, request: SchedulingRequest, policy: CompiledPolicy) -> Shape | None:
        """None: the policy does not know the workload's class."""
        snapshot = self._snapshot
        epoch = (snapshot.shapes_epoch(), self._policies.version)
        if epoch != self._epoch:
            self._epoch = epoch
            self._found.clear()
            self._shapes.clear()
            self._wishes.clear()
        spec = request.spec
        ask, tenant = spec.ask, request.metadata.namespace
        wanted = (id(ask), tenant, spec.may_borrow, spec.slot.uid, policy.revision)
        found = self._found.get(wanted)
        if found is not None and found[0] is ask and not found[1].dropped:
            return found[1]
        shape = self._shape(request, policy)
        if shape is not None:
            if len(self._found) > _FOUND_MAX:
                self._found.clear()
            self._found[wanted] = (ask, shape)
        return shape

    def _shape(self, request: SchedulingRequest, policy: CompiledPolicy) -> Shape | None:
        rules = policy.rules_of(request.spec.ask.workload_class)
        if rules is None:
            return None
        tenant, workload = request.metadata.namespace, request.spec.slot.workload
        avoided = self._policies.overrides.avoidance(tenant, workload, self._snapshot.classes)
        compiled = compile_for_ranking(self._snapshot, request, policy, self._wishes, avoided)
        shape = self._shapes.get(compiled.key)
        if shape is not None:
            self._shapes.move_to_end(compiled.key)
            return shape
        shape = Shape(self._snapshot, compiled.ask, compiled.need, compiled.columns, rules, policy, self._doors, self._homes)
        self._shapes[compiled.key] = shape
        self._learning.update(dict.fromkeys(shape.learning))
        most = max(16, _RANKING_BYTES_MAX // (16 * max(1, self._snapshot.fleet.rows)))
        while len(self._shapes) > most:
            self._shapes.popitem(last=False)[1].drop()
        return shape
