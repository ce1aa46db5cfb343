"""The history a store holds, read back from its journal batch by batch, and what no history may contain.

Owns the replay: which command made which effects at which revision, and after every one of them the sums over bindings. Never
asks the authority that wrote it; what that one derives is compared with this afterwards, in verify.py.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from fairlead.authority.hot import BindingHot, hot_of
from fairlead.authority.state import DECODERS, RECEIPTS
from fairlead.model.commands import Bind, Command
from fairlead.model.ids import revision, split_key
from fairlead.model.journal import Entry, chain_hash, decode_blob, decode_command
from fairlead.model.lifecycle import HOLDS_CAPACITY
from fairlead.store.contract import NO_HASH, Batch, Compacted, Store

_uid_of = msgspec.msgpack.Decoder(dict[str, Any]).decode


class Done(msgspec.Struct, frozen=True):
    """One command in the journal."""

    revision: int  # of the last of its own effects
    uid: str  # of the object that effect wrote; empty where it removed one
    epoch: int  # of the leader that committed it


class History:
    def __init__(self) -> None:
        self.commands: dict[str, list[Done]] = {}  # by correlation: exactly one each, or something is wrong
        self.objects: dict[str, tuple[int, bytes]] = {}  # the position that wrote each, and what it wrote
        self.faults: list[str] = []
        self.position = 0
        self.batches = 0
        self.epochs: dict[int, str] = {}
        self.node_used: Counter[tuple[str, str]] = Counter()  # (node, dimension)
        self.tenant_used: Counter[tuple[str, str]] = Counter()
        self._hash = NO_HASH
        self._epoch = 0
        self._bound: Counter[tuple[str, str, int]] = Counter()

    def batch(self, batch: Batch) -> None:
        if batch.first != self.position + 1 or batch.previous != self._hash:
            self.faults.append(f"batch {batch.first} does not follow {self.position} (S18)")
        if chain_hash(batch.previous, batch.blob) != batch.hash:
            self.faults.append(f"batch {batch.first}: the chain does not verify (S18)")
        blob = decode_blob(batch.blob)
        header = blob.header
        if header.epoch < self._epoch or self.epochs.setdefault(header.epoch, header.holder) != header.holder:
            self.faults.append(f"batch {batch.first} is of epoch {header.epoch}, {header.holder} after {self._epoch} (S9)")
        self._epoch = max(self._epoch, header.epoch)
        for entry in blob.entries:
            self._entry(entry, header.incarnation, header.epoch)
        if self.position != batch.last:
            self.faults.append(f"batch {batch.first} reaches {self.position}, not {batch.last}")
        self._hash = batch.hash
        self.batches += 1

    def _entry(self, entry: Entry, incarnation: int, epoch: int) -> None:
        command = decode_command(entry.command)
        done = Done(0, "", epoch)
        for object_key, raw in entry.effects:
            self.position += 1
            self._effect(object_key, raw)
            if not object_key.startswith(f"{RECEIPTS}/"):
                uid = _uid_of(raw)["metadata"].get("uid", "") if raw is not None and command is not None else ""
                done = Done(revision(incarnation, self.position), uid, epoch)
        if command is not None:
            self._command(command, done)

    def _command(self, command: Command, done: Done) -> None:
        if command.correlation:
            self.commands.setdefault(command.correlation, []).append(done)
        body = command.body
        if isinstance(body, Bind):
            slot = (body.tenant, body.name, body.epoch)
            self._bound[slot] += 1
            if self._bound[slot] > 1:
                self.faults.append(f"slot {slot} was bound {self._bound[slot]} times (S1)")
            self._within_limits(body)

    def _within_limits(self, body: Bind) -> None:
        """Asked after every commit that raises use (S2, S4)."""
        node = DECODERS["nodes"].decode(self.objects[f"nodes//{body.node}"][1])
        for dimension, room in node.spec.allocatable.amounts().items():
            if self.node_used[body.node, dimension] > room:
                self.faults.append(f"at {self.position} node {body.node} is above its {dimension} (S2)")
        grant = DECODERS["grants"].decode(self.objects[f"grants/{body.tenant}/{node.spec.region}"][1])
        for dimension, limit in grant.spec.during.amounts().items():
            if self.tenant_used[body.tenant, dimension] > limit:
                self.faults.append(f"at {self.position} tenant {body.tenant} is above its grant of {dimension} (S4)")

    def _effect(self, object_key: str, raw: bytes | None) -> None:
        plural, tenant, _ = split_key(object_key)
        if plural == "bindings":
            old = self.objects.get(object_key)
            before: BindingHot | None = hot_of(plural, old[1]) if old is not None else None
            after: BindingHot | None = hot_of(plural, raw) if raw is not None else None
            held = before is not None and before.state in HOLDS_CAPACITY
            if held and before is not None and after is not None and (before.node, before.token) != (after.node, after.token):
                self.faults.append(f"{object_key} was bound again while it was live (S1)")
            self._book(tenant, before, -1)
            self._book(tenant, after, 1)
        if raw is None:
            self.objects.pop(object_key, None)
        else:
            self.objects[object_key] = (self.position, raw)

    def _book(self, tenant: str, binding: BindingHot | None, sign: int) -> None:
        if binding is None or binding.state not in HOLDS_CAPACITY:
            return
        for dimension, amount in binding.requests.amounts().items():
            self.node_used[binding.node, dimension] += sign * amount
            self.tenant_used[tenant, dimension] += sign * amount


async def read_history(store: Store) -> History:
    """From the first batch to the head. The store must still have all of it."""
    history = History()
    head = await store.head()
    while history.position < head.position:
        batches = await store.tail(history.position)
        assert not isinstance(batches, Compacted), f"the journal starts after {batches.truncated}: history was cut off"
        assert batches, f"the head is at {head.position}, but the journal ends at {history.position}"
        for batch in batches:
            history.batch(batch)
    return history
