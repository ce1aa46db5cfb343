"""How much coordination a gate or a score deserves. A module of its own, because gates and scores both say it."""

from __future__ import annotations

from enum import Enum


class Tier(Enum):
    """What happens when the input of a gate or score is stale."""

    INVARIANT = "hard invariant"  # asked again by the authority on the present state; stale input costs a refusal
    PREFERENCE = "bounded preference"  # ranks; stale input costs quality, within known bounds
    HINT = "hint"  # ranks, from soft state that may be missing altogether
