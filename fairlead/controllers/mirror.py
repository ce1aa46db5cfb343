"""Brings a region what it needs of the global plane, and the global plane what the region says of its assignments.

Two controllers, each writing one plane: MirrorDown copies kinds of KINDS_DOWN into the region and deletes what is gone; MirrorUp
writes the status of the region's Assignments and takes off their finalizer once the region holds nothing of them, and says with
its lease what nodes the region has. A copy names
the original's uid and generation in annotations; what bears none was put there by somebody else and is left alone. While the
global plane does not know this region, nothing is deleted: an empty answer is no order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

from msgspec.structs import replace

from fairlead.controllers.above import Above
from fairlead.controllers.cache import Cache, Indexes, Item, Name, workload_in_spec
from fairlead.controllers.contract import Result, View
from fairlead.controllers.gathering import is_true
from fairlead.controllers.touch import Touch
from fairlead.decide.leasing import VERSION, VERSIONED, version_of
from fairlead.decide.leftovers import RELEASED
from fairlead.decide.overrides import AGE_MS
from fairlead.decide.partial import Standing, standing, zones_of
from fairlead.decide.regional import MERGED, MIRROR_UP, ORDERED_UID, is_record, lasts_s, mark_of, record_name, record_of
from fairlead.decide.slot_lease import TTL_S, honoured_ms
from fairlead.decide.slots import millis
from fairlead.model.commands import Delete, Put, PutStatus
from fairlead.model.ids import revision
from fairlead.model.kinds.ledger import ZoneNodes
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.quota import GrantTermStatus
from fairlead.model.kinds.work import Assignment
from fairlead.model.meta import HISTORY, MIRRORED_GENERATION, MIRRORED_UID, Metadata
from fairlead.model.registry import KINDS

UID: Final = MIRRORED_UID
GENERATION: Final = MIRRORED_GENERATION
FINALIZER: Final = RELEASED
UP: Final = MIRROR_UP  # and the region: the lease under which it reports; its renewals are the region's sign of life

# In this order: a channel names policies, an assignment its revision.
KINDS_DOWN: Final = tuple(
    plural
    for plural in (
        "regions", "tenants", "accessroles", "accessbindings", "serviceaccounts", "tokens", "schedulerpolicies", "policychannels",
        "overrides", "grants", "grantterms", "holdings", "configs", "secrets", "revisions", "assignments",
    )
    if plural in KINDS
)  # fmt: skip
BEHIND_MS: Final = (
    10_000  # so far a region's clock may be behind with the age of an override before it is told: a quarter hour's drift
)
_OF_REGION: Final = frozenset({"assignments", "grants", "grantterms", "holdings"})  # say themselves which region they are for
_SAID: Final = ("grants", "grantterms", "holdings")  # their statuses are said by the region, and by nobody else
_FILES: Final = frozenset({"configs", "secrets"})  # go where a slot is given them, and to no other region


def _uid(item: Item) -> str:
    return str(item.object.metadata.uid)


def _ordered_uid(item: Item) -> str | None:
    """Of a record: the uid of what was ordered in a region."""
    found: str | None = item.object.metadata.annotations.get(ORDERED_UID)
    return found


# A record is found by its original's uid and the other way round: a name may be used again.
_ORIGINALS: Final[Indexes] = {"overrides": {"uid": _uid}}
_RECORDS: Final[Indexes] = {"overrides": {"ordered": _ordered_uid}}


def _tenant_here(region: str) -> Indexes:
    def place(item: Item) -> tuple[str, str] | None:
        return workload_in_spec(item) if item.hot.spec.region == region else None

    def mounting(item: Item) -> str | None:
        return item.tenant if item.hot.spec.template.files else None

    return {"assignments": {"workload": place}, "revisions": {"workload": workload_in_spec, "mounting": mounting}, **_RECORDS}


class MirrorDown:
    """Writes the region's plane; `other` is the global one."""

    name = "mirror-down"
    named = ("assignments", "grants")
    follows = KINDS_DOWN
    follows_other = KINDS_DOWN
    indexes: Indexes = _ORIGINALS
    hears = False

    def __init__(self, region: str, above: Above | None = None, slot_lease_s: float = TTL_S) -> None:
        self._region = region
        self._above = above or Above(region)
        self._lease_ms = honoured_ms(slot_lease_s)
        self._history = (0, 0)  # the global plane's, and since when this server knows it
        self.indexes_other: Indexes = _tenant_here(region)

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        out = [] if self._is_settled(view, item) else [_key(item)]
        if other and item.plural == "assignments":  # with the first assignment come its revisions and their files
            out += self._with_assignment(view, item)
        if other and item.plural == "revisions":
            out += [(f"{plural}/{item.tenant}", name) for plural, name in _mounted(item)]
        if other and item.plural == "overrides":
            out += _originals(view.cache, item)
        if other and item.plural == "regions" and item.name == self._region:
            out += self._all(view)
        return out

    def _is_settled(self, view: View, item: Item) -> bool:
        """Most changes of what is for this region are of its statuses, on either side, or what was just written here: nothing to
        copy. A revision is for this region as long as an assignment is."""
        if item.plural == "revisions":
            return view.other.any("assignments", "workload", workload_in_spec(item)) and self._is_copied(view, item)
        return item.plural in _OF_REGION and (self._is_copied(view, item) or self._is_elsewhere(view, item))

    def _is_elsewhere(self, view: View, item: Item) -> bool:
        """Neither here nor to come: what another region is given."""
        source = view.other.item(item.plural, *item.key)
        return view.cache.item(item.plural, *item.key) is None and (source is None or source.hot.spec.region != self._region)

    def _is_copied(self, view: View, item: Item) -> bool:
        source, copy = view.other.item(item.plural, *item.key), view.cache.item(item.plural, *item.key)
        if source is None or copy is None:
            return False
        above, here = source.hot.metadata, copy.hot.metadata
        return (
            above.deletion_time is here.deletion_time is None
            and here.annotations.get(UID) == above.uid
            and here.annotations.get(GENERATION) == str(above.generation)
            and here.labels == above.labels
            and bool(source.hot.spec == copy.hot.spec)
        )

    def _with_assignment(self, view: View, item: Item) -> list[Name]:
        """What is wanted here because of assignments, as far as it is not as it should be."""
        above, here = view.other, view.cache
        wanted = above.any("assignments", "workload", workload_in_spec(item))
        found = above.by("revisions", "workload", workload_in_spec(item))
        out = [_key(each) for each in found if (here.item("revisions", *each.key) is not None) != wanted]
        files = {file: None for each in found for file in _mounted(each)}
        out += [
            (f"{plural}/{item.tenant}", name)
            for plural, name in files
            if (here.item(plural, item.tenant, name) is not None) != wanted
        ]
        return out

    def resync(self, view: View) -> Iterable[Name]:
        self._above.saw(view.other, view.other_incarnation)  # both planes were just listed
        return self._all(view)

    @staticmethod
    def _all(view: View) -> list[Name]:
        both = (view.other, view.cache)
        return list({_key(item): None for plural in KINDS_DOWN for cache in both for item in cache.all(plural)})

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        plural, _, tenant = key[0].partition("/")
        source, copy = view.other.item(plural, tenant, key[1]), view.cache.item(plural, tenant, key[1])
        kind = KINDS[plural].kind
        if copy is not None and UID not in copy.object.metadata.annotations:
            return Result(_merged(_record(view.other, copy.object), copy.object) if plural == "overrides" else ())
        if source is None or not self._wants(view.other, source):
            return Result(self._gone(view, kind, copy))
        wanted = _copy_of(source.object)
        if plural == "assignments" and source.object.spec.exclusive:
            history = view.other_incarnation
            held_ms = self._held_ms(history, copy, now_ms)
            if now_ms < held_ms:
                return Result((), held_ms)
            wanted = _marked(wanted, HISTORY, str(history))
        if plural == "overrides":
            wanted = _aged(wanted, source.object, copy.object if copy is not None else None, view.other_ms, now_ms)
        if plural in VERSIONED:
            wanted = _marked(wanted, VERSION, str(version_of(source.object.metadata, view.other_incarnation)))
        if copy is None:
            return Result([Put(kind, wanted, mode="create")])
        before = copy.object
        if before.metadata.annotations[UID] != wanted.metadata.annotations[UID]:
            return Result(self._gone(view, kind, copy))  # another of the same name: the old one ends first
        if before.metadata.deletion_time is not None:
            return Result(self._gone(view, kind, copy))
        meta = replace(before.metadata, labels=wanted.metadata.labels, annotations=wanted.metadata.annotations)
        if before.spec == wanted.spec and before.metadata == meta:
            return Result()
        return Result([Put(kind, replace(wanted, metadata=replace(wanted.metadata, finalizers=before.metadata.finalizers)))])

    def _held_ms(self, history: int, copy: Item | None, now_ms: int) -> int:
        """Until when an order for what runs once in the world waits, where the global plane has another history than it had: a
        restored one may say what was so before, while others run that under leases of the history before (S12, P11)."""
        if self._history[0] != history:
            self._history = (history, now_ms)
        known = copy is not None and copy.object.metadata.annotations.get(HISTORY) == str(history)
        return 0 if known or history <= 1 else self._history[1] + self._lease_ms

    def _wants(self, source: Cache, item: Item) -> bool:
        if item.plural in _OF_REGION:
            return bool(item.object.spec.region == self._region) and item.object.metadata.deletion_time is None
        if item.plural in _FILES:
            return any(
                (item.plural, item.name) in _mounted(each) and source.any("assignments", "workload", workload_in_spec(each))
                for each in source.by("revisions", "mounting", item.tenant)
            )
        if item.plural == "revisions":
            return bool(source.by("assignments", "workload", workload_in_spec(item)))
        if item.plural == "tokens" and item.object.spec.profile is not None:
            return bool(item.object.spec.profile.region == self._region)  # it is spent where its node joins, and nowhere else
        if item.plural == "overrides" and is_record(item.object):
            return False  # it was ordered in a region, and holds there
        return bool(item.object.metadata.deletion_time is None)

    def _gone(self, view: View, kind: str, copy: Item | None) -> list[Delete | Put]:
        if copy is None or view.other.item("regions", "", self._region) is None:
            return []
        meta: Metadata = copy.object.metadata
        if meta.deletion_time is None:
            return [Delete(kind, copy.tenant, copy.name, uid=meta.uid)]
        if kind == "Assignment" and FINALIZER in meta.finalizers and is_true(copy.object.status.conditions, "Released"):
            return [Put(kind, _without(copy.object))]
        return []


class MirrorUp:
    """Writes the global plane; `other` is the region's."""

    name = "mirror-up"
    follows = ("assignments", *_SAID, "overrides")
    follows_other = ("assignments", *_SAID, "overrides", "nodes")
    indexes: Indexes = _RECORDS
    indexes_other: Indexes = {"nodes": {"standing": lambda item: standing(item.hot)}, **_ORIGINALS}
    hears = False
    speaks_for_other = True  # a region that can write nothing down is not well, however well it is heard

    def __init__(self, region: str, touch: Touch | None = None) -> None:
        self._region = region
        self.touch = touch  # told with each renewal of this lease
        self.lease = f"{UP}{region}"
        self.named = self.follows_other

    def zones(self, view: View) -> tuple[ZoneNodes, ...]:
        return zones_of(cast(dict[Standing, int], view.other.tally("nodes", "standing")))

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        if item.plural == "nodes":  # counted, and said with the lease
            return ()
        if item.plural == "overrides":
            return (_key(item),) if other else _originals(view.other, item)
        if item.hot.spec.region != self._region:
            return ()
        key = item.key if item.plural == "assignments" else _key(item)
        return (key,) if self.reconcile(key, view, 0).bodies else ()

    def resync(self, view: View) -> Iterable[Name]:
        reported = ("assignments", *_SAID)
        own = [item for plural in reported for item in view.cache.all(plural) if item.hot.spec.region == self._region]
        ordered = [_key(item) for item in view.other.all("overrides")]
        return [item.key if item.plural == "assignments" else _key(item) for item in own] + ordered

    def _said(self, plural: str, tenant: str, name: str, view: View) -> Result:
        """The status of what the region only reports on."""
        original, copy = view.cache.get(plural, tenant, name), view.other.item(plural, tenant, name)
        if original is None or copy is None or copy.object.metadata.annotations.get(UID) != original.metadata.uid:
            return Result()
        return Result(_report(view, copy, original))

    def _ordered(self, tenant: str, name: str, view: View) -> Result:
        """What people ordered in the region itself, told to the global plane once there is one again."""
        original: Override | None = view.other.get("overrides", tenant, name)
        if original is None or UID in original.metadata.annotations:
            return Result()
        record = _record(view.cache, original)
        if record is None:
            if MERGED in original.metadata.annotations:  # and it was cleared away since
                return Result()
            free = record_name(original, is_taken=view.cache.item("overrides", tenant, name) is not None)
            return Result([Put("Override", record_of(original, None, self._region, view.other_ms, free), mode="create")])
        wanted = record_of(original, record, self._region, view.other_ms)
        return Result([Put("Override", replace(record, spec=wanted.spec))] if wanted.spec != record.spec else [])

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        plural, said, tenant = key[0].partition("/")
        if plural == "overrides":
            return self._ordered(tenant, key[1], view)
        if said:
            return self._said(plural, tenant, key[1], view)
        original: Assignment | None = view.cache.get("assignments", *key)
        if original is None or original.spec.region != self._region:
            return Result()
        copy = view.other.item("assignments", *key)
        if copy is None:
            ends = original.metadata.deletion_time is not None and FINALIZER in original.metadata.finalizers
            return Result([Put("Assignment", _without(original))] if ends else [])
        if copy.object.metadata.annotations.get(UID) != original.metadata.uid:
            return Result()
        return Result(_report(view, copy, original))


def _key(item: Item) -> Name:
    return f"{item.plural}/{item.tenant}", item.name


def _originals(region: Cache, record: Item) -> list[Name]:
    """The key of what a record is of, in a region; of what is no record, none."""
    uid = _ordered_uid(record)
    return [_key(item) for item in region.each("overrides", "uid", uid)] if uid is not None else []


def _record(above: Cache, original: Override) -> Override | None:
    return next((item.object for item in above.each("overrides", "ordered", original.metadata.uid)), None)


def _mounted(revision: Item) -> list[tuple[str, str]]:
    """(kind, name) of what the slots of a revision are given as files."""
    files = revision.hot.spec.template.files
    return [("secrets", file.secret) if file.secret else ("configs", file.config) for file in files]


def _copy_of(source: Any) -> Any:
    meta: Metadata = source.metadata
    annotations = {**meta.annotations, UID: meta.uid, GENERATION: str(meta.generation)}
    return type(source)(
        metadata=Metadata(name=meta.name, namespace=meta.namespace, labels=meta.labels, annotations=annotations), spec=source.spec
    )


def _merged(record: Override | None, ordered: Override) -> list[Put]:
    """The global plane knows of what was ordered here, and how long it lasts: it need not be kept for that any more. Nor where it
    knew, and somebody has cleared the record away since."""
    before = ordered.metadata.annotations.get(MERGED, "")
    if record is not None:
        mark = mark_of(record.metadata.uid, record.spec.ttl_seconds)
    else:
        mark = mark_of(before.partition("/")[0], lasts_s(ordered)) if before else ""
    return [Put("Override", _marked(ordered, MERGED, mark))] if mark and mark != before else []


def _aged(wanted: Override, source: Override, before: Override | None, other_ms: int, now_ms: int) -> Override:
    """The copy of an override with how old the original was when it came, by the global plane's clock alone: the region counts on
    from there by its own. Where that has fallen behind (it started cold on a wall clock that was), it is told: an override that
    has ended there must not go on here."""
    age_ms = max(0, other_ms - millis(source.metadata.creation_time))
    if before is not None and before.metadata.annotations.get(AGE_MS, "").isdecimal():
        said_ms = int(before.metadata.annotations[AGE_MS])
        behind_ms = age_ms - (said_ms + now_ms - millis(before.metadata.creation_time))
        age_ms = said_ms + behind_ms if behind_ms > BEHIND_MS else said_ms
    made: Override = _marked(wanted, AGE_MS, str(age_ms))
    return made


def _marked(wanted: Any, name: str, value: str) -> Any:
    meta: Metadata = wanted.metadata
    return replace(wanted, metadata=replace(meta, annotations={**meta.annotations, name: value}))


def _without(assignment: Assignment) -> Assignment:
    left = tuple(f for f in assignment.metadata.finalizers if f != FINALIZER)
    return replace(assignment, metadata=replace(assignment.metadata, finalizers=left))


def _report(view: View, copy: Item, original: Any) -> list[PutStatus]:
    """What the global plane does not know of it, with the revision at which the region said it: what is late is told by that."""
    status = _as_seen_above(copy.object, original)
    if status == original.status:
        return []
    said = replace(status, as_of=revision(view.other_incarnation, copy.position))
    return [PutStatus(KINDS[copy.plural].kind, copy.tenant, copy.name, said, uid=original.metadata.uid)]


def _as_seen_above(copy: Any, original: Any) -> Any:
    """The region's status in the global plane's generations. It has seen the generation its copy was made of once it has seen
    its copy; until then what it says is about the one before."""
    seen = original.status.observed_generation
    if copy.status.observed_generation == copy.metadata.generation:
        seen = max(seen, min(int(copy.metadata.annotations.get(GENERATION, "0")), original.metadata.generation))
    conditions = tuple(replace(c, observed_generation=seen) for c in copy.status.conditions)
    status = replace(copy.status, observed_generation=seen, conditions=conditions, as_of=original.status.as_of)
    return replace(status, checked=original.status.checked) if isinstance(status, GrantTermStatus) else status
