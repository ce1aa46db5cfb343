"""Owns the planted bugs of placements and steps: what the authority asks again at commit, taken out one by one.

Found where strays ask for it (strays.py): in the `strays` and `crowded` profiles a wrong proposal comes several times a second.
Called by mutants.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from fairlead.authority.judge import callers, kinds, objects, placing, running
from fairlead.authority.judge.granting import granted_to
from fairlead.authority.ledger import Ledger
from fairlead.decide.classes import WideVerdicts
from fairlead.decide.devices import pick_devices
from fairlead.decide.fit import feasible, has_room, open_to
from fairlead.decide.preempt_rules import Evictor
from fairlead.model.commands import Refused
from fairlead.model.lifecycle import STEPS, Role
from fairlead.sim.planting import Mutant, Swap


def _asked_of_the_present(fields: Callable[[Any, Any, Any], dict[str, Any]]) -> list[Swap]:
    """What the proposal was decided on is replaced by what is in force before it is compared with that."""
    pending = placing._pending

    def lax(ctx: Any, caller: Any, body: Any, to: Any) -> Any:
        request = ctx.state.hot("schedulingrequests", body.tenant, body.name)
        return pending(ctx, caller, replace(body, **fields(ctx, body, request)) if request is not None else body, to)

    return [(placing, "_pending", lax)]


def _any_epoch() -> list[Swap]:
    return _asked_of_the_present(lambda ctx, body, request: {"epoch": request.spec.epoch})


def _any_generation() -> list[Swap]:
    return _asked_of_the_present(lambda ctx, body, request: {"generation": request.spec.generation})


def _any_policy() -> list[Swap]:
    return _asked_of_the_present(lambda ctx, body, request: {"policy_revision": ctx.policy_in_force(body.tenant)[0]})


def _any_grant_version() -> list[Swap]:
    grant = placing._grant

    def lax(ctx: Any, body: Any, *rest: Any) -> Any:
        have = granted_to(ctx, body.tenant)
        return grant(ctx, replace(body, grant_version=have.in_force.version) if have is not None else body, *rest)

    return [(placing, "_grant", lax)]


def _no_grant() -> list[Swap]:
    return [(placing, "_grant", lambda *_: None)]


def _no_fit() -> list[Swap]:
    return [(placing, "feasible", lambda need, row, ctx: True)]


class _Roomy:
    """A node's account that says there is room in some dimension, whatever there is."""

    def __init__(self, row: Any, *fields: str) -> None:
        self._row, self._fields = row, fields

    def __getattr__(self, name: str) -> Any:
        return 1 << 60 if name in self._fields else getattr(self._row, name)


def _blind_to(*fields: str) -> list[Swap]:
    def lax(need: Any, row: Any, ctx: Any) -> Any:
        return open_to(need, row, ctx) & has_room(need, _Roomy(row, *fields), ctx)

    return [(placing, "feasible", lax)]


def _any_device() -> list[Swap]:
    def taken(need: Any, account: Any, row: Any, wished: Any) -> Any:
        return pick_devices(need.devices, account.devices, {})

    def lax(need: Any, row: Any, ctx: Any) -> Any:
        return open_to(need, row, ctx) & ask_room(Allowing(need, devices=()), row, ctx)

    return [(placing, "_pick", taken), (placing, "feasible", lax)]


ask: Final[Any] = open_to
ask_room: Final[Any] = has_room  # of stand-ins, which no type knows


class _But:
    """Of the class table: which classes of nodes are allowed when one of its gates is not asked."""

    def __init__(self, classes: Any, gate: str) -> None:
        self._tables = [getattr(classes, name) for name in WideVerdicts.__struct_fields__ if name not in ("allowed", gate)]

    def __getitem__(self, node_class: Any) -> int:
        return int(all(table[node_class] for table in self._tables))


class Allowing:
    def __init__(self, inner: Any, **answers: Any) -> None:
        self._inner, self._answers = inner, answers

    def __getattr__(self, name: str) -> Any:
        return self._answers[name] if name in self._answers else getattr(self._inner, name)


def anywhere(gate: str, when: Callable[[Any], bool] = lambda classes: True) -> list[Swap]:
    """It is asked when proposing, and not at commit."""

    def lax(need: Any, row: Any, ctx: Any) -> Any:
        if not when(need.classes):
            return feasible(need, row, ctx)
        asked = Allowing(need, classes=Allowing(need.classes, allowed=_But(need.classes, gate)))
        return ask(asked, row, ctx) & has_room(need, row, ctx)

    return [(placing, "feasible", lax)]


def _any_area_of_the_policy() -> list[Swap]:
    """What a workload says of itself is asked at commit, what the policy says of its tenant is not."""
    return anywhere("residency", lambda classes: not classes.ask.placement.residency.areas)


def _any_neighbour() -> list[Swap]:
    def lax(need: Any, row: Any, ctx: Any) -> Any:
        asked, alone = Allowing(need, exclusive=False), Allowing(row, exclusive_to=0, used_by=0)
        return ask(asked, alone, ctx) & has_room(need, row, ctx)

    return [(placing, "feasible", lax)]


def _expired_holds() -> list[Swap]:
    reserved = placing._reserved

    def lax(ctx: Any, caller: Any, body: Any, request: Any) -> Any:
        before, ctx.now_ms = ctx.now_ms, 0
        try:
            return reserved(ctx, caller, body, request)
        finally:
            ctx.now_ms = before

    return [(placing, "_reserved", lax)]


def _any_rank() -> list[Swap]:
    return [(Evictor, "may_evict", lambda self, priority, borrowed: True)]


def _released_twice() -> list[Swap]:
    book = Ledger._book

    def twice(self: Ledger, tenant: str, account: Any, requests: Any, devices: Any, how: int, sign: int) -> None:
        book(self, tenant, account, requests, devices, how, sign)
        if sign < 0:
            account.add(requests, (), how, -1)

    return [(Ledger, "_book", twice)]


def _no_lease_fence() -> list[Swap]:
    return [(callers, "_fenced", lambda *_: None)]


def _any_role() -> list[Swap]:
    """Whoever holds any lease may act in any role."""
    fenced = callers._fenced

    def lax(ctx: Any, command: Any) -> Any:
        lease = ctx.state.hot("leases", "", command.caller.lease)
        if lease is None:
            return fenced(ctx, command)
        return fenced(ctx, replace(command, caller=replace(command.caller, role=Role(lease.spec.role))))

    return [(callers, "_fenced", lax)]


def _any_token() -> list[Swap]:
    def bound(ctx: Any, *rest: Any) -> Any:
        body = rest[-1]
        rec = ctx.state.get("bindings", body.tenant, body.name)
        return rec if rec is not None else Refused("NotFound", "no slot")

    return [(running, "_bound", bound)]


def _any_owner() -> list[Swap]:
    return [(running, "may_step", lambda before, after, by: (before, after) in STEPS)]


def _asked_again() -> list[Swap]:
    return [(kinds, "_refuse_request", lambda *_: None)]


def _any_version() -> list[Swap]:
    return [(objects, "_refuse_version", lambda *_: None)]


def _any_gang() -> list[Swap]:
    return [(placing, "_gang_incomplete", lambda *_: None)]


MUTANTS: Final[dict[str, Mutant]] = {
    "bind-any-epoch": Mutant("a placement names the slot's epoch", "strays", ("S9",), _any_epoch, 1.0),
    "bind-any-generation": Mutant("a placement names the generation", "strays", ("S7",), _any_generation, 1.0),
    "bind-any-policy": Mutant("a placement names the policy in force", "strays", ("S6",), _any_policy, 1.0),
    "bind-any-grant": Mutant("a placement names the grant in force", "strays", ("S4",), _any_grant_version, 1.0),
    "no-grant": Mutant("the authority checks the grant again", "tight", ("S4",), _no_grant, within=12),
    "no-fit": Mutant("the authority checks capacity again", "crowded", ("S2", "S3", "S6"), _no_fit, 1.0),
    "no-cpu": Mutant("the authority checks the CPU again", "crowded", ("S2",), lambda: _blind_to("cpu_free", "cpu_unlent"), 1.0),
    "no-memory": Mutant(
        "the authority checks the memory again", "crowded", ("S2",), lambda: _blind_to("memory_free", "memory_unlent"), 1.0
    ),
    "held-is-free": Mutant(
        "what a recovery budget holds is nobody else's", "standing", ("S2",), lambda: _blind_to("cpu_free", "memory_free"), 1.0
    ),
    "no-devices": Mutant("the authority checks devices again", "strays", ("S3",), _any_device, 1.0),
    "no-tenancy": Mutant("a pool's tenants are checked at commit", "strays", ("S6",), lambda: anywhere("tenancy"), 1.0),
    "no-residency": Mutant("residency is checked at commit", "areas", ("S6",), lambda: anywhere("residency"), 1.0),
    "no-policy-areas": Mutant("the policy's residency is checked at commit", "areas", ("S6",), _any_area_of_the_policy, 1.0),
    "no-zones": Mutant("zones are checked at commit", "areas", ("S6",), lambda: anywhere("zones"), 1.0),
    "no-regions": Mutant("regions are checked at commit", "areas", ("S6",), lambda: anywhere("regions"), 1.0),
    "no-isolation": Mutant("who wants a node alone has it alone", "crowded", ("S6",), _any_neighbour, 1.0, within=12),
    "expired-holds": Mutant("a reservation ends at its expiry, not at clean-up", "crowded", ("S8",), _expired_holds, 1.0),
    "evict-any-rank": Mutant("a victim stands below its evictor", "crowded", ("S19",), _any_rank, 1.0),
    "released-twice": Mutant("a release counts once", "crowded", ("S2", "S4"), _released_twice, 1.0),
    "lease-no-fence": Mutant("a leased role carries its lease's epoch", "strays", ("S9",), _no_lease_fence, 1.0),
    "lease-any-role": Mutant("a leased role carries a lease of its own role", "strays", ("S9",), _any_role, 1.0),
    "slot-any-token": Mutant("a step carries the binding's token", "strays", ("S9",), _any_token, 1.0),
    "step-any-owner": Mutant("a step is made by its owner", "strays", ("S7",), _any_owner, 1.0),
    "asked-again": Mutant("a bound slot is not queued again", "strays", ("S1", "S7"), _asked_again, 1.0),
    "gang-in-part": Mutant("a gang is sent whole", "gangs", ("S20",), _any_gang, 1.0),
    "put-any-version": Mutant("a write names the version it changes", "twins", ("S12", "S7"), _any_version),
}
