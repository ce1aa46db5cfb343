"""Owns the planted bugs of leases. Of grants: a region that spends on, and agents that let run what is above the limit that
stays; of emergency quotas: one that nobody agreed to, and one that does not end. Of policy and residency: a region that judges
on when it may not, and a global plane that says too early that nobody does. Of planes that were restored: a history that goes on
as if nothing was lost. Called by mutants.py.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from fairlead.authority import authority, remembering
from fairlead.authority.judge import policies
from fairlead.authority.judge.policies import Policies
from fairlead.controllers import policy
from fairlead.decide import granting, lasting, leasing, overrides, sharing
from fairlead.decide.granting import FOREVER
from fairlead.decide.rebalancing import wishes
from fairlead.scheduler import granted
from fairlead.sim import backups
from fairlead.sim.planting import Mutant, Swap
from fairlead.store.backup import restored_head

_FAR_MS: Final = 1 << 45  # an instant that can still be written down


def _judges_on() -> list[Swap]:
    """A region goes on judging by what it has installed when nobody vouches for that any more."""
    return [
        (Policies, "refuse_unleased", lambda self, incarnation, now_ms: None),
        (granted, "policy_end_ms", lambda term, have, incarnation: FOREVER),
    ]


def _endless() -> list[Swap]:
    """A region goes on by the limit of a lease that is over, and stops nothing at its end. Where it is cut off its policy's lease
    ends with it, and nothing is placed for that reason: that guard is out as well. Agents still end what must end."""
    policy_end_ms = leasing.policy_end_ms

    def never(*facts: Any) -> int:
        return FOREVER if policy_end_ms(*facts) else 0  # none was given yet

    return [
        (granting, "lease_end", lambda grant, term, incarnation: _FAR_MS),
        (policies, "policy_end_ms", never),
        (granted, "policy_end_ms", never),
    ]


def _effective_at_once() -> list[Swap]:
    """Whoever does not answer counts as one whose lease has ended."""
    stand_of = leasing.stand_of

    def hasty(*facts: Any) -> Any:
        stand = stand_of(*facts)
        return replace(stand, state="LeaseEnded", until_time=None) if stand.state == "Pending" else stand

    return [(policy, "stand_of", hasty)]


def _agents_forget() -> list[Swap]:
    """Agents go on with what is above the limit that stays, whatever became of the lease."""
    return [(lasting.Granted, "until", lambda self, tenant: FOREVER)]


def _firm_at_once() -> list[Swap]:
    """Everything bound counts as within the limit that stays."""
    return [(lasting.Granted, "is_firm", lambda self, tenant, position: True)]


def _remembers_nothing() -> list[Swap]:
    """A server that starts takes its store for what it always was, and goes on in the same incarnation."""
    return [(remembering.Remembering, "last", lambda self: None)]


def _believes_on() -> list[Swap]:
    """A region that was down goes on with the leases it had, by whatever clock it finds."""
    return [(authority, "lapsed_leases", lambda ctx, term: [])]


def _restores_into_the_same_incarnation() -> list[Swap]:
    """A restored plane goes on in the incarnation of its backup. A server that has seen more would notice: that is out, too."""

    def same(header: Any, incarnation_at_least: int) -> Any:
        return replace(restored_head(header, incarnation_at_least), incarnation=header.incarnation)

    return [(backups, "restored_head", same), *_remembers_nothing()]


def _never_grows() -> list[Swap]:
    """What a region was offered first is the most that it is ever offered, and proves each wait there."""

    def stingy(limits: Any, demands: Any) -> Any:
        best = wishes(limits, demands)
        for region, wish in best.items():
            has = demands[region].has
            least = {name: min(amount, has.get(name, 0)) for name, amount in wish.during.items()}
            best[region] = wish._replace(during=least) if has else wish
        return best

    return [(sharing, "wishes", stingy)]


def _floods_on() -> list[Swap]:
    """What an emergency quota gave is placed on after its end."""
    return [(granting, "_less", lambda one, other: one)]


def _agreed_by_nobody() -> list[Swap]:
    """What one person asked for holds before another has agreed."""
    return [(overrides, "is_agreed", lambda override: True)]


MUTANTS: Final[dict[str, Mutant]] = {
    "quota-stays": Mutant("quota goes where it is waited for", "grants", ("L1",), _never_grows),
    "grant-lease-without-end": Mutant("a lease ends by its time", "stranded", ("S4",), _endless, 1.0),
    "grant-lease-agents-forget": Mutant(
        "an agent ends what is above the limit that stays with its lease", "beheaded", ("S5",), _agents_forget, 3.0, within=12
    ),
    "grant-firm-at-once": Mutant(
        "what is above the limit that stays is provisional until it is not", "beheaded", ("S5",), _firm_at_once, 3.0, within=60
    ),
    "emergency-of-one": Mutant("an emergency quota takes a second person", "emergencies", ("S5",), _agreed_by_nobody, 4.0),
    "emergency-without-end": Mutant(
        "what an emergency quota gave is placed on until its end", "emergencies", ("S4", "S5"), _floods_on, 4.0
    ),
    "policy-lease-without-end": Mutant("policy is judged by under a lease", "leases", ("S6",), _judges_on, 3.0),
    "policy-effective-at-once": Mutant(
        "a policy is effective when no other may be judged by", "leases", ("S6",), _effective_at_once, 3.0
    ),
    "cold-leases-go-on": Mutant(
        "after a time that nobody has measured no lease is believed in", "stopped", ("S5", "S6"), _believes_on, 3.0, within=8
    ),
    "restored-incarnation": Mutant(
        "a restore begins a new incarnation", "backups", ("S5", "S12"), _restores_into_the_same_incarnation, 3.0, within=12
    ),
    "store-forgotten": Mutant(
        "a server misses what its store lost while it was down", "relapses", ("S5",), _remembers_nothing, 2.0, within=12
    ),
}
