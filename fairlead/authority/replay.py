"""Judging a recorded history again: the same commands, the same soft facts, the same plane time must give the same effects (P2).

A difference means that judging is not pure, or that this version decides otherwise than the one that wrote the journal.
Called by `fairlead replay --verify` and by tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from fairlead.authority.hot import hot_of
from fairlead.authority.judge import Context, Settings, judge
from fairlead.authority.state import RECEIPTS, SESSIONS, State
from fairlead.model import codec
from fairlead.model.commands import Refused
from fairlead.model.hot import DECODERS
from fairlead.model.ids import split_key
from fairlead.model.journal import Entry, decode_blob, decode_command
from fairlead.model.settling import settled
from fairlead.store.contract import Batch, ObjectRow

_Effects = list[tuple[str, bytes | None]]


class Difference(msgspec.Struct, frozen=True):
    position: int
    detail: str


class Replay:
    def __init__(self, settings: Settings) -> None:
        self._state = State(hot_of)
        self._ctx = Context(self._state, settings)
        self.differences: list[Difference] = []
        self.judged = 0
        self._epoch = 0
        self._then, self._now = hashlib.sha256(), hashlib.sha256()

    def begin(self, rows: Iterable[ObjectRow], position: int, epoch: int, leader_since_ms: int) -> None:
        """From the state at a point instead of from nothing, in the term that was then."""
        self._state.load(rows, position)
        self._state.loaded(position)
        self._epoch, self._ctx.leader_since_ms = epoch, leader_since_ms

    @property
    def hashes(self) -> tuple[str, str]:
        """Of every verdict's effects: as they were recorded, and as they are now."""
        return self._then.hexdigest(), self._now.hexdigest()

    def objects(self) -> Iterator[tuple[str, bytes]]:
        """What is there after the last batch, in order of keys."""
        found = [(rec.key, rec.raw) for plural in self._state.plurals() for rec in self._state.live(plural)]
        yield from sorted((str(key), raw) for key, raw in found if raw is not None)

    def feed(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            blob = decode_blob(batch.blob)
            self._ctx.begin(blob.header.incarnation)
            self._ctx.set_time(blob.header.time_ms)
            if blob.header.epoch != self._epoch:
                self._epoch = blob.header.epoch
                self._ctx.leader_since_ms = blob.header.time_ms
            for entry in blob.entries:
                self._again(entry)
                for object_key, raw in entry.effects:
                    plural, tenant, name = split_key(object_key)
                    self._state.apply(plural, tenant, name, raw)
            self._state.confirm(batch.last)

    def _again(self, entry: Entry) -> None:
        command = decode_command(entry.command)
        if command is None:
            return
        for node, observed_ms in entry.soft:
            self._ctx.ledger.node(node).observed_ms = observed_ms
        self.judged += 1
        position = self._state.position + 1
        judged = judge(self._ctx, command)
        self._state.undo_to(position - 1)  # the parts of a command see each other; what was recorded is applied below
        then: _Effects = [(key, raw) for key, raw in entry.effects if not key.startswith((f"{RECEIPTS}/", f"{SESSIONS}/"))]
        self._then.update(codec.encode(then))
        if isinstance(judged, Refused):
            self._now.update(judged.reason.encode())
            self.differences.append(Difference(position, f"refused now: {judged.reason}: {judged.detail}"))
            return
        now: _Effects = [(effect.key, effect.raw) for effect in judged.effects if not effect.key.startswith(f"{RECEIPTS}/")]
        if now != then and _as_stored_now(now) == _as_stored_now(then):
            now = then
        self._now.update(codec.encode(now))
        if now != then:
            self.differences.append(
                Difference(position, f"effects differ: {[k for k, _ in then]} then, {[k for k, _ in now]} now")
            )


def _as_stored_now(effects: _Effects) -> _Effects:
    """Servers before this one stored equal objects in more than one form: what is compared is what they mean."""
    return [(object_key, _settled(split_key(object_key)[0], raw)) for object_key, raw in effects]


def _settled(plural: str, raw: bytes | None) -> bytes | None:
    return raw if raw is None or plural not in DECODERS else codec.encode(settled(DECODERS[plural].decode(raw)))
