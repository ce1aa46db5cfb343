"""Questions about the caller and about what a key came to: access reviews, `auth whoami`, receipts. Called by the dispatcher.

Bodies come as JSON, or as protobuf from kubectl 1.32 on. Answers are JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from fairlead.api import protobuf, telling
from fairlead.api.access import Identity
from fairlead.api.calls import JSON, PROTOBUF, YAML, Services, parse, read_body
from fairlead.api.catalogue import CORE, OWN, Resource
from fairlead.api.failures import GROUP, Failure, bad_request
from fairlead.api.rules import Ask
from fairlead.client.resources import Unreachable
from fairlead.model.commands import Accepted, Refused
from fairlead.wire.json_codec import API_VERSION, encode

_ATTRIBUTES: Final = {1: "namespace", 2: "verb", 3: "group", 4: "version", 5: "resource", 6: "subresource", 7: "name"}
_PATHS_FOR_ALL: Final = ("/api", "/apis", "/openapi", "/version", "/livez", "/healthz", "/readyz")


async def answer(request: Request, segments: Sequence[str], identity: Identity, services: Services) -> Response | None:
    """None: the path is none of these."""
    match segments:
        case ["receipts", key] | ["apis", "fairlead.dev", "v1alpha1", "receipts", key]:
            return await _receipt(request, key, identity, services)
        case ["history"] | ["apis", "fairlead.dev", "v1alpha1", "history"]:
            return await telling.history(request, identity, services)
        case ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"]:
            return _made(await _access(request, identity, services))
        case ["apis", "authorization.k8s.io", "v1", "selfsubjectrulesreviews"]:
            return _made(await _rules(request, identity, services))
        case ["apis", "authentication.k8s.io", "v1" | "v1beta1" | "v1alpha1" as version, "selfsubjectreviews"]:
            await _body(request)
            user = {"username": identity.name, "groups": [*identity.groups, f"role:{identity.role.value}"]}
            if identity.uid:
                user["uid"] = identity.uid
            body = {"kind": "SelfSubjectReview", "apiVersion": f"authentication.k8s.io/{version}", "metadata": {}}
            return _made({**body, "status": {"userInfo": user}})
    return None


def _made(body: dict[str, Any]) -> Response:
    return Response(encode(body), 201, media_type=JSON)


async def _body(request: Request) -> dict[str, Any] | protobuf.Fields:
    if request.method != "POST":
        raise Failure(405, "reviews are asked for with POST")
    body = await read_body(request)
    media = request.headers.get("content-type", JSON).split(";")[0].strip().lower()
    if media == PROTOBUF:
        try:
            return protobuf.envelope(body)[1]
        except ValueError as error:
            raise bad_request(f"the body is no protobuf: {error}") from None
    if media not in (JSON, *YAML):
        raise Failure(415, f"a review is sent as JSON or protobuf, not as {media[:80]}")
    tree = parse(body, media)
    if not isinstance(tree, dict):
        raise bad_request("a review is an object")
    return tree


def _is_wire(body: dict[str, Any] | protobuf.Fields) -> bool:
    return not any(isinstance(key, str) for key in body)


async def _access(request: Request, identity: Identity, services: Services) -> dict[str, Any]:
    body: Any = await _body(request)
    if _is_wire(body):
        try:
            spec = protobuf.message(body, 2)
            found = protobuf.message(spec, 1)
            attributes = {name: protobuf.text(found, number) for number, name in _ATTRIBUTES.items()}
            path = protobuf.text(protobuf.message(spec, 2), 1)
        except ValueError as error:
            raise bad_request(f"the body is no protobuf: {error}") from None
    else:
        asked = body.get("spec") if isinstance(body.get("spec"), dict) else {}
        attributes = _texts(asked.get("resourceAttributes"))
        path = _texts(asked.get("nonResourceAttributes")).get("path", "")
    allowed = _allowed(identity, services, attributes, path)
    spec_out = {"nonResourceAttributes": {"path": path}} if path else {"resourceAttributes": attributes}
    return {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": spec_out,
        "status": {"allowed": allowed},
    }


def _texts(value: Any) -> dict[str, str]:
    return {str(k): v for k, v in value.items() if isinstance(v, str)} if isinstance(value, dict) else {}


def _allowed(identity: Identity, services: Services, asked: dict[str, str], path: str) -> bool:
    if path:
        return path.startswith(_PATHS_FOR_ALL)
    plural = asked.get("resource", "")
    core = asked.get("group", "") == "" and plural in CORE
    resource = CORE.get(plural) if core else OWN.get(plural)
    if resource is None and plural != "*":
        return False
    stored = resource.info.plural if resource is not None and resource.info is not None else plural
    subresource, tenant = asked.get("subresource", ""), asked.get("namespace", "")
    if resource is not None and not resource.namespaced:
        tenant = ""
    return services.rules.allows(identity, Ask(asked.get("verb", ""), stored, tenant, asked.get("name", ""), subresource))


async def _rules(request: Request, identity: Identity, services: Services) -> dict[str, Any]:
    body: Any = await _body(request)
    try:
        tenant = protobuf.text(protobuf.message(body, 2), 1) if _is_wire(body) else _texts(body.get("spec")).get("namespace", "")
    except ValueError as error:
        raise bad_request(f"the body is no protobuf: {error}") from None
    rules = []
    for resource in OWN.values():
        where = tenant if resource.namespaced else ""
        may = [verb for verb in resource.verbs if services.rules.allows(identity, Ask(verb, resource.plural, where))]
        if may:
            rules.append({"verbs": may, "apiGroups": [GROUP], "resources": [resource.plural]})
        rules += _of_parts(identity, services, resource, where)
    paths = [{"verbs": ["get"], "nonResourceURLs": list(_PATHS_FOR_ALL)}]
    status = {"resourceRules": rules, "nonResourceRules": paths, "incomplete": False}
    head = {"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}}
    return {**head, "spec": {"namespace": tenant}, "status": status}


def _of_parts(identity: Identity, services: Services, resource: Resource, tenant: str) -> list[dict[str, Any]]:
    """What may be done with its subresources, which have rules of their own."""
    rules = []
    for sub in resource.subresources:
        may = [verb for verb in sub.verbs if services.rules.allows(identity, Ask(verb, resource.plural, tenant, "", sub.name))]
        if may:
            rules.append({"verbs": may, "apiGroups": [GROUP], "resources": [f"{resource.plural}/{sub.name}"]})
    return rules


async def _receipt(request: Request, key: str, identity: Identity, services: Services) -> Response:
    """What a command with this Idempotency-Key came to. Only its sender can ask: keys belong to whoever chose them."""
    if request.method not in ("GET", "HEAD"):
        raise Failure(405, "receipts are read only")
    away = []
    for member in services.front.members:
        try:
            outcome = await member.ask(partial(member.plane.receipt, services.rules.actor(identity), key))
        except Unreachable:
            away.append(member.name)
            continue
        if isinstance(outcome, Accepted):
            status = {"outcome": "Accepted", "revision": str(outcome.revision), "key": outcome.key, "uid": outcome.uid}
            body = {"kind": "Receipt", "apiVersion": API_VERSION, "metadata": {"name": key}, "status": status}
            return Response(encode(body), media_type=JSON)
        if isinstance(outcome, Refused):
            away.append(member.name)
    if away:
        raise Failure(503, f"{', '.join(away)} cannot say yet what became of it", retry_after_s=1.0)
    raise Failure(
        404, f"no command with the Idempotency-Key {key[:80]!r} has taken effect in the last 24 hours", kind="receipts", name=key
    )
