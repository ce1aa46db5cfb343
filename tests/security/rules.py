"""Short words for the tests of this folder: people, roles and bindings, and a reference model of what rules mean.

The model asks every rule of every binding in plain loops, in the order in which a reader would. It shares nothing with
fairlead/decide/access.py but the records and the built-in table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from fairlead.decide.access import Identity, Question
from fairlead.decide.access_roles import BUILT_IN
from fairlead.model.kinds.access import (
    AccessBinding,
    AccessBindingSpec,
    AccessRole,
    AccessRoleSpec,
    AccessRule,
    Subject,
    Token,
    TokenSpec,
)
from fairlead.model.meta import Metadata
from fairlead.model.registry import KINDS

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def person(name: str = "ada", **fields: Any) -> Identity:
    return Identity(name=name, kind="user", **fields)


def service(tenant: str = "risk", name: str = "ci", **fields: Any) -> Identity:
    return Identity(name=f"{tenant}/{name}", kind="service", **fields)


def agent(node: str = "node-1", region: str = "eu-west", **fields: Any) -> Identity:
    return Identity(name=node, kind="agent", roles=("agent",), node=node, region=region, **fields)


def component(role: str, name: str = "server-0", **fields: Any) -> Identity:
    return Identity(name=name, kind="component", roles=(role,), **fields)


def rule(verbs: str, kinds: str, *, effect: Any = "Allow", names: str = "", tenants: str = "") -> AccessRule:
    return AccessRule(
        effect=effect,
        verbs=tuple(verbs.split()),
        kinds=tuple(kinds.split()),
        names=tuple(names.split()),
        tenants=tuple(tenants.split()),
    )


def role(name: str, *rules: AccessRule, scope: Any = "Tenant") -> AccessRole:
    return AccessRole(metadata=Metadata(name=name), spec=AccessRoleSpec(scope=scope, rules=rules))


def bound(role_name: str, tenants: str, *subjects: Subject, name: str = "b") -> AccessBinding:
    spec = AccessBindingSpec(role=role_name, subjects=subjects or (Subject(name="ada"),), tenants=tuple(tenants.split()))
    return AccessBinding(metadata=Metadata(name=name), spec=spec)


def token_of(**spec: Any) -> Token:
    fields: dict[str, Any] = {"hash": "sha256:" + "0" * 64, "expiry_time": NOW.replace(year=2027), **spec}
    metadata = Metadata(name="t", namespace="fairlead-system", creation_time=NOW)
    return Token(metadata=metadata, spec=TokenSpec(**fields))


def model(identity: Identity, bindings: Iterable[AccessBinding], roles: Mapping[str, AccessRole], question: Question) -> bool:
    """May this person or service do this to this one object? The slow and obvious way."""
    tenant = question.name if question.plural == "tenants" else question.tenant
    in_a_tenant = question.plural == "tenants" or (question.plural in KINDS and KINDS[question.plural].namespaced)
    if not in_a_tenant:
        tenant = ""
    if identity.tenants and tenant not in identity.tenants:
        return False
    kind = question.plural + ("/" + question.subresource if question.subresource else "")
    allowed = False
    for binding in bindings:
        for subject in binding.spec.subjects:
            if subject.kind == "User" and (identity.kind != "user" or subject.name != identity.name):
                continue
            if subject.kind == "ServiceAccount" and (
                identity.kind != "service" or identity.name != f"{subject.tenant}/{subject.name}"
            ):
                continue
            for effect, scope, verbs, kinds, names, only, shared in _rules(binding.spec.role, roles):
                everywhere = "*" in binding.spec.tenants and scope == "Cluster"
                here = tenant in binding.spec.tenants and tenant not in ("", "*")
                if only:
                    if tenant not in only or not (everywhere or here):
                        continue
                elif shared and not everywhere:
                    if tenant != "":
                        continue
                elif not everywhere and not here:
                    continue
                if question.verb in verbs and kind in kinds and (not names or question.name in names):
                    if effect == "Deny":
                        return False
                    allowed = True
    return allowed


def _rules(name: str, roles: Mapping[str, AccessRole]) -> list[tuple[Any, ...]]:
    if name in BUILT_IN:
        known = BUILT_IN[name]
        return [(r.effect, known.scope, r.verbs, r.kinds, (), (), r.shared) for r in known.rules]
    if name in roles:
        spec = roles[name].spec
        return [(r.effect, spec.scope, r.verbs, r.kinds, r.names, r.tenants, False) for r in spec.rules]
    return []
