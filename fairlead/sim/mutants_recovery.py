"""Owns the planted bugs of recovery: what stands between a lost region and a service without its minimum, or with a slot that is
bound twice. Called by mutants.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fairlead.agent.over_plane import PlaneRegion
from fairlead.agent.region import Ack
from fairlead.authority.judge import leases, running
from fairlead.controllers import no_place, recovery_facts, regions_seen, slot_lease, workload
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


def _region_fails_over() -> list[Swap]:
    """What runs once in its region is ordered in another one as well when that is lost."""
    recovers = recovery_facts.recovers

    def lax(workload: Any) -> bool:
        spec = workload.spec
        return recovers(workload) or bool(spec.exclusive == "region" and spec.recovery.min_serving and not spec.suspend)

    return [(module, "recovers", lax) for module in (controller, recovery_facts)]


def _held_again_later() -> list[Swap]:
    """What a claimer took is free when it is released, until the budget asks for it anew."""
    return [(running, "held_again", lambda ctx, binding, ahead: [])]


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

    return [(recovery_facts, "gone", lax)]


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
    "region-fails-over": Mutant("what runs once in its region stays there", "sole", ("S12",), _region_fails_over, 5.0),
    "room-free-between": Mutant("room that was claimed is held again at once", "failback", ("S8",), _held_again_later, 8.0),
    "slot-lease-endless": Mutant("a region's slot lease ends", "sole", ("S12",), _region_never_lapses, 5.0),
    "slot-lease-taken-early": Mutant("a slot lease is taken after its end", "sole", ("S12",), _taken_at_once, 5.0),
    "slot-lease-agents-deaf": Mutant("an agent obeys the slot lease", "sole", ("S12",), _agent_obeys_its_node_alone, 5.0),
    "stand-in-stays": Mutant("a home waits until what stood in is gone", "sole", ("S12",), _home_starts_first, 5.0),
    "slot-lease-old-picture": Mutant(
        "a region first hears what was superseded", "sole", ("S12",), _goes_on_as_before, 5.0, within=20
    ),
}
