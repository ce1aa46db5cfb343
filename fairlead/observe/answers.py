"""S13 and S14 asked of a journal and of what clients were told: what was acknowledged is there once and as it was told, what was
refused is not there, and what was sent after an answer comes after it.

Owns what clients sent and heard, and an index of its own of the journals behind the door they use. Shares nothing with the
authority but the model. Fed by the simulator, by rigs, and by whoever kept both a history and its clients' log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from fairlead.model.commands import IdempotencyKey
from fairlead.model.hot import DECODERS
from fairlead.model.ids import split_revision
from fairlead.model.journal import Blob, decode_outline
from fairlead.model.registry import GLOBAL
from fairlead.observe.forgotten import Forgotten
from fairlead.wire.manifest import readable_part

ATTEMPT: Final = "+"  # before what tells attempts of one request apart, where a client does that: it is one request all the same

Found = Callable[[str, str], None]


class Sent(msgspec.Struct):
    """One request under one id, from its first sending to what it came to."""

    id: str
    horizon: dict[str, int]  # of each plane the newest position that anybody had been told of when it was first sent
    plane: str = ""  # whose object it was about
    object_key: str = ""
    position: int = 0  # where it was said to be
    told: str = (
        ""  # "accepted", "gone" (deleted), "done" (its receipt says so); of both not where; "refused"; empty: nobody knows
    )
    changes: bool = False  # it made something for sure; else it may have found everything as it wanted it
    spec: Any = None  # what it was told that is wanted there now
    bereft: bool = False  # a store forgot something while it was under way, perhaps what it came to


class AnswerChecker:
    """For one door and all planes behind it. Positions are compared within a plane alone; a key is done once in all of them."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self.checked = 0
        self._effects: dict[str, dict[int, tuple[str, bytes | None]]] = defaultdict(dict)
        self._by_id: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self._sent: list[Sent] = []
        self._newest: dict[str, int] = {}
        self._forgotten: dict[str, Forgotten] = defaultdict(Forgotten)

    def committed(self, blob: Blob, first: int, plane: str = GLOBAL) -> None:
        position = first - 1
        effects = self._effects[plane]
        for entry in blob.entries:
            command = decode_outline(entry.command)
            if command is not None and isinstance(command.id, IdempotencyKey):
                self._by_id[command.id.key.partition(ATTEMPT)[0]].append((plane, position + 1))
            for effect in entry.effects:
                position += 1
                effects[position] = effect

    def send(self, id: str) -> Sent:
        made = Sent(id, dict(self._newest))
        self._sent.append(made)
        return made

    def accepted(
        self, sent: Sent, object_key: str, revision: int, *, changes: bool, told: Mapping[str, Any] | None = None,
        plane: str = GLOBAL,
    ) -> None:  # fmt: skip
        """`told`: the object as the answer shows it; `plane`: whose object and whose revision it is."""
        position = split_revision(revision)[1]
        if self._forgotten[plane].has(revision):
            return  # by one that has not heard of the loss
        sent.told, sent.object_key, sent.position, sent.changes = "accepted", object_key, position, changes
        sent.plane = plane
        shown = readable_part(told) if told is not None else None
        sent.spec = getattr(shown[1], "spec", None) if shown is not None else None
        self._newest[plane] = max(self._newest.get(plane, 0), position)
        self.checked += 1

    def gone(self, sent: Sent, object_key: str, plane: str = GLOBAL) -> None:
        """It was deleted. Where, no answer says; nor whether somebody else had asked for that before."""
        self.done(sent)
        sent.told, sent.object_key, sent.plane = "gone", object_key, plane

    def done(self, sent: Sent, *, changes: bool = False) -> None:
        """Without a place: its answer was lost, and its receipt says that it was accepted, perhaps with nothing to be changed for
        it; or (`changes`) it was carried out, and what it made is gone. Of what a store forgot meanwhile nobody is held to it."""
        sent.told, sent.changes = "done", changes and not sent.bereft
        self.checked += 1

    def refused(self, sent: Sent, status: int = 0) -> None:
        """`status`: what it was answered with, where it is what nobody may be told yes to."""
        sent.told = "refused"
        self.checked += 1
        if 0 < status < 400:
            self._found("S13", f"{sent.id} is poison, and was answered with {status}")

    def forget(self, sent: Sent) -> None:
        """What it was told no longer binds anybody: a copy of it went to one who had not told it."""
        sent.told = ""

    def lost(self, plane: str, incarnation: int, position: int) -> None:
        """A store forgot what is behind this position. What was told by now is asked of what was there until now; of what is
        still under way, what comes of it is asked of what is left and of what is written from here on."""
        self.finish()
        self._forgotten[plane].add(incarnation, position)
        self._sent = [sent for sent in self._sent if not sent.told]
        for sent in self._sent:
            sent.bereft = True
            sent.horizon[plane] = min(sent.horizon.get(plane, 0), position)
        self._newest[plane] = min(self._newest.get(plane, 0), position)
        self._effects[plane] = {at: effect for at, effect in self._effects[plane].items() if at <= position}
        for id, places in self._by_id.items():
            self._by_id[id] = [(where, at) for where, at in places if where != plane or at <= position]

    def finish(self) -> None:
        for sent in self._sent:
            there = self._by_id.get(sent.id, [])
            key, raw = self._effects[sent.plane].get(sent.position, ("nothing", None))
            if sent.told == "accepted" and key != sent.object_key:
                self._found("S13", f"{sent.id} was acknowledged at {sent.position}; there is {key}")
            elif sent.told == "accepted" and sent.spec is not None and raw is not None and _spec(key, raw) != sent.spec:
                self._found("S13", f"{sent.id} was acknowledged at {sent.position}; what is there of {key} is not what was told")
            where, at = there[0] if there else ("", 0)
            if sent.told == "gone" and there and not self._ends(where, at, sent.object_key):
                self._found("S13", f"{sent.id} was told that {sent.object_key} is gone; what it did at {at} is something else")
            if sent.told == "gone" and not there and not sent.bereft and not self._ended_since(sent):
                self._found("S13", f"{sent.id} was told that {sent.object_key} is gone; nobody took it away since that was asked")
            if sent.told in ("accepted", "gone") and there and at <= sent.horizon.get(where, 0):
                self._found("S14", f"{sent.id} is at {at}, and {sent.horizon[where]} was acknowledged before it was sent")
            if sent.told in ("accepted", "gone", "done") and (len(there) > 1 or (not there and sent.changes)):
                self._found("S13", f"{sent.id} was acknowledged and is in the journal {len(there)} times: {there}")
            if sent.told == "refused" and there:
                self._found("S13", f"{sent.id} was refused and is in the journal at {there}")

    def _ended_since(self, sent: Sent) -> bool:
        """Who deletes what is marked to go already changes nothing: it goes all the same, and after that was asked."""
        after, effects = sent.horizon.get(sent.plane, 0), self._effects[sent.plane]
        return any(at > after and raw is None and key == sent.object_key for at, (key, raw) in effects.items())

    def _ends(self, plane: str, at: int, object_key: str) -> bool:
        """The change there takes the object away, or marks it to go when nothing holds it any more."""
        key, raw = self._effects[plane].get(at, ("nothing", None))
        return key == object_key and (raw is None or _decoded(key, raw).metadata.deletion_time is not None)


def _spec(key: str, raw: bytes) -> Any:
    return _decoded(key, raw).spec


def _decoded(key: str, raw: bytes) -> Any:
    return DECODERS[key.partition("/")[0]].decode(raw)
