"""What is served, told in both forms clients know: aggregated (kubectl 1.27 on) and legacy (everybody else). Pure."""

from __future__ import annotations

from importlib import metadata
from typing import Any, Final

from fairlead.api.catalogue import CORE, OWN, VERSION, Resource
from fairlead.api.failures import GROUP

_GROUP_VERSION: Final = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}


def version() -> dict[str, str]:
    """Kubernetes' minor is the one whose API habits we keep; kubectl warns when it is far from its own."""
    git = f"v1.32.0+fairlead.{metadata.version('fairlead')}"
    return {
        "major": "1", "minor": "32", "gitVersion": git, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "none", "platform": "any",
    }  # fmt: skip


def aggregated(core: bool, wanted: str) -> dict[str, Any]:
    resources = CORE if core else OWN
    group = {
        "metadata": {"name": "" if core else GROUP, "creationTimestamp": None},
        "versions": [
            {
                "version": "v1" if core else VERSION,
                "freshness": "Current",
                "resources": [_aggregated(resource) for resource in resources.values()],
            }
        ],
    }
    return {"kind": "APIGroupDiscoveryList", "apiVersion": f"apidiscovery.k8s.io/{wanted}", "metadata": {}, "items": [group]}


def aggregated_media(wanted: str) -> str:
    """The answer must repeat what it is, else it is read as the legacy form."""
    return f"application/json;g=apidiscovery.k8s.io;v={wanted};as=APIGroupDiscoveryList"


def _kind(group: str, version: str, kind: str) -> dict[str, str]:
    return {"group": group, "version": version, "kind": kind}


def _aggregated(resource: Resource) -> dict[str, Any]:
    out: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": _kind(resource.group, resource.version, resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        out["shortNames"] = list(resource.short_names)
    if resource.categories:
        out["categories"] = list(resource.categories)
    if resource.subresources:
        out["subresources"] = [
            {"subresource": sub.name, "responseKind": _kind(sub.group, sub.version, sub.kind), "verbs": list(sub.verbs)}
            for sub in resource.subresources
        ]
    return out


def api_versions() -> dict[str, Any]:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group() -> dict[str, Any]:
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": GROUP,
        "versions": [_GROUP_VERSION],
        "preferredVersion": _GROUP_VERSION,
    }


def group_list() -> dict[str, Any]:
    one = {key: value for key, value in group().items() if key not in ("kind", "apiVersion")}
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [one]}


def resource_list(core: bool) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for resource in (CORE if core else OWN).values():
        row: dict[str, Any] = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
        }
        if resource.short_names:
            row["shortNames"] = list(resource.short_names)
        if resource.categories:
            row["categories"] = list(resource.categories)
        rows.append(row)
        rows += [
            {
                "name": f"{resource.plural}/{sub.name}", "singularName": "", "namespaced": resource.namespaced,
                "group": sub.group, "version": sub.version, "kind": sub.kind, "verbs": list(sub.verbs),
            }
            for sub in resource.subresources
        ]  # fmt: skip
    version = "v1" if core else f"{GROUP}/{VERSION}"
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": rows}
