"""Owns the planted bugs of what a commit rests on: whose reservation it is, whether its node takes work, who speaks for whom,
what stands in the way of a deletion. Called by mutants.py.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from fairlead.authority import judge
from fairlead.authority.chores import Chores
from fairlead.authority.judge import context, granting, kinds, placing, running, victims
from fairlead.authority.judge.context import Draft
from fairlead.authority.judge.unlisted import Unlisted
from fairlead.decide import generations, leftovers
from fairlead.decide.fit import has_room, open_to
from fairlead.model.commands import BindGang, Refused, Report
from fairlead.model.lifecycle import Role
from fairlead.sim.planting import Mutant, Swap

_open_to: Final[Any] = open_to  # of stand-ins, which no type knows


def _any_holder() -> list[Swap]:
    """What one has reserved is bound by anybody, wherever they like."""
    reserved = placing._reserved

    def lax(ctx: Any, caller: Any, body: Any, request: Any) -> Any:
        spec = ctx.state.get("reservations", body.tenant, body.name).hot.spec
        return reserved(ctx, replace(caller, actor=spec.owner), replace(body, node=spec.node), request)

    return [(placing, "_reserved", lax)]


class _Ready:
    """A node's account that says it takes work."""

    healthy = schedulable = 1

    def __init__(self, row: Any) -> None:
        self._row = row

    def __getattr__(self, name: str) -> Any:
        return getattr(self._row, name)


def _any_node() -> list[Swap]:
    """Also one that has not said what it runs, or is not heard."""

    def lax(need: Any, row: Any, ctx: Any) -> Any:
        return _open_to(need, _Ready(row), ctx) & has_room(need, row, ctx)

    return [(placing, "feasible", lax)]


def _no_budgets() -> list[Swap]:
    return [(victims, "breaches", lambda evicted, live, evictor: [])]


def _unlisted_is_empty() -> list[Swap]:
    """A node that has not said what it runs since history was lost is taken for empty: for what runs once, and by who asks for
    quota anew, without which nothing is bound."""
    return [(context.Context, "refuse_unlisted", lambda self, name: None), (granting, "_refuse_unlisted", lambda ctx: None)]


def _forgotten_is_empty() -> list[Swap]:
    """A node of whose words nothing is left is taken for one that never ran anything. Whether it is known at all, or has only not
    said anything that is left, two guards ask; both are out."""
    one = Unlisted.one

    def lax(self: Unlisted, incarnation: int, fenced_ms: int) -> str:
        found = one(self, incarnation, fenced_ms)
        while found and not self._nodes[found].listed_in:
            del self._left[found]
            found = one(self, incarnation, fenced_ms)
        return found

    return [(context.Context, "_incarnation_began_ms", lambda self: 0), (Unlisted, "one", lax)]


def _any_agent() -> list[Swap]:
    """An agent speaks for every node."""
    report = running.report

    def lax(ctx: Any, caller: Any, body: Any, evidence: Any) -> Any:
        rec = ctx.state.get("bindings", body.tenant, body.name)
        node = rec.hot.node if rec is not None else caller.node
        return report(ctx, replace(caller, role=Role.AGENT, node=node), body, evidence)

    return [(judge, "_JUDGES", {**judge._JUDGES, Report: lax})]


def _gang_without_the_refused() -> list[Swap]:
    """Of a gang, those that fit are bound."""

    def lax(ctx: Any, caller: Any, body: Any, evidence: Any) -> Any:
        refused = placing._gang_incomplete(ctx, body)
        if refused is not None:
            return refused
        state, mark, effects, why = ctx.state, ctx.state.position, [], Refused("GangRefused", "nobody fits")
        for member in body.binds:
            judged = placing.bind(ctx, caller, member, evidence, in_gang=True)
            if isinstance(judged, Refused):
                why = judged
                continue
            for effect in judged.effects:
                state.place(effect)
            effects.extend(judged.effects)
        state.undo_to(mark)
        return Draft(effects) if effects else why

    return [(judge, "_JUDGES", {**judge._JUDGES, BindGang: lax})]


def _node_goes_with_its_work() -> list[Swap]:
    return [(kinds, "_refuse_node_delete", lambda ctx, caller, rec: None)]


def _nobody_ends_reservations() -> list[Swap]:
    """Neither the authority when they have run out nor repair when it finds them."""
    return [
        (Chores, "_expired_reservations", lambda self: []),
        (leftovers, "leaked_reservations", lambda *facts: []),
    ]


def _generation_again() -> list[Swap]:
    """Generations count on from whatever the plane was restored to."""
    return [(generations, "PER_INCARNATION", 0)]


MUTANTS: Final[dict[str, Mutant]] = {
    "reserved-by-anybody": Mutant(
        "what is reserved is bound there, by whoever reserved it", "crowded", ("S8",), _any_holder, 1.0
    ),
    "node-not-ready": Mutant("a node takes work once it has said what it runs, and is heard", "waning", ("S2",), _any_node, 1.0),
    "no-budgets": Mutant("evictions leave what a disruption budget says", "crowded", ("S19",), _no_budgets, 1.0, within=10),
    "unlisted-is-empty": Mutant(
        "no Exclusive slot is bound while a node may run it unknown", "lost", ("S12",), _unlisted_is_empty
    ),
    "forgotten-is-empty": Mutant(
        "no Exclusive slot is bound before a node that history forgot has ended its own",
        "lost",
        ("S12",),
        _forgotten_is_empty,
        1.0,
        within=60,
    ),
    "report-by-anybody": Mutant("an agent speaks for its own node", "strays", ("S7",), _any_agent, 1.0),
    "gang-what-fits": Mutant("of a gang all fit or none is bound", "gangs", ("S20",), _gang_without_the_refused, 1.0),
    "node-goes-with-work": Mutant(
        "a node with work on it is not deleted", "strays", ("S2", "L4", "L6"), _node_goes_with_its_work
    ),
    "reservations-stay": Mutant("a reservation that ran out is ended", "strays", ("S10",), _nobody_ends_reservations, 2.5),
    "generation-again": Mutant("a generation is given out once, over restores too", "backups", ("S7",), _generation_again, 4.0),
}
