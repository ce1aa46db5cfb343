"""Two sides that are measured in turn, compared pair by pair: what slows the machine down for a while slows both of a pair.

Pure. Called by api.py for `--part quota`.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any


def paired(name: str, with_it: Sequence[float], without: Sequence[float]) -> dict[str, Any]:
    """The cost of the one over the other, as a share: the median over the pairs, and between which a half of them lies. Where
    that half spans nought no cost was shown. None where so little ran that the kernel's clock, in hundredths of a second, has
    counted nothing."""
    ratios = [a / b - 1 for a, b in zip(with_it, without, strict=True) if b]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else (None, None, None)
    return {
        f"{name}_cost": _rounded(middle),
        f"{name}_cost_half_of_pairs": [_rounded(low), _rounded(high)],
        f"{name}_cost_shown": low is not None and high is not None and not low <= 0 <= high,
        f"{name}_rounds": [round(ratio, 4) for ratio in ratios],
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)
