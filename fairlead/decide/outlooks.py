"""Whether critical services would survive the loss of a region, as a condition: what `fairlead wait` asks for. Pure; used
by the recovery controller, which works out what would become of each service.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from fairlead.decide.recovery import Outlook
from fairlead.decide.slots import instant
from fairlead.model.kinds.recovery import RegionOutlook, RegionOutlookSpec, RegionOutlookStatus, ServiceOutlook
from fairlead.model.meta import Condition, set_condition

READY: Final = "RecoveryReady"
NAMED_MAX: Final = 5  # services that the message names
LISTED_MAX: Final = 100


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
