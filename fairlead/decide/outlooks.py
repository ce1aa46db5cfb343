"""Whether critical services would survive the loss of a region: what would become of each if it died now, and the condition that
`fairlead wait` asks for. Decides nothing of its own: it asks the function that recovers. Pure; used by the recovery controller.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Final, NamedTuple

from msgspec.structs import replace

from fairlead.decide.recovery import Regions, Rooms, Service, ServiceKey, able_regions, counted, plan
from fairlead.decide.slot_lease import TTL_S, honoured_ms
from fairlead.decide.slots import instant
from fairlead.model.kinds.recovery import RegionOutlook, RegionOutlookSpec, RegionOutlookStatus, ServiceOutlook
from fairlead.model.meta import Condition, set_condition

READY: Final = "RecoveryReady"
NAMED_MAX: Final = 5  # services that the message names
LISTED_MAX: Final = 100


class Outlook(NamedTuple):
    """What would become of one service if a region died now."""

    key: ServiceKey
    region: str  # where it would have its minimum; empty where nowhere
    new_slots: int
    seconds: float  # until they serve, as far as can be told
    missing: int
    why: str  # it would not do: too few, or too late
    policy_revision: int = 0  # by which it was asked


class Pace(NamedTuple):
    """How long the steps take: detection by its lease, the rest as measured."""

    detect_s: float
    bind_s: float
    start_s: float  # from bound to serving


def outlook(
    lost: str, services: Iterable[Service], regions: Regions, rooms: Rooms, pace: Pace, slot_lease_s: float = TTL_S
) -> list[Outlook]:
    """Every service that has slots in `lost`, of its own or standing in, in the order in which they would be served. What is lost
    already stays lost. `slot_lease_s`: of that region, for as long as which what is exclusive everywhere may still run there."""
    # Of what it has in a partial region only what serves there is counted on.
    services = [_as_if_taken(service, lost)._replace(mute=service.mute | regions.partial) for service in services]
    gone = Regions(regions.lost | {lost}, regions.healthy - {lost}, regions.settled - {lost}, regions.unknown - {lost})
    planned = plan([service for service in services if not service.stays], gone, rooms)
    out = []
    for service in sorted(services, key=lambda s: (-s.priority, s.key)):
        if not service.slots.get(lost) and not service.ordered.get(lost):
            continue
        if service.stays:
            out.append(_of_what_stays(service, gone, pace))
            continue
        orders = planned.orders.get(service.key, {})
        new = {region: count - service.ordered.get(region, 0) for region, count in orders.items()}
        short = planned.short.get(service.key) or planned.unsure.get(service.key)
        missing = sum(each[service.key].missing for each in (planned.short, planned.unsure) if service.key in each)
        reached = {r: counted(service, r) + orders.get(r, 0) - service.idle.get(r, 0) for r in able_regions(service, gone)}
        best = max(reached, key=lambda r: (reached[r], r), default="")
        fresh = sum(count for count in new.values() if count > 0)
        detect_s = pace.detect_s if service.alone is None else max(pace.detect_s, ceil(honoured_ms(slot_lease_s) / 1000))
        seconds = detect_s + (pace.bind_s + pace.start_s if fresh else 0.0)
        why = short.why if short else _too_late(service, seconds)
        out.append(Outlook(service.key, best, fresh, seconds, missing, why, service.policy_revision))
    return out


def _of_what_stays(service: Service, regions: Regions, pace: Pace) -> Outlook:
    """It has what it has in other regions already, and no more. A job or a gang lies in one; what is exclusive is no copy of
    what is elsewhere, so of that it is the sum that counts."""
    left = {region: counted(service, region) for region in service.slots if region in regions.healthy}
    best = max(left, key=lambda region: (left[region], region), default="")
    missing = max(0, service.minimum - sum(left.values()))
    why = service.stays if missing else ""
    return Outlook(service.key, best if not missing else "", 0, pace.detect_s, missing, why, service.policy_revision)


def _too_late(service: Service, seconds: float) -> str:
    late = seconds > service.deadline_s
    return f"it would take about {seconds:.0f} s, and is to serve again within {service.deadline_s:.0f} s" if late else ""


def _as_if_taken(service: Service, lost: str) -> Service:
    """Where slots are exclusive everywhere: as it will be once the lost region's slot lease has run out."""
    alone = service.alone
    return service if alone is None else service._replace(alone=alone._replace(taken={lost: 0, **alone.taken}))


def spec_of(region: str, found: list[Outlook]) -> RegionOutlookSpec:
    """What would become of each service, as it is written."""
    short = [one for one in found if one.why]
    ready = [one for one in found if not one.why]
    listed = [*short, *sorted(ready, key=lambda one: (-one.seconds, one.key))][:LISTED_MAX]
    return RegionOutlookSpec(
        region=region,
        services=tuple(
            ServiceOutlook(
                tenant=one.key[0],
                workload=one.key[1],
                region=one.region,
                new_slots=one.new_slots,
                seconds=one.seconds,
                missing=one.missing,
                why=one.why,
                policy_revision=one.policy_revision,
            )
            for one in listed
        ),
        ready=len(ready),
        short=len(short),
        seconds=max((one.seconds for one in ready), default=0.0),
    )


def status_of(known: RegionOutlook, now: RegionOutlookSpec | None, now_ms: int) -> RegionOutlookStatus:
    """What is said of `known` once its answer is `now`; None: the region is not healthy, and nobody can tell."""
    meta, spec = known.metadata, now or known.spec
    generation = meta.generation + (spec != known.spec)  # it is written just before this
    if now is None:
        status, reason, message = "Unknown", "RegionNotHealthy", "the region is not healthy: what is said of it is of before"
    elif now.short:
        status, reason, message = "False", "RecoveryShort", _missing(now)
    elif now.ready:
        status, reason = "True", "WouldRecover"
        message = f"{now.ready} services would have their minimum elsewhere within {now.seconds:.0f} s"
    else:
        status, reason, message = "True", "NothingToRecover", "no service would have to be recovered"
    said = Condition(READY, status, generation, instant(now_ms), reason, message)  # type: ignore[arg-type]
    return replace(known.status, conditions=set_condition(known.status.conditions, said))


def _missing(spec: RegionOutlookSpec) -> str:
    short = [one for one in spec.services if one.why]
    said = "; ".join(_words(one) for one in short[:NAMED_MAX])
    more = f"; and {spec.short - NAMED_MAX} more" if spec.short > NAMED_MAX else ""
    return f"{spec.short} services would fall short: {said}{more}"


def _words(one: ServiceOutlook) -> str:
    return f"{one.tenant}/{one.workload} lacks {one.missing}: {one.why}"
