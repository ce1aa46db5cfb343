"""Owns the planted bugs of recovery: what stands between a lost region and a service without its minimum, or with a slot that is
bound twice. Called by mutants.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fairlead.agent.over_plane import PlaneRegion
from fairlead.agent.region import Ack
from fairlead.authority.judge import leases
from fairlead.controllers import no_place, regions_seen, slot_lease, workload
from fairlead.controllers import recovery as controller
from fairlead.controllers.slot_lease import SlotLease
from fairlead.decide import recovery
from fairlead.decide.recovery import Plan, Regions
from fairlead.decide.slot_lease import free_ms
from fairlead.model.kinds.work import SlotRange
from fairlead.model.lifecycle import Role
from fairlead.sim.planting import Mutant, Swap


def _removes_first() -> list[Swap]:
    return [(recovery, "_well", lambda service, regions: True)]


def _same_slots() -> list[Swap]:
    """What stands in takes the indices of the first region's own slots."""
    return [(workload, "recovery_in", lambda block, count: SlotRange(first=0, last=count - 1))]


def _recovers_nothing() -> list[Swap]:
    return [(controller, "plan", lambda *_: Plan({}, {}))]


def _region_never_lapses() -> list[Swap]:
    return [(slot_lease, "held_until", lambda sent, ttl_s: sent + 1e6)]


def _taken_at_once() -> list[Swap]:
    """A lost region's slot lease is taken without waiting for its end."""

    def lax(lease: Any, role: Role, *rest: Any) -> int:
        return 0 if role is Role.RECOVERY else free_ms(lease, role, *rest)

    return [(leases, "free_ms", lax), (controller, "free_ms", lax)]


def _agent_obeys_its_node_alone() -> list[Swap]:
    async def lax(self: PlaneRegion, nodes: Sequence[tuple[str, int]]) -> Ack | None:
        heard = await self._plane.heartbeat(nodes)
        return Ack(heard.incarnation, heard.epoch, heard.unknown, heard.superseded) if heard is not None else None

    return [(PlaneRegion, "heartbeat", lax)]


def _home_starts_first() -> list[Swap]:
    """What stood in is taken for gone as soon as it is told to leave."""

    def lax(order: Any, assignments: Any) -> frozenset[Any]:
        return frozenset(one for one in order.spec.stand_ins if one.leaving)

    return [(controller, "gone", lax)]


def _goes_on_as_before() -> list[Swap]:
    async def lax(self: SlotLease) -> bool:
        return True

    return [(SlotLease, "_has_caught_up", lax)]


def _doubt_is_death() -> list[Swap]:
    """A region that is not heard for a moment is no place to stand in."""
    return [(regions_seen, "Regions", lambda *seen: Regions(*seen)._replace(unknown=frozenset()))]


def _a_place_is_enough() -> list[Swap]:
    return [(no_place, "idle_for", lambda since, while_ms, now_ms: 0)]


MUTANTS: Final[dict[str, Mutant]] = {
    "recovery-removes-first": Mutant("what stands in stays until its service is well", "failback", ("L5",), _removes_first, 8.0),
    "stand-in-doubted": Mutant("what stands in stays while its region is doubted", "hushed", ("L5",), _doubt_is_death, 8.0),
    "recovery-same-slots": Mutant("what stands in is new slots", "failback", ("S1", "L5"), _same_slots, 8.0),
    "stand-in-idle": Mutant("what stands in and does not come up is ordered anew", "barren", ("L5",), _a_place_is_enough, 8.0),
    "recovery-never": Mutant("a service that lost its region is given slots", "failback", ("L5",), _recovers_nothing, 9.0),
    "slot-lease-endless": Mutant("a region's slot lease ends", "sole", ("S12",), _region_never_lapses, 5.0),
    "slot-lease-taken-early": Mutant("a slot lease is taken after its end", "sole", ("S12",), _taken_at_once, 5.0),
    "slot-lease-agents-deaf": Mutant("an agent obeys the slot lease", "sole", ("S12",), _agent_obeys_its_node_alone, 5.0),
    "stand-in-stays": Mutant("a home waits until what stood in is gone", "sole", ("S12",), _home_starts_first, 5.0),
    "slot-lease-old-picture": Mutant(
        "a region first hears what was superseded", "sole", ("S12",), _goes_on_as_before, 5.0, within=20
    ),
}
