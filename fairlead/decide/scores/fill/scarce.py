"""What should be left for those who can use nothing else: whole devices in one place, and models that few nodes have.

Owns two prices. `Wide` says what a state is worth to requests for several devices at once; `rarity` charges a request for taking
a kind of device that others must have. Both from the mix seen so far and what is free. Called by the score.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from fairlead.decide.scores.fill.kernel import States
from fairlead.decide.scores.fill.lists import LISTS, Ints, Mix, Pattern
from fairlead.decide.scores.fill.nodes import Nodes
from fairlead.model.resources import SHARE_WHOLE

MICRO: Final = 1_000_000  # of a price
RARITY_MAX: Final = 5 * MICRO
# Of a device's worth, in thousandths: what it costs to lose one that a wide request could have used. A place that is kept pays if
# such a request comes before the fleet is full, so it is worth less from the point where a quarter of all devices is free.
WIDE_LEAST: Final = 40
WIDE_MORE: Final = 60
_FULL_WORTH_AT: Final = 4  # one part in so many free
_MOVED_PERCENT: Final = 50  # of a price, before everything is ranked anew for it
_PRICE_LEAST: Final = MICRO // 20  # below this a price changes no choice


class Wide:
    """For each pattern of several devices: how sorely its places are needed, at most MICRO."""

    def __init__(self, mix: Mix, nodes: Nodes) -> None:
        self._patterns = sorted(pattern for pattern in mix.counts if pattern.devices > 1)
        self._least: Ints = np.array([(p.cpu, p.memory, p.devices) for p in self._patterns], np.int64).reshape(-1, 3).T
        open_to = [nodes.open_to(p) for p in self._patterns]
        self._open = np.array(open_to, np.bool_).reshape(len(open_to), len(nodes.kinds)).T
        self._prices = self._find_prices(mix, nodes)
        self._total = int(self._prices.sum())
        free = min(int(nodes.idle.sum()) * _FULL_WORTH_AT, nodes.capacity)
        self._worth = WIDE_LEAST + WIDE_MORE * free // max(nodes.capacity, 1)

    def _find_prices(self, mix: Mix, nodes: Nodes) -> Ints:
        """Demand to be expected over the places that are left."""
        if not self._patterns:
            return np.zeros(0, np.int64)
        states, (cpu, memory, devices) = nodes.states, np.maximum(self._least, 1)
        rows = ((states.rooms == SHARE_WHOLE).sum(axis=1) >= devices.min()).nonzero()[0]
        states = states.take(rows)
        full = (states.rooms == SHARE_WHOLE).sum(axis=1, dtype=np.int64)
        places = np.minimum(full[:, None] // devices, np.minimum(states.cpu[:, None] // cpu, states.memory[:, None] // memory))
        supply = (places * self._open[states.kind]).sum(axis=0) * devices * SHARE_WHOLE
        demand = np.array([mix.counts[p] * p.thousandths for p in self._patterns], np.int64)
        free = int(nodes.idle.sum())
        return np.where(supply > 0, np.minimum(MICRO, demand * MICRO // mix.thousandths * free // np.maximum(supply, 1)), MICRO)

    def differs(self, other: Wide) -> bool:
        """By so much that everything should be ranked anew."""
        if self._patterns != other._patterns:
            return True
        larger = np.maximum(self._prices, other._prices)
        moved = np.abs(self._prices - other._prices) * 100 > larger * _MOVED_PERCENT
        return bool((moved & (larger > _PRICE_LEAST)).any())

    def worth(self, states: States) -> Any:
        """What the whole devices of each state are worth to wide requests that fit there. (Devices in part or where nothing wide
        fits are worth nothing; the lists count what others make of them.)"""
        worth = np.zeros(len(states.cpu), np.int64)
        if not self._total:
            return worth
        whole = (states.rooms == SHARE_WHOLE).sum(axis=1, dtype=np.int64)
        wide = (whole > 1).nonzero()[0]
        if len(wide):
            cpu, memory, devices = self._least
            some, whole = states.take(wide), whole[wide]
            fits = (some.cpu[:, None] >= cpu) & (some.memory[:, None] >= memory) & (whole[:, None] >= devices)
            fits &= self._open[some.kind]
            worth[wide] = (LISTS * self._worth * whole * (fits @ self._prices) + MICRO // 2) // MICRO
        return worth


def rarity(mix: Mix, nodes: Nodes) -> tuple[int, ...]:
    """By kind: what one thousandth of it costs those who could have gone elsewhere, in millionths."""
    demand: dict[tuple[str, tuple[str, ...]], int] = {}
    for p, count in mix.counts.items():
        if p.models:
            demand[p.resource, p.models] = demand.get((p.resource, p.models), 0) + count * p.thousandths
    out = [0] * len(nodes.kinds)
    free = sum(nodes.idle_of_kind)
    for (resource, models), asked in sorted(demand.items()):
        among = [kind for kind, open_ in enumerate(nodes.open_to(Pattern(0, 0, 1, 0, resource, models))) if open_]
        idle = sum(nodes.idle_of_kind[kind] for kind in among)
        price = min(RARITY_MAX, MICRO * asked * free // (mix.thousandths * idle)) if idle else RARITY_MAX
        for kind in among:
            out[kind] += price
    return tuple(out)
