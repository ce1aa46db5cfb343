"""The rows of `fairlead budget report`, from objects as the server shows them. Pure; asks nobody. Called by budget.py.

What a quota allows at a moment decide/sharing.py says, as to the controller that shares it out; what is short if a region were
lost, the RegionOutlooks say, with the workloads that name the budgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from fairlead.decide.granting import resources
from fairlead.decide.sharing import EMERGENCY, limits_now
from fairlead.model.kinds.intent import Quota, QuotaSpec
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.meta import Metadata
from fairlead.model.resources import NOTHING, Resources

Object = dict[str, Any]
_COUNTS: Final = ("held", "claimed", "waiting", "silent", "lent")  # rooms of a shape, as a region says
UNREPORTED: Final = "not reported yet"
OF_BEFORE: Final = "as of before"  # the region is not healthy: nobody can tell


def quota_row(one: Object, overrides: Iterable[Object], regions: Iterable[str], now_ms: int) -> Object:
    """With what emergency quotas in force add: use above the quota itself is permitted while they are."""
    meta = Metadata(name=one["metadata"]["name"], namespace=one["metadata"].get("namespace", ""))
    quota = Quota(meta, QuotaSpec(limits=_resources(one, "spec", "limits")))
    known = [override_of(each) for each in overrides if (each.get("spec") or {}).get("kind") == EMERGENCY]
    now = limits_now(meta.namespace, [quota], known, regions, now_ms)
    limit, used = resources(now.limits), _resources(one, "status", "used")
    row = _row("Quota", one, limit, used, limit - used, _negative(limit - used), "")
    end = now.emergency_end()
    if end is None:
        return row
    added, until = (limit - quota.spec.limits).as_quantities(), end.strftime("%Y-%m-%dT%H:%M:%SZ")
    first = "" if len(now.emergencies) == 1 else ", the first of them"
    return {**row, "emergency": added, "emergencyUntil": until, "lease": f"{words(added)} until {until}{first}"}


def override_of(shown: Object) -> Override:
    """As much of it as says whom it is about, what it gives, and whether it is in force."""
    meta, spec = shown["metadata"], shown["spec"]
    body = OverrideSpec(
        kind=spec["kind"], reason=spec.get("reason", ""), ttl_seconds=int(spec["ttlSeconds"]),
        requester=spec.get("requester", ""), approver=spec.get("approver", ""),
        scope=msgspec.convert(spec.get("scope") or {}, OverrideScope),
        parameters=dict(spec.get("parameters") or {}),
    )  # fmt: skip
    metadata = Metadata(
        name=meta["name"], namespace=meta.get("namespace", ""), creation_time=_time(meta, "creationTimestamp"),
        deletion_time=_time(meta, "deletionTimestamp"),
    )  # fmt: skip
    return Override(metadata=metadata, spec=body)


def _time(meta: Object, name: str) -> datetime | None:
    return datetime.fromisoformat(meta[name]) if meta.get(name) else None


def grant_row(one: Object) -> Object:
    during, used = _resources(one, "spec", "during"), _resources(one, "status", "used")
    waiting = _resources(one, "status", "waiting")
    lease = (one.get("spec") or {}).get("leaseSeconds", 0)
    taken = (one.get("status") or {}).get("acceptedVersion", 0) == (one.get("spec") or {}).get("version")
    said = f"{lease} s" if taken else f"{lease} s, not taken yet"
    return _row("Grant", one, during, used, during - used, waiting.as_quantities(), said if lease else "none")


def budget_rows(one: Object, regions: Iterable[str], now_ms: int) -> list[Object]:
    """One row a region and shape: what it holds, what of that borrowers use, what slots have claimed, what found no place. Of
    regions that have said nothing of it yet, what they are to hold; of one that has ended, that it has."""
    spec = one.get("spec") or {}
    out, told = [], set()
    for region in (one.get("status") or {}).get("regions") or ():
        told.add(region.get("region", ""))
        for shape in region.get("shapes") or ():
            each = Resources.parse(shape.get("requests") or {})
            held, claimed, waiting, silent, lent = (int(shape.get(name, 0)) for name in _COUNTS)
            limit, free = each.times(held + claimed + waiting + silent), each.times(held - lent)
            row = _row("RecoveryBudget", one, limit, each.times(held + claimed), free, each.times(waiting).as_quantities(), "")
            row |= {"borrowed": each.times(lent).as_quantities(), "silent": each.times(silent).as_quantities()}
            out.append({**row, "name": f"{row['name']} in {region.get('region', '')}"})
    end = spec.get("expiryTime") or ""
    if end and datetime.fromisoformat(end).timestamp() * 1000 <= now_ms:
        return out or [_row("RecoveryBudget", one, NOTHING, NOTHING, NOTHING, {}, f"ended {end}")]
    named, shapes = set(spec.get("regions") or regions), list(spec.get("shapes") or [Object()])
    for region in sorted(named - told) or ([] if out else [""]):
        for shape in shapes:
            limit = Resources.parse(shape.get("requests") or {}).times(int(shape.get("count", 1)))
            row = _row("RecoveryBudget", one, limit, NOTHING, NOTHING, {}, UNREPORTED)
            out.append({**row, "name": f"{row['name']} in {region}" if region else row["name"]})
    return out


def short_rows(outlooks: Iterable[Object], workloads: Mapping[tuple[str, str], Object], tenant: str) -> list[Object]:
    """One row for each budget and region whose loss it has too few rooms for: so much lack the services that name the budget.
    Services that could be nowhere else, or would be too late, lack no rooms; those that name no budget have none too small."""
    out = []
    for one in outlooks:
        lost, lacking = one["metadata"]["name"], _lacking(one, workloads, tenant)
        stale = OF_BEFORE if _condition(one, "RecoveryReady").get("status") == "Unknown" else ""
        for (owner, budget), services in sorted(lacking.items()):
            missing = sum((each.times(int(said["missing"])) for said, each in services), NOTHING)
            of = {"metadata": {"name": f"{budget} if {lost} is lost", "namespace": owner}}
            row = _row("RecoveryBudget", of, NOTHING, NOTHING, NOTHING, missing.as_quantities(), stale)
            told = [
                {"workload": said["workload"], "missing": said["missing"], "why": said.get("why", "")} for said, _ in services
            ]
            out.append({**row, "lost": lost, "services": told})
    return out


def unlisted(outlooks: Iterable[Object]) -> int:
    """How many services that would fall short the outlooks count and do not list."""
    total = 0
    for one in outlooks:
        spec = one.get("spec") or {}
        total += int(spec.get("short", 0)) - sum(1 for each in spec.get("services") or () if each.get("why"))
    return max(0, total)


def _lacking(
    one: Object, workloads: Mapping[tuple[str, str], Object], tenant: str
) -> dict[tuple[str, str], list[tuple[Object, Resources]]]:
    out: dict[tuple[str, str], list[tuple[Object, Resources]]] = {}
    for said in (one.get("spec") or {}).get("services") or ():
        owner, name = said.get("tenant", ""), said.get("workload", "")
        spec = (workloads.get((owner, name)) or {}).get("spec") or {}
        budget = (spec.get("recovery") or {}).get("budgetName", "")
        if budget and said.get("missing") and said.get("region") and tenant in ("", owner):
            each = Resources.parse((spec.get("resources") or {}).get("requests") or {})
            out.setdefault((owner, budget), []).append((said, each))
    return out


def _row(
    kind: str, one: Object, limit: Resources, used: Resources, idle: Resources, short: dict[str, str], lease: str
) -> Object:  # fmt: skip
    meta = one["metadata"]
    return {
        "kind": kind, "tenant": meta.get("namespace", ""), "name": meta["name"], "limit": limit.as_quantities(),
        "used": used.as_quantities(), "borrowed": {}, "idle": idle.left_after(NOTHING).as_quantities(), "silent": {},
        "short": short, "lease": lease,
    }  # fmt: skip


def _negative(idle: Resources) -> dict[str, str]:
    return (NOTHING - idle).left_after(NOTHING).as_quantities()


def _resources(one: Object, part: str, field: str) -> Resources:
    return Resources.parse((one.get(part) or {}).get(field) or {})


def _condition(one: Object, kind: str) -> Object:
    conditions = (one.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})


def words(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={amount}" for name, amount in value.items()) or "-"
    return str(value) or "-"
