"""Owns the planted bugs of leased policy and residency: a region that judges on when it may not, and a global plane that says too
early that nobody does. Called by mutants.py.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from fairlead.authority.judge.policies import Policies
from fairlead.controllers import policy
from fairlead.decide import leasing
from fairlead.decide.granting import FOREVER
from fairlead.scheduler import granted
from fairlead.sim.planting import Mutant, Swap


def _judges_on() -> list[Swap]:
    """A region goes on judging by what it has installed when nobody vouches for that any more."""
    return [
        (Policies, "refuse_unleased", lambda self, incarnation, now_ms: None),
        (granted, "policy_end_ms", lambda term, have, incarnation: FOREVER),
    ]


def _effective_at_once() -> list[Swap]:
    """Whoever does not answer counts as one whose lease has ended."""
    stand_of = leasing.stand_of

    def hasty(*facts: Any) -> Any:
        stand = stand_of(*facts)
        return replace(stand, state="LeaseEnded", until_time=None) if stand.state == "Pending" else stand

    return [(policy, "stand_of", hasty)]


MUTANTS: Final[dict[str, Mutant]] = {
    "policy-lease-without-end": Mutant("policy is judged by under a lease", "leases", ("S6",), _judges_on, 3.0),
    "policy-effective-at-once": Mutant(
        "a policy is effective when no other may be judged by", "leases", ("S6",), _effective_at_once, 3.0
    ),
}
