"""How much of each list a node would still take. Owns the arithmetic; knows no node, need or policy. Called by the score.

One lane is one (node state, list). A list has fewer than 64 requests, so those that a lane could still take are the bits of one
word, found by look-up: the table of a resource says, for every step of its room, which requests of the list fit. A lane goes from
one request it takes to the next and never looks at those it cannot take. Few calls on long columns: what such a step costs is
mostly the number of calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fairlead.decide.scores.fill.lists import LENGTH, LISTS, Ints, Pattern
from fairlead.model.resources import SHARE_WHOLE

STEPS: Final = 1 << 15  # CPU and memory are measured in this many steps of the largest node, so that a rank is a look-up
RANKS_MAX: Final = 96  # different amounts of a resource in the lists; where there are more they are rounded up
LANES_MAX: Final = 16384  # at once, so that the lanes at work stay in the processor's cache
# A room carries its device's number in its low bits, so that the least room that is enough also says where it is.
TAG_BITS: Final = 5
DEVICES_MAX: Final = 1 << TAG_BITS
_TAG: Final = np.uint16(DEVICES_MAX - 1)
_FULL: Final = SHARE_WHOLE << TAG_BITS
# The exponent of a power of two as float64, times LISTS, after a shift by 52 - log2(LISTS).
_SHIFT: Final = 52 - (LISTS.bit_length() - 1)
_BIAS: Final = 1023 * LISTS
assert LISTS & (LISTS - 1) == 0, "positions times lists is a shift"

Rooms = npt.NDArray[np.int16]


class States(NamedTuple):
    """Columns over node states. `rooms` is (states, devices): thousandths free, ascending; absent devices are 0."""

    cpu: Ints
    memory: Ints  # MiB
    kind: Ints
    rooms: Rooms

    def take(self, rows: Any) -> States:
        return States(self.cpu[rows], self.memory[rows], self.kind[rows], self.rooms[rows])


class Tables(NamedTuple):
    """Lists compiled: the steps of room at which one more request fits, and per list and step the word of those that fit."""

    cpu_unit: int
    memory_unit: int
    cpu_rank: Ints  # by units free, times the number of memory's ranks
    memory_rank: Ints
    ranks: int
    fit_words: Ints  # (lists, CPU's ranks, memory's ranks), flat
    kind_words: Ints  # (lists, kinds), flat
    kinds: int
    room_words: Ints  # (lists, 0..SHARE_WHOLE), flat
    counted: Ints  # per list, the requests that use devices
    many: bool  # some use several devices
    # One that asks for nothing, then (position, list), flat:
    cpu: Ints
    memory: Ints
    share: npt.NDArray[np.uint16]  # tagged; 0 for those that take several devices
    devices: npt.NDArray[np.int16]


def _words(fits: npt.NDArray[np.bool_]) -> Any:
    """(lists, length) of bool to one word per list."""
    return (fits.astype(np.int64) << np.arange(LENGTH, dtype=np.int64)).sum(axis=1)


def _ranked(asks: Ints, top: int) -> tuple[Ints, Ints]:
    """By room up to `top` its rank among the distinct amounts asked for, and (lists, ranks) words of those that fit."""
    steps = np.unique(asks)
    words = np.stack([np.zeros(LISTS, np.int64), *(_words(asks <= step) for step in steps)], axis=1)
    return np.searchsorted(steps, np.arange(top + 1), side="right").astype(np.int64), words


def _few_steps(asks: Ints) -> Ints:
    """Amounts rounded up to at most RANKS_MAX different ones: tables grow with the product of both resources' steps."""
    steps = np.unique(asks)
    if len(steps) <= RANKS_MAX:
        return asks
    kept = steps[np.arange(1, RANKS_MAX + 1) * len(steps) // RANKS_MAX - 1]
    return kept[np.searchsorted(kept, asks)]


def compile_tables(patterns: list[Pattern], sample: Ints, allowed: npt.NDArray[np.bool_], top: tuple[int, int]) -> Tables:
    """`sample` is (lists, length) of numbers of patterns; `allowed` is (patterns, kinds); `top` is the most a node has."""

    def column(values: list[int]) -> Ints:
        return np.array(values, np.int64)[sample]

    def flat(values: Ints) -> Ints:
        return np.concatenate(([0], values.T.ravel()))

    cpu_unit, memory_unit = (amount // STEPS + 1 for amount in top)
    cpu = _few_steps(column([-(-p.cpu // cpu_unit) for p in patterns]))
    memory = _few_steps(column([-(-p.memory // memory_unit) for p in patterns]))
    share, devices = column([p.share for p in patterns]), column([p.devices for p in patterns])
    cpu_rank, cpu_words = _ranked(cpu, STEPS)
    memory_rank, memory_words = _ranked(memory, STEPS)
    room_rank, room_words = _ranked(share, SHARE_WHOLE)
    by_kind = [_words(allowed[:, kind][sample]) for kind in range(allowed.shape[1])]
    return Tables(
        cpu_unit,
        memory_unit,
        cpu_rank * memory_words.shape[1],
        memory_rank,
        cpu_words.shape[1] * memory_words.shape[1],
        (cpu_words[:, :, None] & memory_words[:, None, :]).ravel(),
        np.stack(by_kind, axis=1).ravel(),
        allowed.shape[1],
        room_words[:, room_rank].ravel(),
        _words(devices > 0),
        bool((devices > 1).any()),
        flat(cpu),
        flat(memory),
        (flat(np.where(devices > 1, 0, share)) << TAG_BITS).astype(np.uint16),
        flat(devices).astype(np.int16),
    )


def fills(tables: Tables, states: States) -> Ints:
    """What each state would still take, summed over the lists: thousandths of its devices."""
    idle = states.rooms.sum(axis=1, dtype=np.int64) * LISTS
    full = int((states.rooms.max(axis=0) == 0).sum())  # in all states; rooms are ascending, so they come first
    if full == states.rooms.shape[1]:
        return np.zeros(len(idle), np.int64)
    taken: Ints = idle - _in_parts(_left, tables, states._replace(rooms=states.rooms[:, full:]))
    return taken


def plain_fills(tables: Tables, states: States) -> Ints:
    """What each state would still take, summed over the lists: of CPU and memory together, in thousandths of the largest node."""
    taken: Ints = plain_left(tables, states) * LISTS - _in_parts(_plain_left, tables, states) * SHARE_WHOLE // (2 * STEPS)
    return taken


def plain_left(t: Tables, states: States) -> Ints:
    """CPU and memory free, in thousandths of the largest node."""
    left: Ints = (np.minimum(states.cpu // t.cpu_unit, STEPS) + np.minimum(states.memory // t.memory_unit, STEPS)) * SHARE_WHOLE
    return left // (2 * STEPS)


def _in_parts(measure: Callable[[Tables, States], Any], tables: Tables, states: States) -> Any:
    at_once = LANES_MAX // LISTS
    starts = range(0, len(states.cpu), at_once)
    return np.concatenate([measure(tables, states.take(slice(start, start + at_once))) for start in starts])


def _plain_left(t: Tables, states: States) -> Any:
    """For each state the steps of CPU and memory left over, summed over the lists. A list begins again when it is through: a node
    may be larger than a list."""
    count = len(states.cpu)
    size = count * LISTS
    lists = np.tile(np.arange(LISTS, dtype=np.int64), count)
    work = np.empty((7, size), np.int64)
    lane, words, cpu, memory, all_words, fit_at, next_at = work
    lane[:] = np.arange(size)
    all_words[:] = t.kind_words.take(lists * t.kinds + np.repeat(states.kind, LISTS))
    words[:] = all_words
    cpu[:] = np.repeat(np.minimum(states.cpu // t.cpu_unit, STEPS), LISTS)
    memory[:] = np.repeat(np.minimum(states.memory // t.memory_unit, STEPS), LISTS)
    fit_at[:] = lists * t.ranks
    next_at[:] = lists + (1 - _BIAS)
    left = np.empty(size, np.int64)
    while True:
        all_words &= t.fit_words.take(fit_at + t.cpu_rank.take(cpu) + t.memory_rank.take(memory))
        words &= all_words
        words |= all_words * (words == 0)
        live = int(np.count_nonzero(words))
        if 4 * live < 3 * size:
            left[lane] = cpu + memory
            if not live:
                return left.reshape(count, LISTS).sum(axis=1)
            work, size = work.take(words.nonzero()[0], axis=1), live
            lane, words, cpu, memory, all_words, fit_at, next_at = work
        low = words & -words
        words ^= low
        taken = (low.astype(np.float64).view(np.int64) >> _SHIFT) + next_at
        cpu -= t.cpu.take(taken, mode="clip")
        memory -= t.memory.take(taken, mode="clip")


def _left(t: Tables, states: States) -> Any:
    """For each state the thousandths left idle, summed over the lists."""
    count, wide = states.rooms.shape
    size = count * LISTS
    tagged = (states.rooms.T.astype(np.uint16) << TAG_BITS) + np.arange(wide, dtype=np.uint16)[:, None]
    rooms = np.repeat(tagged, LISTS, axis=1)
    lists = np.tile(np.arange(LISTS, dtype=np.int64), count)
    work = np.empty((8, size), np.int64)
    lane, words, cpu, memory, counted, fit_at, room_at, next_at = work
    lane[:] = np.arange(size)
    words[:] = t.kind_words.take(lists * t.kinds + np.repeat(states.kind, LISTS))
    cpu[:] = np.repeat(np.minimum(states.cpu // t.cpu_unit, STEPS), LISTS)
    memory[:] = np.repeat(np.minimum(states.memory // t.memory_unit, STEPS), LISTS)
    counted[:] = t.counted.take(lists)
    fit_at[:] = lists * t.ranks
    room_at[:] = lists * (SHARE_WHOLE + 1)
    next_at[:] = lists + (1 - _BIAS)
    left = np.empty(size, np.int64)
    lanes = np.arange(size)
    many = t.many and bool(((states.rooms == SHARE_WHOLE).sum(axis=1) > 1).any())
    while True:
        words &= t.fit_words.take(fit_at + t.cpu_rank.take(cpu) + t.memory_rank.take(memory))
        words &= t.room_words.take(room_at + (np.maximum.reduce(rooms) >> TAG_BITS))
        open_words = words & counted
        live = int(np.count_nonzero(open_words))
        if 4 * live < 3 * size:  # lanes that are done are dropped now and then; a step over them does no harm
            left[lane] = (rooms >> TAG_BITS).sum(axis=0, dtype=np.int64)
            if not live:
                return left.reshape(count, LISTS).sum(axis=1)
            keep = open_words.nonzero()[0]
            work, rooms, size = work.take(keep, axis=1), rooms.take(keep, axis=1), live
            lane, words, cpu, memory, counted, fit_at, room_at, next_at = work
            lanes = lanes[:size]
        low = words & -words
        words ^= low
        # The lowest bit's number is its exponent. No bit: far below the first request, clipped to the one that asks nothing.
        taken = (low.astype(np.float64).view(np.int64) >> _SHIFT) + next_at
        cpu -= t.cpu.take(taken, mode="clip")
        memory -= t.memory.take(taken, mode="clip")
        least = np.minimum.reduce(rooms - t.share.take(taken, mode="clip"))  # rooms too small wrap around and lose
        at = (least & _TAG) * np.int64(size)
        at += lanes
        rooms.reshape(-1)[at] = least
        if many:
            _take_many(t, rooms, cpu, memory, taken)


def _take_many(t: Tables, rooms: npt.NDArray[np.uint16], cpu: Ints, memory: Ints, taken: Ints) -> None:
    """Requests for several whole devices: few, so they are done apart, and given back where too few devices are free."""
    devices = t.devices.take(taken, mode="clip")
    many = (devices > 1).nonzero()[0]
    if not len(many):
        return
    some, wanted = rooms[:, many], devices[many]
    full = some >= _FULL
    fits = full.sum(axis=0) >= wanted
    some[full & (full.cumsum(axis=0) <= wanted) & fits] &= _TAG
    rooms[:, many] = some
    cpu[many] += t.cpu.take(taken[many]) * ~fits
    memory[many] += t.memory.take(taken[many]) * ~fits
