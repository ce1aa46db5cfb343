"""What a planted bug is: a guard in words, what replaces it, the profile directed at it and the promises by which it is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

Swap = tuple[Any, str, Any]  # an owner, its attribute, and what stands there instead


class Mutant(msgspec.Struct, frozen=True):
    guard: str
    profile: str
    invariants: tuple[str, ...]
    swaps: Callable[[], list[Swap]]
    minutes: float = 2.0
