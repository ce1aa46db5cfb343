"""The closed list of reasons for a refusal, with what a caller should do and the HTTP status the front door answers.

`docs/reference/refusals.md` is generated from it. A refusal with a reason that is not here is a bug.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class RefusalInfo(NamedTuple):
    http_status: int
    advice: str


REFUSALS: Final[dict[str, RefusalInfo]] = {
    # The object itself.
    "Invalid": RefusalInfo(422, "mend the fields named in the faults"),
    "UnknownKind": RefusalInfo(404, "use a kind this plane serves"),
    "NotFound": RefusalInfo(404, "create it first, or check tenant and name"),
    "AlreadyExists": RefusalInfo(409, "update it, or choose another name"),
    "Conflict": RefusalInfo(409, "read again and repeat the change on what is there now"),
    "PluginMissing": RefusalInfo(422, "install the plug-ins the faults name on this plane, or leave them out of the policy"),
    "Immutable": RefusalInfo(422, "create a new object instead"),
    "TooLarge": RefusalInfo(413, "send less in one command"),
    "InUse": RefusalInfo(409, "release what the facts name first"),
    "BeingDeleted": RefusalInfo(409, "it is on its way out: wait until it is gone"),
    # The caller.
    "Forbidden": RefusalInfo(403, "ask for a role that allows it; `fairlead auth can-i` tells what is missing"),
    "NotOwner": RefusalInfo(403, "only the owner of this step or field may do this"),
    "WrongTenant": RefusalInfo(403, "use credentials for that tenant"),
    "WrongNode": RefusalInfo(403, "an agent speaks for its own node only"),
    "FencedOut": RefusalInfo(403, "stop acting and acquire the lease again"),
    "LeaseHeld": RefusalInfo(409, "wait until the holder's lease has run out"),
    # The id.
    "IdReused": RefusalInfo(422, "choose a new id: this one belongs to a command with another body"),
    "ReceiptExpired": RefusalInfo(410, "read the object to see what happened; never send this id again"),
    # The slot, and what the proposal was decided on.
    "StaleEpoch": RefusalInfo(409, "the slot has begun another life; read it again"),
    "StaleGeneration": RefusalInfo(409, "the workload changed; decide again on its present generation"),
    "StalePolicy": RefusalInfo(409, "another policy revision is in force; decide again under it"),
    "StaleGrant": RefusalInfo(409, "the grant changed; decide again on its present version"),
    "StaleToken": RefusalInfo(409, "this life of the slot is over; stop acting for it"),
    "StaleEvidence": RefusalInfo(409, "observe again, then decide"),
    "StaleReport": RefusalInfo(409, "a newer word of this region stands; say the newest, or restore the region above it"),
    "NotPending": RefusalInfo(409, "the slot is not waiting for a place; read its state"),
    "AlreadyBound": RefusalInfo(409, "the slot has a binding; the facts name it"),
    "AlreadyDone": RefusalInfo(409, "this completion of the job is counted; ask for one that is missing"),
    "NoSuchStep": RefusalInfo(409, "the slot cannot go from its present state to that one"),
    "Expired": RefusalInfo(409, "the reservation has run out; reserve again"),
    "GangIncomplete": RefusalInfo(409, "bind all members in one command"),
    "GangRefused": RefusalInfo(409, "one member does not fit; the facts name it"),
    # The node and the money.
    "NoFit": RefusalInfo(409, "choose another node; the facts hold every reason"),
    "NoGrant": RefusalInfo(409, "ask for a grant for this tenant in this region"),
    "GrantExceeded": RefusalInfo(409, "wait for use to fall or the grant to grow"),
    "CutOff": RefusalInfo(409, "wait until the global plane answers again, or let the class be placed meanwhile: localAutonomy"),
    "PolicyLeaseEnded": RefusalInfo(409, "wait until the global plane answers again: policy and residency may be others by now"),
    "StandingGone": RefusalInfo(409, "look which standing reservations the budget has now, and choose another"),
    "OnHold": RefusalInfo(409, "wait until the override the facts name has ended, or have it revoked"),
    "Frozen": RefusalInfo(409, "wait until the override the facts name has ended, or have it revoked"),
    "VictimNotAllowed": RefusalInfo(409, "choose victims of lower priority on that node"),
    "TooFewServe": RefusalInfo(409, "wait until more of the workload serve; the facts say how many must"),
    "FenceNotPassed": RefusalInfo(409, "wait until the old copy is certainly gone"),
    # The plane.
    "JudgeFailed": RefusalInfo(500, "nothing was changed; report it with the detail, it is a fault of ours"),
    "QueueFull": RefusalInfo(429, "wait as long as retryAfter says, or until the tenant's requests have found their nodes"),
    "Overloaded": RefusalInfo(429, "wait as long as retryAfter says"),
    "NotLeader": RefusalInfo(503, "send it to the leader"),
    "StoreUnavailable": RefusalInfo(503, "nothing was written; the detail says what the store needs"),
}
