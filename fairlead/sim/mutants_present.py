"""Owns the planted bugs of what an authority knows of the present: what time it is, which nodes were heard of late, what is there
already when it begins to lead, and which commands are under way; of a region that doubts its own hearing. Called by mutants.py.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from fairlead.authority.figures import Figures
from fairlead.authority.judge import context
from fairlead.authority.memory import PlaneMemory
from fairlead.authority.receipts import Receipts, key_name
from fairlead.authority.state import RECEIPTS, at
from fairlead.authority.term import Term
from fairlead.controllers import node
from fairlead.decide.compiling import compile_need
from fairlead.decide.nodes import judge_zone
from fairlead.model.commands import IdempotencyKey
from fairlead.scheduler import needs
from fairlead.sim.planting import Mutant, Swap

_FOR_EVER_MS: Final = 1 << 50


def _by_the_wall_clock() -> list[Swap]:
    """Plane time is what the wall clock shows, as long as that does not go back."""

    def wall_ms(self: Term) -> int:
        self._last_ms = max(self._last_ms, int(self._clock.wall() * 1000))
        return self._last_ms

    return [(Term, "plane_ms", wall_ms)]


def _what_was_there_is_free() -> list[Swap]:
    """Who begins to lead charges tenants for what is bound from then on. A recount would say so: that is out as well."""
    load = PlaneMemory.load

    async def none(self: Figures) -> list[Any]:
        return []

    async def lax(self: PlaneMemory) -> None:
        await load(self)
        for account in self.ctx.ledger.tenants.values():
            account.used = dict.fromkeys(account.used, 0)

    return [(PlaneMemory, "load", lax), (Figures, "drifts", none)]


def _heard_or_not() -> list[Swap]:
    """A node may have been heard at any time, or never: by whoever proposes it and by the authority."""

    def lax(*arguments: Any, **named: Any) -> Any:
        return replace(compile_need(*arguments, **named), max_age_ms=_FOR_EVER_MS)

    return [(context, "compile_need", lax), (needs, "compile_need", lax)]


def _joins_nothing() -> list[Swap]:
    """An id counts as known when what it came to is durable: a copy of what is under way is carried out as well."""
    find = Receipts.find

    def late(self: Receipts, ctx: Any, command: Any, hashed: bytes) -> Any:
        if isinstance(command.id, IdempotencyKey):
            members = self._state.bucket(RECEIPTS, "").members
            if at(members.get(key_name(command.caller.actor, command.id.key)), self._state.durable) is None:
                return None
        return find(self, ctx, command, hashed)

    return [(Receipts, "find", late)]


def _in_doubt(loss_period_s: float) -> list[Swap]:
    """How long a region that doubts its hearing of a zone waits between two nodes that it gives up."""

    def judged(facts: Any, anybody: bool, since_ms: int, now_ms: int, rules: Any, *rest: Any) -> Any:
        return judge_zone(facts, anybody, since_ms, now_ms, replace(rules, loss_period_s=loss_period_s), *rest)

    return [(node, "judge_zone", judged)]


MUTANTS: Final[dict[str, Mutant]] = {
    "time-by-wall-clock": Mutant("plane time is measured", "stopped", ("S4", "S5", "S6"), _by_the_wall_clock, 3.0),
    "loaded-uncharged": Mutant(
        "what runs is charged to who has it, whoever leads", "grants", ("S4", "S5"), _what_was_there_is_free, 3.0, within=12
    ),
    "doubt-is-hasty": Mutant("in doubt nodes are given up one at a time", "zones", ("B5",), lambda: _in_doubt(0.0), 3.0),
    "doubt-is-endless": Mutant("in doubt nodes are given up all the same", "zones", ("L4",), lambda: _in_doubt(1e12), 1.0),
    "heard-or-not": Mutant("a node takes work when it was heard of late", "leaders", ("S2",), _heard_or_not),
    "copy-not-joined": Mutant("a copy of what is under way is not carried out", "unknown", ("S13",), _joins_nothing),
}
