"""Recorded decisions taken again by the scheduler's own functions: under the policy that decided then, and under another one.

Owns the comparison, and the words for what made the difference: a gate or a score. Each decision is taken again on the state it
was taken on, as far as its evidence said the scheduler's picture went, with what was bound since; what another policy would have
led to later is not followed. Reads no file and no clock. main hands it to `fairlead replay`, which feeds it a region's history.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

import msgspec

from fairlead.decide.plugins import BUILT_INS, Registry
from fairlead.model import codec
from fairlead.model.commands import Bind, BindGang, BindMany, Command, PutStatus
from fairlead.model.hot import hot_of
from fairlead.model.ids import revision, split_key, split_revision
from fairlead.model.journal import Entry, decode_blob, decode_command
from fairlead.model.kinds.policy import SchedulerPolicy
from fairlead.model.kinds.work import SchedulingRequest, SchedulingRequestStatus
from fairlead.model.lifecycle import Role
from fairlead.scheduler.observer import FOLLOWED
from fairlead.scheduler.picture import Choice, Picture, Seen
from fairlead.scheduler.shapes import Shape
from fairlead.store.contract import Batch, ObjectRow

# Why a slot waits where that was decided by looking at nodes, grants and classes; the other reasons are the queue's.
_LOOKED: Final = frozenset(
    {"Misconfigured", "NoMatchingCapacity", "ResidencyBlocked", "ExceedsMaxQuota", "WaitingForQuota", "WaitingForCapacity",
     "TopologyBlocked", "PolicyAuthorityUnreachable"}
)  # fmt: skip
_SCORES_TOLD: Final = 3
_GATES_TOLD: Final = 3


class Otherwise(msgspec.Struct, frozen=True):
    """One decision that would have been another."""

    position: int
    time_ms: int
    slot: str  # TENANT/NAME
    then: Choice  # by the policy of then
    forked: Choice
    by: str  # what made the difference: "gate NAME", "score NAME", "quota", "class", "preemption", "tie"
    why: str


class Tally(msgspec.Struct):
    decided: int = 0  # placements decided again
    same: int = 0  # of those, as recorded
    drawn: int = 0  # decided by chance among several nodes: not compared
    refused: int = 0  # proposals that the authority refused then: not compared
    waits: int = 0  # recorded reasons looked at again
    waits_same: int = 0


class Fork:
    """Feed it the history of a region. Without `fork` it only says whether what was recorded comes out again."""

    def __init__(self, region: str, registry: Registry = BUILT_INS) -> None:
        self._then = Picture(region, registry)
        self._forked: Picture | None = None
        self._region, self._registry = region, registry
        self._unseen: deque[Seen] = deque()  # committed, and not in a scheduler's picture yet
        self._early: dict[tuple[str, str, str], int] = {}  # what schedulers knew before they saw it: their own binds
        self._requests: dict[tuple[str, str], SchedulingRequest] = {}
        self._incarnation = 0
        self._recorded, self._again = hashlib.sha256(), hashlib.sha256()
        self.tally = Tally()
        self.otherwise: list[Otherwise] = []
        self.not_same: list[tuple[int, str, str, str]] = []  # position, slot, then, again

    def fork(self, policy: SchedulerPolicy | None) -> None:
        """Under this revision too; None: the built-in one. Before anything is fed."""
        self._forked = Picture(self._region, self._registry)
        self._forked.fix(policy)

    @property
    def hashes(self) -> tuple[str, str]:
        """Of every placement that was decided again: as recorded, and as it comes out now."""
        return self._recorded.hexdigest(), self._again.hexdigest()

    def causes(self) -> dict[str, int]:
        return dict(sorted(Counter(one.by for one in self.otherwise).items(), key=lambda pair: (-pair[1], pair[0])))

    # --- the history -----------------------------------------------------------------------------------------------------

    def begin(self, rows: Iterable[ObjectRow]) -> None:
        found = [_seen(key, position, raw) for key, position, raw in rows if key.startswith(_PREFIXES)]
        order = {plural: at for at, plural in enumerate(FOLLOWED)}
        found.sort(key=lambda one: (order[one.plural], one.tenant, one.name))
        self._note(found)
        self._show(found)

    def feed(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            blob, position = decode_blob(batch.blob), batch.first - 1
            self._incarnation = blob.header.incarnation
            for entry in blob.entries:
                changes, first = _changes(entry, position), position + 1
                position += len(entry.effects)
                if not changes:
                    continue
                command = decode_command(entry.command)
                if command is not None and command.caller.role is Role.SCHEDULER:
                    self._by_scheduler(command, changes, first, blob.header.time_ms)
                else:
                    self._unseen += changes
                self._note(changes)

    def _by_scheduler(self, command: Command, changes: list[Seen], first: int, time_ms: int) -> None:
        match command.body:
            case Bind():
                self._bound(command, (command.body,), changes, first, time_ms)
            case BindMany() | BindGang():
                self._bound(command, command.body.binds, changes, first, time_ms)
            case PutStatus(kind="SchedulingRequest", status=SchedulingRequestStatus() as status) if status.reason in _LOOKED:
                self._advance(first - 1)
                body = command.body
                self._waited(body.tenant, body.name, Choice(reason=status.reason, detail=status.detail), first, time_ms)
                self._unseen += changes
            case _:
                self._unseen += changes

    def _note(self, changes: Iterable[Seen]) -> None:
        for one in changes:
            if one.plural == "schedulingrequests":
                if one.raw is None:
                    self._requests.pop((one.tenant, one.name), None)
                else:
                    self._requests[one.tenant, one.name] = one.hot

    def _advance(self, position: int) -> None:
        """As far as the scheduler's feed had come."""
        ready = []
        while self._unseen and self._unseen[0].position <= position:
            one = self._unseen.popleft()
            if self._early.get((one.plural, one.tenant, one.name), 0) < one.position:
                ready.append(one)
        if not self._unseen:
            self._early.clear()
        self._show(ready, position)

    def _show(self, changes: list[Seen], reached: int = 0) -> None:
        for picture in (self._then, self._forked):
            if picture is not None:
                picture.observe(changes)
                if reached:
                    picture.snapshot.reached(revision(self._incarnation, reached))

    # --- decisions -------------------------------------------------------------------------------------------------------

    def _bound(self, command: Command, binds: tuple[Bind, ...], changes: list[Seen], first: int, time_ms: int) -> None:
        seen = split_revision(command.evidence.observed_revision)[1] if command.evidence is not None else first - 1
        self._advance(min(seen, first - 1))
        rest = {(one.plural, one.tenant, one.name): one for one in changes}
        for bind in binds:
            # A binding, or the reservation that a standing request becomes; and what it took of a standing one.
            mine = [(plural, bind.tenant, bind.name) for plural in ("bindings", "reservations")]
            made = next((rest[key] for key in mine if key in rest and rest[key].raw is not None), None)
            request = self._requests.get((bind.tenant, bind.name))
            if made is None or request is None:
                self.tally.refused += 1
                continue
            self._placed(request, Choice(bind.node, tuple(sorted(bind.victims))), made.position, time_ms)
            taken = (("reservations", bind.tenant, bind.claims), *mine)
            self._show_early([rest.pop(key) for key in taken if key in rest])  # before the next one is decided
        self._show_early(list(rest.values()))

    def _show_early(self, changes: list[Seen]) -> None:
        for one in changes:
            self._early[one.plural, one.tenant, one.name] = one.position
        self._show(changes)

    def _placed(self, request: SchedulingRequest, recorded: Choice, position: int, time_ms: int) -> None:
        slot = f"{request.metadata.namespace}/{request.metadata.name}"
        again, shape = self._then.decide(request, time_ms)
        if self._then.is_drawn(shape):
            self.tally.drawn += 1
            return
        self.tally.decided += 1
        for digest, choice in ((self._recorded, recorded), (self._again, again)):
            digest.update(codec.encode((slot, position, choice.is_same)))
        if again.is_same == recorded.is_same:
            self.tally.same += 1
        else:
            self.not_same.append((position, slot, _words(recorded), _words(again)))
        self._compare(request, again, shape, position, time_ms)

    def _waited(self, tenant: str, name: str, recorded: Choice, position: int, time_ms: int) -> None:
        request = self._requests.get((tenant, name))
        if request is None:
            return
        self.tally.waits += 1
        again, shape = self._then.decide(request, time_ms)
        if again.reason != recorded.reason:
            return  # it was said a little late: the picture has moved on, so there is nothing to compare with
        self.tally.waits_same += 1
        self._compare(request, again, shape, position, time_ms)

    def _compare(self, request: SchedulingRequest, then: Choice, shape: Shape | None, position: int, time_ms: int) -> None:
        if self._forked is None:
            return
        forked, other = self._forked.decide(request, time_ms)
        if forked.is_same == then.is_same or self._forked.is_drawn(other):
            return
        by, why = self._explain(then, shape, forked, other)
        slot = f"{request.metadata.namespace}/{request.metadata.name}"
        self.otherwise.append(Otherwise(position, time_ms, slot, then, forked, by, why))

    # --- what made the difference ----------------------------------------------------------------------------------------

    def _explain(self, then: Choice, shape: Shape | None, forked: Choice, other: Shape | None) -> tuple[str, str]:
        if forked.reason and other is None:
            return "class", forked.detail
        if forked.reason in ("WaitingForQuota", "ExceedsMaxQuota") or then.reason in ("WaitingForQuota", "ExceedsMaxQuota"):
            return "quota", forked.detail or f"then: {then.detail}"
        if then.node and other is not None:
            return self._against(then, shape, forked, other)
        if forked.reason and other is not None:
            closest = [gate.name for gate in other.gates if gate.name in other.ruled_out()]
            return f"gate {closest[-1]}" if closest else "nodes", f"{forked.detail}; then {then.reason}: {then.detail}"
        if forked.victims:
            return "preemption", f"{', '.join(forked.victims)} would leave {forked.node}; then: {then.detail}"
        if forked.node and shape is not None:
            ruled_out = shape.why(shape.snapshot.row_of[forked.node])
            if ruled_out:
                return _gates(ruled_out, f"{forked.node} was ruled out then")
        return "class", forked.detail or then.detail

    @staticmethod
    def _against(then: Choice, shape: Shape | None, forked: Choice, other: Shape) -> tuple[str, str]:
        """Why the node of then was not taken, by the rules of the other policy."""
        ruled_out = other.why(other.snapshot.row_of[then.node])
        if then.victims or forked.victims:
            kept = [one for one in then.victims if one not in forked.victims]
            told = f"it would not evict {', '.join(kept)}" if kept else f"it would evict {', '.join(forked.victims)}"
            return "preemption", f"{told}; {forked.detail or forked.node}"
        if ruled_out:
            return _gates(ruled_out, f"{then.node} is ruled out")
        now = _gains(other, forked.node, then.node)
        if any(gain for gain, *_ in now):
            return f"score {max(now)[1]}", f"{forked.node} is better than {then.node}: {_told(now)}"
        before = _gains(shape, then.node, forked.node) if shape is not None else []
        if any(gain for gain, *_ in before):
            return f"score {max(before)[1]}", f"{then.node} was better than {forked.node} then, and is not now: {_told(before)}"
        return "tie", f"{forked.node} and {then.node} are as good; the first is taken"


_Gain = tuple[int, str, int, int, int]  # weight x (rate - the other's), score, weight, rate, the other's


def _gains(shape: Shape, node: str, other: str) -> list[_Gain]:
    """What each score gives one node over another."""
    snapshot = shape.snapshot
    mine, others = (shape.breakdown(snapshot.row(snapshot.row_of[name])) for name in (node, other))
    return [
        (weight * (rate - less), name, weight, rate, less)
        for (name, weight, rate), (_, _, less) in zip(mine, others, strict=True)
    ]  # fmt: skip


def _told(gains: list[_Gain]) -> str:
    most = sorted((gain for gain in gains if gain[0]), key=lambda gain: (-abs(gain[0]), gain[1]))
    return ", ".join(f"{name} {weight} x {rate} against {weight} x {less}" for _, name, weight, rate, less in most[:_SCORES_TOLD])


_PREFIXES: Final = tuple(f"{plural}/" for plural in FOLLOWED)


def _seen(key: str, position: int, raw: bytes | None) -> Seen:
    plural, tenant, name = split_key(key)
    return Seen(plural, tenant, name, position, raw, hot_of(plural, raw) if raw is not None else None)


def _changes(entry: Entry, position: int) -> list[Seen]:
    return [_seen(key, position + at, raw) for at, (key, raw) in enumerate(entry.effects, 1) if key.startswith(_PREFIXES)]


def _gates(ruled_out: dict[str, str], words: str) -> tuple[str, str]:
    told = [f"{gate}: {text}" for gate, text in ruled_out.items()]
    return f"gate {next(iter(ruled_out))}", f"{words} by {'; '.join(told[:_GATES_TOLD])}"


def _words(choice: Choice) -> str:
    return choice.node if choice.node else f"waits: {choice.reason}"
