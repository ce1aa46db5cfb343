"""Says of each override until when it holds and whether it does, takes its finalizer off once it holds nothing, and removes it a
day after its end.

Ends no effect: that is evaluated where it is used (fairlead/decide/overrides.py), whether this controller runs or not. Copies go
when their originals do, by the mirror's hand. One runs in the global plane, one in each region's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from fairlead.controllers.cache import Indexes, Item, Name
from fairlead.controllers.contract import Result, View
from fairlead.controllers.mirror import UID
from fairlead.decide.overrides import ends_at, ends_ms, is_agreed, soon_ms, words
from fairlead.decide.regional import KEPT_MS, is_owed
from fairlead.decide.slots import instant
from fairlead.model.commands import Body, Delete, Put, PutStatus
from fairlead.model.kinds.policy import Override, OverrideStatus
from fairlead.model.meta import Condition, set_condition

FINALIZER: Final = "fairlead.dev/override-undone"


class OverrideController:
    follows = ("overrides", "grantterms")
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {}
    indexes_other: Indexes = {}
    hears = False

    def __init__(self, name: str = "override") -> None:
        self.name = name

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        return (item.key,) if item.plural == "overrides" else ()

    def resync(self, view: View) -> Iterable[Name]:
        return [item.key for item in view.cache.all("overrides")]

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        override: Override | None = view.cache.get("overrides", *key)
        if override is None:
            return Result()
        bodies: list[Body] = []
        meta, end_ms = override.metadata, ends_ms(override)
        over = now_ms >= end_ms
        status = _status(override, now_ms)
        if status != override.status:
            bodies.append(PutStatus("Override", *key, status, uid=meta.uid))
        if (over or meta.deletion_time is not None) and FINALIZER in meta.finalizers and not self._owed(view, override, now_ms):
            left = tuple(f for f in meta.finalizers if f != FINALIZER)
            bodies.append(Put("Override", replace(override, metadata=replace(meta, finalizers=left))))
        elif now_ms >= end_ms + KEPT_MS and meta.deletion_time is None and UID not in meta.annotations:
            bodies.append(Delete("Override", *key, uid=meta.uid))
        later = [at for at in (soon_ms(override), end_ms, end_ms + KEPT_MS) if at > now_ms]
        return Result(bodies, min(later, default=None))

    def _owed(self, view: View, override: Override, now_ms: int) -> bool:
        in_region = self.name == "override" and any(True for _ in view.cache.all("grantterms"))
        return in_region and is_owed(override, now_ms)


def _status(override: Override, now_ms: int) -> OverrideStatus:
    generation, old = override.metadata.generation, override.status
    over = now_ms >= ends_ms(override)
    if over:
        active = ("False", "Expired", "its time is over")
    elif override.metadata.deletion_time is not None:
        active = ("False", "Revoked", "it was taken back")
    elif not is_agreed(override):
        active = ("False", "AwaitingApproval", "it lifts what protects others: another person has to approve it")
    else:
        active = ("True", "EndsSoon" if now_ms >= soon_ms(override) else "InForce", words(override))
    expired = ("True", "Expired", "") if over else ("False", "Running", "")
    conditions = old.conditions
    for kind, (value, reason, message) in (("Active", active), ("Expired", expired)):
        made = Condition(
            type=kind, status=value, reason=reason, message=message, observed_generation=generation,  # type: ignore[arg-type]
            last_transition_time=instant(now_ms),
        )  # fmt: skip
        conditions = set_condition(conditions, made)
    return replace(old, observed_generation=generation, expiry_time=ends_at(override), conditions=conditions)
