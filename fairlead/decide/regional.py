"""Overrides that people order in a region while the global plane is away: what such a one may be, and its record upward. Pure.

It holds something back, in that region alone: quota and recovery are the global plane's, and so a region on its own stays within
its grants and budgets whatever is ordered there. Its name begins with the region's, and the global plane gives nobody such a
name, so that neither hides the other. After healing the global plane gets a record of it, which is for the audit: it is copied
into no region. Used by the judge, both mirrors, the override controller and the repair of leftovers.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from fairlead.decide.admission.policy import APPROVED_KINDS
from fairlead.decide.overrides import AGE_MS, ends_ms, starts_ms
from fairlead.decide.slots import millis
from fairlead.model.commands import Fault
from fairlead.model.ids import born_at, born_in
from fairlead.model.kinds.policy import Override
from fairlead.model.meta import MIRRORED_UID, Metadata

ORDERED_IN: Final = "fairlead.dev/ordered-in"  # on a record: the region
ORDERED_UID: Final = "fairlead.dev/ordered-uid"  # on a record: of the original
MIRROR_UP: Final = "mirror-up-"  # and the region: the lease of the mirror that may write its records
MERGED: Final = "fairlead.dev/merged"  # on the original: the record's uid and how long it lasts there, once there is one
_NAME_MAX: Final = (
    200  # characters of the original's name in that of a record which has one of its own: with the rest 253 at most
)
KEPT_MS: Final = 86_400_000  # after its end, for whoever asks the next day what was overridden


def fault_of(override: Override, region: str) -> Fault | None:
    """Why it may not be ordered in this region alone; None: it may."""
    spec, name = override.spec, override.metadata.name
    if spec.kind in APPROVED_KINDS:
        return Fault("spec.kind", f"{spec.kind} is ordered in the global plane: a region acts within its grants and budgets")
    if any(each != region for each in spec.scope.regions):
        return Fault("spec.scope.regions", f"ordered here it holds in {region} alone")
    if not is_named_for(name, region):
        return Fault("metadata.name", f"must begin with {region}-, so that it never meets one of the global plane's")
    return None


def is_named_for(name: str, region: str) -> bool:
    """Whether an override of this name may be ordered in that region alone, and in the global plane not."""
    return name.startswith(f"{region}-")


def is_record(override: Override) -> bool:
    return ORDERED_IN in override.metadata.annotations


def is_true_record(override: Override, region: str) -> bool:
    """Of one that could have been ordered in that region, and about nothing else."""
    said = override.metadata.annotations.get(ORDERED_IN)
    return said == region and override.spec.scope.regions == (region,) and fault_of(override, region) is None


def is_owed(override: Override, now_ms: int) -> bool:
    """Of one in a region that has a global plane: it was ordered there, and the global plane has not heard of it yet, or not that
    it was taken back. Until then it is kept, though it holds nothing."""
    marks = override.metadata.annotations
    if MIRRORED_UID in marks or now_ms >= ends_ms(override) + KEPT_MS:
        return False
    return marks.get(MERGED, "").partition("/")[2] != str(lasts_s(override))


def mark_of(record_uid: str, lasting_s: int) -> str:
    return f"{record_uid}/{lasting_s}"


def lasts_s(original: Override) -> int:
    """One that was taken back lasts as long as it did."""
    ttl_s, revoked = original.spec.ttl_seconds, original.metadata.deletion_time
    if revoked is None:
        return ttl_s
    return min(ttl_s, max(1, -(-(millis(revoked) - starts_ms(original)) // 1000)))


def record_name(original: Override, is_taken: bool) -> str:
    """The original's, so that people find it by that. Where the record of another original has it, whose name was used again,
    where and when this one was made is added: each has a record of its own."""
    name, uid = original.metadata.name, original.metadata.uid
    return f"{name[:_NAME_MAX].rstrip('-.')}.{born_in(uid):x}.{born_at(uid):x}" if is_taken else name


def record_of(original: Override, before: Override | None, region: str, region_ms: int, name: str = "") -> Override:
    """As the global plane keeps it."""
    meta, spec = original.metadata, original.spec
    age = before.metadata.annotations.get(AGE_MS) if before is not None else None
    marks = {ORDERED_IN: region, ORDERED_UID: meta.uid, AGE_MS: age or str(max(0, region_ms - starts_ms(original)))}
    scope = replace(spec.scope, regions=(region,))
    annotations = {**meta.annotations, **marks}
    made = Metadata(name=name or meta.name, namespace=meta.namespace, labels=meta.labels, annotations=annotations)
    return Override(made, replace(spec, scope=scope, ttl_seconds=lasts_s(original)))
