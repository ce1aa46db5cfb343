"""Owns the connections to an etcd cluster: requests as typed calls, a deadline on each, fail-over between members.

A write is tried at another member only when it is certainly absent so far; a read, always. It never repeats a write whose
outcome is open, never interprets keys, and starts no task of its own. Called by the etcd engine and by its tests.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

import grpc
import msgspec
from grpc import aio

from fairlead.store.etcd_faults import ANSWER_TOO_LARGE, NO_LEADER, UNREACHABLE, EtcdFault, Verdict, judge
from fairlead.store.etcd_messages import CLASSES

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 5.0  # Below etcd's own 7 s for a proposal: past it the answer is "unknown" anyway.
CONNECT_TIMEOUT_S = 1.0  # A member in another region answers a handshake in under 300 ms.
ANSWER_BYTES_MAX = 64 * 1024 * 1024  # 40 rows of the largest size etcd stores (1.5 MiB); pages aim at 2 MiB.
PAGE_ROWS_FIRST, PAGE_ROWS_MAX = 64, 5_000
PAGE_BYTES = 2 * 1024 * 1024  # Arrives within a member's share of the deadline at 10 Mbit/s.

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
    ("grpc.max_send_message_length", 4 * 1024 * 1024),  # etcd refuses above 1.5 MiB and says so better than gRPC does.
    ("grpc.enable_retries", 0),  # A retry below us would blur which attempt an error speaks of.
    ("grpc.keepalive_time_ms", 10_000),  # etcd closes connections that ping more than every 5 s.
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 3_000),  # In truth the time for one connection attempt: three slow TLS round trips.
    ("grpc.max_reconnect_backoff_ms", 2_000),  # gRPC's 120 s would leave a restarted member unused for minutes.
    ("grpc.use_local_subchannel_pool", 1),  # Two stores in one process share no connection, so no back-off either.
)

# Without it a member that lost its leader keeps a request until it times out, and the outcome stays open for nothing.
REQUIRE_LEADER = (("hasleader", "true"),)

METHODS = {
    "Range": "KV",
    "Put": "KV",
    "DeleteRange": "KV",
    "Txn": "KV",
    "Compaction": "KV",
    "Status": "Maintenance",
    "Alarm": "Maintenance",
}
PATHS = {"Compaction": "Compact"}  # The one method whose messages are not named after it.

EQUAL, GREATER, VERSION, MOD_REVISION, VALUE = 0, 1, 0, 2, 3  # etcd's enums Compare.CompareResult and Compare.CompareTarget
DESCENDING, BY_KEY = 2, 0
ALARM_NAMES = {1: "NOSPACE", 2: "CORRUPT"}

# https://github.com/etcd-io/etcd/issues/13766: a member killed under load may come back with other data than its peers.
INCONSISTENT_VERSIONS = re.compile(r"3\.5\.[012](?![0-9])")

INCONSISTENT_HELP = "etcd 3.5.0 to 3.5.2 can come to hold different data on its members after a crash; upgrade to 3.5.3"


class Tls(msgspec.Struct, frozen=True):
    """PEM texts. Without cert and key the server's certificate is checked and none is shown."""

    ca: bytes
    cert: bytes | None = None
    key: bytes | None = None


class KeyValue(msgspec.Struct, frozen=True, gc=False):
    key: bytes
    value: bytes
    mod_revision: int
    version: int


class RangeResult(msgspec.Struct, frozen=True):
    revision: int
    kvs: list[KeyValue]
    more: bool
    count: int


class TxnResult(msgspec.Struct, frozen=True):
    """`ranges` holds the answers of the range operations of the branch that ran, in order; puts and deletes have none."""

    revision: int
    succeeded: bool
    ranges: list[RangeResult]


class MemberStatus(msgspec.Struct, frozen=True):
    endpoint: str
    version: str
    db_bytes: int
    db_bytes_in_use: int
    leader: int


class Compare(msgspec.Struct, frozen=True):
    """One condition of a transaction: the key's value, its version (0: no such key) or its last revision equals this, or its last
    revision is after `changed_after`."""

    key: bytes
    value: bytes | None = None
    version: int | None = None
    mod_revision: int | None = None
    changed_after: int | None = None

    def message(self) -> Any:
        make = CLASSES["Compare"]
        if self.value is not None:
            return make(result=EQUAL, target=VALUE, key=self.key, value=self.value)
        if self.version is not None:
            return make(result=EQUAL, target=VERSION, key=self.key, version=self.version)
        if self.changed_after is not None:
            return make(result=GREATER, target=MOD_REVISION, key=self.key, mod_revision=self.changed_after)
        assert self.mod_revision is not None, f"nothing to compare for {self.key!r}"
        return make(result=EQUAL, target=MOD_REVISION, key=self.key, mod_revision=self.mod_revision)


class Put(msgspec.Struct, frozen=True):
    """`value` None keeps the present one and only raises the key's version and revision."""

    key: bytes
    value: bytes | None

    def message(self) -> Any:
        put = CLASSES["PutRequest"](key=self.key, value=self.value or b"", ignore_value=self.value is None)
        return CLASSES["RequestOp"](request_put=put)


class Delete(msgspec.Struct, frozen=True):
    key: bytes
    end: bytes = b""

    def message(self) -> Any:
        delete = CLASSES["DeleteRangeRequest"](key=self.key, range_end=self.end)
        return CLASSES["RequestOp"](request_delete_range=delete)


class Get(msgspec.Struct, frozen=True):
    """One key, or with `end` all keys in key <= k < end. `revision` 0 is now."""

    key: bytes
    end: bytes = b""
    limit: int = 0
    revision: int = 0
    serializable: bool = False
    keys_only: bool = False
    count_only: bool = False
    descending: bool = False

    def request(self) -> Any:
        return CLASSES["RangeRequest"](
            key=self.key,
            range_end=self.end,
            limit=self.limit,
            revision=self.revision,
            sort_order=DESCENDING if self.descending else 0,
            sort_target=BY_KEY,
            serializable=self.serializable,
            keys_only=self.keys_only,
            count_only=self.count_only,
        )

    def message(self) -> Any:
        return CLASSES["RequestOp"](request_range=self.request())


Operation = Put | Delete | Get


class Member:
    """One channel to one member."""

    def __init__(self, endpoint: str, tls: Tls | None) -> None:
        self.endpoint = endpoint
        if tls is None:
            self._channel = aio.insecure_channel(endpoint, options=OPTIONS)
        else:
            credentials = grpc.ssl_channel_credentials(tls.ca, tls.key, tls.cert)
            self._channel = aio.secure_channel(endpoint, credentials, options=OPTIONS)
        self._methods = {
            name: self._channel.unary_unary(
                f"/etcdserverpb.{service}/{PATHS.get(name, name)}",
                request_serializer=CLASSES[f"{name}Request"].SerializeToString,
                response_deserializer=CLASSES[f"{name}Response"].FromString,
            )
            for name, service in METHODS.items()
        }

    def ready(self) -> bool:
        return self._channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY

    async def call(self, method: str, request: Any, timeout_s: float) -> Any:
        metadata = None if method == "Status" else REQUIRE_LEADER
        try:
            return await self._methods[method](request, timeout=timeout_s, metadata=metadata)
        except aio.AioRpcError as error:
            detail = error.details() or error.code().name
            raise EtcdFault(judge(error.code(), detail), f"{self.endpoint}: {detail}") from error

    async def status(self, timeout_s: float) -> MemberStatus:
        answer = await self.call("Status", CLASSES["StatusRequest"](), timeout_s)
        return MemberStatus(self.endpoint, answer.version, answer.dbSize, answer.dbSizeInUse, answer.leader)

    async def close(self) -> None:
        await self._channel.close(grace=None)


def range_result(answer: Any, revision: int) -> RangeResult:
    kvs = [KeyValue(kv.key, kv.value, kv.mod_revision, kv.version) for kv in answer.kvs]
    return RangeResult(revision, kvs, answer.more, answer.count)


class EtcdClient:
    def __init__(
        self,
        endpoints: Sequence[str],
        tls: Tls | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        assert endpoints, "an etcd client needs at least one endpoint"
        self._endpoints, self._tls = tuple(endpoints), tls
        self._timeout_s, self._connect_timeout_s = timeout_s, connect_timeout_s
        self._members: list[Member] = []
        self._preferred = 0  # Sticky: one connection carries the traffic until its member fails.
        self._versions: dict[str, str] = {}

    async def open(self) -> None:
        """Makes the channels, which bind to the running loop. Connects nothing yet."""
        if not self._members:
            self._members = [Member(endpoint, self._tls) for endpoint in self._endpoints]

    async def close(self) -> None:
        members, self._members = self._members, []
        for member in members:
            await member.close()

    def version_warnings(self) -> dict[str, str]:
        """Endpoint -> version, for members seen so far whose version is known to lose or fork data."""
        return {at: version for at, version in self._versions.items() if INCONSISTENT_VERSIONS.match(version)}

    async def range(self, get: Get) -> RangeResult:
        answer = await self._call("Range", get.request(), is_read=True)
        return range_result(answer, answer.header.revision)

    async def pages(self, key: bytes, end: bytes, revision: int) -> AsyncIterator[list[KeyValue]]:
        """All keys in key <= k < end at one revision. etcd limits rows and never bytes, so each page is as long as the size of
        the rows before it allows, and one that turns out too long for an answer is asked for again in halves."""
        limit = PAGE_ROWS_FIRST
        while True:
            try:
                page = await self.range(Get(key, end, limit=limit, revision=revision))
            except EtcdFault as fault:
                if fault.verdict is not ANSWER_TOO_LARGE or limit == 1:
                    raise
                limit //= 2
                continue
            if page.kvs:
                yield page.kvs
            if not page.more:
                return
            size = sum(len(kv.key) + len(kv.value) for kv in page.kvs)
            limit = max(1, min(PAGE_ROWS_MAX, PAGE_BYTES * len(page.kvs) // size))
            key = page.kvs[-1].key + b"\0"

    async def put(self, key: bytes, value: bytes) -> int:
        answer = await self._call("Put", CLASSES["PutRequest"](key=key, value=value), is_read=False)
        return cast("int", answer.header.revision)

    async def delete_range(self, key: bytes, end: bytes = b"") -> int:
        answer = await self._call("DeleteRange", CLASSES["DeleteRangeRequest"](key=key, range_end=end), is_read=False)
        return cast("int", answer.deleted)

    async def txn(
        self, compares: Sequence[Compare], success: Sequence[Operation], failure: Sequence[Operation] = ()
    ) -> TxnResult:
        request = CLASSES["TxnRequest"](
            compare=[compare.message() for compare in compares],
            success=[operation.message() for operation in success],
            failure=[operation.message() for operation in failure],
        )
        is_read = all(isinstance(operation, Get) for operation in (*success, *failure))
        answer = await self._call("Txn", request, is_read=is_read)
        revision = answer.header.revision
        ranges = [
            range_result(response.response_range, revision)
            for response in answer.responses
            if response.HasField("response_range")
        ]
        return TxnResult(revision, answer.succeeded, ranges)

    async def compact(self, revision: int) -> None:
        """Forgets revisions older than this one, in the background. Repeating it is harmless, so it counts as a read."""
        await self._call("Compaction", CLASSES["CompactionRequest"](revision=revision), is_read=True)

    async def alarms(self) -> list[str]:
        answer = await self._call("Alarm", CLASSES["AlarmRequest"](), is_read=True)
        return sorted({ALARM_NAMES.get(entry.alarm, str(entry.alarm)) for entry in answer.alarms})

    async def statuses(self) -> Mapping[str, MemberStatus | str]:
        """Every member's own view, or why there is none."""
        seen: dict[str, MemberStatus | str] = {}
        for member in self._members:
            try:
                seen[member.endpoint] = await self._status(member)
            except EtcdFault as fault:
                seen[member.endpoint] = fault.detail
        return seen

    async def _status(self, member: Member) -> MemberStatus:
        status = await member.status(self._connect_timeout_s)
        warned = bool(self.version_warnings())
        self._versions[member.endpoint] = status.version
        if self.version_warnings() and not warned:
            log.warning("%s at %s: %s", status.version, member.endpoint, INCONSISTENT_HELP)
        return status

    async def _reach(self, member: Member) -> None:
        """Connects before the request is sent, so that a member that cannot be reached is a *certain* absence: gRPC reports a
        refused connection and one lost after delivery with the same code."""
        if member.ready():
            return
        try:
            status = await self._status(member)
        except EtcdFault as fault:
            raise EtcdFault(UNREACHABLE, fault.detail) from fault
        if status.leader == 0:
            raise EtcdFault(NO_LEADER, f"{member.endpoint}: no leader")

    async def _call(self, method: str, request: Any, is_read: bool) -> Any:
        """One pass over the members. A read divides its deadline between them, for a stopped member answers nothing and is
        noticed only by its silence; a write that was sent waits its whole deadline, for there is no second try."""
        assert self._members, "the client is not open"
        timeout_s = self._timeout_s / len(self._members) if is_read else self._timeout_s
        faults: list[EtcdFault] = []
        for _ in range(len(self._members)):
            member = self._members[self._preferred]
            try:
                await self._reach(member)
                return await member.call(method, request, timeout_s)
            except EtcdFault as fault:
                faults.append(fault)
                if fault.verdict.elsewhere:
                    self._leave(member)
                if not fault.verdict.elsewhere or not (is_read or fault.verdict.absent):
                    raise
        raise EtcdFault(_worst(faults), "; ".join(fault.detail for fault in faults))

    def _leave(self, member: Member) -> None:
        # Concurrent requests fail together; only the first of them moves on, else they would chase each other in a circle.
        if self._members[self._preferred] is member:
            self._preferred = (self._preferred + 1) % len(self._members)


def _worst(faults: Sequence[EtcdFault]) -> Verdict:
    """All were tried in vain. NoLeader says more than Unreachable: somebody is there, but has no quorum."""
    return next((fault.verdict for fault in faults if fault.verdict.reason == "NoLeader"), faults[-1].verdict)
