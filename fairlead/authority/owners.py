"""Who depends on whom: the index of ownerReferences, for cascading deletion. Derived from objects, never stored.

Slots' own objects are not in it: a binding goes with its slot, an instance with its binding, by their judges.
"""

from __future__ import annotations

from fairlead.authority.state import Rec, State
from fairlead.model.registry import KINDS, KindInfo


def may_have_owners(info: KindInfo) -> bool:
    """Slots' own objects come and go with their slot, by their judges; a thousand a second of them would only pass through."""
    return not info.many and not info.commands_only and info.plural != "schedulingrequests"


class Owners:
    def __init__(self, state: State) -> None:
        self._dependents: dict[str, dict[Rec, None]] = {}
        for plural, info in KINDS.items():
            if may_have_owners(info):
                state.derive(plural, self._changed)

    def _changed(self, old: Rec | None, new: Rec | None) -> None:
        if old is not None:
            for reference in old.hot.metadata.owner_references:
                dependents = self._dependents.get(reference.uid, {})
                dependents.pop(old, None)
                if not dependents:
                    self._dependents.pop(reference.uid, None)
        if new is not None:
            for reference in new.hot.metadata.owner_references:
                self._dependents.setdefault(reference.uid, {})[new] = None

    def has_dependents(self, uid: str) -> bool:
        return uid in self._dependents

    def dependents(self, uid: str, limit: int = 200) -> list[Rec]:
        return list(self._dependents.get(uid, {}))[:limit]

    def owner_uids(self) -> list[str]:
        return list(self._dependents)
