"""A model that remembers a plane's whole history, and the check that an archive answers like it. Called by test_archive*.py."""

from __future__ import annotations

import random

from fairlead.model import codec
from fairlead.model.journal import NO_COMMAND, Entry, Header, chain_hash, encode_blob
from fairlead.store.archive import Archive, Point, Settings, Version
from fairlead.store.contract import NO_HASH, Batch, ObjectRow

SMALL = Settings(segment_bytes=1500, segment_ms=100_000, frame_bytes=400, sealed_max=2)
Effect = tuple[str, bytes | None]


def batch_of(effects: list[Effect], after: Batch | None, time_ms: int, incarnation: int = 1, entries: int = 1) -> Batch:
    first, previous = (after.last + 1, after.hash) if after else (1, NO_HASH)
    size = max(1, len(effects) // entries)
    parts = [codec.encode(Entry(NO_COMMAND, tuple(effects[at : at + size]))) for at in range(0, len(effects), size)]
    blob = encode_blob(Header(1, incarnation, 1, "leader", first, time_ms), parts)
    return Batch(first, first + len(effects) - 1, previous, chain_hash(previous, blob), blob)


class Model:
    """One line of history: every effect with its point and time, and the batches they came in."""

    def __init__(self) -> None:
        self.effects: list[tuple[Point, int, str, bytes | None]] = []
        self.batches: list[tuple[Point, int, Batch]] = []  # with the point of the batch's end
        self.time_ms = 1000

    def copy_to(self, batches: int) -> Model:
        """The line as a restore to the end of that many batches leaves it."""
        other = Model()
        other.batches = self.batches[:batches]
        end = other.batches[-1][0]
        other.effects = [effect for effect in self.effects if effect[0] <= end]
        other.time_ms = self.time_ms
        return other

    def add(self, effects: list[Effect], step_ms: int, incarnation: int = 1, entries: int = 1) -> Batch:
        self.time_ms += step_ms
        batch = batch_of(effects, self.batches[-1][2] if self.batches else None, self.time_ms, incarnation, entries)
        self.batches.append((Point(incarnation, batch.last), self.time_ms, batch))
        for position, (key, value) in enumerate(effects, batch.first):
            self.effects.append((Point(incarnation, position), self.time_ms, key, value))
        return batch

    def grow(self, draw: random.Random, batches: int, keys: int = 12, incarnation: int = 1) -> list[Batch]:
        return [
            self.add(
                [(f"kind/t/{draw.randrange(keys)}", _value(draw)) for _ in range(draw.randint(1, 7))],
                draw.choice([0, 0, 3, 40, 9000]),
                incarnation,
                draw.randint(1, 3),
            )
            for _ in range(batches)
        ]

    def state(self, point: Point) -> list[ObjectRow]:
        newest = {key: (at.position, value) for at, _, key, value in self.effects if at <= point}
        return [(key, at, value) for key, (at, value) in sorted(newest.items()) if value is not None]

    def history(self, key: str, first: Point, last: Point) -> list[Version]:
        return [Version(at, time, value) for at, time, name, value in self.effects if name == key and first <= at <= last]

    def points(self) -> list[Point]:
        return [effect[0] for effect in self.effects]


def _value(draw: random.Random) -> bytes | None:
    return None if draw.random() < 0.2 else draw.randbytes(draw.randrange(60))


def feed(archive: Archive, batches: list[Batch]) -> None:
    for batch in batches:
        assert archive.append(batch)


def check(archive: Archive, model: Model, since: int = 0) -> None:
    """Everything that can be asked from the `since`th effect on, at every position."""
    keys = [*sorted({effect[2] for effect in model.effects}), "kind/t/never"]
    points = model.points()[since:]
    for point in points:
        state = model.state(point)
        assert list(archive.state_at(point)) == state
        held = {key: (position, value) for key, position, value in state}
        assert {key: got for key in keys if (got := archive.get(key, point)) is not None} == held
        assert archive.get("kind/t/never", point) is None
    for key in keys:
        for first, last in [(points[0], points[-1]), (points[len(points) // 3], points[len(points) // 2])]:
            assert list(archive.history(key, first, last)) == model.history(key, first, last)
    for time_ms in {time for _, time, _ in model.batches if time >= model.effects[since][1]}:
        for asked in (time_ms, time_ms + 1):
            assert archive.position_at(asked) == max(end for end, time, _ in model.batches if time <= asked)
    first, last = points[0], points[-1]
    after = Point(first.incarnation, first.position - 1)
    assert list(archive.batches(after, last)) == [batch for end, _, batch in model.batches if after < end <= last]


def close_all(archive: Archive) -> None:
    archive.seal()
    while archive.close_segment():
        pass


def names(archive: Archive, suffix: str) -> list[str]:
    return sorted(path.name for path in archive.directory.glob(f"*.{suffix}"))
