"""What one term's leader says to agents of the leases of its grants (P13, fairlead/decide/lasting.py). Said only once what it
rests on is durable, and worked out at most twice a second. Called by the authority for every heartbeat; stops nothing itself.
"""

from __future__ import annotations

from typing import Final

from fairlead.authority.judge.context import Context
from fairlead.decide.lasting import GrantWord, Leases, leases_at, word_of
from fairlead.model.registry import REGION

EVERY_MS: Final = 500


class LeaseTeller:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._said: Leases | None = None
        self._next: Leases | None = None  # waits until its position is durable
        self._looked_ms = -EVERY_MS

    def word(self, now_ms: int) -> GrantWord | None:
        ctx = self._ctx
        if ctx.settings.plane != REGION:
            return None
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
