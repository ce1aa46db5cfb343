"""What a controller has sent and has no answer to yet: the keys it was about, and the objects it writes that are not in the
controller's picture so far.

The next look need not wait for the disk, only for what the look before it wrote: an early feed tells that when it is judged
(ADR 0020). A key itself waits for its answer, so that what is done about it stays in order. Owned by the runtime, told by it what
changes; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from fairlead.client.plane import Plane
from fairlead.controllers.cache import Item, Name
from fairlead.controllers.queue import Taken
from fairlead.model.commands import Body, Command, Delete, Enqueue, Move, Outcome, Put, PutStatus, Refused, Unknown
from fairlead.model.registry import BY_KIND

BATCHES_MAX: Final = 4  # without an answer, at once; beyond that a slow store gathers more into each

# These say that this process no longer knows, or may no longer act: it lists again under a lease of its own.
LOST: Final = frozenset({"FencedOut", "NotLeader", "StaleEvidence"})
_ENDS: Final = LOST | {"StoreUnavailable"}  # nothing more is sent that was decided on the same picture

_Object = tuple[str, str, str]  # plural, tenant, name
Written = Sequence[_Object]
Batch = Sequence[tuple[Taken, Sequence[Body]]]


class Sent:
    def __init__(self, follows: Iterable[str]) -> None:
        self._follows = frozenset(follows)
        self._keys: dict[Name, bool | None] = {}  # under way -> looked for meanwhile; True: by resync alone
        self.unseen: set[_Object] = set()  # what the next look waits for
        self._blind = 0  # batches of which the picture will not tell
        self._batches = 0

    @property
    def may_look(self) -> bool:
        return not self.unseen and not self._blind and self._batches < BATCHES_MAX

    def holds(self, taken: Taken) -> bool:
        """Whether commands about this key are under way. It is looked at again when they are answered."""
        if taken.key not in self._keys:
            return False
        before = self._keys[taken.key]
        self._keys[taken.key] = taken.by_resync if before is None else before and taken.by_resync
        return True

    def send(self, batch: Batch) -> Written:
        """What it writes, to be given back with the answer; nothing where the picture will not tell of all of it."""
        self._batches += 1
        for taken, _ in batch:
            self._keys[taken.key] = None
        written: list[_Object] = []
        for _, bodies in batch:
            for body in bodies:
                found = self._written(body)
                if found is None:
                    self._blind += 1
                    return ()
                written.append(found)
        self.unseen.update(written)
        return written

    def answered(self, batch: Batch, written: Written) -> list[Taken]:
        """The keys that somebody wanted looked at in the meantime."""
        self._batches -= 1
        self._blind -= not written
        self.unseen.difference_update(written)
        waiting = [(taken.key, self._keys.pop(taken.key, None)) for taken, _ in batch]
        return [Taken(key, by_resync) for key, by_resync in waiting if by_resync is not None]

    def told(self, item: Item) -> bool:
        """A change is in the picture. True: it was the last that was waited for."""
        if not self.unseen:
            return False
        self.unseen.discard((item.plural, item.tenant, item.name))
        return not self.unseen

    def _written(self, body: Body) -> _Object | None:
        """Of a command that writes several, the first: they are told together. None: it is not among what is followed."""
        match body:
            case Put():
                meta = body.object.metadata
                found = (BY_KIND[body.kind].plural, meta.namespace, meta.name)
            case PutStatus() | Delete():
                found = (BY_KIND[body.kind].plural, body.tenant, body.name)
            case Enqueue():
                found = ("schedulingrequests", body.request.metadata.namespace, body.request.metadata.name)
            case Move():
                found = ("bindings", body.tenant, body.name)
            case _:
                return None
        return found if found[0] in self._follows else None


async def submit_in_parts(plane: Plane, commands: list[Command], size: int) -> list[Outcome]:
    """An outcome of each. Once a part comes back with what ends a submission the rest is not sent, and has the same answer: what
    it was decided on may have been taken back, and whoever judges it from then on cannot tell."""
    outcomes: list[Outcome] = []
    for start in range(0, len(commands), size):
        outcomes += (part := await plane.submit(commands[start : start + size]))
        ended = next((each for each in part if _ends(each)), None)
        if ended is not None:
            return outcomes + [ended] * (len(commands) - len(outcomes))
    return outcomes


def _ends(outcome: Outcome) -> bool:
    return isinstance(outcome, Unknown) or (isinstance(outcome, Refused) and outcome.reason in _ENDS)
