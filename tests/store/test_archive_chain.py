"""What the archive lets in: duplicates, gaps, broken chains, new incarnations; and the rules around checkpoints and files."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.model.journal import chain_hash
from fairlead.store.archive import (
    GENESIS,
    Archive,
    ArchiveError,
    BeyondHorizon,
    ChainBroken,
    Gap,
    NotArchived,
    Point,
    Settings,
    checkpoint_due,
)
from fairlead.store.archive.cache import Cache
from fairlead.store.archive.checkpoint import CheckpointFile, write_checkpoint
from fairlead.store.archive.files import CHECKPOINT_MAGIC, writing
from fairlead.store.archive.records import CheckpointFooter
from fairlead.store.contract import Batch, FormatTooNew
from tests.store.archive_model import SMALL, Model, batch_of, check, close_all, feed, names

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    made = Archive(tmp_path / "archive", SMALL)
    yield made
    made.close()


def test_a_duplicate_is_ignored_wherever_it_lies(archive: Archive) -> None:
    model = Model()
    batches = model.grow(random.Random(1), 40)
    feed(archive, batches)
    archive.close_segment()
    assert [archive.append(batch) for batch in batches] == [False] * 40
    assert list(archive.batches(GENESIS, archive.last())) == batches


def test_another_batch_at_an_archived_place_is_refused(archive: Archive) -> None:
    model = Model()
    batches = model.grow(random.Random(1), 40)
    feed(archive, batches)
    archive.close_segment()
    for place in (1, 20, 39):
        other = batch_of([("kind/t/x", b"other")] * (batches[place].last - batches[place].first + 1), batches[place - 1], 5)
        with pytest.raises(ChainBroken, match=f"1:{batches[place].first}"):
            archive.append(other)
    longer = batch_of([("kind/t/x", b"other")] * 20, batches[38], 5)
    with pytest.raises(ChainBroken):
        archive.append(longer)
    check(archive, model)


def test_a_gap_is_refused_and_changes_nothing(archive: Archive) -> None:
    model = Model()
    batches = model.grow(random.Random(2), 10)
    feed(archive, batches[:4])
    with pytest.raises(Gap, match=f"ends at 1:{batches[3].last}.*starts at {batches[5].first}"):
        archive.append(batches[5])
    feed(archive, batches[4:])
    check(archive, model)


def test_a_gap_accepted_for_good_is_reported_and_needs_a_checkpoint(archive: Archive) -> None:
    model = Model()
    batches = model.grow(random.Random(2), 30)
    feed(archive, batches[:10])
    assert archive.append(batches[20], after_gap=True)
    feed(archive, batches[21:])
    assert list(archive.state_at(Point(1, batches[9].last))) == model.state(Point(1, batches[9].last))
    with pytest.raises(NotArchived, match="next checkpoint"):
        list(archive.state_at(archive.last()))
    with pytest.raises(NotArchived):
        archive.batches(Point(1, batches[8].last), archive.last())
    with pytest.raises(NotArchived):
        archive.get("kind/t/1", Point(1, batches[15].last))
    assert "nothing is archived between" in archive.verify()[0].detail
    point = Point(1, batches[19].last)
    archive.write_checkpoint(point, model.time_ms, model.state(point))
    check(archive, model, since=batches[20].first - 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda batch: replace(batch, blob=batch.blob[:-1] + b"?"), "cannot be read|does not have the hash"),
        (lambda batch: replace(batch, blob=b"rubbish"), "cannot be read"),
        (lambda batch: replace(batch, hash=b"x" * 32), "does not have the hash"),
        (lambda batch: replace(batch, last=batch.first - 1), "holds"),
        (lambda batch: replace(batch, previous=b"y" * 32, hash=chain_hash(b"y" * 32, batch.blob)), "does not continue"),
    ],
)
def test_a_batch_that_contradicts_the_chain_is_refused(archive: Archive, change: object, said: str) -> None:
    model = Model()
    batches = model.grow(random.Random(3), 6)
    feed(archive, batches[:5])
    assert callable(change)
    with pytest.raises(ChainBroken, match=said):
        archive.append(change(batches[5]))
    feed(archive, batches[5:])
    check(archive, model)


def test_a_batch_may_cover_more_positions_than_it_has_effects(archive: Archive) -> None:
    first = batch_of([("kind/t/a", b"1")], None, 5)
    start = replace(batch_of([], first, 6), last=2)
    feed(archive, [first, start, third := batch_of([("kind/t/b", b"3")], start, 7)])
    close_all(archive)
    assert archive.get("kind/t/a", Point(1, 2)) == (1, b"1")
    assert list(archive.state_at(Point(1, 3))) == [("kind/t/a", 1, b"1"), ("kind/t/b", 3, b"3")]
    assert list(archive.batches(Point(1, 1), Point(1, 3))) == [start, third]
    assert archive.verify() == []


# Incarnations


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("kept", [40, 25, 1])
def test_a_restore_branches_off_and_both_lines_stay_readable(archive: Archive, kept: int, closed: bool) -> None:
    old, draw = Model(), random.Random(4)
    feed(archive, old.grow(draw, 40))
    if closed:
        close_all(archive)
    new = old.copy_to(kept)
    feed(archive, new.grow(draw, 40, incarnation=2))
    if closed:
        close_all(archive)
    assert archive.last().incarnation == 2
    for point in old.points():
        assert list(archive.state_at(point)) == old.state(point)
    for point in new.points():
        assert list(archive.state_at(point)) == new.state(point)
    assert list(archive.batches(GENESIS, archive.last())) == [batch for _, _, batch in new.batches]
    everything = Point(1, 1), archive.last()
    assert list(archive.history("kind/t/1", *everything)) == new.history("kind/t/1", *everything)
    assert archive.verify() == []
    archive.close()
    again = Archive(archive.directory, SMALL)
    assert list(again.state_at(new.points()[-1])) == new.state(new.points()[-1])
    again.close()


def test_a_chain_that_builds_on_nothing_archived_needs_the_restored_rows(archive: Archive) -> None:
    old, other, draw = Model(), Model(), random.Random(5)
    feed(archive, old.grow(draw, 20))
    other.grow(draw, 30)  # what the backup had and this archive never saw
    restored = other.batches[-1][0]
    rows = other.state(restored)
    fresh = other.grow(draw, 20, incarnation=2)
    feed(archive, fresh)
    with pytest.raises(NotArchived):
        list(archive.state_at(archive.last()))
    archive.write_checkpoint(Point(2, restored.position), other.time_ms, rows)
    for point in [point for point in other.points() if point.incarnation == 2]:
        assert list(archive.state_at(point)) == other.state(point)
    assert list(archive.state_at(Point(1, old.points()[-1].position))) == old.state(old.points()[-1])
    assert archive.verify() == []


def test_an_older_incarnation_is_not_let_back_in(archive: Archive) -> None:
    old, draw = Model(), random.Random(6)
    batches = old.grow(draw, 20)
    feed(archive, batches[:15])
    new = old.copy_to(10)
    feed(archive, new.grow(draw, 5, incarnation=2))
    assert archive.append(batches[3]) is False
    with pytest.raises(ChainBroken, match="is not archived"):
        archive.append(batches[15])


def test_time_picks_the_state_that_was_true_then_also_on_a_lost_tail(archive: Archive) -> None:
    old = Model()
    feed(archive, [old.add([("kind/t/a", b"%d" % at)], 100) for at in range(10)])  # times 1100..2000
    new = old.copy_to(5)
    feed(archive, [new.add([("kind/t/a", b"new")], 500, incarnation=2)])  # time 2500
    assert archive.position_at(1950) == Point(1, 9)
    assert archive.position_at(2499) == Point(1, 10)
    assert archive.position_at(2500) == Point(2, 6)
    with pytest.raises(BeyondHorizon):
        archive.position_at(1099)


def test_trimming_never_puts_the_horizon_on_a_lost_tail(archive: Archive) -> None:
    old, draw = Model(), random.Random(7)
    feed(archive, old.grow(draw, 40))
    archive.write_checkpoint(archive.last(), old.time_ms, old.state(archive.last()))
    new = old.copy_to(20)
    feed(archive, new.grow(draw, 20, incarnation=2))
    close_all(archive)
    assert archive.trim(10**12, 0, 0).segments == ()
    for point in new.points():
        assert list(archive.state_at(point)) == new.state(point)
    middle = new.batches[-10][0]
    archive.write_checkpoint(middle, new.time_ms, new.state(middle))
    assert archive.trim(10**12, 0, 0).segments
    check(archive, new, since=new.points().index(middle) + 1)
    assert archive.verify() == []


# Checkpoints and files


def test_a_checkpoint_is_due_by_the_hour_if_busy_and_daily_if_not() -> None:
    assert checkpoint_due(0, None, 0, 0)
    assert not checkpoint_due(HOUR_MS - 1, 0, 10**9, 1000)
    assert checkpoint_due(HOUR_MS, 0, 250, 1000)
    assert not checkpoint_due(HOUR_MS, 0, 249, 1000)
    assert not checkpoint_due(DAY_MS - 1, 0, 249, 1000)
    assert checkpoint_due(DAY_MS, 0, 0, 1000)


def test_the_archive_knows_when_its_own_checkpoint_is_due(archive: Archive) -> None:
    model = Model()
    assert archive.checkpoint_due(0)
    feed(archive, model.grow(random.Random(8), 5))
    archive.write_checkpoint(archive.last(), 1000, model.state(archive.last()))
    assert not archive.checkpoint_due(1000 + HOUR_MS)
    feed(archive, model.grow(random.Random(8), 30))
    assert archive.checkpoint_due(1000 + HOUR_MS)


def test_rows_in_any_order_are_sorted_also_through_runs_on_disk(tmp_path: Path) -> None:
    draw = random.Random(9)
    rows = [(f"kind/t/{at:04d}", at, draw.randbytes(20)) for at in range(500)]
    mixed = draw.sample(rows, len(rows))
    made = CheckpointFile(write_checkpoint(tmp_path, Point(1, 500), 1, mixed, SMALL, run_bytes=5000), Cache(10**6))
    assert list(made.all_rows()) == rows
    assert [made.get(key) for key, _, _ in rows] == [(position, value) for _, position, value in rows]
    assert [made.get(key) for key in ("", "kind/t/0000x", "zzz")] == [None] * 3
    assert [path.name for path in tmp_path.iterdir()] == [made.path.name]


def test_rows_that_cannot_be_that_points_state_are_refused(archive: Archive) -> None:
    with pytest.raises(ValueError, match="after the checkpoint"):
        archive.write_checkpoint(Point(1, 5), 1, [("kind/t/a", 6, b"")])
    with pytest.raises(ValueError, match="twice"):
        archive.write_checkpoint(Point(1, 5), 1, [("kind/t/a", 1, b""), ("kind/t/a", 2, b"")])
    assert [path.name for path in archive.directory.iterdir()] == ["lock"]


def test_an_empty_plane_has_a_checkpoint_too(archive: Archive) -> None:
    archive.write_checkpoint(Point(3, 7), 50, [])
    assert list(archive.state_at(Point(3, 7))) == []
    assert archive.position_at(50) == Point(3, 7)
    assert archive.verify() == []


def test_a_file_of_a_newer_format_is_refused_and_left_alone(archive: Archive) -> None:
    archive.close()
    path = archive.directory / "0000001-00000000000005.checkpoint"
    with writing(path) as output:
        output.write(CHECKPOINT_MAGIC)
        output.finish(CheckpointFooter(99, Point(1, 5), 1, 0, 0, (), output.sha256()), CHECKPOINT_MAGIC)
    with pytest.raises(FormatTooNew, match="format 99"):
        Archive(archive.directory, SMALL)
    assert path.exists()


def test_two_writers_never_share_a_directory_but_readers_may_look(archive: Archive) -> None:
    model = Model()
    feed(archive, model.grow(random.Random(10), 20))
    with pytest.raises(ArchiveError, match="another process"):
        Archive(archive.directory, SMALL)
    before = {path.name: path.read_bytes() for path in archive.directory.iterdir()}
    beside = Archive(archive.directory, SMALL, writable=False)
    check(beside, model)
    with pytest.raises(ArchiveError, match="reading only"):
        beside.append(model.grow(random.Random(11), 1)[0])
    beside.close()
    assert {path.name: path.read_bytes() for path in archive.directory.iterdir()} == before


def test_what_is_synced_is_told_and_survives_as_such(archive: Archive) -> None:
    model = Model()
    feed(archive, model.grow(random.Random(12), 2))
    assert archive.synced() == GENESIS
    assert archive.sync() == archive.synced() == archive.last()
    feed(archive, model.grow(random.Random(13), 30))
    assert archive.synced() < archive.last()  # Sealing synced older segments only.


def test_the_queue_of_full_segments_is_bounded_without_a_closer(archive: Archive) -> None:
    model = Model()
    feed(archive, model.grow(random.Random(14), 150))
    assert archive.waiting() <= SMALL.sealed_max + 1
    assert names(archive, "segment")
    check(archive, model, since=len(model.effects) - 20)


def test_the_cache_stays_within_its_bytes(tmp_path: Path) -> None:
    model = Model()
    archive = Archive(tmp_path, msgspec.structs.replace(SMALL, cache_bytes=6000))
    feed(archive, model.grow(random.Random(15), 100))
    close_all(archive)
    for point in model.points()[::7]:
        archive.get("kind/t/1", point)
        assert archive.cache.bytes <= 6000
    check(archive, model, since=len(model.effects) - 10)
    archive.close()


def test_readers_on_other_threads_see_a_true_past_while_it_is_written(tmp_path: Path) -> None:
    model, draw = Model(), random.Random(16)
    archive = Archive(tmp_path, Settings(segment_bytes=4000, frame_bytes=800, sealed_max=2))
    batches: list[Batch] = model.grow(draw, 200)
    feed(archive, batches[:20])
    wrong: list[object] = []
    done = threading.Event()

    def read(seed: int) -> None:
        mine = random.Random(seed)
        while not done.is_set():
            point = Point(1, mine.randint(1, archive.last().position))
            expected = {key: (position, value) for key, position, value in model.state(point)}
            key = f"kind/t/{mine.randrange(12)}"
            if archive.get(key, point) != expected.get(key):
                wrong.append((key, point))

    def close() -> None:
        while not done.is_set():
            archive.close_segment()

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(2)] + [threading.Thread(target=close)]
    for thread in threads:
        thread.start()
    try:
        feed(archive, batches[20:])
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    check(archive, model, since=len(model.effects) - 20)
    archive.close()


def test_a_deep_look_finds_a_checkpoint_that_the_journal_does_not_lead_to(archive: Archive) -> None:
    model, draw = Model(), random.Random(17)
    feed(archive, model.grow(draw, 20))
    archive.write_checkpoint(archive.last(), model.time_ms, model.state(archive.last()))
    feed(archive, model.grow(draw, 20))
    rows = model.state(archive.last())
    archive.write_checkpoint(archive.last(), model.time_ms, [*rows[:3], (rows[3][0], rows[3][1], b"bent"), *rows[4:]])
    assert archive.verify() == []
    assert [(fault.where, fault.detail.split()[0]) for fault in archive.verify(deep=True)] == [
        (names(archive, "checkpoint")[1], rows[3][0])
    ]
