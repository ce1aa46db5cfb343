"""What a controller wrote, shown to the detector of fights: every spec, and every status that says again what it said before.

Owns what of a command is compared, and what waits while a fight is damped: the key it was written for; the object, where that
key stands for many, or for a sweep; where slots are moved to and fro, overflow of that workload. The memory and the verdict are
decide/oscillation.py's. Called by the runtime with everything that took effect, which is hundreds of statuses a second: of these
only the last one of each object is kept, and looked at again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairlead.controllers.cache import Cache, Name
from fairlead.controllers.contract import View
from fairlead.decide.oscillation import Fight, Key, Oscillation
from fairlead.model import codec
from fairlead.model.commands import Body, Put, PutStatus
from fairlead.model.meta import Metadata
from fairlead.model.registry import BY_KIND

_UNIQUE: Final = frozenset({"SchedulingRequest", "Event"})  # each is written once, and there are many
# The authority adds what it knows to what is said of these: the same word is another status each time.
_COMPLETED: Final = frozenset({"Grant", "GrantTerm"})
SWEEP: Final[Name] = ("", "sweep")  # what a sweep came to is sent under this key, whatever it is about
_STATUS: Final = 0  # stands for whatever status it was: `repeats` has compared it


def contested(fights: Oscillation, view: View, key: Name | None, body: Body, now_ms: int) -> Fight | None:
    """What two writers undo for each other, if this is that. `key` waits then; None: the object."""
    written = _written(body)
    if written is None:
        return None
    if isinstance(body, Put) and body.kind == "Assignment" and (fight := fights.moved(body.object, now_ms)) is not None:
        # Not the key: what recovery orders for this workload goes on.
        view.moves_held = {each: ms for each, ms in view.moves_held.items() if ms > now_ms} | {fight.object[1:]: fight.until_ms}
        return fight
    waits, seen = key or written, _metadata(view.cache, *written)
    if isinstance(body, PutStatus):
        if body.kind in _COMPLETED or not fights.repeats(written, body.status):
            return None
        return fights.wrote(waits, written, _STATUS, seen, now_ms, "status")
    if not isinstance(body, Put) or body.kind in _UNIQUE:
        return None
    # What a sweep listed is in no cache; it is written back with the metadata it was seen with.
    return fights.wrote(waits, written, hash(codec.encode(body.object.spec)), seen or body.object.metadata, now_ms)


def not_held_back(fights: Oscillation, bodies: Sequence[Body], now_ms: int) -> tuple[Sequence[Body], int]:
    """Of what a look at many objects came to, all but what would go on with a fight that is damped: the rest is not held up. And
    when the first of that may be written; 0: there is none."""
    held = [fights.damped_until_ms(found, now_ms) if (found := _written(body)) else 0 for body in bodies]
    return [body for body, until_ms in zip(bodies, held, strict=True) if not until_ms], min(filter(None, held), default=0)


def _written(body: Body) -> Key | None:
    """The object, where it is one whose writers are compared."""
    match body:
        case PutStatus():
            return body.kind, body.tenant, body.name
        case Put():
            return body.kind, body.object.metadata.namespace, body.object.metadata.name
        case _:
            return None


def _metadata(cache: Cache, kind: str, tenant: str, name: str) -> Metadata | None:
    item = cache.item(BY_KIND[kind].plural, tenant, name)
    found: Metadata | None = item.object.metadata if item is not None else None
    return found
