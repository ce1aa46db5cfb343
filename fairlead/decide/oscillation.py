"""Two writers that undo each other, noticed from one side: the same is written again and again, and each time it took effect.

A write takes effect only where something else stood there, so whoever writes the same value to the same object many times within
a minute is being contradicted. Owns the memory and how long to hold back; names both as far as the object tells. Pure: the time
comes in. Called by the runtime of controllers with everything they wrote.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from fairlead.model.meta import Metadata

WINDOW_MS: Final = 60_000
TIMES: Final = 4  # within the window, before it is called a fight: three may be a person who changes their mind
DAMP_FIRST_MS: Final = 5_000
DAMP_MAX_MS: Final = 300_000
OBJECTS_MAX: Final = 10_000

Key = tuple[str, str, str]  # kind, tenant, name


class Fight(NamedTuple):
    object: Key
    writers: tuple[str, str]  # who noticed, and who else wrote
    until_ms: int  # it holds back until then

    @property
    def words(self) -> str:
        kind, tenant, name = self.object
        where = f"{tenant}/{name}" if tenant else name
        return f"{self.writers[0]} and {self.writers[1]} write {kind} {where} back and forth"


class _Written(NamedTuple):
    value: int
    times_ms: tuple[int, ...]
    fights: int


class Oscillation:
    def __init__(self, writer: str) -> None:
        self._writer = writer
        self._seen: OrderedDict[tuple[Key, str], dict[int, _Written]] = OrderedDict()
        self._damped: dict[tuple[str, str], int] = {}  # the controller's own key -> when it may look again
        self.total = 0

    def wrote(self, key: tuple[str, str], written: Key, value: int, metadata: Metadata | None, now_ms: int) -> Fight | None:
        """Something took effect. `value` stands for what was written; `metadata` is that of the object as it was seen last."""
        # By its uid too: what somebody deletes and makes again under the same name is another object, and nobody's fight.
        life = (written, metadata.uid if metadata is not None else "")
        values = self._seen.setdefault(life, {})
        self._seen.move_to_end(life)
        while len(self._seen) > OBJECTS_MAX:
            self._seen.popitem(last=False)
        before = values.get(value, _Written(value, (), 0))
        times = (*(ms for ms in before.times_ms if ms > now_ms - WINDOW_MS), now_ms)
        if len(times) < TIMES:
            fights = before.fights if len(times) > 1 else 0
            values[value] = _Written(value, times, fights)
            for old in [each for each, w in values.items() if w.times_ms[-1] <= now_ms - DAMP_MAX_MS - WINDOW_MS]:
                del values[old]
            return None
        self.total += 1
        until_ms = now_ms + min(DAMP_MAX_MS, DAMP_FIRST_MS << min(before.fights, 10))
        values[value] = _Written(value, times[-1:], before.fights + 1)
        self._damped[key] = until_ms
        return Fight(written, (self._writer, other_writer(metadata, self._writer)), until_ms)

    def damped_until_ms(self, key: tuple[str, str], now_ms: int) -> int:
        """0: the key may be looked at."""
        until_ms = self._damped.get(key, 0)
        if until_ms <= now_ms:
            self._damped.pop(key, None)
            return 0
        return until_ms


def other_writer(metadata: Metadata | None, writer: str) -> str:
    """Who else has a hand in it, as the object's managers tell."""
    others = [entry.manager for entry in metadata.managed_fields if entry.manager != writer] if metadata is not None else []
    return others[-1] if others else "somebody else"
