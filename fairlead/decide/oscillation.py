"""Two writers that undo each other, noticed from one side: the same is written again and again, and each time it took effect.

A write takes effect only where something else stood there, so whoever writes to an object what it wrote there last is being
contradicted; many times within a minute is a fight. What goes back and forth because the world does is none: one writer says
both in turn. Of a status the times in it are not compared. Owns the memory and how long to hold back; names both as far as the
object tells, or who else may write there: no change says who made it. Pure: the time comes in. Called by the runtime of
controllers with everything they wrote.

What is made and removed under one name again and again, and steps of slots, are not looked at. Slots that are moved to and fro
between regions are to_and_fro.py's to notice, and counted here; within a region what bounds that are the movers' own rules
(docs/scheduling.md, Moves that make room).
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from typing import Any, Final, NamedTuple

from fairlead.decide.slots import millis
from fairlead.decide.to_and_fro import ToAndFro
from fairlead.model.controllers import CONTROLLERS
from fairlead.model.kinds.work import Assignment
from fairlead.model.meta import Metadata

WINDOW_MS: Final = 60_000
TIMES: Final = 4  # within the window, before it is called a fight: three may be a person who changes their mind
DAMP_FIRST_MS: Final = 5_000
DAMP_MAX_MS: Final = 300_000
OBJECTS_MAX: Final = 10_000

Key = tuple[str, str, str]  # kind, tenant, name
Waits = tuple[str, str] | Key  # a key of the controller's own; or the object, where that key stands for many, or for none


class Fight(NamedTuple):
    object: Key
    writers: tuple[str, str]  # who noticed, and who else wrote
    until_ms: int  # it holds back until then
    moves: bool = False  # they write nothing of each other's: they move slots of the object between regions

    @property
    def words(self) -> str:
        kind, tenant, name = self.object
        where = f"{tenant}/{name}" if tenant else name
        if self.moves:
            return f"{self.writers[0]} and {self.writers[1]} move slots of {kind} {where} to and fro between regions"
        return f"{self.writers[0]} and {self.writers[1]} write {kind} {where} back and forth"


class _Written(NamedTuple):
    times_ms: tuple[int, ...]
    fights: int


class Oscillation:
    def __init__(self, writer: str) -> None:
        self._writer = writer
        # What it wrote there, the last of it at the end.
        self._seen: OrderedDict[tuple[Key, str, str], dict[int, _Written]] = OrderedDict()
        self._said: OrderedDict[Key, Any] = OrderedDict()  # the status it wrote last
        self._damped: dict[Waits, int] = {}  # -> when it may look, or write, again
        self._moves = ToAndFro()
        self.total = 0

    def moved(self, assignment: Assignment, now_ms: int) -> Fight | None:
        """An Assignment took effect. Only who carries out what all movers decide sees all regions: mirrors copy one of them."""
        spec = assignment.spec
        held = self._moves.assigned(spec, now_ms) if self._writer == "workload" else None
        if held is None:
            return None
        self.total += 1
        return Fight(("Workload", assignment.metadata.namespace, spec.workload), held.movers, held.until_ms, moves=True)

    def repeats(self, written: Key, status: Any) -> bool:
        """A status took effect. True: it is what was written there before, so somebody else has written in between."""
        last = self._said.get(written)
        self._said[written] = status
        self._said.move_to_end(written)
        if len(self._said) > OBJECTS_MAX:
            self._said.popitem(last=False)
        return last is not None and same_but_for_times(last, status)

    def wrote(
        self, waits: Waits, written: Key, value: int, metadata: Metadata | None, now_ms: int, part: str = "spec"
    ) -> Fight | None:
        """Something took effect. `value` stands for what was written; `metadata` is that of the object as it was seen last;
        `waits` is held back where this is a fight."""
        # By its uid too: what somebody deletes and makes again under the same name is another object, and nobody's fight.
        life = (written, metadata.uid if metadata is not None else "", part)
        values = self._seen.setdefault(life, {})
        self._seen.move_to_end(life)
        while len(self._seen) > OBJECTS_MAX:
            self._seen.popitem(last=False)
        again = next(reversed(values), None) == value  # else it is this writer who changes it
        before = values.pop(value, _Written((), 0))
        times = tuple(ms for ms in before.times_ms if ms > now_ms - WINDOW_MS)
        times = (*times, now_ms) if again or not times else times
        if len(times) < TIMES:
            # Whoever was held back for longer than the window has not made peace meanwhile.
            fights = (
                before.fights if before.times_ms and now_ms - before.times_ms[-1] <= WINDOW_MS + _held_ms(before.fights) else 0
            )
            values[value] = _Written(times, fights)
            for old in [each for each, w in values.items() if w.times_ms[-1] <= now_ms - DAMP_MAX_MS - WINDOW_MS]:
                del values[old]
            return None
        self.total += 1
        until_ms = now_ms + _held_ms(before.fights + 1)
        values[value] = _Written(times[-1:], before.fights + 1)
        self._damped = {each: ms for each, ms in self._damped.items() if ms > now_ms} | {waits: until_ms}
        return Fight(written, (self._writer, other_writer(metadata, self._writer, f"{written[0]}.{part}")), until_ms)

    def damped_until_ms(self, waits: Waits, now_ms: int) -> int:
        """0: it may be looked at, or written."""
        until_ms = self._damped.get(waits, 0)
        if until_ms <= now_ms:
            self._damped.pop(waits, None)
            return 0
        return until_ms


def _held_ms(fights: int) -> int:
    """For how long it is held back by the last of so many."""
    return min(DAMP_MAX_MS, DAMP_FIRST_MS << min(fights - 1, 10)) if fights else 0


def same_but_for_times(one: Any, other: Any) -> bool:
    """Two statuses of one kind, without the times in them and in their conditions."""
    if one is other or one == other:
        return True
    if type(one) is not type(other):
        return False
    return all(_same(name, getattr(one, name), getattr(other, name)) for name in one.__struct_fields__)


def _same(name: str, one: Any, other: Any) -> bool:
    if name == "conditions":
        first, second = ([(c.type, c.status, c.reason, c.message) for c in each] for each in (one, other))
        return first == second
    return bool(one == other) or (isinstance(one, datetime | None) and isinstance(other, datetime | None))


def other_writer(metadata: Metadata | None, writer: str, part: str = "") -> str:
    """Who else has a hand in it, as the object's managers tell. Objects of machines have none: then whoever declares to write
    that part of the kind in the same plane."""
    others = [entry for entry in metadata.managed_fields if entry.manager != writer] if metadata is not None else []
    if others:
        return max(reversed(others), key=lambda entry: millis(entry.time)).manager  # who did last
    plane = CONTROLLERS[writer].plane if writer in CONTROLLERS else ""
    may = sorted(name for name, info in CONTROLLERS.items() if name != writer and info.plane == plane and part in info.writes)
    return f"somebody else ({' or '.join(may)} may)" if may else "somebody else"
