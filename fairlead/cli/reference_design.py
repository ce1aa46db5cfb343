"""The pages of docs/design that mirror code: the object model, the coordination boundaries, the readiness review's table.

Owns their words around the data. Called by reference.py, which writes and checks all generated pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from fairlead.decide.boundaries import CHOICES, KEPT, tier_of
from fairlead.decide.fit import GATES
from fairlead.decide.plugins import BUILT_INS
from fairlead.model.controllers import CONTROLLERS
from fairlead.model.lifecycle import Role
from fairlead.model.registry import KINDS
from fairlead.observe.readiness import CLAIMS, RISKS

Table = Callable[[Sequence[str], Iterable[Sequence[object]]], str]
Page = Callable[..., str]


def object_model(page: Page, table: Table) -> str:
    rows = [
        (
            f"[{info.kind}](../reference/objects.md#{info.kind.lower()})",
            ", ".join(sorted(info.planes)),
            _roles(info.spec_owners),
            _roles(info.status_owners),
            info.clean_up,
        )
        for info in KINDS.values()
    ]
    words = (
        "Every object has one owner of its intent, one of its status, and a way to go. The authority refuses a write by anybody "
        "else. Fields, finalizers with their deadlines, and what is left in the world with who repairs it: "
        "[reference/objects.md](../reference/objects.md). The steps of a slot and who owns each: "
        "[reference/lifecycle.md](../reference/lifecycle.md)."
    )
    headings = ["object", "planes", "spec written by", "status written by", "goes away by"]
    return page("Object model", "`fairlead/model/registry.py`", words, table(headings, rows))


def _roles(roles: frozenset[Role]) -> str:
    return ", ".join(sorted(role.value for role in roles)) or "-"


_BOUNDARIES: Final = """Coordination is spent where a promise needs it. Everything else leans on a budget given beforehand, on a
hint that may be wrong, or on repair by an owner with a deadline. How the patterns were weighed:
[ADR 0029](../adr/0029-architecture-patterns.md)."""
_RANKED: Final = """## Gates and scores
A gate is asked by the scheduler and again by the authority, with the same function; a score only ranks. *hard invariant*: stale
knowledge costs a refusal; *bounded preference*: quality; *hint*: quality, and it may be missing."""
_CONTROLLERS: Final = """## Controllers
The tier follows from what a controller has declared to write. What it saw may be as old as it says; what it writes is judged on
the present state."""
_MEASURED: Final = (
    ("how often schedulers that share a plane meet, how fair they are, what they cost", "`fairlead bench contention`",
     "[scheduling](../scheduling.md)"),
    ("skew: how much quota lies in the wrong region, and for how long", "`fairlead bench fairness`", "[quota](../quota.md)"),
    ("skew of placements", "`fairlead_region_skew_ratio`", "[scheduling](../scheduling.md#which-region)"),
    ("calls across the boundary", "`fairlead_coordination_calls_total`", "none for a bind: `tests/sim/races/test_calls.py`"),
    ("what recovery adds to the planes' load", "`fairlead bench recovery`", "[recovery](../recovery.md)"),
)  # fmt: skip


def boundaries(page: Page, table: Table) -> str:
    kept = [(one.invariant, one.where, one.means.value, one.across) for one in KEPT]
    choices = [(one.decision, one.means.value, one.by, one.if_wrong, one.bounded) for one in CHOICES]
    ranked = [(f"`{gate.name}`", "gate", gate.tier.value) for gate in GATES]
    ranked += [(f"`{name}`", "score", score.tier.value) for name, score in sorted(BUILT_INS.scores.items())]
    acting = [
        (f"`{one.name}`", one.plane, tier_of(one).value, f"{one.max_age_s:,.0f} s", one.decides) for one in CONTROLLERS.values()
    ]
    return page(
        "Authority and coordination boundaries",
        "`fairlead/decide/boundaries.py` and what gates, scores and controllers declare",
        _BOUNDARIES,
        "## Which promise is kept where",
        table(["promise", "kept by", "means", "what regions must agree on"], kept),
        "## Which decision leans on what",
        table(["decision", "means", "made by", "when it is wrong", "bounded by"], choices),
        _RANKED,
        table(["name", "is a", "tier"], ranked),
        _CONTROLLERS,
        table(["controller", "plane", "tier", "knowledge at most old", "who decides when it is wrong"], acting),
        "## What it costs, measured",
        table(["question", "command", "figures"], _MEASURED),
    )


_READINESS: Final = """What must be shown before anybody says *ready*. `fairlead review` holds it against the evidence that was
kept: [how](../operations/review.md). C1 to C8 are the review's own
claims, each with the kinds of evidence it needs; the others are the promises."""


def readiness(page: Page, table: Table) -> str:
    rows = []
    for claim in CLAIMS:
        for number, kind in enumerate(claim.kinds):
            commands = " ".join(f"`{ask.command}`" if ask.record else ask.command for ask in kind.asks)
            rows.append((claim.id if number == 0 else "", claim.text if number == 0 else "", kind.name, commands))
    return page(
        "Readiness review",
        "`fairlead/observe/readiness.py`",
        _READINESS,
        table(["id", "claim", "kind of evidence", "made by"], rows),
        "## Residual risks\nWhat is left when all of it is green.",
        table(["id", "risk", "why it is left, and what bounds it"], [(risk.id, risk.risk, risk.because) for risk in RISKS]),
    )


DESIGN: dict[str, Callable[[Page, Table], str]] = {
    "objects.md": object_model,
    "boundaries.md": boundaries,
    "readiness.md": readiness,
}
