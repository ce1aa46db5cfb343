"""What a planted bug is: a guard in words, what replaces it, the profile directed at it and the promises by which it is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

WITHIN: Final = 5  # most are found in the first seed; traces change with the code, and a seed or two may then show nothing

Swap = tuple[Any, str, Any]  # an owner, its attribute, and what stands there instead


class Mutant(msgspec.Struct, frozen=True):
    guard: str
    profile: str
    invariants: tuple[str, ...]
    swaps: Callable[[], list[Swap]]
    minutes: float = 2.0
    within: int = WITHIN  # by which seed of its profile it must be found: one that is found later has lost its profile
