"""One node as its agent sees it: its session and lease, what is bound to it, what runs on it. All synchronous.

Owns what is believed and since when. Whether to start or stop is fairlead/decide/instances.py's to say; doing it is host.py's.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import Final

from fairlead.agent.drivers.contract import InstanceId
from fairlead.agent.region import Ack, Held
from fairlead.agent.remembered import Remembered
from fairlead.agent.settings import AgentSettings, NodeDeclaration
from fairlead.agent.slot import Bound, Slot, order_of
from fairlead.client.plane import Change
from fairlead.decide.instances import Action, Contact, Phase, Wait, decide
from fairlead.decide.lasting import Granted
from fairlead.model import codec
from fairlead.model.ids import split_revision
from fairlead.model.kinds.capacity import Node as NodeObject
from fairlead.model.kinds.work import Binding

log = logging.getLogger(__name__)

WAITS: Final = "waits until"

_binding: Final = codec.decoder(Binding).decode
_node: Final = codec.decoder(NodeObject).decode


class Node:
    def __init__(self, declared: NodeDeclaration, settings: AgentSettings, remembered: Remembered, now: float) -> None:
        self.declared = declared
        self.name = declared.name
        self.remembered = remembered
        self._settings = settings
        self.session = 0  # 0: not registered by this process yet
        self.registered = False
        self.synced = False
        self.confirmed = False
        self.superseded = False
        self.refused = False  # in the last round of the handshake: only people can change that, so there is no hurry to ask again
        self.leased = self.orphaned = self.leaving = False
        self.listed = False  # the first inventory of this process, and of this incarnation, was told
        # From then on nobody else can be running what is Exclusive and bound here (S12): an agent of an earlier session, if there
        # is one, or a node to which it was moved in history that was lost. Their last heartbeat that counts was acknowledged
        # before the first of ours was, in this session and incarnation, and they have stopped by themselves.
        self.sole_at = float("inf")
        self.object: NodeObject | None = None
        self.object_position = 0
        self.lease_until = self.global_until = float("-inf")
        self.grants = Granted()
        self.heard_at = now
        self.bound: dict[tuple[str, str], Bound] = {}
        self.slots: dict[InstanceId, Slot] = {}
        self.provisional: dict[InstanceId, Slot] = {}  # of these, those that end with the lease of a grant
        self._lives: dict[tuple[str, str], list[Slot]] = {}  # the same by slot: a node may carry hundreds
        self.refused_tokens = self.refused_leaders = 0
        self._heard_in = remembered.leader[0]  # the incarnation of the last acknowledgement that counted, of earlier agents too
        self._history = 0  # the incarnation that known positions belong to
        self.listed_in = 0  # the incarnation whose leader was told last what runs here
        self._asked: dict[tuple[str, str], int] = {}  # the positions that were known when the region was asked last
        self._left: dict[tuple[str, str], int] | None = None  # since then, and at which; None: the answer was taken in

    # --- the region -------------------------------------------------------------------------------------------------------

    @property
    def needs_handshake(self) -> bool:
        return not self.superseded and not (self.registered and self.synced and self.confirmed)

    @property
    def lease_s(self) -> float:
        """How long an acknowledgement counts: as the region says, for it is the region that waits for it to be over."""
        return self.remembered.lease_s or self._settings.node_lease_s

    def heard(self, ack: Ack, sent: float, answered_at: float) -> bool:
        """A heartbeat sent then was acknowledged. False: the acknowledgement counts for nothing (P9)."""
        if self.name in ack.superseded:
            self.supersede("a newer session answers for it")
            return False
        if not self.remembered.hear(ack.incarnation, ack.epoch, ack.lease_s):
            self.refused_leaders += 1
            return False
        if not self.remembered.save_leader():
            self.confirmed = False  # what runs once ends here with the lease: the handshake tells the region why
            return False
        if self.name in ack.unknown:
            self.registered = self.synced = self.confirmed = False
            return False
        settings = self._settings
        valid_s = self.lease_s * (1 - settings.clock_rate_error)
        most_s = valid_s if ack.global_valid_s is None else min(valid_s, ack.global_valid_s * (1 - settings.clock_rate_error))
        # Not what is remembered: that was set by the first word of it, which counted for nothing if no disk took it.
        before, self._heard_in = self._heard_in, ack.incarnation
        if before and ack.incarnation != before:
            self.synced = self.confirmed = False  # another history: the inventory is to be told anew (P10)
            # In which what was superseded may be bound again (P11).
            self.global_until = min(self.global_until, sent + most_s - settings.kill_s)
            self._doubt()
        if self.listed_in == ack.incarnation:  # else what runs here may be another's by now, and ends as if nothing was heard
            self.lease_until = max(self.lease_until, sent + valid_s - settings.kill_s)
            self.global_until = max(self.global_until, sent + most_s - settings.kill_s)
        self.heard_at = max(self.heard_at, sent)
        if self.sole_at == float("inf"):
            longest_s = max(self.lease_s, ack.longest_s or settings.node_lease_s)
            self.sole_at = answered_at + longest_s * (1 + settings.clock_rate_error) + settings.fence_margin_s
        return True

    def _doubt(self) -> None:
        """The region goes on from an older history than was known here: what is bound here now may have moved since (P6)."""
        self.listed, self.sole_at = False, float("inf")

    def settle(self, ack: Ack, sent: float) -> list[Slot]:
        """What an acknowledgement that counts says of the leases of grants (P13). Answers with the slots whose time changed."""
        word, settings = ack.grants, self._settings
        if word is None:
            return []
        self.grants = self.grants.told(word, sent, settings.clock_rate_error, settings.kill_s)
        changed = []
        for slot in list(self.provisional.values()):
            bound = self.current(slot)
            if ack.incarnation == self._history and bound is not None and self.grants.is_firm(slot.id.tenant, bound.position):
                slot.lasts = math.inf
                del self.provisional[slot.id]
                changed.append(slot)
            elif slot.lasts != self.grants.until(slot.id.tenant):
                slot.lasts = self.grants.until(slot.id.tenant)
                changed.append(slot)
        return changed

    def inherit(self, granted: tuple[float, float] | None, now: float) -> None:
        """An agent restarted within its lease goes on with it: what is Exclusive need not stop."""
        if granted is not None and granted[0] > now:
            self.lease_until, self.global_until = granted
            self.leased = True

    def expire(self, now: float) -> bool:
        """True when the lease has just run out, after which the region must confirm what runs here before anything new starts;
        and when the region was not heard of for so long that nothing is kept."""
        lapsed = self.leased and now >= self.lease_until
        if lapsed:
            self.leased = self.synced = False
        orphaned = now >= self.heard_at + self._settings.autonomy_s
        news = lapsed or (orphaned and not self.orphaned)
        self.orphaned = orphaned
        return news

    def overdue(self, now: float) -> bool:
        """Whether something is still there although its time is over."""
        if now < self.lease_until and now < self.global_until and not self.provisional:
            return False
        return any(slot.there and now >= self.ends_at(slot) for slot in self.slots.values())

    def until(self, slot: Slot) -> float:
        return self.global_until if slot.exclusive == "global" else self.lease_until

    def ends_at(self, slot: Slot) -> float:
        """When it ends by itself, if nothing is heard; infinite: it does not."""
        return min(slot.lasts, self.until(slot)) if slot.exclusive else slot.lasts

    def supersede(self, why: str) -> None:
        if not self.superseded:
            log.warning("node %s: session %d is over: %s", self.name, self.session, why)
            self.superseded = True

    def may_return(self, ack: Ack) -> bool:
        """A superseded agent asked again, under its old session. True: a leader that may trust itself says that no newer one
        lives any more. Two that both live do not take the name from each other."""
        gone = self.name not in ack.superseded and not any(slot.there for slot in self.slots.values())
        return gone and self.remembered.hear(ack.incarnation, ack.epoch, ack.lease_s) and self.remembered.save_leader()

    def come_back(self) -> None:
        """As an agent that was started just now: with no session, no lease, and doubts about what is bound here."""
        log.warning("node %s: the session after %d is gone, too; a new one is asked for", self.name, self.session)
        self.superseded = self.registered = self.synced = self.confirmed = self.listed = self.leased = False
        self.session, self.sole_at = 0, float("inf")
        self.lease_until = self.global_until = float("-inf")
        self._heard_in = self.remembered.leader[0]

    def saw_object(self, change: Change) -> None:
        """The Node object, from a read or the feed."""
        if change.position <= self.object_position:
            return
        self.object_position = change.position
        if change.raw is None:
            self.object = None
            self.registered = self.confirmed = False
            return
        before, self.object = self.object, _node(change.raw)
        status = self.object.status
        if self.session and status.session > self.session:
            self.supersede(f"session {status.session} has begun")
        elif before is not None and before.metadata.uid != self.object.metadata.uid:
            # It was deleted and made anew while nothing was heard of it: nobody is registered there, and what this session was
            # begun on is no more. A heartbeat does not tell, for nobody answers for the new one under a later session.
            self.registered = self.synced = self.confirmed = False
        elif self.registered and status.session == self.session and not status.schedulable:
            self.confirmed = False

    def contact(self, now: float, slot: Slot) -> Contact:
        return Contact(
            self.synced, self.until(slot) - now, self.heard_at + self._settings.autonomy_s - now, slot.lasts - now,
            self.superseded, self.leaving,
        )  # fmt: skip

    def held(self) -> Held:
        running = tuple((s.id.tenant, s.id.name, s.id.token) for s in self.slots.values() if s.there)
        return Held(self.name, self.session, running)

    # --- bindings ---------------------------------------------------------------------------------------------------------

    def saw_binding(self, change: Change, *, listed: bool = False) -> list[Slot]:
        """One change from the feed, or from a list of all that is bound here. Answers with the slots to look at."""
        key = (change.tenant, change.name)
        known = self.bound.get(key)
        if known is not None and change.position <= known.position:
            return []
        binding = _binding(change.raw) if change.raw is not None else None
        if binding is None or binding.spec.node != self.name:
            self.bound.pop(key, None)
            if self._left is not None:
                self._left[key] = change.position
            return self.lives_of(key)
        spec = binding.spec
        outlived = not self.remembered.see(change.tenant, change.name, spec.token)
        if outlived and not (known is not None and known.binding.spec.token == spec.token):
            self.refused_tokens += 1
            about = {"node": self.name, "tenant": key[0], "slot": key[1], "uid": spec.slot.uid, "generation": spec.generation}
            log.warning("node %s refuses %s/%s: a later token was seen", self.name, *key, extra=about)
            # Its leader lists it all the same: the region has lost the end of its history, and with it that this life is over.
            # Nobody but this node can say so.
            if not listed:
                return []
        self.bound[key] = Bound(binding, binding.status.state, change.position)
        id = InstanceId(change.tenant, change.name, spec.token)
        slot = self.slots.get(id)
        if slot is None:
            slot = self.add(Slot(id, self.name))
        if slot.binding is None and not slot.run and spec.provisional_until_time is not None:
            slot.lasts = self.grants.until(change.tenant)
            self.provisional[id] = slot
        elif spec.provisional_until_time is None and slot.provisional:  # the region has written down that it stays
            slot.lasts = math.inf
            self.provisional.pop(id, None)
        if slot.binding is None and slot.phase == "running":
            slot.assume(binding.status.state)
        slot.binding = binding
        slot.outlived = outlived
        slot.exclusive = spec.exclusive if spec.execution == "Exclusive" else ""
        return self.lives_of(key)

    def asks(self) -> None:
        """The region's leader is asked now for every binding on this node."""
        self._asked = {key: bound.position for key, bound in self.bound.items()}
        self._left = {}

    def saw_listing(self, revision: int, changes: Iterable[Change]) -> list[Slot]:
        """Every binding on this node at a revision, by its leader. What was heard since it was asked, and is from later, stands:
        what is bound now, and what is not any more. What was known before does not: a leader has all of it, unless its store lost
        it, and then it counts for nothing (P6)."""
        position = self.in_history(revision)
        left, self._left = self._left or {}, None
        self.listed_in = self._history
        for key, bound in self.bound.items():
            if self._asked.get(key) == bound.position:
                bound.position = 0
        self._asked = {}
        listed = set()
        for change in changes:
            key = (change.tenant, change.name)
            listed.add(key)
            if left.get(key, 0) <= position:
                self.saw_binding(change, listed=True)
        for key, bound in list(self.bound.items()):
            if key not in listed and bound.position <= position:
                del self.bound[key]
        return list(self.slots.values())

    def in_history(self, revision: int) -> int:
        """The position of a revision. Positions of another incarnation compare with nothing that was known before."""
        incarnation, position = split_revision(revision)
        if incarnation != self._history:
            self._history = incarnation
            self._doubt()
            self.object_position = 0
            for bound in self.bound.values():
                bound.position = 0
            if self._left is not None:
                self._left = {}
        return position

    def add(self, slot: Slot) -> Slot:
        self.slots[slot.id] = slot
        if slot.provisional:
            self.provisional[slot.id] = slot
        self._lives.setdefault(slot.key, []).append(slot)
        return slot

    def remove(self, slot: Slot) -> None:
        self.provisional.pop(slot.id, None)
        if self.slots.pop(slot.id, None) is None:
            return
        left = [other for other in self._lives[slot.key] if other is not slot]
        if left:
            self._lives[slot.key] = left
        else:
            del self._lives[slot.key]

    def lives_of(self, key: tuple[str, str]) -> list[Slot]:
        return list(self._lives.get(key, ()))

    def current(self, slot: Slot) -> Bound | None:
        """The binding this very life runs under, if it still does."""
        bound = self.bound.get(slot.key)
        return bound if bound is not None and bound.binding.spec.token == slot.id.token else None

    def doubts(self, slot: Slot, now: float) -> bool:
        """Whether an earlier agent of this node, or another node, may still run it, alone in the world: then it is neither
        started here nor said to be gone, after which it would be started elsewhere (S12)."""
        return bool(slot.exclusive) and slot.doubtful and not slot.there and now < self.sole_at

    # --- what to do -------------------------------------------------------------------------------------------------------

    def decide(self, slot: Slot, now: float) -> Action:
        bound = self.current(slot)
        if bound is None and not self.synced and slot.key not in self.bound and slot.binding is None:
            # Adopted, and the region has not been asked yet: it is kept as it is. The shim minds its fence time.
            return decide(None, slot.life(now), self.contact(now, slot)) if self.superseded else Wait()
        order = order_of(bound, slot.provisional) if bound is not None and not (slot.outlived and slot.there) else None
        if order is not None and self.doubts(slot, now):
            return Wait(f"{WAITS} whoever ran it before must have stopped it")
        return decide(order, slot.life(now), self.contact(now, slot), self.blocked(slot, bound))

    def decide_before_start(self, slot: Slot, now: float, phase: Phase) -> Action:
        """Asked once more right before it starts: preparing takes time, in which anything may have changed."""
        slot.phase = phase
        try:
            return self.decide(slot, now)
        finally:
            slot.phase = "launching"

    def blocked(self, slot: Slot, bound: Bound | None) -> str:
        """What must end before this may start: an earlier life of the slot, and the victims of its claim (P12)."""
        if bound is None or slot.there:
            return ""
        if any(other.there and other is not slot for other in self.lives_of(slot.key)):
            return "its earlier life"
        for name in bound.binding.spec.start_after:
            tenant, _, object_name = name.partition("/")
            for other in self.lives_of((tenant, object_name)):
                if other.there and self._is_victim(other):
                    return name
        return ""

    def _is_victim(self, other: Slot) -> bool:
        """A slot that was bound again since it was evicted lives a new life, which nobody waits for."""
        bound = self.current(other)
        return bound is None or bound.state.value in ("Draining", "Released", "Failed", "Unknown")
