"""The etcd engine: one plane under one prefix of an etcd cluster, for a plane that must outlive the loss of any region.

Owns the transactions and their guards. Every write compares the leader key's whole value, commit the head's as well, and each
refusal is read in the same round trip. There is no etcd lease anywhere: leases revoked by a stuck old leader are a known failure
(P1), so validity is the authority's to judge. It never repeats a write by itself and never sleeps. Called by the authority and
by `fairlead store`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

from fairlead.store.contract import (
    BATCH_BYTES_MAX,
    FORMAT,
    AcquireResult,
    AlreadyThere,
    Batch,
    Checkpoint,
    CommitResult,
    Committed,
    Compacted,
    Contended,
    Corrupt,
    Fence,
    Fenced,
    FencedWriteResult,
    FormatTooNew,
    Head,
    MaterialiseResult,
    ObjectRow,
    OutcomeUnknown,
    StoreStats,
    StoreUnreachable,
    Superseded,
    Unavailable,
)
from fairlead.store.etcd_client import (
    INCONSISTENT_HELP,
    Compare,
    Delete,
    EtcdClient,
    Get,
    KeyValue,
    MemberStatus,
    Operation,
    Put,
    RangeResult,
    Tls,
    TxnResult,
)
from fairlead.store.etcd_faults import DISK_FULL, EtcdFault
from fairlead.store.etcd_keys import (
    NO_GENERATION,
    Keys,
    Meta,
    end_of,
    head_value,
    leader_value,
    row_value,
    truncated_value,
)
from fairlead.store.etcd_objects import Objects, as_unreachable, unsettled
from fairlead.store.rules import EMPTY, why_not_committed

log = logging.getLogger(__name__)

TAIL_ROWS_FIRST = 8  # A standby that keeps up finds one or two; more are asked for once their size is known.
TAIL_ROWS_MAX = 2000
TRUNCATE_ATTEMPTS_MAX = 3
REVISIONS_KEPT_S = 30.0  # A plane at its limits is read in less, and this much of etcd's history fits beside it.


class EtcdStore:
    def __init__(
        self,
        endpoints: Sequence[str],
        prefix: str,
        tls: Tls | None = None,
        client: EtcdClient | None = None,
        objects_max: int = 200_000,
        object_bytes_max: int = 512 * 1024 * 1024,
    ) -> None:
        """The two limits are P8's; tests lower them. `client` overrides endpoints and tls (other deadlines, say)."""
        self._client = client or EtcdClient(endpoints, tls)
        self._keys = Keys(prefix)
        self._objects = Objects(self._client, self._keys, objects_max, object_bytes_max)
        # Renewals are counted by a key's version, from a base that only a seed sets; every read of the head confirms it.
        self._renewals_before = 0
        self._all_meta = Get(self._keys.meta, end_of(self._keys.meta))
        self._truncations: deque[tuple[float, int]] = deque()  # when, and at which of etcd's revisions

    async def open(self) -> Head:
        await self._client.open()
        try:
            absent = [Compare(self._keys.format, version=0)]
            if not await self._is_there():
                await self._client.txn(absent, self._keys.puts_of(EMPTY, NO_GENERATION))
        except EtcdFault as fault:
            raise as_unreachable("open", fault) from fault
        head = (await self._meta("open")).head
        if head.format > FORMAT:
            raise FormatTooNew(f"the store has format {head.format}, this Fairlead reads up to {FORMAT}: upgrade Fairlead")
        return head

    async def close(self) -> None:
        await self._client.close()

    async def head(self) -> Head:
        return (await self._meta("head")).head

    async def acquire(self, holder: str, observed: Head) -> AcquireResult:
        won = Fence(observed.incarnation, observed.epoch + 1, holder)
        guard = [
            Compare(self._keys.leader, value=leader_value(observed.fence())),
            Compare(self._keys.head, value=head_value(observed.position, observed.hash)),
            Compare(self._keys.renewals, version=observed.renewals - self._renewals_before + 1),
        ]
        try:
            answer = await self._client.txn(guard, [Put(self._keys.leader, leader_value(won))], [self._all_meta])
        except EtcdFault as fault:
            return await self._settle_acquire(fault, won)
        return won if answer.succeeded else Contended(self._read_meta(answer).head)

    async def renew(self, fence: Fence) -> FencedWriteResult:
        # Not the head key: a renewal that changed what commit compares would refuse the commit beside it.
        return await self._fenced(fence, [Put(self._keys.renewals, None)])

    async def resign(self, fence: Fence) -> FencedWriteResult:
        return await self._fenced(fence, [Put(self._keys.leader, leader_value(Fence(fence.incarnation, fence.epoch, "")))])

    async def leader_gone(self) -> bool:
        return False  # etcd could say so through a lease only, and P1 has none.

    async def set_incarnation(self, fence: Fence, incarnation: int) -> FencedWriteResult:
        assert incarnation > fence.incarnation, f"incarnation {incarnation} does not raise {fence.incarnation}"
        raised = Fence(incarnation, fence.epoch, fence.holder)
        return await self._fenced(fence, [Put(self._keys.leader, leader_value(raised))])

    async def commit(self, fence: Fence, batch: Batch) -> CommitResult:
        row = self._keys.row(batch.first)
        guards = [
            Compare(self._keys.leader, value=leader_value(fence)),
            Compare(self._keys.head, value=head_value(batch.first - 1, batch.previous)),
        ]
        puts = [Put(self._keys.head, head_value(batch.last, batch.hash)), Put(row, row_value(batch))]
        try:
            answer = await self._client.txn(guards, puts, [self._all_meta, Get(row)])
        except EtcdFault as fault:
            return await self._settle_commit(fault, fence, batch)
        return Committed() if answer.succeeded else self._why_not(self._read_meta(answer), answer.ranges[1], fence, batch)

    def commit_on_the_spot(self, fence: Fence, batch: Batch) -> None:
        return None

    async def tail(self, after: int, limit_bytes: int = 4 * BATCH_BYTES_MAX) -> list[Batch] | Compacted:
        """Head and rows come from one revision, read through the quorum, so an empty answer means there is nothing."""
        meta = await self._meta("tail")
        if after < meta.head.truncated:
            return Compacted(meta.head.truncated)
        if after >= meta.head.position:
            return []
        try:
            batches, _ = await self._rows_after(after, meta, limit_bytes)
        except EtcdFault as fault:
            raise as_unreachable("tail", fault) from fault
        _check_chain(batches, meta.head)
        return batches

    async def load(self) -> Checkpoint:
        meta = await self._meta("load")
        return Checkpoint(meta.head, meta.head.materialised, self._objects.pages(meta))

    async def materialise(
        self, fence: Fence, upto: int, rows: Sequence[ObjectRow], deleted: Sequence[str], as_of: int = 0
    ) -> MaterialiseResult:
        return await self._objects.materialise(fence, upto, rows, deleted, max(upto, as_of))

    async def seed(self, head: Head, chunks: AsyncIterator[list[ObjectRow]]) -> None:
        if head.format > FORMAT:
            raise FormatTooNew(f"the data has format {head.format}, this Fairlead reads up to {FORMAT}: upgrade Fairlead")
        await self._objects.seed(head, chunks)

    async def truncate(self, fence: Fence, through: int, anchor: bytes) -> FencedWriteResult:
        try:
            for _ in range(TRUNCATE_ATTEMPTS_MAX):
                result = await self._truncate_once(fence, through, anchor)
                if result is not None:
                    return result
        except StoreUnreachable as error:
            return Unavailable("Unreachable", str(error), error.retry_after_s)
        return Unavailable("Contended", f"{TRUNCATE_ATTEMPTS_MAX} truncations got in between")

    async def stats(self) -> StoreStats:
        try:
            objects = await self._objects.count()
            meta = await self._meta("stats")
            rows, batches = await self._rows_after(meta.head.truncated, meta, 4 * BATCH_BYTES_MAX)
            alarms = await self._client.alarms()
        except EtcdFault as fault:
            raise as_unreachable("stats", fault) from fault
        members = await self._client.statuses()
        measured = sum(len(row.blob) for row in rows)
        warnings = self._client.version_warnings()
        detail = {f"member {at}": _describe(status) for at, status in members.items()}
        detail["alarms"] = ", ".join(alarms) or "none"
        detail["journal_bytes"] = "exact" if len(rows) == batches else f"estimated from {len(rows)} batches"
        if warnings:
            versions = ", ".join(f"{version} at {at}" for at, version in sorted(warnings.items()))
            detail["version_warning"] = f"{versions}: {INCONSISTENT_HELP}"
        return StoreStats(
            engine="etcd",
            objects=objects,
            journal_batches=batches,
            journal_bytes=measured * batches // len(rows) if rows else 0,
            bytes_on_disk=max((each.db_bytes for each in members.values() if not isinstance(each, str)), default=0),
            detail=detail,
        )

    async def _is_there(self) -> bool:
        return bool((await self._client.range(Get(self._keys.format))).kvs)

    async def _meta(self, call: str) -> Meta:
        try:
            answer = await self._client.range(self._all_meta)
        except EtcdFault as fault:
            raise as_unreachable(call, fault) from fault
        return self._must(self._keys.read_meta(answer.kvs, answer.revision))

    def _read_meta(self, answer: TxnResult) -> Meta:
        return self._must(self._keys.read_meta(answer.ranges[0].kvs, answer.revision))

    def _must(self, meta: Meta | None) -> Meta:
        if meta is None:
            raise Corrupt(self._keys.meta.decode(), "the store is gone from this prefix")
        self._renewals_before = meta.head.renewals - meta.renewals_version + 1
        return meta

    async def _fenced(self, fence: Fence, puts: Sequence[Operation]) -> FencedWriteResult:
        guard = [Compare(self._keys.leader, value=leader_value(fence))]
        try:
            answer = await self._client.txn(guard, puts, [self._all_meta])
        except EtcdFault as fault:
            return unsettled(fault)
        return Committed() if answer.succeeded else Fenced(self._read_meta(answer).head)

    def _why_not(self, meta: Meta, row: RangeResult, fence: Fence, batch: Batch) -> AlreadyThere | Superseded | Fenced:
        hash_at_first = self._keys.read_row(row.kvs[0]).hash if row.kvs else None
        return why_not_committed(meta.head, fence, batch, hash_at_first)

    async def _settle_commit(self, fault: EtcdFault, fence: Fence, batch: Batch) -> CommitResult:
        """A full disk may have taken the batch all the same (see DISK_FULL); "certainly absent" needs a look."""
        if fault.verdict is not DISK_FULL:
            return unsettled(fault)
        try:
            meta = await self._meta("commit")
            row = await self._client.range(Get(self._keys.row(batch.first), revision=meta.revision))
        except (EtcdFault, StoreUnreachable) as second:
            return OutcomeUnknown(f"{fault.detail}; then {second}")
        found = self._why_not(meta, row, fence, batch)
        return unsettled(fault) if isinstance(found, Superseded) else found

    async def _settle_acquire(self, fault: EtcdFault, won: Fence) -> AcquireResult:
        if fault.verdict is not DISK_FULL:
            return unsettled(fault)
        try:
            head = await self.head()
        except StoreUnreachable as second:
            return OutcomeUnknown(f"{fault.detail}; then {second}")
        return won if head.fence() == won else unsettled(fault)

    async def _rows_after(self, after: int, meta: Meta, limit_bytes: int) -> tuple[list[Batch], int]:
        """The batches with first > after at the meta's revision, up to the limit and at least one; and how many there are.

        Not one transaction with the meta: etcd (3.5.1 at least) refuses even transactions that only read while it is out of
        space, and a plane that is out of space must stay readable (L11)."""
        start, limit, count = self._keys.row(after + 1), TAIL_ROWS_FIRST, 0
        rows, size = list[KeyValue](), 0
        while True:
            page = await self._client.range(Get(start, end_of(self._keys.journal), limit=limit, revision=meta.revision))
            count = count or page.count
            for kv in page.kvs:
                size += len(kv.value)
                if rows and size > limit_bytes:
                    return [self._keys.read_row(row) for row in rows], count
                rows.append(kv)
            if not page.more:
                return [self._keys.read_row(row) for row in rows], count
            # As many as fit if they are like those so far; etcd limits rows, never bytes.
            limit = max(1, min(TAIL_ROWS_MAX, (limit_bytes - size) * len(rows) // max(size, 1)))
            start = rows[-1].key + b"\0"

    async def _truncate_once(self, fence: Fence, through: int, anchor: bytes) -> FencedWriteResult | None:
        """None: somebody truncated in between, look again."""
        keys = self._keys
        meta = await self._meta("truncate")
        if meta.head.fence() != fence:
            return Fenced(meta.head)
        if through > meta.head.materialised:
            return Committed()
        try:
            last = await self._last_batch_within(through)
            if last is None:
                return Committed()
            guards = [
                Compare(keys.leader, value=leader_value(fence)),
                # A truncation that lands after a later one must not take `truncated` back: its rows are gone.
                Compare(keys.truncated, mod_revision=meta.truncated_revision),
            ]
            forget = Delete(keys.row(0), keys.row(last.first + 1))
            cut: list[Operation] = [Put(keys.truncated, truncated_value(last.last, anchor)), forget]
            answer = await self._client.txn(guards, cut, [self._all_meta])
        except EtcdFault as fault:
            if fault.verdict is DISK_FULL:
                await self._forget_revisions(meta.truncated_revision, at_once=True)  # Still allowed then, and the way out.
            return unsettled(fault)
        if not answer.succeeded:
            head = self._read_meta(answer).head
            return Fenced(head) if head.fence() != fence else None
        await self._forget_revisions(meta.truncated_revision)
        return Committed()

    async def _last_batch_within(self, through: int) -> Batch | None:
        """The newest batch with last <= through. The one that contains `through` may reach beyond it, so two are looked at."""
        keys = self._keys
        newest = Get(keys.row(0), keys.row(through + 1), limit=2, descending=True)
        rows = (await self._client.range(newest)).kvs
        return next((batch for batch in map(keys.read_row, rows) if batch.last <= through), None)

    async def _forget_revisions(self, truncated: int, *, at_once: bool = False) -> None:
        """Compacts etcd's own history up to a truncation of some time ago, so that whoever pages through the objects at one
        revision has that time to finish in; slower ones get StoreUnreachable and start again."""
        now, before, kept_s = asyncio.get_running_loop().time(), 0, 0.0 if at_once else REVISIONS_KEPT_S
        self._truncations.append((now, truncated))
        while self._truncations and self._truncations[0][0] + kept_s <= now:
            before = self._truncations.popleft()[1]
        if not before:
            return
        with contextlib.suppress(EtcdFault):  # Compacted further by somebody else, or unreachable: the next one does it.
            await self._client.compact(before)


def _check_chain(batches: Sequence[Batch], head: Head) -> None:
    for earlier, later in pairwise(batches):
        if later.first != earlier.last + 1 or later.previous != earlier.hash:
            raise Corrupt(f"journal row {later.first}", f"does not follow the row that ends at {earlier.last}")
    if batches and batches[-1].last == head.position and batches[-1].hash != head.hash:
        raise Corrupt(f"journal row {batches[-1].first}", "is the newest, but not the batch the head names")


def _describe(status: MemberStatus | str) -> str:
    if isinstance(status, str):
        return f"unreachable: {status}"
    return f"etcd {status.version}, {status.db_bytes_in_use} of {status.db_bytes} bytes in use"
