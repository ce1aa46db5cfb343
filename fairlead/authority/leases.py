"""What one term's leader believes of the leases that its region was given, and says to agents of them (P13, P14).

After a cold start it believes in none: its time goes on from the last batch or from a wall clock, and either may be behind, so
that a lease would seem to last that is long over. To agents (fairlead/decide/lasting.py) it says something only once what that
rests on is durable, worked out at most twice a second. Called by the authority; stops nothing itself.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from fairlead.authority.judge.context import Context, Effect, put
from fairlead.authority.term import Term
from fairlead.decide.lapsing import lapsed_grant, lapsed_term
from fairlead.decide.lasting import GrantWord, Leases, leases_at, word_of
from fairlead.decide.node_leases import longest_lease_s
from fairlead.decide.slots import instant, millis
from fairlead.model.kinds.ledger import Plane, PlaneSpec
from fairlead.model.kinds.quota import GrantTerm
from fairlead.model.meta import Metadata
from fairlead.model.registry import REGION
from fairlead.model.settling import settled

EVERY_MS: Final = 500


def lapsed_leases(ctx: Context, term: Term) -> list[Effect]:
    """What the first batch of a term says of the leases of grants, policy and residency."""
    if ctx.settings.plane != REGION or not term.is_cold:
        return []
    out: list[Effect] = []
    name = ctx.settings.region
    asked: GrantTerm | None = ctx.state.hot("grantterms", "", name)
    if asked is not None and asked.status.asked:
        over = lapsed_term(asked, instant(term.plane_ms()))
        out.append(put("grantterms", "", name, over, over))
    for rec in ctx.state.live("grants"):
        grant = lapsed_grant(rec.hot)
        if grant is not rec.hot:
            out.append(put("grants", rec.tenant, rec.name, grant, grant))
    return out


class LeaseTeller:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._said: Leases | None = None
        self._next: Leases | None = None  # waits until its position is durable
        self._looked_ms = -EVERY_MS
        self._taken_back = 0  # when that was looked at: what it rests on may be undone before it is durable

    def word(self, now_ms: int) -> GrantWord | None:
        ctx = self._ctx
        if ctx.settings.plane != REGION:
            return None
        if self._taken_back != ctx.taken_back:
            self._next, self._taken_back = None, ctx.taken_back
        if self._next is None and now_ms >= self._looked_ms + EVERY_MS:
            self._looked_ms = now_ms
            self._next = self._look()
        if self._next is not None and self._next.position <= ctx.state.durable:
            self._said, self._next = self._next, None
        return word_of(self._said, now_ms) if self._said is not None else None

    def _look(self) -> Leases | None:
        ctx = self._ctx
        term = ctx.state.hot("grantterms", "", ctx.settings.region)
        grants = {rec.tenant: rec.hot for rec in ctx.state.live("grants") if rec.hot.spec.lease_seconds}
        used = {tenant: ctx.ledger.tenant(tenant).used for tenant in grants}
        return leases_at(ctx.state.position, grants, term, ctx.incarnation, used)


def epoch_start(ctx: Context, term: Term) -> Effect:
    """The first batch of a term: nothing older can land after it, and readers learn who leads, and what agents are told."""
    settings, fence, now_ms = ctx.settings, term.fence, term.plane_ms()
    old: Plane | None = ctx.state.hot("planes", "", "self")
    now = instant(now_ms)
    metadata = old.metadata if old else Metadata(name="self", uid=ctx.next_uid(), creation_time=now)
    longest_s = longest_lease_s(old.spec if old else None, settings.node_lease_s, settings.fence_of, term.measured_ms)
    longest_s = max(longest_s, term.told_s)
    began = _began(old.spec if old else None, term, settings.fence_of(longest_s)) or now
    spec = PlaneSpec(
        "global" if settings.plane == "global" else "region", settings.region, fence.holder, fence.epoch, fence.incarnation, now,
        settings.address, settings.node_lease_s, longest_s, began,
        old.spec.unmeasured_seconds + term.unmeasured_ms / 1000 if old else 0.0,
    )  # fmt: skip
    plane = settled(Plane(metadata=metadata, spec=spec))  # a sum that is nought is stored as nothing, as it is read
    return put("planes", "", "self", plane, plane)


def _began(before: PlaneSpec | None, term: Term, fence_s: float) -> datetime | None:
    """When this incarnation did; None: now. Exclusive work waits for a fence from then on: where that was not measured before a
    cold start, nobody can tell how much of it is over."""
    if before is None or before.incarnation != term.fence.incarnation or before.incarnation_time is None:
        return None
    waited_s = (term.measured_ms - millis(before.incarnation_time)) / 1000
    return before.incarnation_time if waited_s >= fence_s or not term.is_cold else None
