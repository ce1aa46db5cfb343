"""Owns the planted bugs of leadership and of ids: who takes over and when, what becomes of a commit in doubt, what a repeated
command comes to; and of those who read. Called by mutants.py.
"""

from __future__ import annotations

import itertools
from typing import Any, Final
from weakref import WeakKeyDictionary

from fairlead.agent.node import Node
from fairlead.agent.remembered import Remembered
from fairlead.api.rules import AccessRules
from fairlead.authority import pipeline
from fairlead.authority.candidate import Candidate
from fairlead.authority.judge import running
from fairlead.authority.receipts import Receipts
from fairlead.authority.service import _Connection
from fairlead.authority.term import Term
from fairlead.client.line import Line
from fairlead.client.rest import RestClient
from fairlead.controllers.cache import Item, Objects, _reindex
from fairlead.controllers.repair import RepairController
from fairlead.decide import escrow
from fairlead.model.lifecycle import SlotState
from fairlead.observe.answers import ATTEMPT
from fairlead.sim.planting import Mutant, Swap


def _takes_over_early() -> list[Swap]:
    """A standby does not wait until the leader has stopped to trust itself. A region would wait twice for what it knows nothing
    of, a lease until it calls a slot Unknown and its fence after that; here the fence counts from the takeover."""
    not_proven_gone, may_go = running._not_proven_gone, RepairController._may_go

    def lax(ctx: Any, binding: Any) -> Any:
        passed = ctx.leader_since_ms + ctx.settings.fence_s * 1000 <= ctx.now_ms
        return None if binding.spec.execution == "Exclusive" and passed else not_proven_gone(ctx, binding)

    def hasty(self: RepairController, cache: Any, assignment: Any, slot: Any) -> bool:
        return slot.state is SlotState.UNKNOWN or may_go(self, cache, assignment, slot)

    return [
        (Candidate, "_limit_s", property(lambda self: 0.4 * self._timing.lease_ttl_s)),
        (running, "_not_proven_gone", lax),
        (RepairController, "_may_go", hasty),
    ]


def _never_takes_over() -> list[Swap]:
    return [(Candidate, "_limit_s", property(lambda self: float("inf")))]


def _in_doubt_for_ever() -> list[Swap]:
    return [(pipeline, "RESUBMIT_S", (1e6,))]


def _refusals_forgotten() -> list[Swap]:
    """A copy of what was refused is judged anew."""
    return [(Receipts, "refused", lambda self, ctx, command, hashed, refused: None)]


def _new_id_each_time() -> list[Swap]:
    """The client repeats a write under another key each time."""
    asked = itertools.count(1)
    opens = RestClient._open

    def lax(self: RestClient, request: Any) -> Any:
        return opens(self, request._replace(key=f"{request.key}{ATTEMPT}{next(asked)}") if request.key else request)

    return [(RestClient, "_open", lax)]


def _any_leader() -> list[Swap]:
    """An agent believes a leader that was deposed before. Such a one does not vouch for anything beyond its lease: that guard is
    out as well."""
    return [(Remembered, "hear", lambda self, incarnation, epoch, lease_s: True), (Term, "valid", lambda self, now: True)]


def _stale_revives() -> list[Swap]:
    """What a picture is told counts, however old it is."""

    def lax(self: Objects, change: Any) -> Any:
        items, name = self._items.setdefault(change.plural, {}), (change.tenant, change.name)
        old, new = items.get(name), Item(change) if change.raw is not None else None
        if new is None:
            items.pop(name, None)
        else:
            items[name] = new
        for function, table in self._tables.get(change.plural, {}).items():
            _reindex(table, function, name, old, new)
        return old, new

    return [(Objects, "apply", lax)]


def _victims_or_not() -> list[Swap]:
    """Whoever claims starts at once."""

    def lax(self: Node, slot: Any, bound: Any) -> str:
        lives = self.lives_of(slot.key) if bound is not None and not slot.there else []
        return "its earlier life" if any(other.there and other is not slot for other in lives) else ""

    return [(Node, "blocked", lax)]


def _reassigned_at_once() -> list[Swap]:
    """What a region may use until its lease ends is given to others before."""
    return [(escrow, "exposure", lambda account, now_ms: escrow.largest(offer.after for offer in account.offers))]


def _everybody_reads_all() -> list[Swap]:
    rows = AccessRules.rows

    def lax(self: AccessRules, identity: Any, ask: Any) -> Any:
        return None if rows(self, identity, ask) is None else lambda change: True

    return [(AccessRules, "rows", lax)]


def _greets_from_its_beginning() -> list[Swap]:
    """A server says to each who comes how far it was when the first of them came, and is believed."""
    hello, said = _Connection._hello, WeakKeyDictionary[Any, int]()

    async def stale(self: _Connection, *arguments: Any) -> dict[str, Any]:
        now = await hello(self, *arguments)
        return now | {"revision": said.setdefault(self._authority, now["revision"])}

    return [(_Connection, "_hello", stale), (Line, "_is_behind", lambda self, hello: False)]


MUTANTS: Final[dict[str, Mutant]] = {
    "greets-from-its-beginning": Mutant(
        "a client goes on at nobody who is behind what it was told", "resets", ("S15",), _greets_from_its_beginning, 1.0
    ),
    "takeover-early": Mutant("a standby waits for the leader's lease", "hasty", ("S12",), _takes_over_early),
    "takeover-never": Mutant("a standby takes over", "first", ("L2",), _never_takes_over, 1.0),
    "doubt-for-ever": Mutant("a commit in doubt is sent again", "doubts", ("L7",), _in_doubt_for_ever, 1.0),
    "refusal-forgotten": Mutant(
        "what was refused is not done after all", "strays", ("S13",), _refusals_forgotten, 3.0, within=10
    ),
    "retry-new-id": Mutant("who asks again does so under the same id", "unknown", ("S13",), _new_id_each_time),
    "agent-any-leader": Mutant("an agent believes no leader that was deposed", "usurpers", ("S12",), _any_leader),
    "stale-revives": Mutant("an event from before changes nothing", "echoes", ("L4",), _stale_revives, 0.6),
    "claim-starts-at-once": Mutant("a claimer starts when its victims are gone", "crowded", ("S2",), _victims_or_not, 1.0),
    "grant-given-twice": Mutant("what a lease covers is given away after its end", "grants", ("S5",), _reassigned_at_once, 3.0),
    "reads-all": Mutant("a list holds what its caller may read", "tenants", ("S17",), _everybody_reads_all, 1.0),
}
