"""What a coarse domain (a zone, a region, a label's value) adds to the totals of its nodes: shut by a rule, or liked or not.

A slot placed in a zone changes the verdict on every node of that zone. So that one placement still fixes one row, what domains
decide is kept apart: the ranking holds rows of one group of domains in blocks of their own and adds the group's term when it
looks for the best block. Called by the ranking of a shape that has rules about domains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from fairlead.decide.need import Need
from fairlead.decide.scores import Score
from fairlead.decide.topology_need import TopologyNeed
from fairlead.scheduler.fleet import Column
from fairlead.scheduler.ranking import NOWHERE

Rate = Callable[[Need, Any, Any], Any]

if TYPE_CHECKING:
    from fairlead.scheduler.shapes import Shape


class GroupRow:
    """One row per group: a row that knows nothing but its node class."""

    def __init__(self, node_class: Column) -> None:
        self.node_class = node_class

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a domain has no {name}: only the node class may decide about it")


class OwnPart:
    """The part of a need's topology that the node itself decides. Its domains have their say as terms."""

    keys = ()

    def __init__(self, whole: TopologyNeed) -> None:
        self.own = whole.own
        self.check = whole.check
        self.why = whole.why
        self.crowding = whole.crowding
        self.attraction = whole.attraction

    def coarse(self, row: Any, view: Any) -> bool:
        return True


def own_rate(score: Score) -> Rate:
    """What a score says of the node itself, its domain apart."""
    own: Rate | None = getattr(score, "own", None)
    return own if own is not None else score.rate


class DomainTerms:
    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        topology = shape.need.topology
        assert topology is not None
        self._topology = topology
        own: Any = OwnPart(topology)
        self.own_need: Need = replace(shape.need, topology=own)
        self.own_columns: Need = replace(shape.columns, topology=own)
        parts = ((getattr(score, "coarse", None), weight) for score, weight in shape.scores)
        self._rates = tuple((rate, weight) for rate, weight in parts if rate is not None)
        self._representatives = GroupRow(np.zeros(1, np.int64))

    def group_of_rows(self) -> Column:
        """Classes that share their domains in every key of the rules form a group."""
        snapshot = self._shape.snapshot
        classes = np.arange(max(1, len(snapshot.classes)))
        groups: dict[tuple[int, ...], int] = {}
        first: list[int] = []
        of_class = np.zeros(len(classes), np.int64)
        tables = [snapshot.topology.domains(key) for key in self._topology.keys]
        for number in range(len(snapshot.classes)):
            where = tuple(int(table[number]) for table in tables if table is not None)
            if where not in groups:
                groups[where] = len(groups)
                first.append(number)
            of_class[number] = groups[where]
        self._representatives = GroupRow(np.array(first or [0], np.int64))
        return of_class[snapshot.fleet.columns["node_class"][: snapshot.fleet.rows]]

    def terms(self) -> Column:
        view, rows = self._shape.snapshot, self._representatives
        need: Any = self._shape.columns
        total: Any = np.zeros(len(rows.node_class), np.int64)
        row: Any = rows
        for rate, weight in self._rates:
            total = total + weight * rate(need, row, view)
        return np.where(self._topology.coarse(row, view), total, NOWHERE)
