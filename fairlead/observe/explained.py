"""L12 asked of a region's objects: whatever waits says why, whose turn it is and when it is looked at again; and not that
somebody holds it when that is over.

A reason is written where it changes, so what is asked here is that there is one within its bound, not that it is written again.
Shares nothing with the scheduler but the model. Called by the simulator after healing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

BOUND_S: Final = 60.0  # L12
UNSEEN: Final = ("", "PendingEvaluation")  # nobody has looked at it yet

Objects = Mapping[str, Mapping[tuple[str, str], Any]]


def lacks(request: Any) -> str:
    """What it does not say; empty: it says all of it."""
    status = request.status
    said = (
        ("why it waits", status.reason not in UNSEEN),
        ("since when", status.since_time is not None),
        ("whose turn it is", bool(status.next_owner)),
        ("when it is looked at again", status.next_attempt_time is not None),
    )
    return ", ".join(what for what, is_said in said if not is_said)


def is_over(request: Any, plane_ms: int) -> bool:
    """It says that it is on hold until a moment that has long passed."""
    status = request.status
    until = status.next_attempt_time
    return status.reason == "OnHold" and until is not None and until.timestamp() < plane_ms / 1000 - BOUND_S


class ExplainedChecker:
    """Look every second or so; it remembers since when each has not said all of it."""

    def __init__(self) -> None:
        self.checked = 0
        self._since_s: dict[tuple[str, str, str, str], float] = {}

    def look(self, now_s: float, region: str, objects: Objects, plane_ms: int = 0) -> list[str]:
        """`plane_ms`: of the region's plane."""
        out, silent = [], dict[tuple[str, str, str, str], float]()
        for (tenant, name), request in objects.get("schedulingrequests", {}).items():
            if request.spec.suspend:
                continue  # it waits for whoever ordered that
            self.checked += 1
            if is_over(request, plane_ms):
                out.append(f"{tenant}/{name} in {region} says what is over: {request.status.detail}")
            missing = lacks(request)
            if not missing:
                continue
            key = (region, tenant, name, str(request.metadata.uid))
            silent[key] = self._since_s.get(key, now_s)
            if now_s - silent[key] > BOUND_S:
                out.append(f"{tenant}/{name} in {region} has waited {now_s - silent[key]:.0f} s and does not say {missing}")
        self._since_s = {key: since for key, since in self._since_s.items() if key[0] != region} | silent
        return out
