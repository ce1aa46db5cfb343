"""What is asked of a platform one region of which is lost and stays so: that the others have what they are to have, that it is
said, and that nothing of a workload is forgotten.

By the assignments of the global plane; whether critical services have their minimum again is asked elsewhere (L5). Owns no state.
Called by agreement.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from fairlead.observe.differing import Difference, Objects

_SIGN_OF_LIFE: Final = "mirror-up-"  # and the region: a lease of the global plane that it renews


class Left:
    def __init__(self, top: Objects, lost: Objects, region: str) -> None:
        self._top = top
        self._lost = lost  # as it was when it was lost
        self._region = region

    def differences(self, serving: Counter[str]) -> list[Difference]:
        """`serving`: in the regions that are left, whatever their generation: a rollout may wait for the lost one's turn."""
        region = self._top.get("regions", {}).get(("", self._region))
        out = []
        heard = ("", f"{_SIGN_OF_LIFE}{self._region}") in self._top.get("leases", {})
        if region is None or (heard and region.status.health != "Lost"):  # of one that never spoke nobody says anything
            out.append(Difference(f"{self._region} is lost, and is not said to be"))
        for workload in self._top.get("workloads", {}).values():
            out += self._of(workload, serving[workload.metadata.uid])
        return out

    def _of(self, workload: Any, serving: int) -> list[Difference]:
        name, uid = f"{workload.metadata.namespace}/{workload.metadata.name}", workload.metadata.uid
        orders = [one.spec for one in self._top.get("assignments", {}).values() if one.spec.workload_uid == uid]
        if workload.metadata.deletion_time is not None:
            there = any(one.spec.slot.uid == uid for one in self._lost.get("bindings", {}).values())
            waits = there or any(one.region == self._region for one in orders)
            return [] if waits else [Difference(f"{name} is being deleted still", uid)]
        if workload.spec.job is not None or workload.spec.suspend:
            return []
        left = sum(_count(one.slots) for one in orders if one.region != self._region)
        # What stands in is given beyond a service's own, but where slots run once in the world: there it is instead of them.
        beyond = [one.recovery for one in orders if one.recovery is not None and workload.spec.exclusive != "global"]
        own = sum(_count(one.slots) for one in orders) - _count(beyond)
        out = []
        if own != workload.spec.replicas:
            out.append(Difference(f"{name}: {own} of {workload.spec.replicas} slots are given to any region", uid))
        if serving != left:
            words = f"{name}: {serving} of the {left} serve that regions other than {self._region} were given"
            out.append(Difference(words, uid, short=left - serving, serves=True))
        return out


def _count(ranges: Iterable[Any]) -> int:
    return sum(one.last - one.first + 1 for one in ranges)
