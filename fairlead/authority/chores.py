"""What the authority does by itself, as commands like everybody's: ends reservations that ran out, stops what a lease that ends
leaves no room for, confirms what stays, follows owners' deletions, forgets old receipts.

Bounded work each round; everything it does is judged, journalled and audited."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from fairlead.authority.confirming import Confirming
from fairlead.authority.ending import ended_leases
from fairlead.authority.judge.context import Context, to_ms
from fairlead.authority.owners import may_have_owners
from fairlead.authority.receipts import Receipts
from fairlead.authority.state import DELETED, Rec
from fairlead.model.commands import Accepted, Caller, Command, Delete, Outcome, Put, ReleaseReservation
from fairlead.model.kinds.slot import STANDING, Token
from fairlead.model.lifecycle import Role
from fairlead.model.meta import OwnerReference
from fairlead.model.registry import BY_KIND, KINDS
from fairlead.ports import Clock

EVERY_S = 0.5
ROUND_MAX = 200
CALL_MAX = 1000
AGAIN_MS = 5_000
AUTHORITY = Caller(actor="authority", role=Role.AUTHORITY)

_OWNABLE = frozenset(plural for plural, info in KINDS.items() if may_have_owners(info))

Submit = Callable[[list[Command]], Awaitable[list[Outcome]]]


class Chores:
    def __init__(self, ctx: Context, receipts: Receipts, clock: Clock, submit: Submit) -> None:
        self._ctx = ctx
        self._receipts = receipts
        self._clock = clock
        self._submit = submit
        self._expiries: list[tuple[int, str, str, tuple[int, int, int]]] = []
        self._going: deque[tuple[str, str]] = deque()  # (owner's uid, its key) whose dependents need attention
        self._confirming = Confirming(ctx)
        ctx.state.derive("reservations", self._reservation_changed)
        for rec in ctx.state.live("reservations"):  # of the terms before
            self._reservation_changed(None, rec)

    def _reservation_changed(self, old: Rec | None, new: Rec | None) -> None:
        if new is None:
            return
        spec = new.hot.spec
        if spec.expiry_time is not None and spec.token is not None:
            token = (spec.token.incarnation, spec.token.epoch, spec.token.attempt)
            heapq.heappush(self._expiries, (to_ms(spec.expiry_time), new.tenant, new.name, token))

    def note(self, recs: list[Rec]) -> None:
        """A durable batch: remember owners that went, or wait to go."""
        for rec in [rec for rec in recs if rec.plural in _OWNABLE]:
            last = rec.hot if rec.change != DELETED else rec.previous.hot if rec.previous is not None else None
            if last is None:
                continue
            metadata = last.metadata
            if rec.change == DELETED:
                if self._ctx.owners.has_dependents(metadata.uid):
                    self._going.append((metadata.uid, rec.key))
                self._recheck_owners(metadata)
            elif metadata.deletion_time is not None:
                self._going.append((metadata.uid, rec.key))

    def _recheck_owners(self, metadata: Any) -> None:
        """A dependent went: its owner may have been waiting for that."""
        for reference in metadata.owner_references:
            self._going.append((reference.uid, _owner_key(reference, metadata.namespace)))

    def find_dangling(self) -> None:
        """At the start of a term: owners that went while nobody was there to follow."""
        alive: set[str] = set()
        for plural, info in KINDS.items():
            if not may_have_owners(info):
                continue
            for rec in self._ctx.state.live(plural):
                alive.add(rec.hot.metadata.uid)
                if rec.hot.metadata.deletion_time is not None:
                    self._going.append((rec.hot.metadata.uid, rec.key))
        self._going.extend((uid, "") for uid in self._ctx.owners.owner_uids() if uid not in alive)

    async def run(self) -> None:
        self.find_dangling()
        while True:
            await self._clock.sleep(EVERY_S)
            commands = self._expired_reservations() + self._garbage() + self._old_receipts() + ended_leases(self._ctx)
            commands += self._confirming.commands()
            for start in range(0, len(commands), CALL_MAX):  # of one that is too large, nothing at all would be done
                part = commands[start : start + CALL_MAX]
                self._again(part, await self._submit(part))

    def _again(self, commands: list[Command], outcomes: list[Outcome]) -> None:
        """A reservation whose end was not taken (a store that was away) is ended later: nobody else would. Not a budget's room:
        the next round asks anew whether it must go."""
        for command, outcome in zip(commands, outcomes, strict=True):
            body = command.body
            if not isinstance(body, ReleaseReservation) or body.name.startswith(STANDING):
                continue
            if not isinstance(outcome, Accepted):
                token = (body.token.incarnation, body.token.epoch, body.token.attempt)
                heapq.heappush(self._expiries, (self._ctx.plane_ms() + AGAIN_MS, body.tenant, body.name, token))

    def _expired_reservations(self) -> list[Command]:
        out: list[Command] = []
        now_ms = self._ctx.plane_ms()
        while self._expiries and self._expiries[0][0] <= now_ms and len(out) < ROUND_MAX:
            _, tenant, name, token = heapq.heappop(self._expiries)
            body = ReleaseReservation(tenant, name, Token(incarnation=token[0], epoch=token[1], attempt=token[2]))
            out.append(Command(AUTHORITY, body))
        return out

    def _old_receipts(self) -> list[Command]:
        names = self._receipts.expired_keys(self._ctx.plane_ms() - self._ctx.unmeasured_ms)
        return [Command(AUTHORITY, Delete("Receipt", "", name)) for name in names]

    # --- dependents of what went --------------------------------------------------------------------------------------

    def _garbage(self) -> list[Command]:
        out: list[Command] = []
        for _ in range(min(len(self._going), ROUND_MAX)):
            uid, owner_key = self._going.popleft()
            owner = self._owner(owner_key, uid)
            dependents = self._ctx.owners.dependents(uid)
            if owner is not None and owner.metadata.deletion_time is None:
                continue
            finalizers = owner.metadata.finalizers if owner is not None else ()
            if "orphan" in finalizers:
                out.extend(_without_owner(rec, uid) for rec in dependents)
            elif owner is None or "foregroundDeletion" in finalizers:
                out.extend(self._left_by(rec, uid) for rec in dependents if rec.hot.metadata.deletion_time is None)
            finished = _finished(owner_key, owner) if owner is not None and not dependents else []
            out.extend(finished)
            if dependents or finished:  # looked at until it is so: the store may refuse
                self._going.append((uid, owner_key))
            if len(out) >= ROUND_MAX:
                break
        return out

    def _left_by(self, rec: Rec, uid: str) -> Command:
        """A dependent whose owner goes: with the last of its owners it goes, too."""
        metadata = rec.hot.metadata
        others = [reference for reference in metadata.owner_references if reference.uid != uid]
        if any(self._is_there(each, metadata.namespace) for each in others):
            return _without_owner(rec, uid)
        return _delete(rec)

    def _is_there(self, reference: OwnerReference, namespace: str) -> bool:
        owner = self._owner(_owner_key(reference, namespace), reference.uid)
        return owner is not None and owner.metadata.deletion_time is None

    def _owner(self, owner_key: str, uid: str) -> Any:
        if not owner_key:
            return None
        plural, tenant, name = owner_key.split("/", 2)
        found = self._ctx.state.hot(plural, tenant, name)
        return found if found is not None and found.metadata.uid == uid else None


def _owner_key(reference: OwnerReference, namespace: str) -> str:
    """Where it is, if it is: an owner lies in the tenant of what it owns, or in none."""
    info = BY_KIND.get(reference.kind)
    return f"{info.plural}/{namespace if info.namespaced else ''}/{reference.name}" if info is not None else ""


def _delete(rec: Rec) -> Command:
    return Command(AUTHORITY, Delete(KINDS[rec.plural].kind, rec.tenant, rec.name, uid=rec.hot.metadata.uid))


def _without_owner(rec: Rec, uid: str) -> Command:
    metadata = rec.hot.metadata
    left = tuple(reference for reference in metadata.owner_references if reference.uid != uid)
    changed = msgspec.structs.replace(rec.hot, metadata=msgspec.structs.replace(metadata, owner_references=left))
    return Command(AUTHORITY, Put(KINDS[rec.plural].kind, changed, mode="update"))


def _finished(owner_key: str, owner: Any) -> list[Command]:
    """No dependents left: take our own finalizers off; the object goes with the last one."""
    left = tuple(f for f in owner.metadata.finalizers if f not in ("foregroundDeletion", "orphan"))
    if left == owner.metadata.finalizers:
        return []
    changed = msgspec.structs.replace(owner, metadata=msgspec.structs.replace(owner.metadata, finalizers=left))
    return [Command(AUTHORITY, Put(KINDS[owner_key.split("/", 1)[0]].kind, changed, mode="update"))]
