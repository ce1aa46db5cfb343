"""What goes with an object when it is deleted or drained, in one line each: read before anybody is asked.

Owns the words. What cannot be found out is said to be unknown, never left out. Called by delete and drain.
"""

from __future__ import annotations

from typing import Any

from fairlead.cli.kinds import Target, of_model
from fairlead.cli.session import Session
from fairlead.client.rest_errors import ApiError, Invalid
from fairlead.client.rest_shapes import Query, Resource


async def radius(session: Session, target: Target, each: dict[str, Any]) -> str:
    """What is lost with this object; empty if nothing but itself."""
    kinds = of_model()
    match target.resource.kind:
        case "Workload":
            return _of_workload(each)
        case "Node":
            bindings = await bindings_on(session, target.name)
            return f"{counted(len(bindings), 'slot')} on it: {by_workload(bindings)}" if bindings else "nothing runs on it"
        case "Tenant":
            return await _counted(session, Query(kinds["workloads"], target.name), "workload", "of this tenant")
        case "NodePool":
            nodes = await _listed(session, Query(kinds["nodes"]))
            if nodes is None:
                return "its nodes are not known"
            return f"{counted(sum(1 for node in nodes if (node.get('spec') or {}).get('pool') == target.name), 'node')} in it"
        case "Region":
            nodes = await _listed(session, Query(kinds["nodes"], region=target.name))
            return f"{counted(len(nodes), 'node')} in it" if nodes is not None else "its nodes are not known"
    return ""


def _of_workload(each: dict[str, Any]) -> str:
    status = each.get("status") or {}
    counts = status.get("replicas") or {}
    regions = [row.get("region", "") for row in status.get("regions") or ()]
    where = f" in {', '.join(regions)}" if regions else ""
    return f"stops {counted(int(counts.get('bound') or 0), 'slot')}, {counts.get('serving') or 0} of them serving{where}"


async def bindings_on(session: Session, node: str) -> list[dict[str, Any]]:
    """The bindings of a node. Asked for by field; a server that cannot select by it sends all, and we choose."""
    bindings = of_model()["bindings"]
    try:
        found = (await session.client.list(Query(bindings, fields=f"spec.node={node}", region=session.region))).items
    except Invalid:
        found = (await session.client.list(Query(bindings, region=session.region))).items
    gone = ("Released", "Succeeded")
    return [
        each
        for each in found
        if (each.get("spec") or {}).get("node") == node and (each.get("status") or {}).get("state", "Bound") not in gone
    ]


def by_workload(bindings: list[dict[str, Any]], most: int = 8) -> str:
    counts: dict[str, int] = {}
    for each in bindings:
        name = workload_of(each)
        counts[name] = counts.get(name, 0) + 1
    named = [f"{name} ({count})" for name, count in sorted(counts.items())]
    return ", ".join(named[:most]) + (f" and {len(named) - most} more workloads" if len(named) > most else "")


def workload_of(binding: dict[str, Any]) -> str:
    slot = (binding.get("spec") or {}).get("slot") or {}
    tenant = (binding.get("metadata") or {}).get("namespace", "")
    return f"{tenant}/{slot.get('workload') or binding['metadata']['name']}" if isinstance(slot, dict) else f"{tenant}/{slot}"


async def _counted(session: Session, query: Query, noun: str, where: str) -> str:
    found = await _listed(session, query)
    return f"{counted(len(found), noun)} {where}" if found is not None else f"how many {noun}s {where} is not known"


async def _listed(session: Session, query: Query) -> list[dict[str, Any]] | None:
    try:
        return (await session.client.list(query)).items
    except ApiError:
        return None


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def named(resource: Resource, name: str, namespace: str) -> str:
    return f"{resource.singular}/{name}" + (f" of tenant {namespace}" if namespace else "")
