"""Is a region that is not heard lost, or are we not listening? Pure: when each last renewed its lease in, verdicts out (P15).

A region is Unknown when its lease has run out, Lost some seconds later. When every region is silent it is rather us, and nothing
is declared; when several are, but not all, that is said beside it (MassSilence), for whoever recovers work to go slowly. Used by
the region controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

Health = Literal["", "Healthy", "Unknown", "Lost"]


class RegionRules(msgspec.Struct, frozen=True):
    clock_rate_error: float = 0.01
    lost_after_s: float = 6.0  # Unknown for this long is Lost: with a lease of 10 s and a renewal every 3 s, within 20 s


class RegionFacts(NamedTuple):
    name: str
    health: Health
    renewed_ms: int  # when its lease was last renewed; 0: it never had one
    ttl_s: float


class RegionVerdict(NamedTuple):
    name: str
    health: Health
    mass_silence: bool
    why: str


def judge_regions(
    regions: Sequence[RegionFacts], since_ms: int, now_ms: int, rules: RegionRules, deaf_ms: int = 0
) -> list[RegionVerdict]:
    """Nothing is said of a silence that is not a full lease old under this observer, nor of a region never heard of. `deaf_ms`:
    when nobody at all was heard last. Whoever is heard again some seconds after the first is not lost in between."""
    quiet_ms = {r.name: now_ms - max(r.renewed_ms, since_ms) for r in regions}
    lease_ms = {r.name: _lease_ms(r, rules) for r in regions}
    silent = {r.name for r in regions if r.renewed_ms and quiet_ms[r.name] > lease_ms[r.name]}
    deaf, mass = is_deaf(regions, since_ms, now_ms, rules), len(silent) > 1
    out = []
    for region in sorted(regions):
        name, quiet_s = region.name, quiet_ms[region.name] // 1000
        if not region.renewed_ms:
            out.append(RegionVerdict(name, region.health, False, "never heard"))
        elif name not in silent:
            out.append(RegionVerdict(name, "Healthy" if _is_fresh(region, since_ms) else region.health, False, "heard"))
        elif deaf:
            out.append(RegionVerdict(name, region.health, True, "no region at all is heard, so it may be us"))
        elif region.health == "Lost" or _is_lost(region, min(quiet_ms[name], now_ms - deaf_ms) - lease_ms[name], rules):
            out.append(RegionVerdict(name, "Lost", mass, f"not heard for {quiet_s} s"))
        elif now_ms - deaf_ms <= lease_ms[name]:
            out.append(RegionVerdict(name, region.health, mass, "not heard yet since nobody was"))
        else:
            out.append(RegionVerdict(name, "Unknown", mass, "its lease has run out"))
    return out


def is_deaf(regions: Sequence[RegionFacts], since_ms: int, now_ms: int, rules: RegionRules) -> bool:
    """Whether no region at all is heard of those that ever were."""
    return all(now_ms - max(r.renewed_ms, since_ms) > _lease_ms(r, rules) for r in regions if r.renewed_ms)


def _lease_ms(region: RegionFacts, rules: RegionRules) -> int:
    return int(region.ttl_s * (1 + rules.clock_rate_error) * 1000)


def _is_fresh(region: RegionFacts, since_ms: int) -> bool:
    """Heard by this observer. Before that a region is what the one before said."""
    return region.renewed_ms >= since_ms or region.health == ""


def _is_lost(region: RegionFacts, over_ms: int, rules: RegionRules) -> bool:
    return region.health == "Unknown" and over_ms > rules.lost_after_s * 1000
