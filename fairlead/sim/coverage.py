"""Owns what a campaign must have met before its green means anything: every fault and every safeguard's refusal, often enough.

Pure. A campaign that is too thin in one of them, or excused too often, is void and says why. Called by campaign.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, Final

SEEDS: Final = 2_000  # the floors are stated for so many
FAULT_FLOOR: Final = 1_000
REFUSAL_FLOOR: Final = 100
EXCUSED_MAX: Final = 0.02  # of the seeds

FAULTS: Final = tuple(f"F{number}" for number in range(1, 21))
NOT_INJECTED: Final = {
    "F18": "there is one version of each format; tests/sim/test_formats.py keeps the fixture of the present one",
    "F19": "poison input is sent to the real parser by the tests of the API",
}

NOT_MET: Final = {
    "BeingDeleted": "no component gives a request a finalizer, so none is on its way out; tests/authority/test_slots.py does",
}

# Each name as it is counted -> the guard that says it. From an authority they are reasons of fairlead/model/refusals.py.
SAFEGUARDS: Final = {
    "AgentFence": "an Exclusive run ends with its node's lease",
    "AgentToken": "an agent refuses a token below one it has seen",
    "AlreadyBound": "a slot is bound once",
    "AlreadyExists": "a name is taken once",
    "Conflict": "a change is made to what its author saw",
    "FenceNotPassed": "an Exclusive slot waits until its last copy is certainly gone",
    "FencedOut": "a leased role carries its lease's epoch",
    "GrantExceeded": "a tenant uses no more than it was granted",
    "InUse": "nothing is deleted while something stands on it",
    "LeaseHeld": "a lease has one holder",
    "NoFit": "the authority asks every hard gate again",
    "NoSuchStep": "a slot goes only where the lifecycle lets it",
    "NotFound": "nothing is done to what is not there",
    "NotOwner": "a step is made by its owner",
    "NotPending": "what waits for no place is given none",
    "Repeated": "a command under a known id is answered, not done again",
    "StaleEpoch": "a proposal is for the present life of its slot",
    "StaleGeneration": "a proposal is for the generation that is wanted now",
    "StaleGrant": "a proposal was decided on the grant that is in force",
    "StalePolicy": "a proposal was decided under the policy in force",
    "StaleToken": "a report is for the life that stands",
    "StoreContended": "leadership is acquired once",
    "StoreFenced": "a deposed leader writes nothing",
    "VictimNotAllowed": "whoever is evicted stands below whoever evicts",
    "WrongNode": "an agent speaks for its own node only",
}

# Guards that only a directed profile meets: the mixed campaign is not asked for them, a claim that rests on one is.
ELSEWHERE: Final = {
    "GangIncomplete": "a gang is sent whole (profile gangs)",
    "GangRefused": "of a gang all members fit or none is bound (profile gangs)",
}


def void_reasons(
    faults: Mapping[str, int], refusals: Mapping[str, int], seeds: int, excused_seeds: int, *, directed: bool = False
) -> list[dict[str, Any]]:
    """Why this campaign proves less than it seems to; empty: it was thick enough. One that is directed at one thing is not asked
    whether it met the others."""
    out: list[dict[str, Any]] = []
    asked = (
        ("fault", faults, [name for name in FAULTS if name not in NOT_INJECTED], FAULT_FLOOR),
        ("refusal", refusals, list(SAFEGUARDS), REFUSAL_FLOOR),
    )
    for kind, counted, names, floor in asked if not directed else ():
        least = floor_of(floor, seeds)
        for name in names:
            if counted.get(name, 0) < least:
                out.append({"kind": kind, "name": name, "counted": counted.get(name, 0), "floor": least})
    if seeds and excused_seeds / seeds > EXCUSED_MAX:
        out.append({"kind": "excused", "name": "seeds", "counted": excused_seeds, "floor": int(seeds * EXCUSED_MAX)})
    return out


def floor_of(floor: int, seeds: int) -> int:
    """At least one: a campaign that did not meet something proves nothing about it, however small it was."""
    return max(1, ceil(floor * seeds / SEEDS))
