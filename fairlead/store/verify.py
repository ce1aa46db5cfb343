"""Reads everything a store or a backup holds and names each fault with its place. Repairs nothing and writes nothing.

Trusts no row: hashes are computed again, every object and command is decoded, and the objects are compared with what the
journal says they must be. Works beside a running leader. Called by `fairlead store verify`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from fairlead.model import codec
from fairlead.model.anchor import Anchor, anchor_is_genuine, decode_anchor
from fairlead.model.ids import split_key
from fairlead.model.journal import Blob, Header, decode_command
from fairlead.model.registry import KINDS
from fairlead.store.backup import BackupDamaged, BackupFile
from fairlead.store.contract import (
    FORMAT,
    NO_HASH,
    Batch,
    Compacted,
    Corrupt,
    Head,
    ObjectRow,
    Store,
    StoreUnreachable,
)
from fairlead.store.snapshot import ATTEMPTS_MAX, CLOCK_KEY, effects_of, open_batch

FAULTS_MAX = 100  # A store with more is beyond reading one by one.
ROW_NUMBER = re.compile(r"(\d+)$")  # Where an engine says which row it could not give back.

Progress = Callable[[str, int], None]  # what is being read, and how many of it are done


class Fault(msgspec.Struct, frozen=True):
    where: str
    detail: str


class Report(msgspec.Struct, frozen=True):
    position: int
    incarnation: int
    objects: int
    batches: int
    effects: int
    compared_after: int  # objects written after this position were compared with the journal's effects
    anchor: str
    faults: tuple[Fault, ...]


async def verify_store(store: Store, told: Progress = lambda what, done: None, keys: Sequence[bytes] = ()) -> Report:
    """`keys`: under one of which the place must be signed where the journal was cut; without any it is not looked at."""
    for _ in range(ATTEMPTS_MAX):
        walk = _Walk(told, keys)
        if await walk.store(store):
            return walk.report()
    raise StoreUnreachable(f"the journal was cut off {ATTEMPTS_MAX} times while it was read; try again")


def verify_backup(backup: BackupFile, told: Progress = lambda what, done: None) -> Report:
    walk = _Walk(told)
    header = backup.header
    walk.compared_after = header.position
    try:
        backup.check(walk.decode)
    except BackupDamaged as damage:
        walk.fault(damage.where, damage.detail)
    return Report(header.position, header.incarnation, walk.objects, 0, 0, header.position, "none", tuple(walk.faults))


# Tables of the authority's own, beside the kinds. Their records are its business; that they can be read at all is ours.
def _clock_row(raw: bytes) -> None:
    if len(raw) != 8:
        raise ValueError(f"a clock has 8 bytes, not {len(raw)}")


def decoders() -> dict[str, Callable[[bytes], Any]]:
    table: dict[str, Callable[[bytes], Any]] = {plural: codec.decoder(info.record).decode for plural, info in KINDS.items()}
    return table | {"receipts": msgspec.msgpack.decode, "sessions": msgspec.msgpack.decode, "clock": _clock_row}


class _Walk:
    def __init__(self, told: Progress, keys: Sequence[bytes] = ()) -> None:
        self._told = told
        self._keys = keys
        self._decoders = decoders()
        # Of every effect in the journal: its position and a digest of the image, empty for a deletion.
        self._effects: dict[str, list[tuple[int, bytes]]] = {}
        self._header: Header | None = None  # of the batch before
        self._readable = True  # no journal row was skipped, so objects can be compared with effects
        self.faults: list[Fault] = []
        self.objects = self.batches = self.effects = 0
        self.compared_after = 0
        self.anchor = "none"
        self._head: Head | None = None

    def fault(self, where: str, detail: str) -> None:
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(Fault(where, detail))

    def report(self) -> Report:
        head = self._head
        assert head is not None, "a report before the walk"
        return Report(
            head.position, head.incarnation, self.objects, self.batches, self.effects, self.compared_after, self.anchor,
            tuple(self.faults),
        )  # fmt: skip

    async def store(self, store: Store) -> bool:
        """False when a leader cut the journal off under us. The journal comes first: it is what objects are compared with, and a
        leader may go on meanwhile, so what it wrote until the objects were opened is read after them."""
        head = await store.head()
        chain = self._check_head(head)
        self.compared_after = head.truncated
        reached = await self._journal(store, head.truncated, chain, head)
        if reached is None:
            return False
        checkpoint = await store.load()
        self._head = checkpoint.head
        if checkpoint.head.position > head.position:
            reached = await self._journal(store, *reached, checkpoint.head)
        try:
            async for rows in checkpoint.chunks:
                for row in rows:
                    self.decode(row)
                    self._compare(row, checkpoint.position, checkpoint.head.position)
                self._told("objects", self.objects)
        except Corrupt as corrupt:
            self.fault(corrupt.where, _plain(corrupt))
            self._readable = False
        self._missing(checkpoint.position)
        return reached is not None

    # --- the head

    def _check_head(self, head: Head) -> bytes:
        """The hash that the journal's first row must continue; empty if it is not known."""
        if head.format > FORMAT:
            self.fault("head", f"format {head.format} is newer than {FORMAT}")
        if not head.truncated <= head.materialised <= head.position:
            order = f"truncated {head.truncated}, materialised {head.materialised}, position {head.position}"
            self.fault("head", f"{order}: they must come in this order")
        if not head.truncated:
            return NO_HASH
        try:
            anchor: Anchor = decode_anchor(head.anchor)
        except (msgspec.DecodeError, ValueError) as error:
            self.fault("anchor", f"what the cut journal left behind cannot be read: {error}")
            return b""
        self.anchor = self._signed(anchor, head.anchor)
        if anchor.position != head.truncated:
            self.fault("anchor", f"it speaks of position {anchor.position}, the journal was cut at {head.truncated}")
            return b""
        return anchor.hash

    def _signed(self, anchor: Anchor, raw: bytes) -> str:
        if not anchor.signature:
            return "unsigned: of a restore, or of a server without keys"
        if not self._keys:
            return "signed, not checked: no keys were given"
        if not anchor_is_genuine(self._keys, raw):
            self.fault("anchor", "it is signed under none of the keys that were given: the journal was cut by somebody else")
        return "signed"

    # --- the journal

    async def _journal(self, store: Store, after: int, chain: bytes, head: Head) -> tuple[int, bytes] | None:
        """Where the walk ended and the hash there, empty if not known; None when the journal was cut off meanwhile."""
        limit: dict[str, int] = {}
        while after < head.position and len(self.faults) < FAULTS_MAX:
            try:
                batches = await store.tail(after, **limit)
            except Corrupt as corrupt:
                if not limit:  # Once more, row by row: those before the damaged one are still to be read.
                    limit = {"limit_bytes": 1}
                    continue
                row = ROW_NUMBER.search(corrupt.where)
                self.fault(corrupt.where, _plain(corrupt))
                self._readable = False
                if row is None or int(row[1]) <= after:
                    return after, b""
                after, chain = int(row[1]), b""
                continue
            if isinstance(batches, Compacted):
                return None
            if not batches:
                if self._readable or chain:
                    self.fault(f"journal after {after}", f"the head is at {head.position}, but nothing follows")
                self._readable = False
                return head.position, b""
            for batch in batches:
                if batch.first > head.position:
                    break
                self._batch(batch, after, chain)
                after, chain = batch.last, batch.hash
            self._told("batches", self.batches)
        if chain and after == head.position and chain != head.hash:
            self.fault("head", f"it names another batch at {head.position} than the journal has")
        return after, chain

    def _batch(self, batch: Batch, after: int, chain: bytes) -> None:
        self.batches += 1
        try:
            # After a row that could not be read, where the next one starts is its own word.
            blob = open_batch(batch, after if chain or self._readable else batch.first - 1, chain)
        except Corrupt as corrupt:
            self.fault(corrupt.where, _plain(corrupt))
            self._readable = False
            return
        self._check_header(blob, batch)
        for number, entry in enumerate(blob.entries):
            try:
                decode_command(entry.command)
            except Exception as error:
                self.fault(f"journal row {batch.first}, entry {number}", f"its command cannot be read: {error}")
        for position, (key, raw) in enumerate(effects_of(blob), batch.first):
            self.effects += 1
            self._effects.setdefault(key, []).append((position, _digest(raw)))
            if raw is not None:
                self._decode(f"journal row {batch.first}, effect {position}", key, raw)

    def _check_header(self, blob: Blob, batch: Batch) -> None:
        header, before = blob.header, self._header
        where = f"journal row {batch.first}"
        if header.first != batch.first:
            self.fault(where, f"its header says that it starts at {header.first}")
        if header.format > FORMAT:
            self.fault(where, f"its format {header.format} is newer than {FORMAT}")
        if before is not None:
            if (header.incarnation, header.epoch) < (before.incarnation, before.epoch):
                self.fault(where, f"epoch {header.epoch} of incarnation {header.incarnation} comes after epoch {before.epoch}")
            if header.time_ms < before.time_ms:
                self.fault(where, "plane time goes back")
        self._header = header

    # --- the objects

    def decode(self, row: ObjectRow) -> None:
        self.objects += row[0] != CLOCK_KEY
        self._decode(f"object {row[0]}", row[0], row[2])

    def _decode(self, where: str, key: str, raw: bytes) -> None:
        try:
            plural, _, _ = split_key(key)
            self._decoders[plural](raw)
        except KeyError:
            self.fault(where, "there is no such kind")
        except Exception as error:
            self.fault(where, f"it cannot be read: {error}")

    def _compare(self, row: ObjectRow, materialised: int, head_position: int) -> None:
        """An object is what the newest effect up to `materialised` made it, or a newer one: engines may write in pieces."""
        key, position, raw = row
        if position > head_position:
            self.fault(f"object {key}", f"it was written at {position}, after the head's {head_position}")
        history = self._effects.pop(key, [])
        if not self._readable or key == CLOCK_KEY:
            return
        due = max((at for at, _ in history if at <= materialised), default=0)
        if position < due:
            self.fault(f"object {key}", f"it is as it was at {position}, but the journal changed it at {due}")
        elif position > self.compared_after and (position, _digest(raw)) not in history:
            self.fault(f"object {key}", f"it is not what the journal wrote at {position}")

    def _missing(self, materialised: int) -> None:
        """What is left had no object: right for a deletion, and for what is not materialised yet."""
        if not self._readable:
            return
        for key, history in self._effects.items():
            due = [(at, digest) for at, digest in history if at <= materialised]
            gone = any(not digest for at, digest in history if at > materialised)
            if due and due[-1][1] and not gone:
                self.fault(f"object {key}", f"it is missing; the journal wrote it at {due[-1][0]}")


def _digest(raw: bytes | None) -> bytes:
    return b"" if raw is None else hashlib.blake2b(raw, digest_size=8).digest()


def _plain(corrupt: Corrupt) -> str:
    """The detail alone: the place stands beside it, and the advice is given once at the end."""
    text = str(corrupt).removeprefix(f"{corrupt.where}: ")
    return text.partition(". The store is damaged")[0]
