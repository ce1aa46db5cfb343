"""Owns the one question a failed etcd request raises: is the write certainly absent, or may it still land?

A table from what etcd and gRPC say to a verdict; the rule is that whatever the table does not know is *not* absent. Never
sends anything. Called by `etcd_client`; the engine reads the verdicts.
"""

from __future__ import annotations

import grpc
import msgspec


class Verdict(msgspec.Struct, frozen=True):
    """`absent`: the write was never proposed, or was refused by every member alike. `elsewhere`: another member may do better."""

    reason: str
    absent: bool
    elsewhere: bool
    retry_after_s: float = 1.0


class EtcdFault(Exception):
    """One request failed. The engine turns it into a result (writes) or into StoreUnreachable (reads)."""

    def __init__(self, verdict: Verdict, detail: str) -> None:
        super().__init__(detail)
        self.verdict = verdict
        self.detail = detail


# Three missed elections (1 s each by default) is when asking again starts to make sense.
UNREACHABLE = Verdict("Unreachable", absent=True, elsewhere=True)
NO_LEADER = Verdict("NoLeader", absent=True, elsewhere=True, retry_after_s=0.5)
UNKNOWN = Verdict("Unknown", absent=False, elsewhere=True)
# Not `absent`, although etcd says "exceeded": the member that crosses the quota while *applying* a transaction applies it and
# then answers with this error (quotaApplierV3 in etcd's apply.go, 3.1 to 3.6). The answer does settle the matter, so one
# linearizable read afterwards tells; the engine does that for commits and acquisitions.
DISK_FULL = Verdict("DiskFull", absent=False, elsewhere=False, retry_after_s=2.0)
COMPACTED = Verdict("Compacted", absent=True, elsewhere=False)
ANSWER_TOO_LARGE = Verdict("AnswerTooLarge", absent=False, elsewhere=False)
TOO_LARGE = Verdict("TooLarge", absent=True, elsewhere=False, retry_after_s=60.0)
DENIED = Verdict("Denied", absent=True, elsewhere=False, retry_after_s=10.0)
OVERLOADED = Verdict("Overloaded", absent=True, elsewhere=True)
DAMAGED = Verdict("EtcdCorrupt", absent=True, elsewhere=True, retry_after_s=60.0)
REFUSED = Verdict("Refused", absent=True, elsewhere=False, retry_after_s=60.0)

# Found in the details of a status; the first match wins, so the longer fragment stands first.
BY_DETAIL: tuple[tuple[str, Verdict], ...] = (
    # The channel had no connection to give the request to. gRPC's own retries are off, so no earlier attempt hides behind it.
    ("failed to connect to all addresses", UNREACHABLE),
    ("mvcc: database space exceeded", DISK_FULL),
    ("mvcc: required revision has been compacted", COMPACTED),
    ("mvcc: required revision is a future revision", UNKNOWN),
    ("etcdserver: request is too large", TOO_LARGE),
    ("Received message larger than max", ANSWER_TOO_LARGE),
    # Checked before a proposal is made, as long as the request carries `hasleader` (it does).
    ("etcdserver: no leader", NO_LEADER),
    ("etcdserver: rpc not supported for learner", UNREACHABLE),
    ("etcdserver: too many requests", OVERLOADED),
    # The proposal is on its way in all of these: the next leader may still commit it.
    ("etcdserver: leader changed", UNKNOWN),
    ("etcdserver: request timed out", UNKNOWN),
    ("etcdserver: server stopped", UNKNOWN),
    ("etcdserver: unhealthy cluster", UNKNOWN),
    ("etcdserver: corrupt cluster", DAMAGED),
    # Authentication says "invalid argument" for a missing user, so it is known by its words as well as by its codes.
    ("etcdserver: user name is empty", DENIED),
    ("etcdserver: revision of auth store is old", DENIED),
)

# What is not here is UNKNOWN, above all: DEADLINE_EXCEEDED and CANCELLED (sent, no answer), UNAVAILABLE (the connection was
# lost, perhaps after the request was delivered), UNKNOWN, INTERNAL and ABORTED.
BY_CODE: dict[grpc.StatusCode, Verdict] = {
    grpc.StatusCode.PERMISSION_DENIED: DENIED,
    grpc.StatusCode.UNAUTHENTICATED: DENIED,
    grpc.StatusCode.INVALID_ARGUMENT: REFUSED,  # Judged before a proposal, or refused by every member alike when applied.
    grpc.StatusCode.UNIMPLEMENTED: REFUSED,
}


def judge(code: grpc.StatusCode, detail: str) -> Verdict:
    for fragment, verdict in BY_DETAIL:
        if fragment in detail:
            return verdict
    return BY_CODE.get(code, UNKNOWN)
