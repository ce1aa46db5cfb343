"""Once and only once (P7): what each command id came to, so that a repetition gets the same answer and changes nothing.

Components number their commands within a session; people send an Idempotency-Key that is kept for 24 hours, after which nothing
tells it from a new one (ADR 0041). Both are stored with the effects they belong to, in the same batch. Refusals are remembered in
memory for as long as the session may repeat them: a late duplicate of a refused command must not take effect after all.
Called by the pipeline before and after judging.
"""

from __future__ import annotations

import hashlib
import heapq
from typing import NamedTuple, TypeVar

import msgspec

from fairlead.authority.judge.context import Context, Effect
from fairlead.authority.state import RECEIPTS, SESSIONS, Rec, State, at
from fairlead.model import codec
from fairlead.model.commands import (
    Accepted,
    Bind,
    BindGang,
    BindMany,
    Caller,
    Command,
    IdempotencyKey,
    Refused,
    ReleaseReservation,
    Reserve,
    SessionId,
)
from fairlead.model.kinds.slot import Token

# P7: a slot's own state is the receipt of the commands that place it.
OWN_RECEIPT = frozenset({Bind, BindMany, Reserve, BindGang, ReleaseReservation})
KEY_RETENTION_MS = 24 * 3600 * 1000
REFUSED_KEYS_MAX = 10_000  # Refusals of people's keys kept in memory, for copies that come late within one term.
_ANSWER_BYTES = 100  # what one takes at most in a session's window, encoded, besides the names in it
WINDOW_MAX = 1024  # Answers kept for one session. A client that has more commands under way is not waiting for any of them.


class Answer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What an accepted command came to."""

    position: int
    body_hash: bytes
    key: str = ""
    uid: str = ""
    epoch: int = 0
    token: Token | None = None
    time_ms: int = 0
    incarnation: int = 1
    unmeasured_ms: int = 0  # of that time; kept of people's keys only, which are forgotten by their age

    @property
    def measured_ms(self) -> int:
        """A wall clock that was set forward must not make it any older: forgotten, its command would be executed again."""
        return self.time_ms - self.unmeasured_ms


class _Window(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A session as it is stored."""

    floor: int
    answers: tuple[tuple[int, Answer], ...]
    time_ms: int = 0
    incarnation: int = 1


class _Refusal(NamedTuple):
    hashed: bytes
    refused: Refused
    position: int  # of the head it was judged on


class _Session:
    __slots__ = ("answers", "changed_at", "floor", "refused")

    def __init__(self, floor: int = 0, answers: dict[int, Answer] | None = None) -> None:
        self.floor = floor
        self.answers = answers if answers is not None else {}
        self.refused: dict[int, _Refusal] = {}
        self.changed_at = 0


_Id = TypeVar("_Id", int, str)

_encode = codec.encode
_decode_window = codec.decoder(_Window).decode
_decode_answer = codec.decoder(Answer).decode


def body_hash(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=8).digest()


def hash_of(command: Command, body: bytes) -> bytes:
    """By what a repetition of this command is known."""
    return (command.id.request if type(command.id) is IdempotencyKey else b"") or body_hash(body)


def key_name(actor: str, key: str) -> str:
    """Keys belong to whoever sent them: two people may choose the same."""
    return hashlib.blake2b(f"{actor}\0{key}".encode(), digest_size=16).hexdigest()


class Receipts:
    def __init__(self, state: State) -> None:
        self._state = state
        self._sessions: dict[str, _Session] = {}
        self._touched: dict[str, _Session] = {}  # changed since their record was last written
        self._refused_keys: dict[str, _Refusal] = {}
        self._ages: list[tuple[int, str]] = []  # a heap of (when, receipt): a start loads them in no order of time
        self._old: dict[str, None] = {}  # receipts that are to be forgotten, until they are
        state.derive(RECEIPTS, self._key_changed)

    def _key_changed(self, old: Rec | None, new: Rec | None) -> None:
        if old is not None:
            self._old.pop(old.name, None)
        if new is not None and new.raw is not None:
            heapq.heappush(self._ages, (_decode_answer(new.raw).measured_ms, new.name))

    def _session(self, ctx: Context, client: str) -> _Session:
        session = self._sessions.get(client)
        if session is None:
            rec = self._state.get(SESSIONS, "", client)
            if rec is not None and rec.raw is not None:
                window = _decode_window(rec.raw)
                session = _Session(window.floor, dict(window.answers))
                if window.incarnation != ctx.incarnation:
                    # A restore lies between: what was answered then belongs to a history that may be gone (S16).
                    session = _Session(max(dict(window.answers), default=window.floor - 1) + 1)
            else:
                session = _Session()
            self._sessions[client] = session
        return session

    # --- before judging ----------------------------------------------------------------------------------------------

    def find(self, ctx: Context, command: Command, hashed: bytes) -> Accepted | Refused | None:
        """The answer this id already has; None if it is new."""
        identity = command.id
        if isinstance(identity, SessionId):
            return self._find_in_session(ctx, identity, hashed)
        if identity is None:
            return None
        name = key_name(command.caller.actor, identity.key)
        rec = self._state.get(RECEIPTS, "", name)
        if rec is None or rec.raw is None:
            return _again(self._refused_keys.get(name), hashed)
        return _repeat(ctx, _decode_answer(rec.raw), hashed)

    def _find_in_session(self, ctx: Context, identity: SessionId, hashed: bytes) -> Accepted | Refused | None:
        session = self._sessions.get(identity.client) or self._session(ctx, identity.client)
        sequence, floor = identity.sequence, identity.floor
        if sequence < session.floor:
            detail = f"{identity.client} has said it will not send {sequence} again (floor {session.floor})"
            return Refused("ReceiptExpired", detail)
        if floor > session.floor:
            session.floor = floor
            answers = session.answers  # in order of acceptance: what lies below the floor lies in front, but for a late straggler
            while answers and (oldest := next(iter(answers))) < floor:
                del answers[oldest]
            if session.refused:
                session.refused = {n: refused for n, refused in session.refused.items() if n >= floor}
        answer = session.answers.get(sequence)
        if answer is not None:
            return _repeat(ctx, answer, hashed)
        return _again(session.refused.get(sequence), hashed) if session.refused else None

    def lookup(self, ctx: Context, actor: str, key: str) -> Accepted | Refused | None:
        """For a caller who asks what its key came to: only what is durable counts."""
        rec = at(self._state.bucket(RECEIPTS, "").members.get(key_name(actor, key)), self._state.durable)
        if rec is None or rec.raw is None:
            return None
        answer = _decode_answer(rec.raw)
        found = _repeat(ctx, answer, answer.body_hash)
        return msgspec.structs.replace(found, request=answer.body_hash) if isinstance(found, Accepted) else found

    # --- after judging -----------------------------------------------------------------------------------------------

    def effect_of_key(
        self, ctx: Context, caller: Caller, identity: IdempotencyKey, hashed: bytes, told: Accepted, position: int
    ) -> Effect:
        """The receipt of an Idempotency-Key: one more effect of its command, whose own last one comes to stand at `position`."""
        answer = Answer(
            position, hashed, told.key, told.uid, told.epoch, told.token, ctx.now_ms, ctx.incarnation, ctx.unmeasured_ms
        )
        return Rec(RECEIPTS, "", key_name(caller.actor, identity.key), 0, _encode(answer))

    def window_bytes(self, command: Command, told: Accepted) -> int:
        """How much longer the batch gets by this answer, and by those of its session that it does not carry yet."""
        identity = command.id
        if type(identity) is not SessionId:
            return 0
        own = _ANSWER_BYTES + len(told.key) + len(told.uid)
        if identity.client in self._touched:
            return own
        return own + sum(
            _ANSWER_BYTES + len(each.key) + len(each.uid) for each in self._sessions[identity.client].answers.values()
        )

    def accepted(self, ctx: Context, command: Command, hashed: bytes, told: Accepted, position: int) -> None:
        """Remembers the answer."""
        identity = command.id
        if type(identity) is not SessionId:
            return
        client = identity.client
        session = self._sessions[client]  # `find` was asked before
        answers = session.answers
        self._touched[client] = session
        answers[identity.sequence] = Answer(
            position, hashed, told.key, told.uid, told.epoch, told.token, ctx.now_ms, ctx.incarnation
        )
        if len(answers) > WINDOW_MAX:
            oldest = next(iter(answers))  # in order of acceptance, which is near enough to that of sequence
            del answers[oldest]
            session.floor = max(session.floor, oldest + 1)
        session.changed_at = position

    def refused(self, ctx: Context, command: Command, hashed: bytes, refused: Refused) -> None:
        refusal = _Refusal(hashed, refused, self._state.position)
        if isinstance(command.id, SessionId):
            session = self._session(ctx, command.id.client)
            session.refused[command.id.sequence] = refusal
            if len(session.refused) > WINDOW_MAX:
                oldest = min(session.refused)
                del session.refused[oldest]
                session.floor = max(session.floor, oldest + 1)  # what is not remembered must not take effect after all
        elif isinstance(command.id, IdempotencyKey) and refused.reason != "Conflict":
            # A conflict is left out: what rests on a version that is gone can never take effect, and whoever serves the caller
            # makes the change again on the present one, under the same key.
            self._refused_keys[key_name(command.caller.actor, command.id.key)] = refusal
            if len(self._refused_keys) > REFUSED_KEYS_MAX:
                del self._refused_keys[next(iter(self._refused_keys))]

    def seal(self, ctx: Context) -> list[Effect]:
        """The windows of the sessions that this batch changed, as its last effects."""
        out = []
        for client, session in self._touched.items():
            window = _Window(session.floor, tuple(session.answers.items()), ctx.now_ms, ctx.incarnation)
            out.append(Rec(SESSIONS, "", client, 0, _encode(window)))
        self._touched.clear()
        return out

    def undone(self, ctx: Context, position: int) -> None:
        """Effects after `position` were taken back: forget what they told the sessions, and read it again.
        Refusals that rested on them go too: none of those has been answered yet. Earlier ones may have been, and stay."""
        self._touched.clear()
        self._refused_keys = _judged_by(position, self._refused_keys)
        for client, session in list(self._sessions.items()):
            session.refused = _judged_by(position, session.refused)
            if session.changed_at > position:
                del self._sessions[client]
                read = self._session(ctx, client)
                read.refused, read.floor = session.refused, max(session.floor, read.floor)

    def expired_keys(self, measured_ms: int, limit: int = 500) -> list[str]:
        """By plane time without what nobody has measured of it."""
        ages, old = self._ages, self._old
        while ages and len(old) < limit and ages[0][0] + KEY_RETENTION_MS <= measured_ms:
            since_ms, name = heapq.heappop(ages)
            rec = self._state.get(RECEIPTS, "", name)
            if rec is not None and rec.raw is not None and _decode_answer(rec.raw).measured_ms == since_ms:
                old[name] = None
        return list(old)


def _judged_by(position: int, refusals: dict[_Id, _Refusal]) -> dict[_Id, _Refusal]:
    return {name: refusal for name, refusal in refusals.items() if refusal.position <= position}


def _again(refusal: _Refusal | None, hashed: bytes) -> Refused | None:
    return None if refusal is None else refusal.refused if refusal.hashed == hashed else _reused()


def _repeat(ctx: Context, answer: Answer, hashed: bytes) -> Accepted | Refused:
    if answer.body_hash != hashed:
        return _reused()
    if answer.incarnation != ctx.incarnation:
        return Refused("ReceiptExpired", "this was answered before a restore; read the object to see what is left of it")
    return Accepted(ctx.revision(answer.position), answer.key, answer.uid, answer.epoch, answer.token, replayed=True)


def _reused() -> Refused:
    return Refused("IdReused", "this id was used for a command with another body; choose a new id")
