"""What the authority does when the lease of a grant ends (P13): stops what is above the limit that stays, before the end.

Nobody else needs to be alive for it, and no budget holds it up: what runs on would be sold twice. Rooms that recovery budgets
hold go first, then slots, the youngest of the lowest priority before others. The same at the deadline of what an emergency quota
had allowed. A region whose store lost history, or was restored, has no limit to go by: it keeps what runs without an end. Called
by chores.py, and by figures.py for a count; places nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fairlead.authority.hot import BindingHot
from fairlead.authority.judge.context import Context
from fairlead.authority.ledger import Ledger, device_charge
from fairlead.authority.state import Rec, State
from fairlead.decide import escrow
from fairlead.decide.granting import first_version, in_force, is_confirmed, margin_ms, must_end_ms
from fairlead.decide.grants import limits_of
from fairlead.decide.preempt_rules import SERVING_CAPABLE
from fairlead.decide.slots import millis
from fairlead.model.commands import Caller, Command, Move, ReleaseReservation
from fairlead.model.kinds.capacity import Grant, ReservationSpec
from fairlead.model.kinds.quota import GrantTerm
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.registry import REGION

AUTHORITY: Final = Caller(actor="authority", role=Role.AUTHORITY)
GRACE_S: Final = 5.0
ROUND_MAX: Final = 1000  # the rest goes half a second later
_GOING: Final = frozenset({SlotState.DRAINING})


def ended_leases(ctx: Context) -> list[Command]:
    """Steps to Draining, a bounded number of them. Costs a look at every leased grant."""
    if ctx.settings.plane != REGION:
        return []
    now_ms = ctx.plane_ms()
    out: list[Command] = []
    for rec in ctx.state.live("grants"):
        lease_s = rec.hot.spec.lease_seconds
        # A plane that has been away asks first: its leases may go on.
        if lease_s and now_ms >= ctx.leader_since_ms + margin_ms(lease_s) // 2 and len(out) < ROUND_MAX:
            out += _above(ctx, rec.hot, now_ms)[: ROUND_MAX - len(out)]
    return out


def _above(ctx: Context, grant: Grant, now_ms: int) -> list[Command]:
    tenant = grant.metadata.namespace
    if not is_confirmed(grant, ctx.incarnation):
        return _ended(tenant, *_without_standing(ctx, grant, now_ms))
    used = ctx.ledger.tenant(tenant).used
    allowed = in_force(grant, ctx.state.hot("grantterms", "", ctx.settings.region), ctx.incarnation, now_ms)
    if not allowed.version or now_ms < must_end_ms(grant, allowed) or escrow.within(used, limits_of(allowed.limit)):
        return []
    return _ended(tenant, *to_end(ctx.state, ctx.ledger, tenant, limits_of(allowed.limit)))


def _without_standing(ctx: Context, grant: Grant, now_ms: int) -> tuple[list[Rec], list[Rec]]:
    """What must end of a tenant whose grant was taken in history that is lost: what has no lease any more, and rooms, which may
    have been given up since. What is bound without an end stays: whichever offer was taken last, all that runs so was within
    what that leaves, and is charged until the region says that it has taken another. What of it does not run is not begun."""
    state, tenant = ctx.state, grant.metadata.namespace
    rooms = [rec for rec in state.live("reservations", tenant) if rec.hot.spec.budget]
    if _is_offered_less(ctx, grant, now_ms):
        return rooms, to_end(state, ctx.ledger, tenant, limits_of(grant.spec.after))[1]
    bound = state.live("bindings", tenant)
    return rooms, [rec for rec in bound if rec.hot.provisional and rec.hot.state in SERVING_CAPABLE]


def _is_offered_less(ctx: Context, grant: Grant, now_ms: int) -> bool:
    """For a whole lease the global plane has been heard, and offers less than runs: as when any lease ends, that goes."""
    term: GrantTerm | None = ctx.state.hot("grantterms", "", ctx.settings.region)
    if term is None or term.status.incarnation != ctx.incarnation or term.status.end_time is None:
        return False
    healed = term.status.healed_time
    since_ms = max(ctx.leader_since_ms, millis(healed) if healed is not None else 0)
    newest = max(first_version(term.spec.incarnation), term.spec.floors.get(grant.metadata.namespace, 0))
    return since_ms + grant.spec.lease_seconds * 1000 <= now_ms < millis(term.status.end_time) and grant.spec.version >= newest


def _ended(tenant: str, rooms: list[Rec], bound: list[Rec]) -> list[Command]:
    given_up = [Command(AUTHORITY, ReleaseReservation(tenant, rec.name, rec.hot.spec.token)) for rec in rooms]
    return given_up + [
        Command(AUTHORITY, Move(tenant, rec.name, rec.hot.token, SlotState.DRAINING, "LeaseEnds", GRACE_S)) for rec in bound
    ]


def to_end(state: State, ledger: Ledger, tenant: str, limits: Mapping[str, int]) -> tuple[list[Rec], list[Rec]]:
    """What must end so that the rest is within these limits: rooms of recovery budgets, in which nothing of the tenant's runs;
    and only beyond that, slots. Those on their way out count as gone. Who uses nothing of what is short stays."""
    left = dict(ledger.tenant(tenant).used)
    bound: list[Rec] = []
    for rec in state.live("bindings", tenant):
        if rec.hot.state in _GOING:
            _take(left, _charge(ledger, rec.hot))
        elif rec.hot.state in SERVING_CAPABLE:
            bound.append(rec)
    rooms = [rec for rec in state.live("reservations", tenant) if rec.hot.spec.budget]
    # What a claimer has left of its room is of use to nobody else before the claimer goes: whole rooms are given up after it.
    rooms.sort(key=lambda each: (not each.hot.spec.claimer, -each.position))
    bound.sort(key=lambda each: (each.hot.priority, -each.position))
    return (
        _enough(ledger, left, limits, ((rec, rec.hot.spec) for rec in rooms)),
        _enough(ledger, left, limits, ((rec, rec.hot) for rec in bound)),
    )


def _enough(
    ledger: Ledger, left: dict[str, int], limits: Mapping[str, int], those: Iterable[tuple[Rec, BindingHot | ReservationSpec]]
) -> list[Rec]:
    """The first of them that bring what is left within the limits; taken off it."""
    out: list[Rec] = []
    for rec, holder in those:
        over = [name for name, amount in left.items() if amount > limits.get(name, 0)]
        if not over:
            break
        charge = _charge(ledger, holder)
        if any(charge.get(name) for name in over):
            _take(left, charge)
            out.append(rec)
    return out


def _charge(ledger: Ledger, holder: BindingHot | ReservationSpec) -> dict[str, int]:
    """What its tenant is charged for it, as the ledger has it."""
    return holder.requests.amounts() | device_charge(ledger.node(holder.node), holder.devices)


def _take(left: dict[str, int], charge: Mapping[str, int]) -> None:
    for name, amount in charge.items():
        left[name] = left.get(name, 0) - amount
