"""What an ask prefers, compiled once per shape: a table by node class, as for the gates that depend on the class alone.

Owns the meaning of `placement.preferences`, of a residency that is Preferred and of PreferNoSchedule taints. `Need.wishes`
carries it to the scores locality, image, spread and affinity; the last two also read counters through `Need.topology`. Called by
whoever compiles a need for ranking (the scheduler); the authority, which never ranks, leaves it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np

from fairlead.decide.classes import NodeClass, matches, tolerates
from fairlead.decide.scores import SCORE_MAX
from fairlead.model.kinds.intent import Locality, Placement, Preference
from fairlead.model.kinds.work import Ask


class ClassTable:
    """One rate per node class. One class gives an int, a column of classes a column, both from the same values."""

    __slots__ = ("_column", "_values")

    def __init__(self, values: Sequence[int]) -> None:
        self._values = list(values)
        self._column = np.array(self._values, dtype=np.int64)

    def __getitem__(self, node_class: Any) -> Any:
        if type(node_class) is int:
            return self._values[node_class]
        return self._column[node_class]

    def __len__(self) -> int:
        return len(self._values)

    @property
    def tells_apart(self) -> bool:
        return len(set(self._values)) > 1


class Pulls(NamedTuple):
    """The weights of preferred affinity and anti-affinity: how far attraction may go up and down."""

    up: int = 0
    down: int = 0


class Wishes(msgspec.Struct, frozen=True):
    """`own` is about the node itself (topology key hostname), `coarse` about its zone and region."""

    image: str = ""
    classes: ClassTable = ClassTable(())  # rates by node class; empty: nothing is preferred
    spread_own: int = 0  # rules that only prefer
    spread_coarse: int = 0
    pulls_own: Pulls = Pulls()
    pulls_coarse: Pulls = Pulls()


NO_WISHES: Final = Wishes()
HOSTNAME: Final = "hostname"  # the topology key under which each node is a domain of its own
RESIDENCY_WEIGHT: Final = 100  # of a preferred residency beside the preferences, whose weights go up to this


class NumberedClasses(Protocol):
    """Node classes by number, as decide/classes.py keeps them; a plain list will do."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> NodeClass: ...


def wishes(ask: Ask, node_classes: NumberedClasses) -> Wishes:
    """To be made again when a node class has appeared."""
    place = ask.placement
    soft = [rule.topology_key == HOSTNAME for rule in place.spread if rule.when_unsatisfiable == "ScheduleAnyway"]
    return Wishes(
        image=ask.image,
        classes=ClassTable(preference_table(ask, node_classes)),
        spread_own=soft.count(True),
        spread_coarse=soft.count(False),
        pulls_own=_pulls(place, own=True),
        pulls_coarse=_pulls(place, own=False),
    )


def _pulls(place: Placement, *, own: bool) -> Pulls:
    up, down = (
        sum(rule.weight for rule in rules if not rule.required and (rule.topology_key == HOSTNAME) == own)
        for rules in (place.affinity, place.anti_affinity)
    )
    return Pulls(up, down)


def preference_table(ask: Ask, node_classes: NumberedClasses) -> list[int]:
    """For each node class the weights of what it meets, of all weights, times SCORE_MAX; halved by a taint with effect
    PreferNoSchedule that the ask does not tolerate. An ask without preferences is met everywhere."""
    return [_rate(node_classes[number], ask.placement) for number in range(len(node_classes))]


def _rate(node_class: NodeClass, place: Placement) -> int:
    labels = dict(node_class.labels)
    verdicts = [(p.weight, _meets(node_class, labels, p)) for p in place.preferences]
    if place.residency.areas and place.residency.enforcement == "Preferred":
        verdicts.append((RESIDENCY_WEIGHT, not set(place.residency.areas).isdisjoint(node_class.areas or ())))
    total = sum(weight for weight, _ in verdicts)
    rate = SCORE_MAX * sum(weight for weight, met in verdicts if met) // total if total else SCORE_MAX
    soft = [taint for taint in node_class.taints if taint.effect == "PreferNoSchedule"]
    shunned = any(not any(tolerates(toleration, taint) for toleration in place.tolerations) for taint in soft)
    return rate >> shunned


def _meets(node_class: NodeClass, labels: dict[str, str], preference: Preference) -> bool:
    """Everything one preference names must hold: its regions, its zones and its labels."""
    where = preference.locality or Locality()
    return (
        (not where.regions or node_class.region in where.regions)
        and (not where.zones or node_class.zone in where.zones)
        and all(matches(expression, labels) for expression in preference.labels)
    )
