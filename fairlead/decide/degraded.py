"""The degraded-mode table as data: what of a region's work goes on while something it relies on is away, and what waits, and why.

Rules in order, the first that fits; every combination of what can be away has one. Owns no effect: scheduler and judge act by
leases, grants and policy as they are, and tests/autonomy asks them for every cell. Rendered into docs/autonomy.md. Pure.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple


class Mode(NamedTuple):
    """What a region has at a moment. `plane` is the global one; it is away once two questions in a row had no answer."""

    plane: bool = True
    store: bool = True  # the region's own
    watch: bool = True  # what its schedulers follow; when it ends they list again
    policy: bool = True  # the lease on policy and residency
    quota: bool = True  # the lease on the tenant's grant


class Fate(NamedTuple):
    what: Literal["Placed", "Provisional", "Held"]
    reason: str = ""  # of a slot that is held; for the store, of the refusal: nothing can be written down


class Cell(NamedTuple):
    within: Fate  # new work within what stays of the grant when its lease ends
    above: Fate  # and above it; what is provisional is stopped before the lease ends, unless that goes on


class Rule(NamedTuple):
    plane: bool | None  # None: whichever
    store: bool | None
    watch: bool | None
    policy: bool | None
    quota: bool | None
    autonomous: bool | None  # the class has localAutonomy
    cell: Cell


# The five kinds of work of the design, and the class of the built-in policy that each is in.
KINDS: Final[dict[str, str]] = {
    "critical service": "critical",
    "steady service": "standard",
    "bursty worker": "standard",
    "urgent batch": "batch",
    "best-effort": "best-effort",
}

_PLACED, _PROVISIONAL = Fate("Placed"), Fate("Provisional")
_NO_STORE = Fate("Held", "StoreUnavailable")
_NO_WORD = Fate("Held", "PolicyAuthorityUnreachable")
_NO_QUOTA = Fate("Held", "WaitingForQuota")

RULES: Final = (
    Rule(None, None, None, False, None, None, Cell(_NO_WORD, _NO_WORD)),
    Rule(False, None, None, True, None, False, Cell(_NO_WORD, _NO_WORD)),
    Rule(None, False, None, True, False, None, Cell(_NO_STORE, _NO_QUOTA)),
    Rule(None, False, None, True, True, None, Cell(_NO_STORE, _NO_STORE)),
    Rule(None, True, None, True, False, None, Cell(_PLACED, _NO_QUOTA)),
    Rule(None, True, None, True, True, None, Cell(_PLACED, _PROVISIONAL)),
)


def cell(mode: Mode, autonomous: bool) -> Cell:
    for rule in RULES:
        asked = zip((*mode, autonomous), rule[:6], strict=True)
        if all(wanted is None or wanted is have for have, wanted in asked):
            return rule.cell
    raise AssertionError(f"no rule for {mode}")


def rendered() -> str:
    """The table for people: a row for each rule, in the order in which they are asked."""
    words = {None: "any", True: "yes", False: "no"}
    lines = [
        "| global plane | region's store | watch | policy lease | quota lease | class has `localAutonomy` "
        "| new work within what stays | above it |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for rule in RULES:
        fates = [f"held: `{fate.reason}`" if fate.what == "Held" else fate.what.lower() for fate in rule.cell]
        lines.append(f"| {' | '.join((*(words[each] for each in rule[:6]), *fates))} |")
    return "\n".join(lines) + "\n"
