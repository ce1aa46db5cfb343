"""Owns the planted bugs of recovery: what stands between a lost region and a service without its minimum, or with a slot that is
bound twice. Called by mutants.py.
"""

from __future__ import annotations

from typing import Final

from fairlead.controllers import recovery as controller
from fairlead.controllers import workload
from fairlead.decide import recovery
from fairlead.decide.recovery import Plan
from fairlead.model.kinds.work import SlotRange
from fairlead.sim.planting import Mutant, Swap


def _removes_first() -> list[Swap]:
    return [(recovery, "_well", lambda service, regions: True)]


def _same_slots() -> list[Swap]:
    """What stands in takes the indices of the first region's own slots."""
    return [(workload, "recovery_in", lambda block, count: SlotRange(first=0, last=count - 1))]


def _recovers_nothing() -> list[Swap]:
    return [(controller, "plan", lambda services, regions, rooms: Plan({}, {}))]


MUTANTS: Final[dict[str, Mutant]] = {
    "recovery-removes-first": Mutant("what stands in stays until its service is well", "failback", ("L5",), _removes_first, 8.0),
    "recovery-same-slots": Mutant("what stands in is new slots", "failback", ("S1", "L5"), _same_slots, 8.0),
    "recovery-never": Mutant("a service that lost its region is given slots", "failback", ("L5",), _recovers_nothing, 9.0),
}
