"""Whom a canary is about, as a checker reads it: tenants by name, a share of them, regions, or tenants within regions
(docs/policy.md). Pure; shares nothing with the judge but the model. Called by places.py and trials.py."""

from __future__ import annotations

from hashlib import sha256

from fairlead.model.kinds.policy import Canary, PolicyChannelSpec


def in_force(channel: PolicyChannelSpec, tenant: str, region: str) -> int:
    """The one revision that decides for a tenant in a region."""
    canary = channel.canary
    return canary.revision if canary is not None and covers(canary, tenant, region) else channel.current


def covers(canary: Canary, tenant: str, region: str) -> bool:
    if canary.regions and region not in canary.regions:
        return False
    if not canary.tenants and not canary.share_percent:
        return bool(canary.regions)
    hundredth = int.from_bytes(sha256(tenant.encode()).digest()[:8], "big") % 100
    return tenant in canary.tenants or hundredth < canary.share_percent
