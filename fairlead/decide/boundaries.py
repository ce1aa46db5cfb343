"""Where coordination is paid for, as data: which promise is kept by whom before anything is committed, and which decisions
make do with a budget given beforehand, a hint, or repair afterwards.

Owns these two tables, and the tier that follows for a controller from what it has declared to write. Pure. Called by the pages of
docs/design; tests/docs/test_design.py holds it against the promises, gates, scores and controllers that exist.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from fairlead.decide.tiers import Tier
from fairlead.model.controllers import ControllerInfo


class Means(Enum):
    """What a decision leans on instead of asking everybody."""

    COMMIT = "one writer, at commit"  # judged on the present state; whoever was wrong is refused
    USE = "at use"  # evaluated by whoever acts, on its own clock or copy; nobody has to clean up for it
    BUDGET = "budget"  # given beforehand and leased: within it nobody is asked
    HINT = "hint"  # may be wrong or missing; costs quality, never safety
    REPAIR = "repair"  # found and mended afterwards, by an owner, with a deadline


class Kept(NamedTuple):
    """A promise, and where it is kept."""

    invariant: str
    where: str  # the one place that decides
    means: Means
    across: str  # what regions must agree on for it, and how that is avoided


class Choice(NamedTuple):
    decision: str
    means: Means
    by: str
    if_wrong: str  # what stale knowledge costs
    bounded: str


_REGION: Final = "the region's authority"
_NOBODY: Final = "nothing: a slot lies in one region"

KEPT: Final[tuple[Kept, ...]] = (
    Kept("S1", _REGION, Means.COMMIT, "which region owns a slot, written by the global authority; recovery makes new slots"),
    Kept("S2", _REGION, Means.COMMIT, "nothing: a node lies in one region"),
    Kept("S3", _REGION, Means.COMMIT, "nothing: a device lies in one node"),
    Kept("S4", _REGION, Means.BUDGET, "the tenant's quota, split beforehand into leased grants"),
    Kept("S5", "the global authority", Means.COMMIT, "the sum of all offers, judged when one is made or grown"),
    Kept("S6", _REGION, Means.COMMIT, "policy and residency rules, copied down with a lease; without it nothing new is placed"),
    Kept("S7", "the authority of each plane", Means.COMMIT, "nothing: a step has one owner in one plane"),
    Kept("S8", _REGION, Means.COMMIT, _NOBODY),
    Kept("S9", "the store's fence, the authority, the agent", Means.COMMIT, "nothing: epochs are a plane's own"),
    Kept("S10", "repair, in each plane", Means.REPAIR, "nothing: each plane looks after its own leftovers"),
    Kept(
        "S11",
        "whoever acts on an override",
        Means.USE,
        "its age travels with the copy; each region ends it by its own clock",
    ),
    Kept("S12", "the agent, by its node's lease", Means.BUDGET, "a lease of the slot, so that who is cut off stops in time"),
    Kept("S13", "the store, by position and fence", Means.COMMIT, "nothing: receipts are a plane's own"),
    Kept(
        "S14",
        "the authority: one order",
        Means.COMMIT,
        "nothing is promised about order across planes; resourceVersions are vectors",
    ),
    Kept("S15", "the authority's feed", Means.COMMIT, "each plane has a revision of its own"),
    Kept("S16", "the store's incarnation", Means.COMMIT, "a restored global plane hears from every region before a grant grows"),
    Kept("S17", "the server that answers", Means.USE, "roles and tokens, copied down; a revocation holds when the copy arrives"),
    Kept("S18", "the authority: in the same batch", Means.COMMIT, "one chain a plane"),
    Kept("S19", _REGION, Means.COMMIT, "priorities, from the policy revision that the region holds"),
    Kept("S20", _REGION, Means.COMMIT, "nothing: a gang lies in one region"),
)

CHOICES: Final[tuple[Choice, ...]] = (
    Choice(
        "which node takes a slot",
        Means.HINT,
        "scheduler",
        "a refusal and another try, or a worse node",
        "every hard gate is asked again at commit",
    ),
    Choice(
        "whether a tenant may use more here",
        Means.BUDGET,
        "region, within its grant",
        "work waits while another region has room",
        "offers move within seconds; a silent region's ends with its lease",
    ),
    Choice(
        "which region takes a replica",
        Means.HINT,
        "workload controller, by grants and room",
        "it waits there, with a reason",
        "per-region minimum, residency and grants hold whatever was hinted",
    ),
    Choice(
        "where a lost region's services go",
        Means.BUDGET,
        "recovery controller, into rooms held beforehand",
        "less than the best packing",
        "rooms are charged and placed before anything fails",
    ),
    Choice(
        "that a node or a region is lost",
        Means.HINT,
        "node and region controllers, by silence",
        "a replica too many, or one late",
        "leases, hysteresis and a breaker against mass silence; exclusive work waits for its fence",
    ),
    Choice(
        "who may use room held for recovery",
        Means.REPAIR,
        "best-effort work borrows it",
        "borrowers drain when it is claimed",
        "the claim is firm in one entry, the agent waits for the borrowers to be gone",
    ),
    Choice(
        "spread after a failure",
        Means.REPAIR,
        "rollout and disruption controllers",
        "replicas lie unevenly for a while",
        "moves keep disruption budgets",
    ),
    Choice(
        "what a region did while it was cut off",
        Means.BUDGET,
        "region, within unexpired grants and its policy",
        "what is above its grant's `after` is provisional",
        "confirmed after healing or released at the end of its lease; the merge report says which",
    ),
    Choice(
        "fairness between tenants across regions",
        Means.REPAIR,
        "quota controller, over windows",
        "a tenant waits a few seconds",
        "floors that nothing takes away; L9 within a region",
    ),
    Choice(
        "how many replicas a load needs",
        Means.HINT,
        "autoscaler, from reported load",
        "too many or too few for a while",
        "surge, bounds, and no more orders while the last one is not placed",
    ),
    Choice(
        "leftovers: reservations, finalizers, orphans",
        Means.REPAIR,
        "repair and garbage controllers",
        "room is kept for nobody",
        "90 s (S10, L6)",
    ),
)

# Writes that spend something scarce: the authority judges each on the present state, so their writers may be stale.
SCARCE: Final = frozenset({
    "Binding.state", "Binding.delete", "Grant.spec", "Holding.spec", "RecoveryOrder.spec", "ReleaseReservation",
    "Assignment.spec", "SchedulingRequest.spec", "Region.status", "Node.status", "PolicyChannel.spec",
})  # fmt: skip


def tier_of(controller: ControllerInfo) -> Tier:
    """One that only observes and tells gives hints; one that writes intent has a preference; what is scarce is an invariant."""
    writes = frozenset(controller.writes)
    if writes & SCARCE:
        return Tier.INVARIANT
    told = all(part.endswith(".status") or part.startswith("Event.") for part in writes)
    return Tier.HINT if told else Tier.PREFERENCE
