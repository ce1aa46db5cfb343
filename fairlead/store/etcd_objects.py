"""Owns the materialised objects of an etcd store: writing them in pieces, reading them at one revision, and P8's limits.

A materialisation is many transactions. Each compares the leader key *and* the revision at which `materialised` was last
written: the leader key alone would let a piece that was given up, and lands late under the same leader, put an old object
over a newer one. It never touches the head or the journal. Called by EtcdStore.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from fairlead.store.contract import (
    Committed,
    Corrupt,
    Fence,
    Fenced,
    FencedWriteResult,
    Head,
    MaterialiseResult,
    ObjectRow,
    OutcomeUnknown,
    StoreError,
    StoreUnreachable,
    Unavailable,
)
from fairlead.store.etcd_client import Compare, Delete, EtcdClient, Get, Operation, Put, TxnResult
from fairlead.store.etcd_faults import DISK_FULL, EtcdFault
from fairlead.store.etcd_keys import Keys, Meta, end_of, leader_value, number_value, object_value
from fairlead.store.etcd_usage import Usage, UsageMeter
from fairlead.store.rules import is_empty, why_not_materialised

TXN_OPERATIONS_MAX = 120  # etcd takes 128 by default; one more is `materialised`.
TXN_BYTES_MAX = 1000 * 1024  # Under 1 MiB with the guards; etcd's limit for a request is 1.5 MiB.
OPERATION_BYTES = 64  # What an operation costs on the wire besides its key and value, generously.
IN_FLIGHT_MAX = 4  # Enough to keep the cluster's disks busy; more only queues, and delays the commits beside it.

DISK_FULL_HELP = (
    "etcd's space quota is used up and it takes no writes. Truncate and compact, then `etcdctl defrag` each member "
    "and `etcdctl alarm disarm`, or raise --quota-backend-bytes"
)


def unsettled(fault: EtcdFault) -> Unavailable | OutcomeUnknown:
    """What a write answers whose request failed."""
    verdict = fault.verdict
    if verdict is DISK_FULL:
        return Unavailable(verdict.reason, f"{DISK_FULL_HELP} ({fault.detail})", verdict.retry_after_s)
    if verdict.absent:
        return Unavailable(verdict.reason, fault.detail, verdict.retry_after_s)
    return OutcomeUnknown(fault.detail)


def as_unreachable(call: str, fault: EtcdFault) -> StoreUnreachable:
    return StoreUnreachable(f"{call}: {fault.detail}", fault.verdict.retry_after_s)


class _Guard(msgspec.Struct, frozen=True):
    """What every piece of the next materialisation compares, and the generation it writes to."""

    fence: Fence
    revision: int
    generation: str
    materialised: int
    head: int  # where the head stood when it was last looked at,
    head_revision: int  # and when that was written: a head that is older than this has lost its tail


class _Moved(msgspec.Struct, frozen=True):
    """The fence holds but another materialisation came in between; the guard has to be taken again."""


class Objects:
    def __init__(self, client: EtcdClient, keys: Keys, objects_max: int, bytes_max: int) -> None:
        self._client, self._keys = client, keys
        self._meter = UsageMeter(client, keys, Usage(objects_max, bytes_max))
        self._guard: _Guard | None = None
        self._all_meta = Get(keys.meta, end_of(keys.meta))

    async def count(self) -> int:
        meta = await self._meta()
        return await self._meter.count(meta.generation)

    async def pages(self, meta: Meta) -> AsyncIterator[list[ObjectRow]]:
        """All objects as they were at the meta's revision."""
        under = self._keys.objects_of(meta.generation)
        try:
            async for kvs in self._client.pages(under, end_of(under), meta.revision):
                yield [self._keys.read_object(kv, under) for kv in kvs]
        except EtcdFault as fault:
            raise as_unreachable("load", fault) from fault

    async def materialise(
        self, fence: Fence, upto: int, rows: Sequence[ObjectRow], deleted: Sequence[str], as_of: int
    ) -> MaterialiseResult:
        for _ in range(2):
            guard: _Guard | MaterialiseResult = await self._take_guard(fence, upto)
            if isinstance(guard, _Guard) and guard.head < as_of:
                guard = await self._look_at_head(guard, as_of)
            if not isinstance(guard, _Guard):
                return guard
            result = await self._materialise_under(guard, upto, rows, deleted)
            if not isinstance(result, _Moved):
                return result
        return Unavailable("Contended", "two writers materialise under one fence")

    async def _take_guard(self, fence: Fence, upto: int) -> _Guard | FencedWriteResult:
        """The guard left by the last materialisation, or a new one: rewriting the key shuts out all pieces sent before."""
        if self._guard is not None and self._guard.fence == fence and self._guard.materialised <= upto:
            return self._guard
        leader = Compare(self._keys.leader, value=leader_value(fence))
        try:
            answer = await self._client.txn([leader], [Put(self._keys.materialised, None), self._all_meta], [self._all_meta])
        except EtcdFault as fault:
            return unsettled(fault)
        meta = self._read_meta(answer)
        if not answer.succeeded:
            return Fenced(meta.head)
        if upto < meta.head.materialised:
            return Committed()  # Done long ago; doing it again would take objects back.
        self._meter.forget()
        head = meta.head
        self._guard = _Guard(
            fence, meta.materialised_revision, meta.generation, head.materialised, head.position, meta.head_revision
        )
        return self._guard

    async def _look_at_head(self, guard: _Guard, as_of: int) -> _Guard | MaterialiseResult:
        """The same guard, for a head that has reached `as_of`."""
        try:
            meta = await self._meta()
        except EtcdFault as fault:
            return Unavailable(fault.verdict.reason, fault.detail, fault.verdict.retry_after_s)
        if meta.head.fence() != guard.fence or meta.head.position < as_of:
            return why_not_materialised(meta.head, guard.fence, as_of)
        self._guard = replace(guard, head=meta.head.position, head_revision=meta.head_revision)
        return self._guard

    async def _materialise_under(
        self, guard: _Guard, upto: int, rows: Sequence[ObjectRow], deleted: Sequence[str]
    ) -> FencedWriteResult | _Moved:
        under = self._keys.objects_of(guard.generation)
        puts = {under + key.encode(): object_value(position, encoded) for key, position, encoded in rows}
        gone = [under + key.encode() for key in deleted]
        try:
            over = await self._meter.reserve(guard.generation, puts, gone)
        except EtcdFault as fault:
            return Unavailable(fault.verdict.reason, fault.detail, fault.verdict.retry_after_s)  # Only reads so far.
        if over is not None:
            return over
        self._guard = None  # Until it is known how this one ends; what is left open must not follow the same guard.
        operations: list[Operation] = [*(Put(key, value) for key, value in puts.items()), *map(Delete, gone)]
        *pieces, last = pieces_of(operations)
        result = await self._send_all(guard, pieces)
        if isinstance(result, Committed):
            result = await self._send(guard, [*last, Put(self._keys.materialised, number_value(upto))], upto)
        if not isinstance(result, Committed):
            self._meter.forget()
        return result

    async def _send_all(self, guard: _Guard, pieces: Sequence[Sequence[Operation]]) -> FencedWriteResult | _Moved:
        """A few at a time and in any order: their keys are disjoint. The first that fails stops those not sent yet."""
        waiting = iter(pieces)
        bad: list[FencedWriteResult | _Moved] = []

        async def sender() -> None:
            for piece in waiting:
                if bad:
                    return
                result = await self._send(guard, piece)
                if not isinstance(result, Committed):
                    bad.append(result)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(IN_FLIGHT_MAX, len(pieces))):
                group.create_task(sender())
        return bad[0] if bad else Committed()

    async def _send(self, guard: _Guard, piece: Sequence[Operation], upto: int | None = None) -> FencedWriteResult | _Moved:
        guards = [
            Compare(self._keys.leader, value=leader_value(guard.fence)),
            Compare(self._keys.materialised, mod_revision=guard.revision),
            Compare(self._keys.head, changed_after=guard.head_revision - 1),
        ]
        try:
            answer = await self._client.txn(guards, piece, [self._all_meta])
        except EtcdFault as fault:
            return unsettled(fault)
        if not answer.succeeded:
            head = self._read_meta(answer).head
            return Fenced(head) if head.fence() != guard.fence else _Moved()
        if upto is not None:  # The last piece, which leaves the guard of the next materialisation.
            self._guard = replace(guard, revision=answer.revision, materialised=upto)
        return Committed()

    async def seed(self, head: Head, chunks: AsyncIterator[list[ObjectRow]]) -> None:
        """Rows go to a generation of their own, which the last transaction makes the current one together with the head. An
        interrupted seed therefore leaves nothing a load could see; a second one deletes what it left and shuts it out."""
        try:
            meta = await self._meta()
            generation = await self._begin_seed(meta)
            under, total = self._keys.objects_of(str(generation)), Usage(0, 0)
            async for chunk in chunks:
                puts = {under + key.encode(): object_value(position, encoded) for key, position, encoded in chunk}
                total = total.plus(len(puts), sum(len(key) + len(value) for key, value in puts.items()))
                over = self._meter.refusal(total)
                if over is not None:
                    raise StoreError(over.detail)
                for piece in pieces_of([Put(key, value) for key, value in puts.items()]):
                    await self._seed_step(generation, meta, piece)
            puts_of_head = self._keys.puts_of(head, str(generation), renewals_version=meta.renewals_version + 1)
            await self._seed_step(generation, meta, [*puts_of_head, Delete(self._keys.seeding)])
        except EtcdFault as fault:
            raise as_unreachable("seed", fault) from fault

    async def _begin_seed(self, meta: Meta) -> int:
        if not is_empty(meta.head):
            raise StoreError(f"the store is not empty (epoch {meta.head.epoch}, position {meta.head.position})")
        answer = await self._client.txn(
            [Compare(self._keys.leader, value=leader_value(meta.head.fence()))],
            [Put(self._keys.seeding, b""), Delete(self._keys.objects, end_of(self._keys.objects))],
        )
        if not answer.succeeded:
            raise StoreError("the store got a leader while the seed began; it is not empty")
        return answer.revision

    async def _seed_step(self, generation: int, meta: Meta, operations: Sequence[Operation]) -> None:
        guards = [
            Compare(self._keys.leader, value=leader_value(meta.head.fence())),
            Compare(self._keys.renewals, version=meta.renewals_version),
            Compare(self._keys.seeding, mod_revision=generation),
        ]
        answer = await self._client.txn(guards, operations)
        if not answer.succeeded:
            raise StoreError("another seed or a leader took the store over meanwhile; this seed has changed nothing")

    async def _meta(self) -> Meta:
        answer = await self._client.range(self._all_meta)
        return self._must(self._keys.read_meta(answer.kvs, answer.revision))

    def _read_meta(self, answer: TxnResult) -> Meta:
        found = answer.ranges[0]
        return self._must(self._keys.read_meta(found.kvs, answer.revision))

    def _must(self, meta: Meta | None) -> Meta:
        if meta is None:
            raise Corrupt(self._keys.meta.decode(), "the store is gone from this prefix")
        return meta


def pieces_of(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    """Cuts by count and by bytes. At least one piece, perhaps empty: the last one also sets `materialised`."""
    piece, size = list[Operation](), 0
    for operation in operations:
        value = operation.value if isinstance(operation, Put) else None
        cost = OPERATION_BYTES + len(operation.key) + len(value or b"")
        if piece and (len(piece) == TXN_OPERATIONS_MAX or size + cost > TXN_BYTES_MAX):
            yield piece
            piece, size = [], 0
        piece.append(operation)
        size += cost
    yield piece
