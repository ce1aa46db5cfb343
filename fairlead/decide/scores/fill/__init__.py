"""Expected fill: prefer the node that loses least of what it could still allocate from the slots that are likely to come.

The mix of slots is learnt from those seen so far. Every node is offered the same few lists drawn from it, in thought; what a
placement costs is what the node can then no longer take. The rate is minus that cost, in thousandths of a device times LISTS;
SCORE_MAX does not bound it. Finds the device for a share too (`pick_devices`).

The one score with a memory: it keeps, for each scheduler's picture, the mix and what states met are worth. The scheduler tells
it of every request once (`observe`), of every slot that ends (`ended`), and asks for all rates again when `epoch` has changed.
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

from fairlead.decide.need import Need
from fairlead.decide.scores import RatedRow, Scope, Tier
from fairlead.decide.scores.fill.score import ROWS_AT_ONCE, ExpectedFill
from fairlead.model.resources import SHARE_WHOLE, DeviceHold, Resources


class FillScore:
    name = "fill"
    tier = Tier.PREFERENCE
    text = "prefers the node that loses least of what it could still take of the slots that are likely to come"
    scope: Scope = "node"
    rate_max = 1 << 24

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Any, ExpectedFill] = WeakKeyDictionary()

    def knowledge(self, view: Any) -> ExpectedFill:
        """What was learnt about this picture's fleet."""
        found = self._known.get(view)
        if found is None:
            found = self._known[view] = ExpectedFill()
            found.begin_with(view)
        return found

    def observe(self, need: Need, view: Any, count: int = 1) -> None:
        self.knowledge(view).observe(need, count)

    def ended(self, requests: Resources, devices: tuple[DeviceHold, ...], view: Any) -> None:
        """A slot that was there is gone."""
        self.knowledge(view).ended(requests, devices)

    def prepare(self, need: Need, view: Any) -> bool:
        """A part of the work that rating all nodes would be; True when it is done. In between the loop may be given back."""
        known = self.knowledge(view)
        return known.follow(view, ROWS_AT_ONCE) and known.prepare(need)

    def epoch(self, view: Any) -> int:
        """Changes when every rate given before is out of date."""
        known = self.knowledge(view)
        known.follow(view)
        return known.epoch

    def rate(self, need: Need, row: RatedRow, view: Any) -> Any:
        known = self.knowledge(view)
        known.follow(view)
        if isinstance(row.number, int):
            return -known.cost(need, row.number)
        return -known.costs(need, row.number)

    def pick_devices(self, need: Need, row: RatedRow, view: Any) -> tuple[DeviceHold, ...] | None:
        """For a share of one device: the device whose loss costs least. None for everything else: any choice is as good."""
        if len(need.devices) != 1 or not need.devices[0].share:
            return None
        known = self.knowledge(view)
        known.follow(view)
        room, ask = known.room(need, row.number), need.devices[0]
        used = view.fleet.device_used[row.number]
        for device in view.fleet.devices[row.number]:
            fits = device.resource == ask.resource and (not ask.models or device.model in ask.models)
            if fits and room and SHARE_WHOLE - used.get(device.id, 0) == room:
                return (DeviceHold(id=device.id, thousandths=ask.share),)
        return None


SCORE: Final = FillScore()
