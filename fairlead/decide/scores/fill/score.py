"""Expected fill: the cost of placing a slot is what the node can then no longer take of the slots that are likely to come.

A state is worth what the node alone would still allocate from the lists, and what wide requests could make of it; the cost is
the worth before minus the worth after, on the best of the node's devices, plus the rarity of its kind. Owns the costs and the
memory of them: worth depends on the state alone, nodes are often alike, and a node that did not change keeps its cost. Called by
the score's face, __init__.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np

from fairlead.decide.need import Need
from fairlead.decide.scores.fill.kernel import States, Tables, compile_tables, fills, plain_fills, plain_left
from fairlead.decide.scores.fill.lists import LISTS, MIB, Ints, Mix, Pattern, pattern_of, pattern_of_use
from fairlead.decide.scores.fill.nodes import CPU_KEY, MEMORY_KEY, PLAIN, ROOM_KEY, FleetView, Nodes, Picture
from fairlead.decide.scores.fill.scarce import MICRO, Wide, rarity
from fairlead.model.resources import SHARE_WHOLE, DeviceHold, Resources

NEVER: Final = 1 << 40  # the cost where it does not fit
EMPTY_TENTHS: Final = 5  # of what is left on a node without devices: what a node in use is preferred by
# The same among nodes with devices, for requests that use none: lists count devices alone, and without it CPU is left in pieces
# where no device is free. Much more takes CPU from devices that need it.
BESIDE_TENTHS: Final = 6
ROWS_AT_ONCE: Final = 256  # nodes read before the loop is given back: about three milliseconds where all have eight devices
STATES_AT_ONCE: Final = (
    48  # node states looked at before the loop is given back: about four milliseconds where all have eight devices
)
_BEGIN_WITH: Final = 4096  # slots: some milliseconds
_NEEDS_KEPT: Final = 10_000
_PRICES_AFTER: Final = 16  # changes of nodes, then prices are looked at again


class Costs:
    """Of one pattern: by state the cost and the room of the device to take; by row the cost, and the state it holds for."""

    def __init__(self, nodes: Nodes, pattern: Pattern) -> None:
        rows = len(nodes.key)
        self.open = np.array(nodes.open_to(pattern), np.bool_)  # by kind
        self.of_state: dict[int, tuple[int, int]] = {}
        self.key: Ints = np.zeros(rows, np.int64)
        self.cost: Ints = np.full(rows, NEVER, np.int64)


class Choices(NamedTuple):
    """Ways to place one pattern: on which of the rows asked for, ascending, on a device with how much room, and what is left."""

    owner: Any
    room: Ints
    key: Ints
    states: States


class ExpectedFill:
    """The score's knowledge about one fleet. `epoch` grows when every cost has to be asked for again."""

    def __init__(self) -> None:
        self.epoch = 0
        self.nodes = Nodes()
        self.mix = Mix()
        self._due = True
        self._changes = 0
        self._tables: Tables | None = None
        self._drawn: tuple[list[Pattern], Ints] | Tables | None = None  # what has been done of drawing the lists anew
        self._wide = Wide(self.mix, self.nodes)
        self._rarity: tuple[int, ...] = ()
        self._fill: dict[int, int] = {}  # by key, since the lists were drawn
        self._costs: dict[Pattern, Costs] = {}  # since the lists were drawn or the wide prices moved
        self._patterns: dict[int, tuple[Need, Pattern]] = {}

    # --- learning --------------------------------------------------------------------------------------------------------

    def observe(self, need: Need, count: int = 1) -> None:
        """Requests of this need were seen. Each should be counted once, however often it is tried."""
        self._due |= self.mix.observe(self._pattern(need), count)

    def begin_with(self, picture: Picture) -> None:
        """What runs already is the mix: all of it, or a sample where it is much. Which models it had asked for is not known."""
        step = -(-len(picture.uses) // _BEGIN_WITH) or 1
        for use in islice(picture.uses.values(), 0, None, step):
            pattern = pattern_of_use(use.requests, use.devices)
            if use.devices:
                resources = {device.id: device.resource for device in picture.fleet.devices[use.row]}
                pattern = pattern._replace(resource=resources.get(use.devices[0].id, ""))
            self.mix.observe(pattern, step)

    def ended(self, requests: Resources, devices: tuple[DeviceHold, ...]) -> None:
        self.mix.ended(pattern_of_use(requests, devices))

    def follow(self, picture: Picture, most: int | None = None) -> bool:
        """Brings nodes, lists and prices up to date; what follows is asked of that state. Reads at most so many nodes, or does
        one part of drawing the lists: False while there is more, and then nothing should be asked."""
        changes = self.nodes.follow(picture, most)
        if self.nodes.due:
            return False
        drew = False
        while self._due or self._drawn is not None or self._tables is None or self._tables.kinds != len(self.nodes.kinds):
            drew = self._draw(picture.fleet)
            if most is not None and not drew:
                return False
        if changes and not drew:
            self._changes += changes
            if self._changes >= _PRICES_AFTER:
                self._look_at_prices()
        return True

    def _draw(self, fleet: FleetView) -> bool:
        """Draws the lists anew, in three parts of some milliseconds each where every slot differs; True with the last. Until then
        nothing is asked (`follow` says so)."""
        nodes = self.nodes
        if self._drawn is None:
            self._due, self._drawn = False, self.mix.draw()
        elif isinstance(self._drawn, Tables):
            self._tables, self._drawn = self._drawn, None
            self._fill.clear()
            self._set_wide(Wide(self.mix, nodes))
            self._rarity = rarity(self.mix, nodes)
            return True
        else:
            patterns, sample = self._drawn
            allowed = np.array([nodes.open_to(pattern) for pattern in patterns], np.bool_)
            self._drawn = compile_tables(patterns, sample, allowed, _largest(fleet))
        return False

    def _set_wide(self, wide: Wide) -> None:
        self._wide = wide
        self._costs.clear()
        self.epoch += 1

    def _look_at_prices(self) -> None:
        self._changes = 0
        wide = Wide(self.mix, self.nodes)
        if wide.differs(self._wide):
            self._set_wide(wide)
        if self.mix.choosy:
            dear = rarity(self.mix, self.nodes)
            self.epoch += dear != self._rarity
            self._rarity = dear

    def _pattern(self, need: Need) -> Pattern:
        found = self._patterns.get(id(need))
        if found is None or found[0] is not need:
            if len(self._patterns) > _NEEDS_KEPT:
                self._patterns.clear()
            found = self._patterns[id(need)] = (need, pattern_of(need))
        return found[1]

    # --- answering -------------------------------------------------------------------------------------------------------

    def costs(self, need: Need, rows: Ints) -> Ints:
        """Of placing it on each of these rows; NEVER where it does not fit. Call `follow` first."""
        pattern, nodes = self._pattern(need), self.nodes
        known = self._known(pattern)
        stale = rows[known.key[rows] != nodes.key[rows]]
        if len(stale):
            keys, first, which = np.unique(nodes.key[stale], return_index=True, return_inverse=True)
            found = self._of_states(pattern, known, keys.tolist(), stale[first])
            known.key[stale] = nodes.key[stale]
            known.cost[stale] = np.array([cost for cost, _ in found], np.int64)[which]
        cost = known.cost[rows]
        if pattern.devices and any(self._rarity):
            cost = cost + self._dear(pattern)[nodes.states.kind[rows]]
        return cost

    def prepare(self, need: Need) -> bool:
        """Computes some of what `costs` of all rows would compute, at most STATES_AT_ONCE states; True when nothing is left. Call
        `follow` first."""
        pattern, nodes = self._pattern(need), self.nodes
        known = self._known(pattern)
        stale = (known.key != nodes.key).nonzero()[0]
        if len(stale):
            keys, first = np.unique(nodes.key[stale], return_index=True)
            new = [at for at, key in zip(first.tolist(), keys.tolist(), strict=True) if key not in known.of_state]
            some = stale[new[:STATES_AT_ONCE]]
            if len(new):
                self._of_states(pattern, known, nodes.key[some].tolist(), some)
            return len(new) <= STATES_AT_ONCE
        return True

    def cost(self, need: Need, row: int) -> int:
        pattern = self._pattern(need)
        cost = self._of_row(pattern, row)[0]
        if pattern.devices and any(self._rarity):
            cost += int(self._dear(pattern)[self.nodes.states.kind[row]])
        return cost

    def room(self, need: Need, row: int) -> int:
        """How much room the device has that a share should go to; 0 when it does not fit."""
        return self._of_row(self._pattern(need), row)[1]

    def _dear(self, pattern: Pattern) -> Ints:
        dear: Ints = (LISTS * pattern.thousandths * np.array(self._rarity, np.int64) + MICRO // 2) // MICRO
        return dear

    def _known(self, pattern: Pattern) -> Costs:
        known = self._costs.get(pattern)
        if known is None or len(known.key) != len(self.nodes.key):
            states = known.of_state if known is not None else {}
            known = self._costs[pattern] = Costs(self.nodes, pattern)
            known.of_state = states  # there are more nodes; what a state costs is as before
        return known

    def _of_row(self, pattern: Pattern, row: int) -> tuple[int, int]:
        known, key = self._known(pattern), int(self.nodes.key[row])
        found = known.of_state.get(key)
        return found or self._of_states(pattern, known, [key], np.array([row], np.int64))[0]

    def _of_states(self, pattern: Pattern, known: Costs, keys: list[int], rows: Ints) -> list[tuple[int, int]]:
        """Cost and room for these states, each on one of these rows; those not met before are computed together."""
        of_state = known.of_state
        found: list[Any] = list(map(of_state.get, keys))
        if None in found:
            new = [at for at, one in enumerate(found) if one is None]
            for at, one in zip(new, self._compute(pattern, known.open, rows[new]), strict=True):
                found[at] = of_state[keys[at]] = one
        return found

    def _compute(self, pattern: Pattern, open_: Any, rows: Ints) -> Iterable[tuple[int, int]]:
        cost, room = np.full(len(rows), NEVER, np.int64), np.zeros(len(rows), np.int64)
        choices = self._choices(pattern, open_, rows)
        owner = choices.owner
        if len(owner):
            first = np.concatenate(([True], owner[1:] != owner[:-1])).nonzero()[0]
            here = owner[first]
            before = self.nodes.states.take(rows[here])
            states = States(*(np.concatenate(pair) for pair in zip(before, choices.states, strict=True)))  # type: ignore[arg-type]
            worths = self._worths(np.concatenate((self.nodes.key[rows[here]], choices.key)), states)
            after = worths[len(here) :]
            best = np.maximum.reduceat(after, first)
            cost[here] = worths[: len(here)] - best + self._home(pattern, before)
            winners = (after == best.repeat(np.diff(np.append(first, len(owner))))).nonzero()[0][::-1]
            room[owner[winners]] = choices.room[winners]  # of equals the first is written last: least room
        return zip(cost.tolist(), room.tolist(), strict=True)

    def _home(self, pattern: Pattern, states: States) -> Any:
        """Requests without devices belong on nodes without, elsewhere only when none is left; the fullest first, so that whole
        nodes stay empty and what is left over lies together. But small nodes often have the models that few have: where somebody
        names models, no node with a free device is preferred for being small."""
        if pattern.devices:
            return 0
        assert self._tables is not None
        plain, left = states.kind == PLAIN, plain_left(self._tables, states)
        beside = np.where(states.rooms[:, -1] > 0, SHARE_WHOLE, left) if self.mix.choosy else left
        elsewhere = 2 * LISTS * SHARE_WHOLE + LISTS * beside * BESIDE_TENTHS // 10
        return np.where(plain, LISTS * left * EMPTY_TENTHS // 10, elsewhere)

    def _choices(self, pattern: Pattern, open_: Any, rows: Ints) -> Choices:
        states, taken = self.nodes.states.take(rows), pattern.devices
        fits = (states.cpu >= pattern.cpu) & (states.memory >= pattern.memory)
        if taken:
            fits &= open_[states.kind]
        if taken > states.rooms.shape[1]:
            fits[:], taken = False, 0
        elif taken > 1:
            fits &= states.rooms[:, -taken] == SHARE_WHOLE
        device: Any = None
        if taken == 1:
            enough = (states.rooms >= pattern.share) & fits[:, None]
            enough[:, 1:] &= states.rooms[:, 1:] != states.rooms[:, :-1]  # of devices with equal room one
            owner, device = enough.nonzero()
        else:
            (owner,) = fits.nonzero()
        key = self.nodes.key[rows[owner]] - _wrap(pattern.cpu * CPU_KEY + pattern.memory * MEMORY_KEY)
        room, rooms = np.zeros(len(owner), np.int64), states.rooms[owner]
        if taken == 1:
            each = np.arange(len(owner))
            room = rooms[each, device].astype(np.int64)
            key += ROOM_KEY[room - pattern.share] - ROOM_KEY[room]
            rooms[each, device] -= pattern.share
            rooms.sort(axis=1)
        elif taken:
            key -= _wrap(taken * int(ROOM_KEY[SHARE_WHOLE]))
            rooms[:, taken:] = rooms[:, :-taken].copy()
            rooms[:, :taken] = 0
        left = States(states.cpu[owner] - pattern.cpu, states.memory[owner] - pattern.memory, states.kind[owner], rooms)
        return Choices(owner, room, key, left)

    def _worths(self, keys: Ints, states: States) -> Ints:
        """Of each state. Fills not met since the lists were drawn are computed together."""
        wanted, known = keys.tolist(), self._fill
        found: list[Any] = list(map(known.get, wanted))
        if None in found:
            missing = {key: at for at, (key, fill) in enumerate(zip(wanted, found, strict=True)) if fill is None}
            some = states.take(np.array(list(missing.values()), np.int64))
            known.update(zip(missing, self._fills(some).tolist(), strict=True))
            found = list(map(known.get, wanted))
        worths: Ints = self._wide.worth(states) + np.array(found, np.int64)
        return worths

    def _fills(self, states: States) -> Ints:
        assert self._tables is not None
        plain = states.kind == PLAIN
        if not plain.any():
            return fills(self._tables, states)
        out = np.empty(len(plain), np.int64)
        for measure, some in ((plain_fills, plain), (fills, ~plain)):
            if some.any():
                out[some] = measure(self._tables, states.take(some))
        return out


def _wrap(value: int) -> np.int64:
    return np.int64((value + (1 << 63)) % (1 << 64) - (1 << 63))


def _largest(fleet: FleetView) -> tuple[int, int]:
    cpu, memory = fleet.cells["cpu_total"], fleet.cells["memory_total"]
    rows = range(fleet.rows)
    return max((cpu[row] for row in rows), default=1), max((memory[row] for row in rows), default=1) >> MIB
