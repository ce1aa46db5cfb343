"""Who may change the marks of an object: the annotations of ours that something is decided by.

People write annotations as they like, and whoever may write an object may write all of them. These say what an object is (a copy,
and of what; a record of what was ordered elsewhere; a node that a pool closed): without its mark a copy would be nobody's, and
neither end nor be revoked with its original. What people say by an annotation (a load, a region that is gone) is theirs, and not
here. Called by objects.py on every put.
"""

from __future__ import annotations

from typing import Final

from fairlead.decide.autoscaling import SCALED_DOWN
from fairlead.decide.leasing import VERSION
from fairlead.decide.overrides import AGE_MS
from fairlead.decide.regional import MERGED, ORDERED_IN, ORDERED_UID
from fairlead.model.commands import Caller, Refused
from fairlead.model.lifecycle import Role
from fairlead.model.meta import HISTORY, MIRRORED_GENERATION, MIRRORED_UID, Metadata

_MIRROR: Final = frozenset({Role.MIRROR})
_POOL: Final = frozenset({Role.AUTOSCALER, Role.OPERATOR, Role.BREAK_GLASS})  # who may open the node may say so
OWNERS: Final[dict[str, frozenset[Role]]] = {
    MIRRORED_UID: _MIRROR,
    MIRRORED_GENERATION: _MIRROR,
    VERSION: _MIRROR,
    AGE_MS: _MIRROR,
    HISTORY: _MIRROR,
    ORDERED_IN: _MIRROR,
    ORDERED_UID: _MIRROR,
    MERGED: _MIRROR,
    SCALED_DOWN: _POOL,
}


def refuse_marks(caller: Caller, new: Metadata, old: Metadata | None) -> Refused | None:
    before = old.annotations if old is not None else {}
    if new.annotations == before or caller.role is Role.AUTHORITY:
        return None
    changed = [name for name in OWNERS if new.annotations.get(name) != before.get(name) and caller.role not in OWNERS[name]]
    if not changed:
        return None
    name = changed[0]
    owners = ", ".join(sorted(role.value for role in OWNERS[name]))
    how = f"leave it at {before[name]!r}" if name in before else "leave it out"
    detail = f"annotation {name} of {new.name} belongs to {owners}, not to {caller.role.value}: {how}"
    return Refused("NotOwner", detail, {"annotations": changed})
