"""OpenAPI of what is served, made from the records: `explain` reads it, kubectl decides by it how to validate and apply.

Owns the v3 documents, their hash and the index; v2, for older kubectl, is made from them (openapi_v2.py). Fields are described by
the comments that stand beside them in the model. Called by the dispatcher.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from fairlead.api import openapi_v2
from fairlead.api.calls import APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH
from fairlead.api.catalogue import GROUPS, Resource, Sub
from fairlead.api.failures import Failure
from fairlead.api.schemas import Schemas
from fairlead.wire.json_codec import encode

_NAME: Final = "[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
_STRINGS: Final = {
    "pretty": "Ignored.",
    "fieldManager": "Who makes this change; kept in managedFields.",
    "fieldValidation": "What to do with unknown fields: Strict, Warn or Ignore.",
    "dryRun": "All: judge it, and change nothing.",
    "labelSelector": "Only objects whose labels match.",
    "fieldSelector": "Only objects whose fields match.",
    "continue": "Where a list goes on.",
    "resourceVersion": "What the client has seen already.",
    "resourceVersionMatch": "Exact or NotOlderThan.",
    "at": "A resourceVersion or a time: the state as it was then.",
    "region": "Ask, or write to, this region only.",
    "slot": "Of this replica only.",
    "node": "Where this node was chosen.",
    "outcome": "What became of it, or the reason it waits.",
    "since": "Not before this time.",
    "until": "Before this time.",
}
_NUMBERS: Final = {
    "limit": "At most so many objects.",
    "timeoutSeconds": "How long a watch may last.",
    "generation": "Of this generation of the workload.",
}
_FLAGS: Final = {
    "watch": "Follow changes.",
    "allowWatchBookmarks": "Send the position of a quiet watch now and then.",
    "sendInitialEvents": "Begin a watch with the present state.",
    "force": "Take contested fields over.",
}
_LIST: Final = (
    "labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch", "watch",
    "allowWatchBookmarks", "sendInitialEvents", "timeoutSeconds", "at", "region",
)  # fmt: skip
_SUB_QUERY: Final = {
    "decisions": ("slot", "generation", "node", "outcome", "since", "until", "limit", "continue"),
    "scale": ("at",),
    "why": ("slot", "generation", "at"),
    "timeline": ("since",),
}
_WRITE: Final = ("dryRun", "fieldManager", "fieldValidation", "region")


def answer(request: Request, rest: Sequence[str]) -> Response:
    match rest:
        case ["v3"]:
            return Response(encode(_index()), media_type=JSON)
        case ["v3", "api", "v1"]:
            return _document(request, "", "v1")
        case ["v3", "apis", group, version] if (group, version) in GROUPS:
            return _document(request, group, version)
        case ["v2"]:
            return _cached(request, openapi_v2.document(document("fairlead.dev", "v1alpha1")), openapi_v2.MEDIA)
    raise Failure(404, "there is no such document")


def _document(request: Request, group: str, version: str) -> Response:
    return _cached(request, text(group, version), JSON)


def _cached(request: Request, body: bytes, media: str) -> Response:
    tag = f'"{_hash(body)}"'
    headers = {"ETag": tag, "Vary": "Accept"}
    if "hash" in request.query_params:
        headers["Cache-Control"] = "public, immutable"
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=media)


def _hash(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest().upper()


def _index() -> dict[str, Any]:
    paths = {}
    for group, version in GROUPS:
        path = f"apis/{group}/{version}" if group else f"api/{version}"
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={_hash(text(group, version))}"}
    return {"paths": paths}


@functools.cache
def text(group: str, version: str) -> bytes:
    return encode(document(group, version))


@functools.cache
def document(group: str, version: str) -> dict[str, Any]:
    schemas = Schemas()
    paths: dict[str, Any] = {}
    for resource in GROUPS[group, version].values():
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        paths |= _Paths(resource, schemas).made(root)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Fairlead", "version": version},
        "paths": paths,
        "components": {"schemas": schemas.made},
    }


class _Paths:
    def __init__(self, resource: Resource, schemas: Schemas) -> None:
        self._resource = resource
        self._one = schemas.of_resource(resource)
        self._list = schemas.list_of(resource)
        self._gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}

    def made(self, root: str) -> dict[str, Any]:
        resource, verbs = self._resource, self._resource.verbs
        out: dict[str, Any] = {}
        base = f"{root}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{root}/{resource.plural}"
        if resource.namespaced:
            out[f"{root}/{resource.plural}"] = {"get": self._read(True)}
        collection: dict[str, Any] = {"get": self._read(True)}
        if "create" in verbs:
            collection["post"] = self._write("post", 201)
        if "deletecollection" in verbs:
            collection["delete"] = self._delete(True)
        item: dict[str, Any] = {"get": self._read(False)}
        if "update" in verbs:
            item["put"] = self._write("put", 200)
        if "patch" in verbs:
            item["patch"] = self._patch()
        if "delete" in verbs:
            item["delete"] = self._delete(False)
        scoped = [_path_parameter("namespace")] if resource.namespaced else []
        out[base] = {"parameters": scoped, **collection}
        out[f"{base}/{{name}}"] = {"parameters": [*scoped, _path_parameter("name")], **item}
        if resource.sub("status") is not None:
            status = {"get": self._read(False), "put": self._write("put", 200)}
            if "patch" in verbs:
                status["patch"] = self._patch()
            out[f"{base}/{{name}}/status"] = {"parameters": [*scoped, _path_parameter("name")], **status}
        for sub in resource.subresources:
            if sub.name != "status":
                out[f"{base}/{{name}}/{sub.name}"] = {"parameters": [*scoped, _path_parameter("name")], **_sub(sub)}
        return out

    def _operation(self, action: str, parameters: Sequence[str], responses: dict[str, Any]) -> dict[str, Any]:
        return {
            "x-kubernetes-group-version-kind": self._gvk,
            "x-kubernetes-action": action,
            "parameters": [_parameter(name) for name in parameters],
            "responses": {**responses, "default": {"description": "A Status that says why not."}},
        }

    def _answer(self, code: int, schema: dict[str, Any]) -> dict[str, Any]:
        return {str(code): {"description": "OK", "content": {JSON: {"schema": schema}}}}

    def _read(self, many: bool) -> dict[str, Any]:
        if many:
            return self._operation("list", _LIST, self._answer(200, self._list))
        return self._operation("get", ("at", "region"), self._answer(200, self._one))

    def _write(self, action: str, code: int) -> dict[str, Any]:
        made = self._operation(action, _WRITE, self._answer(code, self._one))
        return {**made, "requestBody": {"required": True, "content": {JSON: {"schema": self._one}}}}

    def _patch(self) -> dict[str, Any]:
        made = self._operation("patch", (*_WRITE, "force"), self._answer(200, self._one))
        anything = {"type": "object"}
        content = {
            JSON_PATCH: {"schema": {"type": "array", "items": anything}},
            MERGE_PATCH: {"schema": anything},
            APPLY_PATCH[0]: {"schema": anything},
        }
        return {**made, "requestBody": {"required": True, "content": content}}

    def _delete(self, many: bool) -> dict[str, Any]:
        chosen = ("labelSelector", "fieldSelector", "dryRun", "region") if many else ("dryRun", "region")
        action = "deletecollection" if many else "delete"
        return self._operation(action, chosen, self._answer(200, {"type": "object"}))


_METHODS: Final = {"get": "get", "create": "post", "update": "put", "patch": "patch"}


def _sub(sub: Sub) -> dict[str, Any]:
    """What is no part of the object itself, in outline: docs/api.md has the fields."""
    out: dict[str, Any] = {}
    anything = {"type": "object"}
    for verb in sub.verbs:
        names = _SUB_QUERY.get(sub.name, ()) if verb == "get" else ("dryRun",)
        made: dict[str, Any] = {
            "x-kubernetes-group-version-kind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
            "x-kubernetes-action": _METHODS[verb],
            "parameters": [_parameter(name) for name in (*names, "region")],
            "responses": {
                "201" if verb == "create" else "200": {"description": "OK", "content": {JSON: {"schema": anything}}},
                "default": {"description": "A Status that says why not."},
            },
        }
        if verb != "get":
            media = (JSON_PATCH, MERGE_PATCH) if verb == "patch" else (JSON,)
            made["requestBody"] = {"required": True, "content": {one: {"schema": _body_of(one)} for one in media}}
        out[_METHODS[verb]] = made
    return out


def _body_of(media: str) -> dict[str, Any]:
    anything = {"type": "object"}
    return {"type": "array", "items": anything} if media == JSON_PATCH else anything


def _parameter(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if name in _NUMBERS:
        schema = {"type": "integer", "minimum": 0}
    elif name in _FLAGS:
        schema = {"type": "boolean"}
    words = _STRINGS.get(name) or _NUMBERS.get(name) or _FLAGS[name]
    return {"name": name, "in": "query", "description": words, "schema": schema}


def _path_parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string", "pattern": f"^{_NAME}$", "maxLength": 63}
    return {"name": name, "in": "path", "required": True, "schema": schema}
