"""Owns what a campaign must have met before its green means anything: every fault, every safeguard's refusal and every promise,
often enough.

Pure. A campaign that is too thin in one of them, or excused too often, is void and says why. Called by campaign.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, Final

SEEDS: Final = 2_000  # the floors are stated for so many
FAULT_FLOOR: Final = 1_000
REFUSAL_FLOOR: Final = 100
CHECK_FLOOR: Final = 1_000
CALL_FLOOR: Final = 100  # kills just before a call to a store, and just after one: a tenth of all crashes
CALLS_ENOUGH: Final = 300  # of these; with so many, one of the next 24 calls is missed by chance in one campaign of ten thousand
RETURNED_FLOOR: Final = (
    100  # nodes that came back late: they do so once a seed, when it is healed, and in most before anybody looks
)
EXCUSED_MAX: Final = 0.02  # of the seeds

# Apart: what is asked of several planes at once, each second and not at commits, because these alone would fill the counts; and
# what few slots give reason to ask for at a commit, because the others would.
APART: Final = {
    "S5/planes": "what all regions use, or could, is within a tenant's quota",
    "S6/effective": "no region may judge by an older policy than what is called effective there",
    "S6/rules": "what a slot wants of its node and neighbours held when it was placed, where it wants something or taints are",
    "L4/returned": "a node that was not Ready, or unknown, when it was healed is Ready again",
}

# Promises of which a campaign counts how often each was asked.
CHECKED: Final = (*(f"S{number}" for number in range(1, 21)), *APART)
NOT_COUNTED: Final = {
    "S14": "asked with S13, of the same answers",
}

# What the components did that decide by themselves, counted by the checkers of their bounds (fairlead/observe/bounds.py): one of
# them that did nothing was not tested.
ACTED: Final = {
    "B1/up": "an autoscaler added replicas",
    "B1/down": "an autoscaler took replicas back",
    "B2/up": "nodes were ordered for a pool",
    "B2/down": "a pool let nodes go",
    "B3/tried": "a slot was placed under a canary",
    "B3/back": "a canary was taken back because its time was over",
    "B4": "a slot was asked to move for room",
    "B4/room": "a plan was made when nothing else had changed, and its sums were asked",
    "B4/back": "a slot that was moved for room had a place again, and where was asked",
    "B5": "a node was called suspect, with many of its zone",
    "B5/lost": "one that was suspect was called lost all the same",
}
ACTED_FLOOR: Final = 20  # a few a seed of the profiles that are directed at them, and some forty of those in so many

FAULTS: Final = tuple(f"F{number}" for number in range(1, 21))
NOT_INJECTED: Final[dict[str, str]] = {}

# What strikes in several ways of which one alone would fill the count, each with a floor of its own; and what has no id.
KINDS: Final = {
    "F11/connection": "a feed ended because its connection broke",
    "F11/gap": "a feed wanted what memory does not reach back to any more",
    "F11/server": "a feed ended because its server stopped leading, dropped its memory or goes on with another history",
    "killed_after_store_call": "a server died when a call to its store had taken effect, and before it heard of that",
    "killed_before_store_call": "a server died just before it called its store",
    "unavailable": "a store refused a write for sure",
}
FLOORS: Final = {
    "killed_after_store_call": CALL_FLOOR, "killed_before_store_call": CALL_FLOOR, "L4/returned": RETURNED_FLOOR
}  # fmt: skip
STRUCK: Final = (*(name for name in FAULTS if name not in NOT_INJECTED), *KINDS)

# Reasons that no seed meets, or that no authority counts, and who shows them instead.
NOT_MET: Final = {
    "AgentLeader": "a deposed leader answers no heartbeat (HeartbeatFenced); tests/agent/test_agent_contact.py has one that does",
    "AlreadyDone": "no known seed queues a slot just as its success is counted; tests/authority/test_done.py does",
    "BeingDeleted": "one seed in dozens queues a slot just as its assignment is to go; tests/authority/test_epochs.py does",
    "CutOff": "schedulers know that they are cut off, and do not ask; tests/autonomy does",
    "Forbidden": "access rules say it before an authority is asked; tests/security and tests/api do, and S17 asks what they show",
    "Frozen": "the disruption controller sees a freeze before it asks for a drain; tests/authority/test_overrides.py does",
    "IdReused": "no judge's: it is said before one is asked. Poison meets it (F19); tests/authority/test_receipts.py",
    "Immutable": "people change what may be changed; tests/authority/test_objects.py does",
    "JudgeFailed": "a fault of ours: the log line beside it is a finding (X2); tests/authority/test_objects.py breaks a judge",
    "NoGrant": "a tenant has a grant before a region is asked for its slots; tests/authority/test_slots.py",
    "NotLeader": "no judge's: who does not lead judges nothing. Every takeover meets it; tests/compose/test_forwarding.py",
    "Overloaded": "no judge's: it comes before, where more is asked than can wait; tests/api and the benches of overload",
    "PluginMissing": "the policies of simulated planes use built-ins alone; tests/authority/test_policy.py names others",
    "QueueFull": "simulated tenants have no limit on what may wait; tests/scheduler/test_admission_limit.py",
    "ReceiptExpired": "connections repeat nothing after its session has gone on; tests/authority/test_receipts.py does",
    "StaleReport": "a mirror waits for an answer before it says the next: tests/autonomy/test_late_reports.py",
    "StaleEvidence": "whoever decided on what was taken back hears of it before it is heard; tests/authority/test_early.py does",
    "StoreUnavailable": "no judge's: the store has refused the batch. People count it (http_503), and S13 asks what became of it",
    "TooLarge": "poison that is too large comes no further than the API; tests/authority/test_bulk.py",
    "TooFewServe": "the disruption controller mostly sees who serves before it lets one go; tests/authority/test_letting_go.py",
    "UnknownKind": "poison of no known kind comes no further than the API; tests/authority/test_objects.py",
    "WrongTenant": "components act for all tenants, and people are asked by access rules; tests/authority/test_objects.py",
}

# Each name as it is counted -> the guard that says it. From an authority they are reasons of fairlead/model/refusals.py, and
# REASON/GUARD where one reason has several (tally.py): of a gate, where nothing else spoke against a placement.
SAFEGUARDS: Final = {
    "AgentFence": "an Exclusive run ends with its node's lease",
    "AgentToken": "an agent refuses a token below one it has seen",
    "AlreadyBound": "a slot is bound once",
    "AlreadyExists": "a name is taken once",
    "Conflict": "a change is made to what its author saw",
    "Expired": "what has ended is not gone on with",
    "Expired/override": "what people ordered is not prolonged after its end",
    "Expired/reservation": "a reservation ends at its expiry",
    "FenceNotPassed": "an Exclusive slot waits until its last copy is certainly gone",
    "FencedOut": "a leased role carries its lease's epoch",
    "GangIncomplete": "a gang is sent whole",
    "GangRefused": "of a gang all members fit or none is bound",
    "GrantExceeded": "a tenant uses no more than it was granted",
    "HeartbeatFenced": "a leader that may not trust itself acknowledges no heartbeat",
    "InUse": "nothing is deleted while something stands on it",
    "Invalid": "what cannot be is not written",
    "LeaseHeld": "a lease has one holder",
    "NoFit": "the authority asks every hard gate again",
    "NoFit/affinity": "a slot is bound near to whom it must be near to",
    "NoFit/anti-affinity": "a slot is bound away from whom it keeps away from, and who keep it away",
    "NoFit/cordon": "nothing is bound on a node that is cordoned",
    "NoFit/labels": "a slot is bound on a node with the labels it wants",
    "NoFit/max-per-node": "no more of a workload are bound on one node than it wants there",
    "NoFit/ports": "a port of a node is given once",
    "NoFit/regions": "a slot is bound in a region that its workload allows",
    "NoFit/residency": "a slot is bound in an area that its workload and the policy in force allow",
    "NoFit/scalars": "a slot is bound where the scalars it asks for are free",
    "NoFit/spread": "a slot is bound where its workload stays as even as it must be",
    "NoFit/taints": "a slot is bound on a node whose taints it tolerates",
    "NoFit/tenancy": "a slot is bound in a pool that is open to its tenant",
    "NoFit/zones": "a slot is bound in a zone that its workload allows",
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

# Of emergency quotas: a second person agreed to one, whoever asked for it was refused to, one was taken back; and looks at which
# more was used than quotas have while one was in force.
EMERGENCIES: Final = ("emergency/agreed", "emergency/own", "emergency/back", "emergency/used")

# Guards that only a directed profile meets: the mixed campaign is not asked for them, one of that profile alone is.
ELSEWHERE: Final = {
    "FencedOut/session": "what an agent says of a session that is over is not believed (profile meddlers)",
    "OnHold": "what is held is not placed (profile strays)",
    "PolicyLeaseEnded": "policy is judged by under a lease (profile areas)",
    "StandingGone": "what has its room reserved claims no other (profile strays)",
}

# The same of faults that strike in one profile alone, and of what people do in one.
STRUCK_IN: Final[dict[str, tuple[str, ...]]] = {
    "backups": ("restored",),
    "barren": ("F_region", "barren"),
    "emergencies": ("F_region", *EMERGENCIES),
    "failback": ("F_region",),
    "hushed": ("F_region",),
    "meddlers": ("F19",),
    "regions": ("F_region",),
    "returned": ("F_region", "restored"),
    "sole": ("F_region",),
    "versions": ("F18",),
    "zones": ("F_zone",),
}

# And of those that act: each must have, in a campaign of its own profile.
ACTS_IN: Final[dict[str, tuple[str, ...]]] = {
    "canary": ("B3/tried", "B3/back"),
    "elastic": ("B1/up", "B1/down", "B2/up", "B2/down"),
    "fragmented": ("B4", "B4/room", "B4/back"),
    "zones": ("B5", "B5/lost"),
}

# And of promises that have a meaning only where a plane goes on in another history.
ASKED_IN: Final[dict[str, tuple[str, ...]]] = {
    "backups": ("S16",),
    "tails": ("S16",),
}

# What a profile is directed at: a campaign of it alone that has not met these shows nothing of them.
OWN: Final[dict[str, tuple[str, ...]]] = {
    "alone": ("Repeated", "StoreContended", "StoreFenced"),
    "areas": ("NoFit/regions", "NoFit/residency", "NoFit/zones", "PolicyLeaseEnded"),
    "crowded": ("NoFit", "NotPending", "StaleGrant", "VictimNotAllowed"),
    "echoes": ("AgentToken",),
    "exclusive": ("AgentFence",),
    "gangs": ("GangIncomplete", "GangRefused"),
    "leaders": ("HeartbeatFenced", "StoreContended", "StoreFenced"),
    "meddlers": ("FencedOut/session",),
    "overrides": ("Expired/override",),
    "picky": (
        "NoFit/affinity", "NoFit/anti-affinity", "NoFit/cordon", "NoFit/labels", "NoFit/max-per-node", "NoFit/ports",
        "NoFit/scalars", "NoFit/spread", "NoFit/taints",
    ),
    "silent": ("AgentFence",),
    "strays": (
        "AlreadyBound", "Expired/reservation", "FencedOut", "NoFit/tenancy", "NotOwner", "NotPending", "OnHold", "StaleEpoch",
        "StaleGeneration", "StaleGrant", "StalePolicy", "StaleToken", "StandingGone", "WrongNode",
    ),
    "tails": ("StoreFenced",),
    "twins": ("AgentFence",),
    "unknown": ("Repeated",),
    "usurpers": ("HeartbeatFenced",),
}  # fmt: skip


def void_reasons(
    faults: Mapping[str, int],
    refusals: Mapping[str, int],
    seeds: int,
    excused_seeds: int,
    *,
    directed: str = "",
    checked: Mapping[str, int] | None = None,
) -> list[dict[str, Any]]:
    """Why this campaign proves less than it seems to; empty: it was thick enough. One of a directed profile is asked for what
    that is directed at, and for nothing else. `checked`: how often each promise was asked, where that is known."""
    out: list[dict[str, Any]] = []
    whole = (
        ("fault", faults, list(STRUCK), FAULT_FLOOR),
        ("refusal", refusals, list(SAFEGUARDS), REFUSAL_FLOOR),
        ("promise", checked or {}, [name for name in CHECKED if name not in NOT_COUNTED and checked is not None], CHECK_FLOOR),
        ("component", checked or {}, list(ACTED) if checked is not None else [], ACTED_FLOOR),
    )
    own = (
        ("fault", faults, list(STRUCK_IN.get(directed, ())), FAULT_FLOOR),
        ("refusal", refusals, list(OWN.get(directed, ())), REFUSAL_FLOOR),
        ("promise", checked or {}, list(ASKED_IN.get(directed, ())), CHECK_FLOOR),
        ("component", checked or {}, list(ACTS_IN.get(directed, ())), ACTED_FLOOR),
    )
    for kind, counted, names, floor in own if directed else whole:
        for name in names:
            least = floor_of(FLOORS.get(name, floor), seeds)
            if counted.get(name, 0) < least:
                out.append({"kind": kind, "name": name, "counted": counted.get(name, 0), "floor": least})
    if seeds and excused_seeds / seeds > EXCUSED_MAX:
        out.append({"kind": "excused", "name": "seeds", "counted": excused_seeds, "floor": int(seeds * EXCUSED_MAX)})
    return out


def unmet_calls(calls: Mapping[str, Mapping[str, int]]) -> list[dict[str, Any]]:
    """Of `before` and `after`: calls to a store at which no server was killed, where so many were killed that it is no chance."""
    return [
        {"kind": "fault", "name": f"killed_{when}_store_call/{call}", "counted": 0, "floor": 1}
        for when, kills in calls.items()
        if sum(kills.values()) >= CALLS_ENOUGH
        for call, count in kills.items()
        if not count
    ]


def floor_of(floor: int, seeds: int) -> int:
    """At least one: a campaign that did not meet something proves nothing about it, however small it was."""
    return max(1, ceil(floor * seeds / SEEDS))
