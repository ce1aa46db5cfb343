"""The shapes the resource API is spoken in: kinds and their paths, what is asked for, what comes back.

Owns the words of requests and the reading of lists, tables and receipts. Never sends anything. Called by rest.py, rest_watch.py
and the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    import ssl

GROUP: Final = "fairlead.dev"
VERSION: Final = "v1alpha1"
ROOT: Final = f"/apis/{GROUP}/{VERSION}"
RECEIPTS: Final = f"{ROOT}/receipts"

JSON: Final = "application/json"
TABLE: Final = f"{JSON};as=Table;v=v1;g=meta.k8s.io,{JSON}"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"  # JSON is YAML


class Resource(NamedTuple):
    """A kind as the API serves it."""

    plural: str
    kind: str
    namespaced: bool = True
    group: str = GROUP
    version: str = VERSION
    short_names: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def singular(self) -> str:
        return self.kind.lower()

    def path(self, namespace: str = "", name: str = "", sub: str = "") -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        within = ["namespaces", namespace] if self.namespaced and namespace else []
        parts = [*within, self.plural, *([name] if name else []), *([sub] if sub else [])]
        return "/".join([root, *(quote(part, safe="") for part in parts)])


CORE_EVENTS: Final = Resource("events", "Event", group="", version="v1")


class Query(NamedTuple):
    """Which objects of a kind, and as of when."""

    resource: Resource
    namespace: str = ""  # empty: all tenants
    labels: str = ""
    fields: str = ""
    region: str = ""
    at: str = ""
    not_older_than: str = ""  # a resourceVersion somebody has seen already

    def params(self) -> dict[str, str]:
        pairs = (("labelSelector", self.labels), ("fieldSelector", self.fields), ("region", self.region), ("at", self.at))
        since = {"resourceVersion": self.not_older_than, "resourceVersionMatch": "NotOlderThan"} if self.not_older_than else {}
        return {name: value for name, value in pairs if value} | since


class Listed(NamedTuple):
    items: list[dict[str, Any]]
    resource_version: str


class Tabled(NamedTuple):
    columns: list[dict[str, Any]]
    rows: list[dict[str, Any]]  # {"cells": [...], "object": {...}}
    resource_version: str


class Written(NamedTuple):
    """What a write came to. `receipt`: its answer was lost, and this is what its receipt and the object say."""

    object: dict[str, Any]
    created: bool = False
    key: str = ""
    receipt: bool = False


class Write(NamedTuple):
    """How a write is to be made, beyond what is written."""

    dry_run: bool = False
    key: str = ""  # empty: one is made
    field_manager: str = "fairlead"
    field_validation: str = ""
    force: bool | None = None
    region: str = ""

    def params(self) -> dict[str, str]:
        params = {"fieldManager": self.field_manager}
        if self.dry_run:
            params["dryRun"] = "All"
        if self.field_validation:
            params["fieldValidation"] = self.field_validation
        if self.force is not None:
            params["force"] = "true" if self.force else "false"
        if self.region:
            params["region"] = self.region
        return params


PLAIN: Final = Write()


class Link(NamedTuple):
    """The server, and how it is spoken to."""

    server: str
    tls: ssl.SSLContext | None = None
    token: str = ""
    user_agent: str = "fairlead"


def version_of(page: Any) -> str:
    return str((page.get("metadata") or {}).get("resourceVersion") or "")


def outcome_of(receipt: Any) -> str:
    """Accepted, Refused, or empty: the receipt does not say."""
    status = receipt.get("status") if isinstance(receipt, dict) else None
    said = status.get("outcome", "") if isinstance(status, dict) else ""
    return said if said in ("Accepted", "Refused") else ""


def refusal_of(receipt: Any) -> dict[str, Any]:
    status = receipt["status"]
    code = status.get("code") or 409
    return {"kind": "Status", "code": code, "reason": status.get("reason", ""), "message": status.get("message", "refused")}


def table_of(page: Any) -> Tabled:
    """A Table as it came; a list or an object in its place as name and age."""
    if page.get("kind") == "Table":
        return Tabled(page.get("columnDefinitions") or [], page.get("rows") or [], version_of(page))
    items = page.get("items") if "items" in page else [page]
    columns = [{"name": "Name", "type": "string", "priority": 0}, {"name": "Created", "type": "string", "priority": 0}]
    rows = [
        {"cells": [item["metadata"]["name"], item["metadata"].get("creationTimestamp") or "<unknown>"], "object": item}
        for item in items or ()
    ]
    return Tabled(columns, rows, version_of(page))
