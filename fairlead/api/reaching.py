"""What an override will touch, told as warnings to whoever creates one, also in a dry run. Called by writing.py.

Reads the objects that its kind is about; what is said of them decide/reach.py says. Bounded: more than it looks at is said to be
more. What the caller may not list is not told, nor counted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final, TypeVar

from fairlead.api.calls import Call
from fairlead.api.failures import Failure
from fairlead.api.members import Member
from fairlead.api.rules import Ask
from fairlead.client.plane import Expired
from fairlead.client.resources import Unreachable
from fairlead.decide.overrides import EVERYONE, tenants_of
from fairlead.decide.reach import (
    Work,
    kind_lines,
    quota_lines,
    reach_of,
    repairs_line,
    work_bound,
    work_line,
    work_of,
    zone_line,
    zone_line_of,
)
from fairlead.model import codec
from fairlead.model.kinds.capacity import Node
from fairlead.model.kinds.intent import Quota, Region, Workload
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.repair import Repair
from fairlead.model.kinds.work import Binding
from fairlead.model.registry import GLOBAL

LOOKED_AT_MAX: Final = 5_000
_workload = codec.decoder(Workload).decode
_binding = codec.decoder(Binding).decode
_quota = codec.decoder(Quota).decode
_override = codec.decoder(Override).decode
_region = codec.decoder(Region).decode
_node = codec.decoder(Node).decode
_repair = codec.decoder(Repair).decode

T = TypeVar("T")


async def warn_of_reach(call: Call, member: Member, override: Override) -> None:
    """`member`: the plane it is made in, the global one or a region's own. It is made already, if it is no trial: no answer may
    say otherwise for want of a count."""
    lines = _quotas if override.spec.kind == "emergency-quota" else _work
    try:
        told = await lines(call, member, override)
    except (Unreachable, Expired, Failure):
        told = ["what this override touches could not be counted just now"]
    for line in told:
        call.warn(line)


async def _work(call: Call, member: Member, override: Override) -> list[str]:
    kind, tenants = override.spec.kind, _tenants(override)
    if not _may_list(call, "workloads", tenants):
        return ["how many workloads this override touches is not told: they are not yours to see"]
    works = [work_of(each) async for each in _all(member, "workloads", tenants, _workload)]
    looked = len(works)
    if not looked and member.name != GLOBAL and _may_list(call, "bindings", tenants):
        bound = [each async for each in _all(member, "bindings", tenants, _binding)]
        looked, works = len(bound), list[Work](work_bound(bound, member.name))
    reach = reach_of(override, works)
    lines = [work_line(override, reach, more=looked >= LOOKED_AT_MAX), *kind_lines(override, reach)]
    if kind == "zone-avoidance":
        lines.append(await _zones(call, member, override))
    if kind == "repair-approval":
        lines.append(await _repairs(call, member, override))
    return lines


async def _zones(call: Call, member: Member, override: Override) -> str:
    plural = "regions" if member.name == GLOBAL else "nodes"
    if not _may_list(call, plural):
        return "how many nodes take nothing new is not told: they are not yours to see"
    if member.name == GLOBAL:
        return zone_line(override, [each async for each in _all(member, plural, (None,), _region)])
    return zone_line_of(override, [each.spec.zone async for each in _all(member, plural, (None,), _node)])


async def _repairs(call: Call, member: Member, override: Override) -> str:
    """Each plane has its own."""
    if not _may_list(call, "repairs"):
        return "how many Repairs wait is not told: they are not yours to see"
    named, found, silent = override.spec.scope.regions, list[tuple[str, Repair]](), []
    for each in call.front.members if member.name == GLOBAL else [member]:
        if named and each.name not in named:
            continue
        try:
            found += [(each.name, one) async for one in _all(each, "repairs", (None,), _repair)]
        except (Unreachable, Expired, Failure):
            silent.append(each.name)
    return repairs_line(override, found, silent)


async def _quotas(call: Call, member: Member, override: Override) -> list[str]:
    tenants = _tenants(override)
    if not _may_list(call, "quotas", tenants):
        return ["the limits before and after are not told: quotas are not yours to see"]
    quotas = dict[str, list[Quota]]()
    async for quota in _all(member, "quotas", tenants, _quota):
        quotas.setdefault(quota.metadata.namespace, []).append(quota)
    standing = [each async for each in _all(member, "overrides", (None,), _override)]
    regions = [each.metadata.name async for each in _all(member, "regions", (None,), _region)]
    return quota_lines(override, quotas, standing, regions, member.plane.plane_ms())


def _tenants(override: Override) -> tuple[str | None, ...]:
    tenants = tenants_of(override)
    return (None,) if EVERYONE in tenants else tenants


def _may_list(call: Call, plural: str, tenants: tuple[str | None, ...] = (None,)) -> bool:
    rules = call.services.rules
    return all(rules.allows(call.identity, Ask("list", plural, tenant or "")) for tenant in tenants)


async def _all(member: Member, plural: str, tenants: tuple[str | None, ...], decode: Callable[[bytes], T]) -> AsyncIterator[T]:
    """Those of these tenants (None: of all), as many as are looked at."""
    looked = 0
    for tenant in tenants:
        after = ("", "")
        while looked < LOOKED_AT_MAX:
            page = await member.ask(partial(member.plane.page, plural, tenant, after=after))
            for change in page.items:
                if change.raw is not None:
                    looked += 1
                    yield decode(change.raw)
            if not page.next_name:
                break
            after = (page.next_tenant, page.next_name)
