"""core/v1 as far as kubectl counts on it when it writes: `create namespace` makes a tenant. Called by writing.py."""

from __future__ import annotations

from typing import Any

from fairlead.api import protobuf
from fairlead.api.failures import bad_request
from fairlead.wire.json_codec import API_VERSION


def from_protobuf(body: bytes) -> dict[str, Any]:
    """The one kind of body that is created so: a Namespace."""
    try:
        kind, found = protobuf.envelope(body)
        if kind != "Namespace":
            raise bad_request(f"a {kind[:60]!r} is not read from protobuf; send JSON")
        metadata = protobuf.message(found, 1)
        plain: dict[str, Any] = {"name": protobuf.text(metadata, 1), "generateName": protobuf.text(metadata, 2)}
        plain["labels"], plain["annotations"] = protobuf.text_map(metadata, 11), protobuf.text_map(metadata, 12)
    except ValueError as error:
        raise bad_request(f"the body is no protobuf: {error}") from None
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {key: value for key, value in plain.items() if value}}


def tenant_of(tree: Any) -> dict[str, Any]:
    """A namespace is a tenant without wishes."""
    if not isinstance(tree, dict) or tree.get("kind", "Namespace") != "Namespace" or tree.get("apiVersion", "v1") != "v1":
        raise bad_request("the object in the body is not a v1, Kind=Namespace")
    return {"apiVersion": API_VERSION, "kind": "Tenant", "metadata": tree.get("metadata", {})}
