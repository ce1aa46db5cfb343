"""What callers may ask about their own rights: `auth can-i`, `can-i --list` and `whoami`, as Kubernetes' review objects.

Owns the shape of the answers (KUBECTL.md 8); decides nothing. Bodies come as plain values: JSON, or protobuf that the API has
already read. Called by the API's handlers for the authorization and authentication groups.
"""

from __future__ import annotations

from typing import Any, Final

from fairlead.api.authz import Access
from fairlead.decide.access import Identity, Question
from fairlead.decide.access_roles import AUDIT, METRICS
from fairlead.security.directory import AccessDirectory

GROUP: Final = "fairlead.dev"
_PATHS: Final = {"/metrics": METRICS, "/audit": AUDIT}
_OPEN_PATHS: Final = ("/livez", "/readyz", "/version", "/api", "/apis", "/openapi/v2", "/openapi/v3")


def access_review(decisions: Access, who: Identity, body: dict[str, Any]) -> dict[str, Any]:
    """SelfSubjectAccessReview: the same object, with the answer. What is unknown here is not allowed."""
    spec = body.get("spec") if isinstance(body.get("spec"), dict) else {}
    assert isinstance(spec, dict)
    attributes, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if isinstance(attributes, dict):
        allowed, reason = _resource(decisions, who, attributes)
    elif isinstance(path, dict):
        allowed, reason = _path(decisions, who, path)
    else:
        allowed, reason = False, "the review names neither a resource nor a path"
    status = {"allowed": allowed, "reason": reason} | ({} if allowed else {"denied": False})
    return {**_head("authorization.k8s.io/v1", "SelfSubjectAccessReview", body), "spec": spec, "status": status}


def _resource(decisions: Access, who: Identity, given: dict[str, Any]) -> tuple[bool, str]:
    words = {key: value for key, value in given.items() if isinstance(value, str)}
    plural, group = words.get("resource", ""), words.get("group", GROUP)
    if group == "" and plural == "namespaces":
        plural, group = "tenants", GROUP
    elif group == "" and plural == "events":
        group = GROUP
    if group != GROUP:
        return False, f"there is no group {group[:80]!r} here"
    question = Question(
        words.get("verb", ""), plural, words.get("namespace", ""), words.get("name", ""), words.get("subresource", "")
    )
    answer = decisions.answer(who, question)
    return answer.allowed, answer.reason


def _path(decisions: Access, who: Identity, given: dict[str, Any]) -> tuple[bool, str]:
    path = str(given.get("path", ""))
    if path in _OPEN_PATHS:
        return given.get("verb") == "get", "readable by every known caller"
    plural = _PATHS.get(path)
    if plural is None:
        return False, "there is no such path"
    answer = decisions.answer(who, Question(str(given.get("verb", "")), plural))
    return answer.allowed, answer.reason


def rules_review(directory: AccessDirectory, who: Identity, body: dict[str, Any]) -> dict[str, Any]:
    """SelfSubjectRulesReview: what is allowed in one namespace. Denials cannot be written here, so where there are any it says
    that it is incomplete."""
    spec = body.get("spec") if isinstance(body.get("spec"), dict) else {}
    assert isinstance(spec, dict)
    tenant = str(spec.get("namespace", ""))
    statements = [s for s in directory.statements(who) if s.tenants is None or tenant in s.tenants or "" in s.tenants]
    rules = [
        {"verbs": sorted(s.verbs), "apiGroups": [GROUP], "resources": sorted(s.kinds)}
        | ({"resourceNames": sorted(s.names)} if s.names is not None else {})
        for s in statements
        if not s.deny and (not who.tenants or tenant in who.tenants)
    ]
    paths = [{"verbs": ["get"], "nonResourceURLs": list(_OPEN_PATHS)}]
    status = {
        "resourceRules": rules,
        "nonResourceRules": paths,
        "incomplete": who.kind == "agent" or any(s.deny for s in statements),
    }
    return {**_head("authorization.k8s.io/v1", "SelfSubjectRulesReview", body), "spec": spec, "status": status}


def self_review(who: Identity, body: dict[str, Any]) -> dict[str, Any]:
    """SelfSubjectReview: who the server takes the caller for."""
    extra: dict[str, list[str]] = {"fairlead.dev/kind": [who.kind]}
    for name, value in (("node", who.node), ("region", who.region), ("token", "/".join(who.token or ()))):
        if value:
            extra[f"fairlead.dev/{name}"] = [value]
    if who.tenants:
        extra["fairlead.dev/tenants"] = list(who.tenants)
    user = {"username": who.actor, "groups": list(who.roles), "extra": extra}
    return {**_head("authentication.k8s.io/v1", "SelfSubjectReview", body), "status": {"userInfo": user}}


def _head(version: str, kind: str, body: dict[str, Any]) -> dict[str, Any]:
    # kubectl up to 1.27 asks for older versions of some of these and wants the same one back.
    given = body.get("apiVersion")
    group = version.partition("/")[0]
    same = isinstance(given, str) and given in {f"{group}/v1", f"{group}/v1beta1", f"{group}/v1alpha1"}
    return {"kind": kind, "apiVersion": given if same else version, "metadata": {}}
