"""Objects that a server shows from memory, because their region cannot be reached: whose they are and how old.

Such an object says so under `evidence`. What it tells of its state was so then; nobody knows what it is now. Called by every verb
that tells how things stand, or changes a regional object.
"""

from __future__ import annotations

from typing import Any

from fairlead.cli.frame import Told

Tree = dict[str, Any]


def age_s(one: Tree) -> float | None:
    """None: it is as its region has it."""
    said = (one.get("evidence") or {}).get("ageSeconds")
    return float(said) if said is not None else None


def region_of(one: Tree) -> str:
    return str((one.get("evidence") or {}).get("plane") or "its region")


def health_of(one: Tree, none: str) -> str:
    """Of a node or a region, as it is known now; `none`: nobody has said anything of it yet."""
    old_s = age_s(one)
    return f"Unknown ({old_s:.0f}s old)" if old_s is not None else str((one.get("status") or {}).get("health") or none)


def refuse_copy(one: Tree, what: str) -> None:
    """Nothing can be changed in a region that cannot be reached, and nothing is known to be so already."""
    old_s = age_s(one)
    if old_s is not None:
        region, hint = region_of(one), "the server itself is well; see 'fairlead get regions', and repeat this when it is back"
        raise Told(f"{what}: {region} cannot be reached; it was last heard of {old_s:.0f} s ago", hint=hint)
