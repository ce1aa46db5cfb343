"""Owns the planted bugs of single preconditions: of a request, a reservation, a deletion, an agent's word, each taken out alone;
and of what a slot wants of its node and of its neighbours.

Most are asked by nobody but meddlers (meddling.py): a component that is right sees them before it asks. Those about nodes and
neighbours are met where work is picky (picky.py) and proposals come to other nodes than were chosen. Called by mutants.py.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from fairlead.authority import judge
from fairlead.authority.judge import callers, kinds, leases, objects, placing, running
from fairlead.authority.judge.granting import granted_to
from fairlead.model.commands import Report, Reserve
from fairlead.model.kinds.work import SchedulingRequest
from fairlead.model.lifecycle import STEPS, Role, SlotState
from fairlead.sim.mutants_placing import Allowing, anywhere, ask, ask_room
from fairlead.sim.planting import Mutant, Swap


def _denial_forgotten() -> list[Swap]:
    """Who was refused because a grant is used up, and asks again, is not asked for it a second time."""
    grant, denied = placing._grant, set[tuple[str, str, int]]()

    def lax(ctx: Any, body: Any, *rest: Any) -> Any:
        asked = (body.tenant, body.name, body.epoch)
        if asked in denied:
            return None
        refused = grant(ctx, body, *rest)
        if refused is not None and refused.reason == "GrantExceeded":
            denied.add(asked)
        return refused

    return [(placing, "_grant", lax)]


def _reserved_again() -> list[Swap]:
    """What is reserved passes for what waits, to whoever reserves."""
    pending = placing._pending

    def lax(ctx: Any, caller: Any, body: Any, to: Any) -> Any:
        found = pending(ctx, caller, body, to)
        if isinstance(body, Reserve) and isinstance(found, SchedulingRequest):
            return replace(found, status=replace(found.status, state=SlotState.PENDING))
        return found

    return [(placing, "_pending", lax)]


def _reserved_for_long() -> list[Swap]:
    class Lax:
        """Settings that let everybody reserve for a year."""

        reservation_ttl_max_s = 365 * 86_400.0

        def __init__(self, settings: Any) -> None:
            self._settings = settings

        def __getattr__(self, name: str) -> Any:
            return getattr(self._settings, name)

    reserve = placing.reserve

    def lax(ctx: Any, caller: Any, body: Any, evidence: Any) -> Any:
        before, ctx.settings = ctx.settings, Lax(ctx.settings)
        try:
            return reserve(ctx, caller, body, evidence)
        finally:
            ctx.settings = before

    return [(judge, "_JUDGES", {**judge._JUDGES, Reserve: lax})]


def _reserved_on_any_grant() -> list[Swap]:
    reserved = placing._reserved

    def lax(ctx: Any, caller: Any, body: Any, request: Any) -> Any:
        have = granted_to(ctx, body.tenant)
        return reserved(ctx, caller, replace(body, grant_version=have.in_force.version) if have is not None else body, request)

    return [(placing, "_reserved", lax)]


def _mended_early() -> list[Swap]:
    return [(placing, "is_leaked", lambda ctx, tenant, reservation: True)]


def _begun_before() -> list[Swap]:
    return [(kinds, "refuse_begun_before", lambda ctx, new: None)]


def _forgotten() -> list[Swap]:
    return [(kinds, "refuse_forgotten", lambda ctx, rec: None)]


def _any_newer_request() -> list[Swap]:
    return [(kinds, "_refuse_newer_request", lambda new, old: None)]


def _deleted_alive() -> list[Swap]:
    return [(kinds, "_refuse_binding_delete", lambda caller, rec: None)]


def _lower_floor() -> list[Swap]:
    return [(objects, "refuse_lower_floor", lambda ctx, old, status: None)]


def _queued_by_anybody() -> list[Swap]:
    refuse = kinds._refuse_request

    def lax(ctx: Any, caller: Any, new: Any, old: Any) -> Any:
        lives = ctx.state.get("bindings", new.metadata.namespace, new.metadata.name) is not None
        owner = Role.REPAIR if lives else Role.RECOVERY if new.spec.standing else Role.ASSIGNMENT
        return refuse(ctx, replace(caller, role=owner), new, old)

    return [(kinds, "_refuse_request", lax)]


def _reserved_by_any_role() -> list[Swap]:
    return [(placing, "may_step", lambda before, after, by: (before, after) in STEPS)]


def _term_goes_on() -> list[Swap]:
    """Who held a lease for a term holds it in the next one."""
    return [(leases, "is_over", lambda ctx, spec: False), (callers, "is_over", lambda ctx, spec: False)]


def _any_session_reports() -> list[Swap]:
    report = running.report

    def lax(ctx: Any, caller: Any, body: Any, evidence: Any) -> Any:
        return report(ctx, caller, replace(body, session=0), evidence)

    return [(judge, "_JUDGES", {**judge._JUDGES, Report: lax})]


# --- what a slot wants of its node and of its neighbours -------------------------------------------------------------------

NEIGHBOURS: Final = ("ports", "max-per-node", "spread", "affinity", "anti-affinity")


class _Deaf:
    """A need's rules about neighbours, without those of one gate."""

    def __init__(self, rules: Any, gate: str) -> None:
        self._rules, self._gates = rules, tuple(name for name in NEIGHBOURS if name != gate)

    def own(self, row: Any, view: Any) -> bool:
        return all(self._rules.check(gate, row, view) for gate in self._gates)

    def coarse(self, row: Any, view: Any) -> bool:
        return True  # both are asked above


def _beside_anybody(gate: str) -> list[Swap]:
    def lax(need: Any, row: Any, ctx: Any) -> Any:
        rules = _Deaf(need.topology, gate) if need.topology is not None else None
        return ask(need, row, ctx) & ask_room(Allowing(need, topology=rules), row, ctx)

    return [(placing, "feasible", lax)]


def _any_scalars() -> list[Swap]:
    def lax(need: Any, row: Any, ctx: Any) -> Any:
        return ask(need, row, ctx) & ask_room(Allowing(need, scalars=()), row, ctx)

    return [(placing, "feasible", lax)]


def _though_cordoned() -> list[Swap]:
    def lax(need: Any, row: Any, ctx: Any) -> Any:
        return ask(need, Allowing(row, cordoned=0), ctx) & ask_room(need, row, ctx)

    return [(placing, "feasible", lax)]


MUTANTS: Final[dict[str, Mutant]] = {
    "denial-forgotten": Mutant("who was denied quota is denied it again", "denied", ("S4",), _denial_forgotten, 1.0),
    "reserved-again": Mutant("what is reserved is not reserved again elsewhere", "meddlers", ("S7",), _reserved_again, 1.0),
    "reserved-for-long": Mutant(
        "nobody reserves for longer than he may", "meddlers", ("S10", "L1"), _reserved_for_long, 2.5, within=20
    ),
    "reserved-any-grant": Mutant(
        "what is reserved is bound by the grant in force", "meddlers", ("S4",), _reserved_on_any_grant, 1.0
    ),
    "mended-early": Mutant("repair ends no reservation that has not run out", "meddlers", ("S7",), _mended_early, 1.0),
    "begun-before": Mutant("a slot begins above all epochs it had", "meddlers", ("S9",), _begun_before, 1.0),
    "forgotten-epoch": Mutant("no binding goes before its epoch is on record", "meddlers", ("S9",), _forgotten, 1.0),
    "floor-goes-back": Mutant("which epochs are on record never goes back", "meddlers", ("S9",), _lower_floor, 1.0),
    "enlarged-while-reserved": Mutant("what is reserved is not changed", "meddlers", ("S2", "S4"), _any_newer_request, 1.0),
    "deleted-alive": Mutant("a binding is deleted once its slot is released", "meddlers", ("S7",), _deleted_alive, 1.0),
    "any-session-reports": Mutant("an agent whose session is over moves nothing", "meddlers", ("S9",), _any_session_reports, 1.0),
    "queued-by-anybody": Mutant("a slot is queued by its owner", "meddlers", ("S7",), _queued_by_anybody, 1.0),
    "reserved-by-any-role": Mutant("a slot is reserved by a scheduler", "meddlers", ("S7",), _reserved_by_any_role, 1.0),
    "term-goes-on": Mutant("a lease for a term ends with it", "leaders", ("S9", "S10", "L1", "L4", "L6"), _term_goes_on),
    "no-labels": Mutant("labels are checked at commit", "picky", ("S6",), lambda: anywhere("labels"), 1.0, within=8),
    "no-taints": Mutant("taints are checked at commit", "picky", ("S6",), lambda: anywhere("taints"), 1.0),
    "no-cordon": Mutant("a cordon is checked at commit", "picky", ("S6",), _though_cordoned, 1.0, within=8),
    "no-ports": Mutant("ports are checked at commit", "picky", ("S6",), lambda: _beside_anybody("ports"), 1.0),
    "no-max-per-node": Mutant(
        "the most on one node is checked at commit", "picky", ("S6",), lambda: _beside_anybody("max-per-node"), 1.0, within=8
    ),
    "no-spread": Mutant("required spread is checked at commit", "picky", ("S6",), lambda: _beside_anybody("spread"), 1.0),
    "no-affinity": Mutant("affinity is checked at commit", "picky", ("S6",), lambda: _beside_anybody("affinity"), 1.0),
    "no-anti-affinity": Mutant(
        "anti-affinity is checked at commit", "picky", ("S6",), lambda: _beside_anybody("anti-affinity"), 1.0
    ),
    "no-scalars": Mutant("the authority checks scalars again", "picky", ("S2",), _any_scalars, 1.0),
}
