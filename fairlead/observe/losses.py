"""Times what L5 promises: from the moment a region is lost until each critical service has its minimum serving in one of
the others. Asks the committed state of the planes, not the controllers. Called by the simulator, which says what is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from fairlead.model.kinds.intent import Workload
from fairlead.model.kinds.work import Assignment
from fairlead.model.lifecycle import ON_NODE, SlotState
from fairlead.observe.rooms import rooms_for

RECOVERED_S: Final = 300.0
SEEN_S: Final = 20.0  # within which a lost region is called so: its lease, six seconds, and a look at it

Objects = Mapping[str, Mapping[tuple[str, str], Any]]
Key = tuple[str, str]


class _Loss:
    def __init__(self, region: str, at_s: float, services: dict[Key, Workload]) -> None:
        self.region, self.at_s = region, at_s
        self.open = services
        self.since: dict[Key, float] = {}  # of these, those that have their minimum, and since when


class Losses:
    """`planes` gives the objects of a plane by its name; the global one is `""`. `room_for`: in a region, for a request."""

    def __init__(
        self, planes: Callable[[str], Objects], regions: tuple[str, ...], counts: Counter[str],
        room_for: Callable[[str, Any, Objects], str] = lambda region, request, objects: "",
        barren: Callable[[], frozenset[str]] = frozenset,
    ) -> None:  # fmt: skip
        self._planes = planes
        self._regions = regions
        self._counts = counts
        self._room_for = room_for
        self._barren = barren  # regions in which nothing comes up: their rooms are worth nothing
        self._losses: list[_Loss] = []
        self._kept: dict[Key, Workload] = {}  # services that recovered, as long as nobody changes them
        self.recovered_s: list[float] = []

    def struck(self, region: str, now_s: float) -> None:
        objects = self._planes("")
        gone = {region, *(loss.region for loss in self._losses)}
        hit, short = set[Key](), set[Key]()
        for (tenant, _), assignment in objects.get("assignments", {}).items():
            key = (tenant, assignment.spec.workload)
            if assignment.spec.region == region and assignment.spec.slots:
                hit.add(key)
            if assignment.spec.region in gone and _has_own(assignment):
                short.add(key)
        # Whoever lost nothing but stand-ins, for regions that are all back, has every slot of its own: it is as it was in peace.
        asked = hit & short
        services = {key: found for key, found in objects.get("workloads", {}).items() if key in asked and _is_critical(found)}
        self._losses.append(_Loss(region, now_s, services))
        for key in hit:
            self._kept.pop(key, None)  # until it has recovered from this one, too

    def ended(self, region: str) -> None:
        """It is back: what had not recovered by then says nothing."""
        for loss in [loss for loss in self._losses if loss.region == region]:
            self.recovered_s += [round(since_s - loss.at_s, 1) for since_s in loss.since.values()]
            self._counts["recovery_unfinished"] += len(loss.open) - len(loss.since)
            self._losses.remove(loss)

    @property
    def open(self) -> bool:
        """Some service has not got back what it lost."""
        return any(loss.open for loss in self._losses)

    def findings(self, now_s: float, *, strict: bool) -> list[tuple[str, str]]:
        """Once a second: which promise, and what of it. `strict`: nothing but the loss of regions ends slots."""
        out = [("L5", detail) for detail in self.look(now_s)]
        out += [("S1", detail) for detail in self.bound_twice()]
        return out + ([("L5", detail) for detail in self.dips()] if strict else [])

    def look(self, now_s: float) -> list[str]:
        """Once a second. What has waited longer than was promised."""
        late = []
        for loss in self._losses:
            for key, workload in list(loss.open.items()):
                if self._changed(key, workload):
                    self._counts["recovery_changed"] += 1
                elif self._serves(key, workload, loss.region):
                    since_s = loss.since.setdefault(key, now_s)
                    if now_s < loss.at_s + SEEN_S:
                        continue  # it had what it needs already; whoever does not know of the loss may yet let that go
                    self.recovered_s.append(round(since_s - loss.at_s, 1))
                    self._kept[key] = workload
                elif loss.since.pop(key, None) is not None:
                    continue
                elif now_s - loss.at_s > RECOVERED_S:
                    words = f"{'/'.join(key)} has not its minimum {RECOVERED_S:.0f} s after {loss.region} was lost"
                    if not self._is_said_to_have_no_room(key):
                        late.append(words)
                    elif room := self._room(key, workload, loss.region):
                        late.append(f"{words}: it is said that there is no room, and {room}")
                    else:
                        self._counts["excused_no_budget"] += 1
                else:
                    continue
                del loss.open[key]
                loss.since.pop(key, None)
        return late

    def dips(self) -> list[str]:
        """Services that had recovered and now have less than their minimum in the regions that are there: what stood in went
        before the rest was back. To be asked only where nothing else ends slots."""
        gone, out = {loss.region for loss in self._losses}, []
        for key, workload in list(self._kept.items()):
            serving = sum(self._serving(key, region) for region in self._regions if region not in gone)
            if self._changed(key, workload):
                del self._kept[key]
            elif serving < workload.spec.recovery.min_serving:
                out.append(f"{'/'.join(key)} had recovered, and {serving} of at least {workload.spec.recovery.min_serving} serve")
        return out

    def bound_twice(self) -> list[str]:
        """S1 over all regions: a slot has one live binding, wherever."""
        seen: dict[tuple[str, int], str] = {}
        out = []
        for region in self._regions:
            for (tenant, name), binding in self._planes(region).get("bindings", {}).items():
                if binding.status.state not in ON_NODE:
                    continue
                slot = (binding.spec.slot.uid, binding.spec.slot.index)
                if slot in seen:
                    out.append(f"{tenant}/{name} is bound in {seen[slot]} and in {region}")
                seen[slot] = region
        return out

    def _serving(self, key: Key, region: str) -> int:
        return sum(
            (tenant, binding.spec.slot.workload) == key and binding.status.state is SlotState.SERVING
            for (tenant, _), binding in self._planes(region).get("bindings", {}).items()
        )

    def _changed(self, key: Key, workload: Workload) -> bool:
        now: Workload | None = self._planes("").get("workloads", {}).get(key)
        if now is None or now.metadata.deletion_time is not None:
            return True
        return (now.metadata.uid, now.spec) != (workload.metadata.uid, workload.spec)

    def _serves(self, key: Key, workload: Workload, lost: str) -> bool:
        lost_now = {loss.region for loss in self._losses} | {lost}
        counts = [self._serving(key, region) for region in self._regions if region not in lost_now]
        # Slots that run once in the world are no copies of each other: of these it is the sum that counts.
        reached = sum(counts) if workload.spec.exclusive == "global" else max(counts, default=0)
        return reached >= workload.spec.recovery.min_serving

    def _is_said_to_have_no_room(self, key: Key) -> bool:
        order = self._planes("").get("recoveryorders", {}).get(key)
        return order is not None and order.spec.missing > 0

    def _room(self, key: Key, workload: Workload, lost: str) -> str:
        """Where it could have what it lacks all the same, by sums over nodes, bindings and reservations."""
        budget = self._planes("").get("recoverybudgets", {}).get((key[0], workload.spec.recovery.budget_name))
        if budget is None:
            return ""
        gone, minimum = {loss.region for loss in self._losses} | {lost} | self._barren(), workload.spec.recovery.min_serving
        there = {region: self._serving(key, region) for region in self._regions if region not in gone}
        for region, serving in there.items():
            needs = minimum - (sum(there.values()) if workload.spec.exclusive == "global" else serving)
            ask, room_for = workload.spec.resources.requests, partial(self._room_for, region)
            if (rooms := rooms_for(budget, ask, self._planes(region), room_for)) >= needs:
                return f"{region} has {rooms} rooms for the {needs} that it lacks there"
        return ""


def _has_own(assignment: Assignment) -> bool:
    """Slots that stand in for none; or for one that is exclusive everywhere, and is not started again in its own region."""
    return assignment.spec.exclusive == "global" or any(each != assignment.spec.recovery for each in assignment.spec.slots)


def _is_critical(workload: Workload) -> bool:
    spec = workload.spec
    # None of these fails over.
    stays = (spec.execution == "Exclusive" and spec.exclusive == "region") or spec.gang or spec.job is not None
    return spec.recovery.min_serving > 0 and spec.replicas > 0 and not stays and workload.metadata.deletion_time is None
