"""Owns the planted bugs of single preconditions: of a request, a reservation, a deletion, an agent's word, each taken out alone.

Most are asked by nobody but meddlers (meddling.py): a component that is right sees them before it asks. Called by mutants.py.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from fairlead.authority import judge
from fairlead.authority.judge import callers, kinds, leases, objects, placing, running
from fairlead.authority.judge.granting import granted_to
from fairlead.model.commands import Report, Reserve
from fairlead.model.kinds.work import SchedulingRequest
from fairlead.model.lifecycle import SlotState
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


def _term_goes_on() -> list[Swap]:
    """Who held a lease for a term holds it in the next one."""
    return [(leases, "is_over", lambda ctx, spec: False), (callers, "is_over", lambda ctx, spec: False)]


def _any_session_reports() -> list[Swap]:
    report = running.report

    def lax(ctx: Any, caller: Any, body: Any, evidence: Any) -> Any:
        return report(ctx, caller, replace(body, session=0), evidence)

    return [(judge, "_JUDGES", {**judge._JUDGES, Report: lax})]


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
    "term-goes-on": Mutant("a lease for a term ends with it", "leaders", ("S9", "L1", "L4"), _term_goes_on),
}
