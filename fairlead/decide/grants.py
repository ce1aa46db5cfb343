"""Is there room in a grant? Pure arithmetic over what a tenant uses and what its region was granted (S4)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from fairlead.model.quantity import format_quantity
from fairlead.model.resources import SHARE_WHOLE, Resources


@lru_cache(maxsize=4096)
def limits_of(limit: Resources) -> dict[str, int]:
    """The limit by dimension. A scalar limit such as `gpu: 4` also bounds devices of that name, in thousandths.
    Asked for every bind, and the same few grants each time, hence remembered; do not change what it returns."""
    out = {"cpu": limit.cpu, "memory": limit.memory}
    for name, amount in limit.scalars:
        out[name] = amount
        out[f"device:{name}"] = amount * SHARE_WHOLE
    return out


def shortage(used: Mapping[str, int], ask: Mapping[str, int], limits: Mapping[str, int]) -> dict[str, str]:
    """For each dimension the ask would take above its limit: what it asks and what is left. Empty: there is room."""
    out = {}
    for name, amount in ask.items():
        limit = limits.get(name, 0)
        if amount and used.get(name, 0) + amount > limit:
            left = max(limit - used.get(name, 0), 0)
            out[name] = f"asks {_text(name, amount)}, {_text(name, left)} left of {_text(name, limit)}"
    return out


def _text(name: str, amount: int) -> str:
    if name == "cpu":
        return format_quantity(amount, unit_exponent=-3)
    if name.startswith("device:"):
        return f"{amount}/1000"
    return format_quantity(amount, binary=name == "memory")
