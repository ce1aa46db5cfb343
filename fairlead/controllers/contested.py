"""What a controller wrote, shown to the detector of fights: every spec, and every status that says again what it said before.

Owns what of a command is compared; the memory and the verdict are decide/oscillation.py's. Called by the runtime with everything
that took effect, which is hundreds of statuses a second: of these only the last one of each object is kept, and looked at again.
"""

from __future__ import annotations

from typing import Final

from fairlead.controllers.cache import Cache, Name
from fairlead.decide.oscillation import Fight, Oscillation
from fairlead.model import codec
from fairlead.model.commands import Body, Put, PutStatus
from fairlead.model.meta import Metadata
from fairlead.model.registry import BY_KIND

_UNIQUE: Final = frozenset({"SchedulingRequest", "Event"})  # each is written once, and there are many
# The authority adds what it knows to what is said of these: the same word is another status each time.
_COMPLETED: Final = frozenset({"Grant", "GrantTerm"})
_STATUS: Final = 0  # stands for whatever status it was: `repeats` has compared it


def contested(fights: Oscillation, cache: Cache, key: Name, body: Body, now_ms: int) -> Fight | None:
    """What two writers undo for each other, if this is that."""
    if isinstance(body, PutStatus):
        written = (body.kind, body.tenant, body.name)
        if body.kind in _COMPLETED or not fights.repeats(written, body.status):
            return None
        seen = _metadata(cache, *written)
        return fights.wrote(key, written, _STATUS, seen, now_ms, "status")
    if not isinstance(body, Put) or body.kind in _UNIQUE:
        return None
    meta = body.object.metadata
    written = (body.kind, meta.namespace, meta.name)
    return fights.wrote(key, written, hash(codec.encode(body.object.spec)), _metadata(cache, *written), now_ms)


def _metadata(cache: Cache, kind: str, tenant: str, name: str) -> Metadata | None:
    item = cache.item(BY_KIND[kind].plural, tenant, name)
    found: Metadata | None = item.object.metadata if item is not None else None
    return found
