"""What an override would touch, counted before anybody is asked: workloads, replicas, nodes.

Owns the counting and its words; which work an override is about, decide/overrides.py says. What cannot be listed is said to be
unknown. Called by the command `override`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.cli.blast import counted, workload_of
from fairlead.cli.kinds import of_model
from fairlead.cli.session import Session
from fairlead.client.rest_errors import ApiError
from fairlead.client.rest_shapes import Query
from fairlead.decide.overrides import EVERYONE, Where, concerns, node_words, tenants_of
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.meta import Metadata


def override_of(manifest: dict[str, Any]) -> Override:
    """As much of it as a scope needs."""
    meta, spec = manifest["metadata"], manifest["spec"]
    scope = msgspec.convert(spec.get("scope") or {}, OverrideScope)
    body = OverrideSpec(kind=spec["kind"], reason=spec.get("reason", ""), ttl_seconds=int(spec["ttlSeconds"]), scope=scope)
    return Override(metadata=Metadata(name=meta["name"], namespace=meta.get("namespace", "")), spec=body)


async def touched(session: Session, override: Override) -> list[str]:
    """Lines for whoever is about to order it."""
    lines = [await _workloads(session, override)]
    if override.spec.kind == "zone-avoidance":
        lines.append(await _nodes(session, override))
    if override.spec.kind == "autoscaler-pause":
        lines.append(node_words(override))
    return lines


async def _workloads(session: Session, override: Override) -> str:
    scope, tenants = override.spec.scope, tenants_of(override)
    # Whether a workload runs in a region is its status's to say; a scope that names none is about it wherever it runs.
    anywhere = msgspec.structs.replace(override.spec, scope=msgspec.structs.replace(scope, regions=(), zones=()))
    plain = msgspec.structs.replace(override, spec=anywhere)
    found: list[dict[str, Any]] = []
    bindings: list[dict[str, Any]] = []
    try:
        for tenant in ("",) if EVERYONE in tenants else tenants:
            found += (await session.client.list(Query(of_model()["workloads"], tenant))).items
        if not found:  # a region's own server has no workloads, only what is bound of them there
            for tenant in ("",) if EVERYONE in tenants else tenants:
                bindings += (await session.client.list(Query(of_model()["bindings"], tenant))).items
    except ApiError as error:
        return f"how many workloads is not known: {error}"
    inside = [each for each in found if concerns(plain, _where(workload_named(each))) and _runs_in(each, scope)]
    held = [each for each in bindings if concerns(plain, _where(workload_of(each)))]
    counts = [(each.get("status") or {}).get("replicas") or {} for each in inside]
    bound = sum(int(c.get("bound") or 0) for c in counts) + len(held)
    serving = sum(int(c.get("serving") or 0) for c in counts) + sum(_state(each) == "Serving" for each in held)
    names = sorted({*map(workload_named, inside), *map(workload_of, held)})
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    said = f"{counted(len(names), 'workload')} with {counted(bound, 'slot')}, {serving} of them serving"
    return said + (f": {', '.join(names[:5])}{more}" if names else "")


def workload_named(workload: dict[str, Any]) -> str:
    return f"{workload['metadata'].get('namespace', '')}/{workload['metadata']['name']}"


def _where(name: str) -> Where:
    return Where(*name.split("/", 1))


def _state(binding: dict[str, Any]) -> str:
    return str((binding.get("status") or {}).get("state", ""))


def _runs_in(workload: dict[str, Any], scope: OverrideScope) -> bool:
    regions = {row.get("region", "") for row in (workload.get("status") or {}).get("regions") or ()}
    return not scope.regions or not regions or bool(regions & set(scope.regions))


async def _nodes(session: Session, override: Override) -> str:
    scope = override.spec.scope
    try:
        nodes = (await session.client.list(Query(of_model()["nodes"]))).items
    except ApiError as error:
        return f"how many nodes is not known: {error}"
    specs = [each.get("spec") or {} for each in nodes]
    inside = [s for s in specs if s.get("zone") in scope.zones and (not scope.regions or s.get("region") in scope.regions)]
    return f"{len(inside)} of {len(nodes)} nodes take nothing new; what runs on them stays"
