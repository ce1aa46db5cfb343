"""OpenAPI v2 in the one form old clients read it, gnostic's protobuf: kubectl up to 1.26 explains and validates by it.

Made from the v3 document, which holds everything. The numbers are those of OpenAPIv2.proto. Pure. Called by openapi.py.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from fairlead.api.protobuf import field
from fairlead.wire.yaml_codec import encode_yaml

# Go cannot parse a media type with an '@' in it, which is what clients ask for.
MEDIA: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_METHODS: Final = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}
_REF: Final = "#/components/schemas/"
_cache: dict[int, bytes] = {}


def document(v3: Mapping[str, Any]) -> bytes:
    if id(v3) not in _cache:  # the v3 document is made once and kept
        info = field(1, "Fairlead") + field(2, "v1alpha1")
        paths = b"".join(field(2, _named(path, _item(item))) for path, item in v3["paths"].items())
        schemas = v3["components"]["schemas"]
        definitions = b"".join(field(1, _named(name, _schema(schema))) for name, schema in schemas.items())
        _cache[id(v3)] = field(1, "2.0") + field(2, info) + field(8, paths) + field(9, definitions)
    return _cache[id(v3)]


def _named(name: str, value: bytes) -> bytes:
    return field(1, name) + field(2, value)


def _extension(name: str, value: Any) -> bytes:
    return _named(name, field(2, encode_yaml(value)))


def _item(item: Mapping[str, Any]) -> bytes:
    return b"".join(field(number, _operation(item[method])) for method, number in _METHODS.items() if method in item)


def _operation(operation: Mapping[str, Any]) -> bytes:
    parameters = b"".join(field(8, _query(p["name"])) for p in operation["parameters"])
    ok = field(1, field(1, "OK"))  # ResponseValue.response.description
    responses = field(9, field(1, _named("200", ok)))
    return (
        parameters
        + responses
        + field(13, _extension("x-kubernetes-group-version-kind", operation["x-kubernetes-group-version-kind"]))
    )


@functools.cache
def _query(name: str) -> bytes:
    query = field(2, "query") + field(4, name) + field(6, "string")
    return field(1, field(2, field(3, query)))  # ParametersItem.parameter.non_body.query


def _schema(schema: Mapping[str, Any]) -> bytes:
    out = b""
    if "allOf" in schema:
        schema = {**schema, "$ref": schema["allOf"][0]["$ref"]}
    if "$ref" in schema:
        out += field(1, "#/definitions/" + schema["$ref"].removeprefix(_REF))
    if "format" in schema:
        out += field(2, schema["format"])
    if "description" in schema:
        out += field(4, schema["description"])
    out += b"".join(field(19, name) for name in schema.get("required", ()))
    if isinstance(schema.get("additionalProperties"), Mapping):
        out += field(21, field(1, _schema(schema["additionalProperties"])))
    kind = "string" if "anyOf" in schema else schema.get("type", "")
    if kind and "$ref" not in schema:
        out += field(22, field(1, kind))
    if "items" in schema:
        out += field(23, field(1, _schema(schema["items"])))
    if "properties" in schema:
        out += field(25, b"".join(field(1, _named(name, _schema(item))) for name, item in schema["properties"].items()))
    gvk = schema.get("x-kubernetes-group-version-kind")
    return out + (field(31, _extension("x-kubernetes-group-version-kind", gvk)) if gvk else b"")
