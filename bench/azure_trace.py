"""Azure's VM trace, and packing it without the platform. Owns how its files read, plain best fit, the bound below all packings.

A line of the trace is a step of 300 s: the VMs that arrived in it, in batches, each of one tenant. Lifetimes are known as a range
of steps; the trace says no more, so one step of the range is drawn, always the same. A VM is there from the step it arrived in to
the one it ended in, both included: it ends before the arrivals of the step after. The trace stops with its last arrival. Knows
nothing of queue, scheduler or authority. Called by bench/azure.py.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.traces import traces_folder

Ints = NDArray[np.int64]
STEP_S: Final = 300
CUT_S: Final = 2_100_000  # Where the dev split ends; it names the file of durations.
_NEVER: Final = 1 << 62
_ROWS_FIRST: Final = 1024  # of best fit's nodes; doubled when they are not enough


class Shape(NamedTuple):
    cpu_millis: int
    memory_mib: int


class Run(NamedTuple):
    """VMs of one batch and one shape that arrived one after the other."""

    batch: int
    first: int  # number of its first VM in the trace
    offset: int  # of that VM in its batch
    shape: int
    vms: int


class Trace(NamedTuple):
    """One number per VM in each column, in the order of arrival. `steps` end with the last arrival."""

    shapes: tuple[Shape, ...]
    batch: Ints
    offset: Ints  # in its batch
    shape: Ints
    arrives: Ints  # step
    ends: Ints  # step before whose arrivals it is gone; `steps` where it outlives the replay
    steps: int

    @property
    def vms(self) -> int:
        return len(self.batch)

    def runs(self, step: int) -> Iterator[Run]:
        """What arrives in one step, in order."""
        low, high = np.searchsorted(self.arrives, (step, step + 1)).tolist()
        keys = zip(self.batch[low:high].tolist(), self.shape[low:high].tolist(), strict=True)
        first = low
        for (batch, shape), members in groupby(keys):
            count = len(list(members))
            yield Run(batch, first, int(self.offset[first]), shape, count)
            first += count

    def ended_by_step(self) -> list[list[int]]:
        """For each step the VMs that end before its arrivals, in the order they came."""
        out: list[list[int]] = [[] for _ in range(self.steps)]
        for vm, step in enumerate(self.ends.tolist()):
            if step < self.steps:
                out[step].append(vm)
        return out

    def cpu_millis(self) -> Ints:
        return np.array([shape.cpu_millis for shape in self.shapes], np.int64)[self.shape]

    def memory_mib(self) -> Ints:
        return np.array([shape.memory_mib for shape in self.shapes], np.int64)[self.shape]


# --- reading -----------------------------------------------------------------------------------------------------------------


def _folder() -> Path:
    folder = traces_folder() / "azure_v1_vm"
    if not folder.is_dir():
        raise SystemExit(f"the trace {folder} is not there; set FAIRLEAD_TRACES to the folder of traces")
    return folder


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    for line in path.read_text().splitlines():
        if line.strip():
            left, right = line.split()
            yield left, right


def _shapes(folder: Path) -> dict[str, Shape]:
    """By letter: cores and GiB, as `4,7 k`."""
    out = {}
    for size, letter in _pairs(folder / "flav_map.txt"):
        cores, gib = size.split(",")
        out[letter] = Shape(int(cores) * 1000, int(float(gib) * 1024))
    return out


def _lifetimes(folder: Path) -> dict[int, list[int]]:
    """By number of the range: the whole steps a lifetime in it may have."""
    out: dict[int, list[int]] = defaultdict(list)
    for seconds, number in _pairs(folder / "v1.interval_map.txt"):
        out[int(number)].append(int(seconds) // STEP_S)
    return out


def read_dev(vms: int = 0) -> Trace:
    """The dev split, or its first `vms` VMs."""
    folder = _folder()
    shapes, lifetimes, chance = _shapes(folder), _lifetimes(folder), random.Random(1)
    numbers = {letter: number for number, letter in enumerate(shapes)}
    rows: list[tuple[int, int, int, int, int]] = []  # batch, offset, shape, arrives, ends
    batch = offset = start = -1
    lines = zip(_pairs(folder / "v1.dev.txt"), _pairs(folder / f"v1.dev.c{CUT_S}.txt"), strict=True)
    for (at, letters), (_, lives) in lines:
        start = start if start >= 0 else int(at)
        now, cut = (int(at) - start) // STEP_S, (CUT_S - start) // STEP_S
        offset, batch = 0, batch + 1
        for letter, life in zip(letters.rstrip(",").split(","), lives.rstrip(",").split(","), strict=True):
            if letter == "|":
                offset, batch = 0, batch + 1
                continue
            ends = -1
            if life[0] == "U":  # it ended before the cut
                ends = now + chance.choice([steps for steps in lifetimes[int(life[1:])] if now + steps <= cut]) + 1
            rows.append((batch, offset, numbers[letter], now, ends))
            offset += 1
        batch -= 1  # the last mark of a line ended a batch and began none
    return _trace(tuple(shapes.values()), rows[: vms or None])


def _trace(shapes: tuple[Shape, ...], rows: list[tuple[int, int, int, int, int]]) -> Trace:
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    batch, offset, shape, arrives, ends = columns
    steps = int(arrives.max()) + 1
    return Trace(shapes, batch, offset, shape, arrives, np.where(ends < 0, steps, np.minimum(ends, steps)), steps)


# --- packing -----------------------------------------------------------------------------------------------------------------


class Packing(NamedTuple):
    """Nodes in use over trace time: each step is looked at once its arrivals are placed."""

    most: int
    mean: float
    overfull: int = 0  # nodes that held more than they have, over all steps


def best_fit(trace: Trace, node: Shape) -> list[int]:
    """A node for each VM: of the nodes it fits, the one with the least share of CPU and memory left, the first of equals. An
    empty node has most left, so one is opened only where no other will do."""
    room = _Room(node)
    needs = list(zip(trace.cpu_millis().tolist(), trace.memory_mib().tolist(), strict=True))
    node_of = [-1] * trace.vms
    ended, vm = trace.ended_by_step(), 0
    for step, arriving in enumerate(np.bincount(trace.arrives, minlength=trace.steps).tolist()):
        for gone in ended[step]:
            room.take(node_of[gone], *needs[gone], -1)
        for _ in range(arriving):
            node_of[vm] = row = room.tightest(*needs[vm])
            room.take(row, *needs[vm], 1)
            vm += 1
    return node_of


class _Room:
    """What is free on each node."""

    def __init__(self, node: Shape, rows: int = _ROWS_FIRST) -> None:
        self.node = node
        self.cpu = np.full(rows, node.cpu_millis, np.int64)
        self.memory = np.full(rows, node.memory_mib, np.int64)
        self.left = self.cpu * node.memory_mib + self.memory * node.cpu_millis  # both shares over one denominator

    def tightest(self, cpu: int, memory: int) -> int:
        if cpu > self.node.cpu_millis or memory > self.node.memory_mib:
            raise ValueError(f"a VM of {cpu} millicores and {memory} MiB fits no node")
        fits = (self.cpu >= cpu) & (self.memory >= memory)
        row = int(np.where(fits, self.left, _NEVER).argmin())
        if fits[row]:
            return row
        more, rows = _Room(self.node, len(self.left)), len(self.left)
        for name in ("cpu", "memory", "left"):
            setattr(self, name, np.concatenate((getattr(self, name), getattr(more, name))))
        return rows

    def take(self, row: int, cpu: int, memory: int, sign: int) -> None:
        self.cpu[row] -= sign * cpu
        self.memory[row] -= sign * memory
        self.left[row] -= sign * (cpu * self.node.memory_mib + memory * self.node.cpu_millis)


def packing_of(trace: Trace, node_of: list[int], node: Shape) -> Packing:
    """Of VMs on these nodes; -1 was never placed."""
    row_of = np.array(node_of, np.int64)
    placed = row_of >= 0
    columns = (np.ones(trace.vms, np.int64), trace.cpu_millis(), trace.memory_mib())
    there = [np.zeros(int(row_of.max(initial=0)) + 1, np.int64) for _ in columns]
    ended, arrives = trace.ended_by_step(), np.searchsorted(trace.arrives, np.arange(trace.steps + 1))
    nodes, overfull = [], 0
    for step in range(trace.steps):
        gone, came = np.array(ended[step], np.int64), np.arange(arrives[step], arrives[step + 1])
        gone, came = gone[placed[gone]], came[placed[came]]
        for total, column in zip(there, columns, strict=True):
            np.subtract.at(total, row_of[gone], column[gone])
            np.add.at(total, row_of[came], column[came])
        nodes.append(int(np.count_nonzero(there[0])))
        overfull += int(np.count_nonzero((there[1] > node.cpu_millis) | (there[2] > node.memory_mib)))
    return Packing(*_packed(nodes), overfull)


def lower_bound(trace: Trace, node: Shape) -> Packing:
    """Nodes that would do if VMs could be cut: all their CPU, or all their memory, over a node's."""
    nodes = np.zeros(trace.steps, np.int64)
    for column, of_node in ((trace.cpu_millis(), node.cpu_millis), (trace.memory_mib(), node.memory_mib)):
        moves = np.zeros(trace.steps + 1, np.int64)
        np.add.at(moves, trace.arrives, column)
        np.subtract.at(moves, trace.ends, column)
        nodes = np.maximum(nodes, -(-np.cumsum(moves[:-1]) // of_node))
    return Packing(*_packed(nodes.tolist()))


def _packed(nodes: list[int]) -> tuple[int, float]:
    return max(nodes), round(sum(nodes) / len(nodes), 1)
