"""What roles, bindings, service accounts and tokens must keep. Exact words only: a slip in a rule must be told, not match nothing
in silence. Called through RULES in this package."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from fairlead.decide.access_roles import BUILT_IN, KNOWN_KINDS, VERBS
from fairlead.model.kinds.access import (
    ALL_TENANTS,
    SYSTEM_TENANT,
    AccessBinding,
    AccessRole,
    NodeProfile,
    ServiceAccount,
    Subject,
    Token,
)
from fairlead.model.meta import MIRRORED_UID
from fairlead.model.report import Report, shown
from fairlead.model.resources import DEVICES_MAX

RULES_MAX: Final = 100
WORDS_MAX: Final = 256
TEXT_MAX: Final = 256

_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")


def check_access_role(report: Report, new: AccessRole, old: AccessRole | None) -> None:
    report.need(
        new.metadata.name not in BUILT_IN, "metadata.name", f"{shown(new.metadata.name)} is built in; choose another name"
    )
    report.need(len(new.spec.rules) <= RULES_MAX, "spec.rules", f"may have {RULES_MAX} entries, has {len(new.spec.rules)}")
    for index, rule in enumerate(new.spec.rules[:RULES_MAX]):
        path = f"spec.rules[{index}]"
        _words(report, f"{path}.verbs", rule.verbs, VERBS, "a verb")
        _words(report, f"{path}.kinds", rule.kinds, KNOWN_KINDS, "a kind or one of its subresources")
        report.unique(f"{path}.names", rule.names)
        report.need(len(rule.names) <= WORDS_MAX, f"{path}.names", f"may have {WORDS_MAX} entries, has {len(rule.names)}")
        report.labels(f"{path}.tenants", rule.tenants[:WORDS_MAX])
    if old is not None and new.spec.scope != old.spec.scope:
        report.add("spec.scope", "may not change: bindings rely on it; create another role")


def _words(report: Report, path: str, words: tuple[str, ...], known: Iterable[str], what: str) -> None:
    report.need(bool(words), path, "needs at least one entry: an empty list would match nothing")
    report.unique(path, words)
    known = frozenset(known)
    for index, word in enumerate(words[:WORDS_MAX]):
        if word not in known:
            report.add(f"{path}[{index}]", f"{shown(word)} is not {what}; words are compared exactly, there are no wildcards")


def check_access_binding(report: Report, new: AccessBinding, old: AccessBinding | None) -> None:
    spec = new.spec
    report.subdomain("spec.role", spec.role)
    report.need(bool(spec.subjects), "spec.subjects", "needs at least one entry")
    report.need(len(spec.subjects) <= WORDS_MAX, "spec.subjects", f"may have {WORDS_MAX} entries, has {len(spec.subjects)}")
    report.unique("spec.subjects", [(subject.kind, subject.tenant, subject.name) for subject in spec.subjects])
    for index, subject in enumerate(spec.subjects[:WORDS_MAX]):
        _check_subject(report, f"spec.subjects[{index}]", subject)
    report.need(bool(spec.tenants), "spec.tenants", "needs at least one entry: the tenants this is for")
    if ALL_TENANTS in spec.tenants:
        report.need(len(spec.tenants) == 1, "spec.tenants", f"{shown(ALL_TENANTS)} stands alone: it is every tenant already")
        built_in = BUILT_IN.get(spec.role)
        if built_in is not None and built_in.scope == "Tenant":
            report.add("spec.tenants", f"{spec.role} is for tenants by name; only a role of scope Cluster reaches all of them")
    else:
        report.labels("spec.tenants", spec.tenants[:WORDS_MAX])
    if old is not None:
        report.unchanged("spec.role", spec.role, old.spec.role)


def _check_subject(report: Report, path: str, subject: Subject) -> None:
    report.subdomain(f"{path}.name", subject.name)
    if subject.kind == "ServiceAccount":
        report.label(f"{path}.tenant", subject.tenant)
    else:
        report.need(not subject.tenant, f"{path}.tenant", "must be left out: people belong to no tenant")


def check_service_account(report: Report, new: ServiceAccount, old: ServiceAccount | None) -> None:
    text = new.spec.description
    report.need(len(text) <= TEXT_MAX, "spec.description", f"may have {TEXT_MAX} characters, has {len(text)}")


def check_token(report: Report, new: Token, old: Token | None) -> None:
    spec = new.spec
    if _HASH.fullmatch(spec.hash) is None:
        report.add("spec.hash", "must be sha256: and 64 hexadecimal digits; the secret itself is never sent")
    report.labels("spec.tenants", spec.tenants[:WORDS_MAX])
    report.need(len(spec.reason) <= TEXT_MAX, "spec.reason", f"may have {TEXT_MAX} characters, has {len(spec.reason)}")
    report.need(
        (spec.subject is not None) == (spec.purpose == "Access"),
        "spec.subject",
        "belongs to an access token, and is required there",
    )
    report.need(
        (spec.profile is not None) == (spec.purpose == "Join"), "spec.profile", "belongs to a join token, and is required there"
    )
    _check_owner(report, new)
    _check_lifetime(report, new)
    if spec.profile is not None:
        report.subdomain("spec.profile.node", spec.profile.node)
        report.label("spec.profile.region", spec.profile.region)
        # One of before these rules is still to be revoked, and to be copied into a region; there it lets nobody in (joining.py).
        if old is None and MIRRORED_UID not in new.metadata.annotations:
            _check_node_name(report, spec.profile.node, spec.profile.region)
            _check_devices(report, spec.profile)
        capacity = spec.profile.capacity
        report.amounts("spec.profile.capacity", capacity)
        report.need(
            bool(capacity.cpu or capacity.memory), "spec.profile.capacity", "must have cpu or memory: the most it may offer"
        )
    if old is not None:
        _check_token_change(report, new, old)


def begins_with_region(node: str, region: str) -> bool:
    return node.startswith((f"{region}-", f"{region}."))


def _check_node_name(report: Report, node: str, region: str) -> None:
    """It is registered by its region, which cannot ask the others whether they have one of that name (P19)."""
    if not begins_with_region(node, region):
        report.add("spec.profile.node", f"must begin with {shown(region + '-')} or {shown(region + '.')}, got {shown(node)}")


def _check_devices(report: Report, profile: NodeProfile) -> None:
    scalars = {name for name, _ in profile.capacity.scalars}
    for resource, count in sorted(profile.devices.items())[:WORDS_MAX]:
        path = f"spec.profile.devices[{shown(resource)}]"
        report.label_key(path, resource)
        report.within(path, count, 0, DEVICES_MAX)
        report.need(resource not in scalars, path, "is also in capacity; it may be counted in one place only")
    report.need(len(profile.devices) <= WORDS_MAX, "spec.profile.devices", f"may have {WORDS_MAX} entries")


def _check_owner(report: Report, new: Token) -> None:
    """A tenant's administrators write tokens in their own namespace. None of those may speak for a person, a node, or another
    tenant's service."""
    subject = new.spec.subject
    if subject is not None:
        _check_subject(report, "spec.subject", subject)
    home = subject.tenant if subject is not None and subject.kind == "ServiceAccount" else SYSTEM_TENANT
    if new.metadata.namespace != home:
        report.add("metadata.namespace", f"must be {shown(home)}: that is where tokens for this subject are kept")


def _check_lifetime(report: Report, new: Token) -> None:
    """That it is not too far off is judged where a token is used: there is no clock here."""
    spec = new.spec
    if spec.expiry_time is None:
        report.need(spec.purpose == "Certificate", "spec.expiryTime", "is required: no token lives for ever")
    elif spec.expiry_time.tzinfo is None:
        report.add("spec.expiryTime", "needs a time zone")


def _check_token_change(report: Report, new: Token, old: Token) -> None:
    """Revoked once is revoked for ever, and nothing about a token grows: a new one is issued instead."""
    after, before = new.spec, old.spec
    for name in ("purpose", "hash", "subject", "tenants", "profile"):
        if getattr(after, name) != getattr(before, name):
            report.add(f"spec.{name}", "may not change; issue another token")
    if before.revoked and not after.revoked:
        report.add("spec.revoked", "may not be taken back; issue another token")
    if before.expiry_time is not None and (after.expiry_time is None or after.expiry_time > before.expiry_time):
        report.add("spec.expiryTime", "may be brought forward, never put off; issue another token")
