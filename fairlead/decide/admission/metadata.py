"""The rules every object keeps, whatever its kind: name, namespace, labels, annotations, finalizers, owners, identity.

Never looks into spec or status. Called by `faults` in this package.
"""

from __future__ import annotations

from typing import Final

from fairlead.model.meta import Metadata, OwnerReference
from fairlead.model.registry import BY_KIND, FINALIZERS, KindInfo
from fairlead.model.report import Report, shown

# These become part of other names (a tenant is a namespace, a workload's slots are WORKLOAD-INDEX) or of an address, so they
# hold no dots and stay short. Every other kind, machine-named ones included, may have 253 characters.
LABEL_NAMED: Final = frozenset({"Tenant", "Region", "Workload", "Plane"})
ANNOTATIONS_BYTES_MAX: Final = 256 * 1024
FINALIZERS_MAX: Final = 32
OWNERS_MAX: Final = 32


def check_metadata(report: Report, info: KindInfo, new: Metadata, old: Metadata | None) -> None:
    _check_names(report, info, new)
    _check_labels(report, new)
    if new.finalizers:
        _check_finalizers(report, new, old)
    if new.owner_references:
        _check_owners(report, info, new)
    if old is not None:
        _check_identity(report, new, old)


def _check_names(report: Report, info: KindInfo, meta: Metadata) -> None:
    if info.kind in LABEL_NAMED:
        report.label("metadata.name", meta.name)
    else:
        report.subdomain("metadata.name", meta.name)
    if not info.namespaced:
        message = f"must be left out: a {info.kind} belongs to no tenant, got {shown(meta.namespace)}"
        report.need(not meta.namespace, "metadata.namespace", message)
    elif not meta.namespace:
        report.add("metadata.namespace", f"is required: a {info.kind} belongs to a tenant")
    else:
        report.label("metadata.namespace", meta.namespace)


def _check_labels(report: Report, meta: Metadata) -> None:
    for key, value in meta.labels.items():
        report.label_key("metadata.labels", key)
        report.label_value(f"metadata.labels[{key[:80]}]", value)
    total = 0
    for key, value in meta.annotations.items():
        report.label_key("metadata.annotations", key)
        total += len(key.encode(errors="replace")) + len(value.encode(errors="replace"))
    if total > ANNOTATIONS_BYTES_MAX:
        report.add("metadata.annotations", f"all together may have {ANNOTATIONS_BYTES_MAX} bytes, have {total}")


def _check_finalizers(report: Report, new: Metadata, old: Metadata | None) -> None:
    before = old.finalizers if old is not None else ()
    report.unique("metadata.finalizers", new.finalizers)
    if len(new.finalizers) > FINALIZERS_MAX:
        report.add("metadata.finalizers", f"may have {FINALIZERS_MAX} entries, has {len(new.finalizers)}")
    for index, name in enumerate(new.finalizers):
        path = f"metadata.finalizers[{index}]"
        if name in before:
            continue  # One left by a newer version must not make the object impossible to update.
        if name not in FINALIZERS:
            report.add(path, f"{shown(name)} is not registered; use one of {', '.join(sorted(FINALIZERS))}")
        elif old is not None and old.deletion_time is not None:
            report.add(path, "may not be added: the object is being deleted")


def _check_owners(report: Report, info: KindInfo, meta: Metadata) -> None:
    path = "metadata.ownerReferences"
    report.unique(path, [owner.uid for owner in meta.owner_references if owner.uid], "uid")
    if len(meta.owner_references) > OWNERS_MAX:
        report.add(path, f"may have {OWNERS_MAX} entries, has {len(meta.owner_references)}")
    if sum(owner.controller for owner in meta.owner_references) > 1:
        report.add(path, "may name one controller at most")
    for index, owner in enumerate(meta.owner_references):
        _check_owner(report, f"{path}[{index}]", info, meta, owner)


def _check_owner(report: Report, path: str, info: KindInfo, meta: Metadata, owner: OwnerReference) -> None:
    for part in ("kind", "name", "uid"):
        report.need(bool(getattr(owner, part)), f"{path}.{part}", "is required, is empty")
    owner_info = BY_KIND.get(owner.kind)
    if owner.kind and owner_info is None:
        report.add(f"{path}.kind", f"{shown(owner.kind)} is not a kind; use one of {', '.join(sorted(BY_KIND))}")
    if owner_info is not None and owner_info.namespaced and not info.namespaced:
        report.add(f"{path}.kind", f"a {info.kind} belongs to no tenant, so a tenant's {owner.kind} may not own it")
    if (owner.uid and owner.uid == meta.uid) or (owner.kind, owner.name) == (info.kind, meta.name):
        report.add(path, "an object may not own itself")


def _check_identity(report: Report, new: Metadata, old: Metadata) -> None:
    report.unchanged("metadata.name", new.name, old.name)
    report.unchanged("metadata.namespace", new.namespace, old.namespace)
    # An empty uid means "whichever is there"; another one means the writer knew an object that is gone.
    if new.uid and new.uid != old.uid:
        report.add("metadata.uid", f"{shown(new.uid)} is not this object, which is {shown(old.uid)}; read it again")
