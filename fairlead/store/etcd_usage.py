"""Owns P8's limits of an etcd plane: how many objects and bytes there are, and whether some more still fit.

Far from the limits it keeps an upper bound, counting every written row as new, because knowing better costs a read of
each row. Near them it measures once and then reads what each row replaces. Never writes. Called by `etcd_objects`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fairlead.store.contract import STORE_LIMIT, Unavailable
from fairlead.store.etcd_client import EtcdClient, Get, MemberStatus
from fairlead.store.etcd_faults import UNREACHABLE, EtcdFault
from fairlead.store.etcd_keys import Keys, end_of

GETS_MAX = 32  # Of rows of the largest size (1.5 MiB), as many as fit an answer of 64 MiB.


class Usage(msgspec.Struct, frozen=True):
    objects: int
    bytes: int

    def plus(self, objects: int, bytes_: int) -> Usage:
        return Usage(self.objects + objects, self.bytes + bytes_)

    def within(self, limit: Usage) -> bool:
        return self.objects <= limit.objects and self.bytes <= limit.bytes


class UsageMeter:
    def __init__(self, client: EtcdClient, keys: Keys, limit: Usage) -> None:
        self._client, self._keys, self._limit = client, keys, limit
        self._now: Usage | None = None
        self._exact = False

    def forget(self) -> None:
        """Another leader may have written, or a write's outcome is open."""
        self._now, self._exact = None, False

    def refusal(self, usage: Usage) -> Unavailable | None:
        if usage.within(self._limit):
            return None
        detail = (
            f"the plane would have {usage.objects} objects and {usage.bytes} bytes; an etcd plane is limited to "
            f"{self._limit.objects} objects and {self._limit.bytes} bytes. Delete objects, or move the plane to postgres"
        )
        return Unavailable(STORE_LIMIT, detail, retry_after_s=60.0)

    async def reserve(self, generation: str, puts: Mapping[bytes, bytes], gone: Sequence[bytes]) -> Unavailable | None:
        """Takes the room for these writes, or says that there is none. Only deleting is always allowed: it is the way out."""
        if self._now is None:
            # The database holds the journal and etcd's history too, so this errs on the safe side.
            self._now = Usage(await self.count(generation), await self._database_bytes())
        if not self._exact:
            bound = self._now.plus(len(puts), sum(len(key) + len(value) for key, value in puts.items()))
            if bound.within(self._limit):
                self._now = bound
                return None
            self._now, self._exact = await self._measure(generation), True
        after = self._now.plus(*await self._growth(puts, gone))
        refusal = self.refusal(after) if puts else None
        if refusal is None:
            self._now = after
            # Well below again: back to the bound, which costs no reads.
            self._exact = not after.within(Usage(self._limit.objects // 2, self._limit.bytes // 2))
        return refusal

    async def count(self, generation: str) -> int:
        under = self._keys.objects_of(generation)
        return (await self._client.range(Get(under, end_of(under), count_only=True))).count

    async def _database_bytes(self) -> int:
        members = (await self._client.statuses()).values()
        sizes = [each.db_bytes_in_use for each in members if isinstance(each, MemberStatus)]
        if not sizes:
            raise EtcdFault(UNREACHABLE, "no member says how large its database is")
        return max(sizes)

    async def _measure(self, generation: str) -> Usage:
        under = self._keys.objects_of(generation)
        found = await self._client.range(Get(under, end_of(under), count_only=True))
        size = 0
        async for kvs in self._client.pages(under, end_of(under), found.revision):
            size += sum(len(kv.key) + len(kv.value) for kv in kvs)
        return Usage(found.count, size)

    async def _growth(self, puts: Mapping[bytes, bytes], gone: Sequence[bytes]) -> tuple[int, int]:
        keys = [*puts, *gone]
        objects, size = len(puts), sum(len(key) + len(value) for key, value in puts.items())
        for start in range(0, len(keys), GETS_MAX):
            answer = await self._client.txn([], [Get(key) for key in keys[start : start + GETS_MAX]])
            for found in answer.ranges:
                objects -= len(found.kvs)
                size -= sum(len(kv.key) + len(kv.value) for kv in found.kvs)
        return objects, size
