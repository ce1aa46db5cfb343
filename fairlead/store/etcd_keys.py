"""Owns where a plane's data lies under its etcd prefix and how each value is written.

    PREFIX/meta/leader         [incarnation, epoch, holder]; compared whole by every write
    PREFIX/meta/head           [position, hash]; compared whole by commit
    PREFIX/meta/renewals       [before]; the key's version counts the rest, so a renewal needs no read
    PREFIX/meta/format, materialised, truncated (with the anchor), objects (the generation below)
    PREFIX/journal/POSITION    last, previous, hash, blob; POSITION is the batch's first, 20 digits
    PREFIX/objects/GENERATION/KEY   position, encoded object

Values that are compared are JSON arrays, which msgspec writes the same way every time and a human reads with etcdctl. Never
talks to a server. Called by the etcd engine.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import msgspec

from fairlead.store.contract import Batch, Corrupt, Fence, Head, ObjectRow
from fairlead.store.etcd_client import KeyValue, Put

ROW_HEADER = struct.Struct(">q32s32s")  # last, previous, hash
OBJECT_HEADER = struct.Struct(">q")  # position
NO_GENERATION = "0"  # The objects of a store that was never seeded.


class _Leader(msgspec.Struct, frozen=True, array_like=True):
    incarnation: int
    epoch: int
    holder: str


class _Head(msgspec.Struct, frozen=True, array_like=True):
    position: int
    hash: bytes


class _Truncated(msgspec.Struct, frozen=True, array_like=True):
    position: int
    anchor: bytes


class Meta(msgspec.Struct, frozen=True):
    """Everything under meta/ at one etcd revision. The three revisions say when those keys were last written: they are what a
    late request is told apart by."""

    head: Head
    generation: str
    renewals_version: int
    head_revision: int
    materialised_revision: int
    truncated_revision: int
    revision: int


def leader_value(fence: Fence) -> bytes:
    return msgspec.json.encode(_Leader(fence.incarnation, fence.epoch, fence.holder))


def head_value(position: int, digest: bytes) -> bytes:
    return msgspec.json.encode(_Head(position, digest))


def number_value(number: int) -> bytes:
    return msgspec.json.encode(number)


def truncated_value(position: int, anchor: bytes) -> bytes:
    return msgspec.json.encode(_Truncated(position, anchor))


def row_value(batch: Batch) -> bytes:
    return ROW_HEADER.pack(batch.last, batch.previous, batch.hash) + batch.blob


def object_value(position: int, encoded: bytes) -> bytes:
    return OBJECT_HEADER.pack(position) + encoded


class Keys:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix.rstrip("/").encode() + b"/"
        self.meta = self.prefix + b"meta/"
        self.journal = self.prefix + b"journal/"
        self.objects = self.prefix + b"objects/"
        self.leader = self.meta + b"leader"
        self.head = self.meta + b"head"
        self.renewals = self.meta + b"renewals"
        self.format = self.meta + b"format"
        self.materialised = self.meta + b"materialised"
        self.truncated = self.meta + b"truncated"
        self.generation = self.meta + b"objects"
        self.seeding = self.prefix + b"seeding"  # Not under meta/: it is no part of a head, and gone when a seed is done.

    def row(self, position: int) -> bytes:
        return self.journal + b"%020d" % position

    def objects_of(self, generation: str) -> bytes:
        return self.objects + generation.encode() + b"/"

    def puts_of(self, head: Head, generation: str, renewals_version: int = 1) -> list[Put]:
        """A whole head. `renewals_version` is the version these puts give that key, 1 where there was none."""
        return [
            Put(self.format, number_value(head.format)),
            Put(self.leader, leader_value(head.fence())),
            Put(self.head, head_value(head.position, head.hash)),
            Put(self.materialised, number_value(head.materialised)),
            Put(self.truncated, truncated_value(head.truncated, head.anchor)),
            Put(self.generation, generation.encode()),
            Put(self.renewals, number_value(head.renewals - (renewals_version - 1))),
        ]

    def read_meta(self, kvs: Sequence[KeyValue], revision: int) -> Meta | None:
        """None if there is no store under this prefix."""
        found = {kv.key: kv for kv in kvs}
        if self.format not in found:
            return None
        wanted = (self.leader, self.head, self.renewals, self.materialised, self.truncated, self.generation)
        for key in wanted:
            if key not in found:
                raise Corrupt(key.decode(), "the key is missing")
        try:
            leader = msgspec.json.decode(found[self.leader].value, type=_Leader)
            head = msgspec.json.decode(found[self.head].value, type=_Head)
            truncated = msgspec.json.decode(found[self.truncated].value, type=_Truncated)
            renewals, materialised, format_ = (
                msgspec.json.decode(found[key].value, type=int) for key in (self.renewals, self.materialised, self.format)
            )
        except msgspec.DecodeError as error:
            raise Corrupt(self.meta.decode(), f"not what was written ({error})") from error
        whole = Head(
            format=format_,
            incarnation=leader.incarnation,
            epoch=leader.epoch,
            holder=leader.holder,
            renewals=renewals + found[self.renewals].version - 1,
            position=head.position,
            hash=head.hash,
            materialised=materialised,
            truncated=truncated.position,
            anchor=truncated.anchor,
        )
        return Meta(
            head=whole,
            generation=found[self.generation].value.decode(),
            renewals_version=found[self.renewals].version,
            head_revision=found[self.head].mod_revision,
            materialised_revision=found[self.materialised].mod_revision,
            truncated_revision=found[self.truncated].mod_revision,
            revision=revision,
        )

    def read_row(self, kv: KeyValue) -> Batch:
        where = kv.key.decode()
        first = kv.key.removeprefix(self.journal)
        if len(kv.value) < ROW_HEADER.size or not first.isdigit():
            raise Corrupt(where, f"{len(kv.value)} bytes are no journal row")
        last, previous, digest = ROW_HEADER.unpack_from(kv.value)
        blob = kv.value[ROW_HEADER.size :]
        # etcd checks no value when it reads one, and its 3.5.0 to 3.5.2 let members differ: so the engine checks.
        if hashlib.sha256(previous + blob).digest() != digest:
            raise Corrupt(where, "the blob does not have the hash it was written with")
        return Batch(int(first), last, previous, digest, blob)

    def read_object(self, kv: KeyValue, under: bytes) -> ObjectRow:
        if len(kv.value) < OBJECT_HEADER.size:
            raise Corrupt(kv.key.decode(errors="replace"), f"{len(kv.value)} bytes are no object")
        (position,) = OBJECT_HEADER.unpack_from(kv.value)
        return kv.key[len(under) :].decode(), position, kv.value[OBJECT_HEADER.size :]


def end_of(prefix: bytes) -> bytes:
    """The first key after all keys with this prefix. Our prefixes end in '/', so the last byte never overflows."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
