"""When the global plane last answered this region's reports. Soft: what follows from it is written down by the grant controller.

Told by the runtime of mirror-up, each time it is given or renews its lease, because that is what the global plane counts a region
by; asked by the grant controller of the same process. Made by the composition root.
"""

from __future__ import annotations

from typing import Final

from fairlead.decide.apart import Contact

PATIENCE_S: Final = 10.1  # the lease of mirror-up as the global plane counts it: from then on a region is not heard


class Touch:
    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._heard: float | None = None
        self._since = 0.0

    def answered(self, now: float) -> None:
        """By the clock of this process."""
        if self._heard is None or now - self._heard > self._patience_s:
            self._since = now
        self._heard = now

    def contact(self, began: float, now: float, plane_ms: int) -> Contact:
        def ms(at: float) -> int:
            return plane_ms - int((now - at) * 1000)

        heard_ms = ms(self._heard) if self._heard is not None else None
        return Contact(ms(began), heard_ms, ms(self._since) if heard_ms is not None else 0, int(self._patience_s * 1000))
