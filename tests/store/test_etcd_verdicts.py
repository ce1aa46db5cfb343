"""The tables of the etcd engine that need no server: which failures are certain, which versions are bad, how writes are cut."""

from __future__ import annotations

import grpc
import pytest

from fairlead.store.etcd_client import INCONSISTENT_VERSIONS, Put
from fairlead.store.etcd_faults import judge
from fairlead.store.etcd_objects import TXN_BYTES_MAX, TXN_OPERATIONS_MAX, pieces_of

Code = grpc.StatusCode


def test_pieces_respect_the_limits_of_a_transaction() -> None:
    small = list(pieces_of([Put(b"%d" % index, b"") for index in range(250)]))
    assert [len(piece) for piece in small] == [TXN_OPERATIONS_MAX, TXN_OPERATIONS_MAX, 10]
    large = list(pieces_of([Put(b"%d" % index, b"x" * (TXN_BYTES_MAX // 2)) for index in range(3)]))
    assert [len(piece) for piece in large] == [1, 1, 1]
    assert list(pieces_of([])) == [[]]


@pytest.mark.parametrize(
    ("version", "bad"), [("3.5.0", 1), ("3.5.2", 1), ("3.5.3", 0), ("3.5.21", 0), ("3.4.2", 0), ("3.6.1", 0), ("3.5.2-rc.1", 1)]
)
def test_the_versions_warned_of(version: str, bad: int) -> None:
    assert bool(INCONSISTENT_VERSIONS.match(version)) == bool(bad)


@pytest.mark.parametrize(
    ("code", "detail", "reason", "absent"),
    [
        (Code.UNAVAILABLE, "failed to connect to all addresses; last error: refused", "Unreachable", True),
        (Code.UNAVAILABLE, "Socket closed", "Unknown", False),
        (Code.UNAVAILABLE, "etcdserver: no leader", "NoLeader", True),
        (Code.UNAVAILABLE, "etcdserver: leader changed", "Unknown", False),
        (Code.UNAVAILABLE, "etcdserver: request timed out, possibly due to previous leader failure", "Unknown", False),
        (Code.DEADLINE_EXCEEDED, "Deadline Exceeded", "Unknown", False),
        (Code.CANCELLED, "CANCELLED", "Unknown", False),
        (Code.INTERNAL, "what nobody has seen before", "Unknown", False),
        (Code.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", "DiskFull", False),
        (Code.RESOURCE_EXHAUSTED, "etcdserver: too many requests", "Overloaded", True),
        (Code.INVALID_ARGUMENT, "etcdserver: request is too large", "TooLarge", True),
        (Code.PERMISSION_DENIED, "etcdserver: permission denied", "Denied", True),
        (Code.INVALID_ARGUMENT, "etcdserver: user name is empty", "Denied", True),
    ],
)
def test_a_failed_write_is_absent_only_where_that_is_certain(code: Code, detail: str, reason: str, absent: bool) -> None:
    verdict = judge(code, detail)
    assert (verdict.reason, verdict.absent) == (reason, absent)
