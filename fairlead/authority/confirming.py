"""Takes the end off bindings that were provisional and stay (P13, ADR 0037), a few at a time.

Remembers which are provisional, and proposes; the judge asks again at the moment of writing (judge/running.py). While a region is
cut off, or has not told what it did then, it waits: the report counts them. Called by chores.py.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from fairlead.authority.judge.context import Context
from fairlead.authority.judge.granting import settled_here
from fairlead.authority.judge.running import CONFIRMED
from fairlead.authority.state import Rec
from fairlead.decide.apart import is_open, is_unreported
from fairlead.model.commands import Caller, Command, Move
from fairlead.model.kinds.quota import GrantTerm
from fairlead.model.lifecycle import Role
from fairlead.model.registry import REGION

AUTHORITY: Final = Caller(actor="authority", role=Role.AUTHORITY)
ROUND_MAX: Final = 20  # forty a second: each is a change that everybody who follows bindings is told of


class Confirming:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._provisional: dict[str, dict[str, None]] = {}  # by tenant
        if ctx.settings.plane != REGION:
            return
        ctx.state.derive("bindings", self._changed)
        for rec in ctx.state.live("bindings"):  # of the terms before
            self._changed(None, rec)

    def _changed(self, old: Rec | None, new: Rec | None) -> None:
        if new is not None and new.hot.provisional:
            self._provisional.setdefault(new.tenant, {})[new.name] = None
        elif old is not None and old.hot.provisional:
            names = self._provisional.get(old.tenant, {})
            names.pop(old.name, None)
            if not names:
                self._provisional.pop(old.tenant, None)

    def commands(self) -> list[Command]:
        """Bounded; costs a look at every tenant with something provisional."""
        if not self._provisional or self._is_apart():
            return []
        out: list[Command] = []
        for tenant, names in self._provisional.items():
            if len(out) < ROUND_MAX and settled_here(self._ctx, tenant):
                out += [self._word(tenant, name) for name in islice(names, ROUND_MAX - len(out))]
        return out

    def _is_apart(self) -> bool:
        term: GrantTerm | None = self._ctx.state.hot("grantterms", "", self._ctx.settings.region)
        return term is not None and (is_open(term.status) or is_unreported(term.status))

    def _word(self, tenant: str, name: str) -> Command:
        rec = self._ctx.state.get("bindings", tenant, name)
        assert rec is not None, "what is gone is forgotten with it"
        return Command(AUTHORITY, Move(tenant, name, rec.hot.token, rec.hot.state, CONFIRMED))
