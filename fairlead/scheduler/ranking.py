"""The nodes in order of preference for one shape of slot, kept from cycle to cycle.

A ranking holds one total per node: the weighted scores where the slot fits, NOWHERE where it does not. It is computed over
all nodes once; afterwards only rows that changed are computed again, all together at the start of a run of equal slots (`sync`)
and one by one as slots of the run are placed (`fix`). Where a rule about single nodes looks at all of them (spread by hostname),
all are computed again when what it sees has changed. The best row is found through the maxima of blocks of rows, so a placement
costs the same among five thousand nodes and among a hundred thousand.

Slots share a ranking when everything that decides about them is equal (see shapes.py). Called by the cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from fairlead.scheduler.fleet import Column, OneRow, Rows
from fairlead.scheduler.snapshot import Snapshot

NOWHERE: Final = -(1 << 60)  # twice this, and its negative, still fit a column's cell
_FITS_ABOVE: Final = -(1 << 59)  # a total above this is a node where the slot fits, whatever terms were added
BLOCK: Final = 256  # near the square root of a large fleet, where both levels of the search cost the same
FEW: Final = 24  # rows below which plain ints beat arrays: an array operation costs as much for one row as for hundreds
_NONE: Final[Column] = np.empty(0, np.int64)
_NO_CELLS: Final = memoryview(b"")
_FULL_SHARE: Final = 4  # with more than a quarter of the rows changed, all are computed again: one slice beats a gather


class Rater(Protocol):
    """What a shape brings: totals for many rows, for one, and (for topology) a term per group of rows."""

    few: int  # rows up to which it is asked one by one

    @property
    def around(self) -> Callable[[], Hashable] | None:
        """What each total takes from all rows together; None, as mostly: nothing."""

    def rate_rows(self, rows: Rows) -> Column: ...

    def rate_row(self, row: OneRow) -> int: ...


class Groups(Protocol):
    """For shapes with rules about domains: which rows share a domain, and what the domain adds to their totals."""

    def group_of_rows(self) -> NDArray[np.int64]:
        """A small number per row; rows of one group get the same term."""

    def terms(self) -> Column:
        """One term per group, NOWHERE where the domain is closed to the shape."""


class Ranking:
    def __init__(self, snapshot: Snapshot, rater: Rater, groups: Groups | None = None) -> None:
        self._snapshot = snapshot
        self._rater = rater
        self._groups = groups
        self._around = rater.around
        self._stood_on: Hashable = None  # what `around` said when all rows were last computed
        self._read = -1  # how far the log of changed rows was read
        self._rows = 0
        self._epoch = -1
        self._totals: Column = _NONE
        self._cells: Any = _NO_CELLS
        self._block_best: Column = _NONE
        self._best_cells: Any = _NO_CELLS
        self._group_of_block: Column = _NONE
        self._row_at: list[int] | None = None  # place in the ranking -> row; None while they are the same
        self._place_of: Column | None = None
        self._terms: Column = _NONE

    @property
    def is_made(self) -> bool:
        """Whether it was ever computed."""
        return self._epoch >= 0

    # --- bringing it up to date ------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Reads what changed since the last look. Cheap when nothing did."""
        snapshot = self._snapshot
        if self._read != snapshot.changes or self._epoch != snapshot.layout:
            self._catch_up()
        if self._groups is not None:
            self._terms = self._groups.terms()

    def _catch_up(self) -> None:
        snapshot = self._snapshot
        behind = snapshot.changes - self._read
        stale = self._read < snapshot.changed_base or self._epoch != snapshot.layout
        if stale or self._has_shifted() or behind * _FULL_SHARE > self._rows:
            self._compute_all()
        else:
            changed = dict.fromkeys(snapshot.changed[self._read - snapshot.changed_base :])
            if len(changed) <= self._rater.few:
                for row in changed:
                    self.fix(row)
            else:
                self._compute(np.array(sorted(changed), np.int64))
        self._read = snapshot.changes

    def _has_shifted(self) -> bool:
        """Whether rows that did not change are to be rated again all the same: a slot may have come to the emptiest node."""
        return self._around is not None and self._around() != self._stood_on

    def _compute_all(self) -> None:
        snapshot = self._snapshot
        if self._around is not None:
            self._stood_on = self._around()
        rows = snapshot.fleet.rows
        totals = self._rater.rate_rows(snapshot.fleet.all())
        if self._epoch != snapshot.layout or rows != self._rows:
            self._lay_out(rows)
        if self._place_of is None:
            self._totals[:rows] = totals
        else:
            self._totals[self._place_of] = totals
        np.max(self._totals.reshape(-1, BLOCK), axis=1, out=self._block_best)

    def _lay_out(self, rows: int) -> None:
        """Where each row stands. With groups a block holds rows of one group only, so that a group's term is a block's term."""
        self._rows, self._epoch = rows, self._snapshot.layout
        self._row_at = self._place_of = None
        blocks = -(-rows // BLOCK) or 1
        if self._groups is not None:
            group_of = self._groups.group_of_rows()
            counts = np.bincount(group_of, minlength=1)
            blocks_of = -(-counts // BLOCK)
            starts = np.concatenate(([0], np.cumsum(blocks_of)))[:-1] * BLOCK
            order = np.argsort(group_of, kind="stable")
            first_of = np.concatenate(([0], np.cumsum(counts)))[:-1]
            place_of = np.empty(rows, np.int64)
            place_of[order] = np.arange(rows) - first_of[group_of[order]] + starts[group_of[order]]
            blocks = int(blocks_of.sum()) or 1
            row_at = np.full(blocks * BLOCK, -1, np.int64)
            row_at[place_of] = np.arange(rows)
            self._place_of, self._row_at = place_of, row_at.tolist()
            self._group_of_block = np.repeat(np.arange(len(counts)), blocks_of)
        self._totals = np.full(blocks * BLOCK, NOWHERE, np.int64)
        self._cells = memoryview(self._totals)  # type: ignore[arg-type]
        self._block_best = np.full(blocks, NOWHERE, np.int64)
        self._best_cells = memoryview(self._block_best)  # type: ignore[arg-type]

    def _compute(self, rows: Column) -> None:
        totals = self._rater.rate_rows(self._snapshot.fleet.some(rows))
        places = rows if self._place_of is None else self._place_of[rows]
        self._totals[places] = totals
        for block in np.unique(places // BLOCK).tolist():
            self._best_cells[block] = self._block(block).max()

    def refresh(self) -> None:
        """Computes every row again: time passed, and nodes that were heard then are silent now."""
        self._compute_all()
        self._read = self._snapshot.changes

    def fix(self, row: int) -> None:
        """One row changed: compute it alone."""
        place = row if self._place_of is None else int(self._place_of[row])
        total = self._rater.rate_row(OneRow(self._snapshot.fleet, row))
        old, self._cells[place] = self._cells[place], total
        block = place // BLOCK
        best = self._best_cells[block]
        if total >= best:
            self._best_cells[block] = total
        elif old == best:
            self._best_cells[block] = self._cells[self._best_of_block(block)]

    def placed(self, row: int) -> None:
        """A slot of this very shape was assumed on `row`: nothing else changed since the last sync."""
        if self._has_shifted():
            self._compute_all()
        else:
            self.fix(row)
        self._read = self._snapshot.changes
        if self._groups is not None:
            self._terms = self._groups.terms()

    def _block(self, block: int) -> Column:
        return self._totals[block * BLOCK : (block + 1) * BLOCK]

    def _best_of_block(self, block: int) -> int:
        return block * BLOCK + int(self._block(block).argmax())

    # --- asking it -------------------------------------------------------------------------------------------------------

    def best(self) -> int:
        """The row with the highest total, the first of equals (with groups, of the first group); -1: the slot fits nowhere."""
        if self._groups is None:
            block = int(self._block_best.argmax())
            if self._best_cells[block] < _FITS_ABOVE:
                return -1
        else:
            if not self._group_of_block.size:
                return -1  # there is no node yet, so no group
            totals = self._block_best + self._terms[self._group_of_block]
            block = int(totals.argmax())
            if totals[block] < _FITS_ABOVE:
                return -1
        place = self._best_of_block(block)
        return place if self._row_at is None else self._row_at[place]

    def best_of(self, chosen: Sequence[int]) -> int:
        """The best of these rows only: for strategies that look at a sample."""
        rows = np.array(chosen, np.int64)
        places = rows if self._place_of is None else self._place_of[rows]
        totals = self._totals[places]
        if self._groups is not None:
            totals = totals + self._terms[self._group_of_block[places // BLOCK]]
        at = int(totals.argmax())
        return int(rows[at]) if totals[at] >= _FITS_ABOVE else -1

    def top(self, count: int) -> list[tuple[int, int]]:
        """(row, total) of the best few, best first; for decision records. Each is taken out for a moment to find the next."""
        found: list[tuple[int, int]] = []
        taken: list[tuple[int, int]] = []
        for _ in range(count):
            row = self.best()
            if row < 0:
                break
            place = row if self._place_of is None else int(self._place_of[row])
            total, block = self._cells[place], place // BLOCK
            term = 0 if self._groups is None else int(self._terms[self._group_of_block[block]])
            found.append((row, total + term))
            taken.append((place, total))
            self._cells[place] = NOWHERE
            self._best_cells[block] = self._cells[self._best_of_block(block)]
        for place, total in taken:
            self._cells[place] = total
            self._best_cells[place // BLOCK] = max(self._best_cells[place // BLOCK], total)
        return found

    def feasible(self) -> int:
        """On how many nodes a slot of this shape fits."""
        if self._groups is None:
            return int(np.count_nonzero(self._totals > _FITS_ABOVE))
        closed = self._terms[self._group_of_block] <= _FITS_ABOVE
        fits = (self._totals > _FITS_ABOVE).reshape(-1, BLOCK).sum(axis=1)
        return int(fits[~closed].sum())
