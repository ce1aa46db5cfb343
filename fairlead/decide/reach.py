"""What an override will touch, in words: counts of the moment, made before it is in force. Pure.

Whom it is about, overrides.py says; whoever asks reads the objects and gives them here (fairlead/api/reaching.py). Each line is
told as one warning of an HTTP answer, so it is short: what would be too long is counted instead of named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from fairlead.decide import escrow
from fairlead.decide.admission.workload import not_recovered
from fairlead.decide.overrides import EVERYONE, Where, concerns, stills_pools, tenants_of, touches
from fairlead.decide.sharing import emergency_of, limits_now
from fairlead.model.ids import split_key
from fairlead.model.kinds.intent import Quota, Region, StageCounts, Workload
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.repair import Repair
from fairlead.model.kinds.work import Binding
from fairlead.model.lifecycle import SlotState
from fairlead.model.resources import Resources

LINE_MAX: Final = 240  # a warning holds 256, and shows a quotation mark as two
NAMED_MAX: Final = 5
_TAIL: Final = len(", and 10000 more")
_BROKEN: Final = (SlotState.UNKNOWN, SlotState.FAILED)


class Work(NamedTuple):
    """A workload as far as an override asks: its slots by region. `recovered`: it names a minimum, and recovery may order it."""

    tenant: str
    name: str
    regions: Mapping[str, StageCounts]
    recovered: bool = True


def work_of(workload: Workload) -> Work:
    meta, spec = workload.metadata, workload.spec
    recovered = spec.recovery.min_serving > 0 and not_recovered(spec) is None
    return Work(meta.namespace, meta.name, {row.region: row.replicas for row in workload.status.regions}, recovered)


def work_bound(bindings: Iterable[Binding], region: str) -> list[Work]:
    """Of a region's own plane, which has no workloads, only what is bound there."""
    found: dict[tuple[str, str], list[SlotState]] = {}
    for each in bindings:
        found.setdefault((each.metadata.namespace, each.spec.slot.workload), []).append(SlotState(each.status.state))
    return [
        Work(*key, {region: StageCounts(
            bound=len(states), serving=states.count(SlotState.SERVING), unknown=states.count(SlotState.UNKNOWN),
            failed=states.count(SlotState.FAILED),
        )})
        for key, states in sorted(found.items())
    ]  # fmt: skip


class Reach(NamedTuple):
    """What it touches, added up in the regions that it is about."""

    names: tuple[tuple[str, str], ...]
    regions: tuple[str, ...]  # in which these have slots
    slots: int
    serving: int
    waiting: int
    broken: int  # silent, or failed
    recovered: int  # of the workloads


def reach_of(override: Override, works: Iterable[Work]) -> Reach:
    named = override.spec.scope.regions
    names, regions, recovered = [], set[str](), 0
    slots = serving = waiting = broken = 0
    for work in works:
        if not touches(override, work.tenant, work.name, set(work.regions)):
            continue
        names.append((work.tenant, work.name))
        recovered += work.recovered
        for region, counts in work.regions.items():
            if named and region not in named:
                continue
            slots, serving, waiting = slots + counts.bound, serving + counts.serving, waiting + counts.pending
            broken += counts.unknown + counts.failed
            if counts.bound or counts.pending:
                regions.add(region)
    return Reach(tuple(sorted(names)), tuple(sorted(regions)), slots, serving, waiting, broken, recovered)


def work_line(override: Override, reach: Reach, *, more: bool = False) -> str:
    """How much work it is about. `more`: not all of it was looked at."""
    tenants = sorted({tenant for tenant, _ in reach.names}) or [each for each in tenants_of(override) if each != EVERYONE]
    whose = f" of {_some(tenants, 'tenant')}" if tenants else ""
    where = f" in {_some(reach.regions, 'region')}" if reach.regions else ""
    least = "at least " if more else ""
    said = f"this override touches {least}{counted(len(reach.names), 'workload')}{whose}"
    said += f" with {counted(reach.slots, 'slot')}{where}"
    return fitted(f"{said}, {reach.serving} of them serving: ", [f"{tenant}/{name}" for tenant, name in reach.names])


def kind_lines(override: Override, reach: Reach) -> list[str]:
    """What it means for this work, but for what needs other objects."""
    spec, regions = override.spec, override.spec.scope.regions
    match spec.kind:
        case "hold":
            return [f"nothing new of them is bound; {counted(reach.waiting, 'slot')} that {_verb(reach.waiting)} now will go on"]
        case "freeze":
            return ["what is wanted of them stays where it is: rollouts, drains and moves wait; what is lost is repaired"]
        case "autoscaler-pause":
            return [f"the replicas of services among them stay as they are; {_node_words(override)}"]
        case "repair-approval":
            what = f"{counted(reach.broken, 'slot')} of them, lost or failed,"
            return [f"{what} will not be let go or queued again until another person approves it, or it ends"]
        case "recovery":
            left = len(reach.names) - reach.recovered
            where = f"as if {_some(regions, 'region')} were lost, and nothing of others there" if regions else "where it is short"
            said = f"once another person approves it, the minimum of {counted(reach.recovered, 'workload')} is ordered elsewhere"
            told = [f"{said} {where}"]
            if left:
                why = "no minimum is named, or it is a job, a gang or exclusive: region"
                told.append(f"{counted(left, 'workload')} of them {'is' if left == 1 else 'are'} not recovered: {why}")
            return told
        case _:
            return []


def _node_words(override: Override) -> str:
    regions = override.spec.scope.regions
    where = f" in {_some(regions, 'region')}" if regions else ""
    return f"no node is added or let go{where}" if stills_pools(override) else f"no node is added{where} for what waits of them"


def zone_line(override: Override, regions: Iterable[Region]) -> str:
    """Of nodes that are to take work, as their regions said last."""
    scope = override.spec.scope
    asked = [each for each in regions if not scope.regions or each.metadata.name in scope.regions]
    told = [each for each in asked if each.status.zones]
    rows = [row for each in told for row in each.status.zones]
    return _zone_words(override, sum(row.nodes for row in rows if row.zone in scope.zones), sum(row.nodes for row in rows), [
        each.metadata.name for each in asked if not each.status.zones
    ])  # fmt: skip


def zone_line_of(override: Override, zones: Sequence[str]) -> str:
    """Of a region's own plane: the zones of its nodes."""
    return _zone_words(override, sum(zone in override.spec.scope.zones for zone in zones), len(zones), [])


def _zone_words(override: Override, inside: int, there: int, silent: list[str]) -> str:
    zones = _some(sorted(override.spec.scope.zones), "zone")
    unknown = f"; {_some(silent, 'region')} did not say which nodes they have" if silent else ""
    if not there:
        return f"nodes in {zones} take nothing new of them, how many is not known; what runs there stays"
    return f"{inside} of {there} nodes, those in {zones}, take nothing new of them; what runs there stays{unknown}"


def repairs_line(override: Override, repairs: Iterable[tuple[str, Repair]], silent: Sequence[str]) -> str:
    """`repairs`: with the region of each; `silent`: regions that were not heard."""
    count = sum(_is_open(each) and _is_about(override, region, each) for region, each in repairs)
    unknown = f"; {_some(silent, 'region')} could not be asked" if silent else ""
    return f"{counted(count, 'Repair')} of what is theirs {'is' if count == 1 else 'are'} open and will wait as well{unknown}"


def _is_open(repair: Repair) -> bool:
    return not any(each.type == "Mended" and each.status == "True" for each in repair.status.conditions)


def _is_about(override: Override, region: str, repair: Repair) -> bool:
    _, tenant, name = split_key(repair.spec.regarding)
    # Of a slot it is WORKLOAD-INDEX, of an assignment WORKLOAD.REGION.
    stems = {name, name.rpartition("-")[0], name.rpartition(".")[0]}
    return any(concerns(override, Where(tenant, stem, region)) for stem in sorted(stems))


def quota_lines(
    override: Override, quotas: Mapping[str, Sequence[Quota]], standing: Iterable[Override], regions: Sequence[str], now_ms: int
) -> list[str]:
    """Of an emergency quota: the limits of each tenant before and after. `standing`: overrides that there are already."""
    more, standing, tenants = emergency_of(override), list(standing), sorted(tenants_of(override))
    named = override.spec.scope.regions
    where = f", for {_some(named, 'region')} only" if named else ""
    told = []
    for tenant in tenants[:NAMED_MAX]:
        found = quotas.get(tenant, ())
        if not found:
            told.append(f"tenant {tenant} has no Quota: this gives it nothing")
            continue
        before = limits_now(tenant, found, standing, regions, now_ms).limits
        after = escrow.added(before, more.amounts())
        old, new = _quantities(before), _quantities(after)
        rows = [f"{name} {old.get(name, '0')} -> {new.get(name, '0')}" for name in more.amounts()]
        told.append(fitted(f"limits of tenant {tenant}{where}, once another person approves it: ", rows))
    if len(tenants) > NAMED_MAX:
        told.append(f"and as much more for {len(tenants) - NAMED_MAX} other tenants")
    return told


def fitted(start: str, names: Sequence[str]) -> str:
    """The first of these that one line has room for, and how many more there are."""
    said = ""
    for number, name in enumerate(names):
        longer = f"{said}, {name}" if said else name
        if number == NAMED_MAX or len(start) + len(longer) + _TAIL > LINE_MAX:
            return f"{start}{said}, and {len(names) - number} more" if said else start.rstrip(": ")
        said = longer
    return f"{start}{said}" if said else start.rstrip(": ")


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _verb(number: int) -> str:
    return "waits" if number == 1 else "wait"


def _some(names: Sequence[str], noun: str) -> str:
    """By name while there are few, and these are short."""
    said = ", ".join(names)
    return said if len(names) <= 3 and len(said) <= 60 else counted(len(names), noun)


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    others = [(name, amount) for name, amount in amounts.items() if name not in ("cpu", "memory")]
    return Resources(amounts.get("cpu", 0), amounts.get("memory", 0), others).as_quantities()
