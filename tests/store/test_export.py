"""Where an exported history begins: on the line that leads to the present, and with the term that was then."""

from __future__ import annotations

import random
from pathlib import Path

from fairlead.store.archive import Archive, Point
from fairlead.store.export import Plane, begin_of, read_export, write_export
from tests.store.archive_model import SMALL, Model, close_all, feed


def exported(archive: Archive, path: Path, since_ms: int) -> tuple[Point, list[tuple[str, int, bytes]], int]:
    """Where it begins, what was there, and the first position after it."""
    write_export(Plane("region", "us", 15.0, str(archive.directory)), since_ms, path, "b")
    found = read_export(path)
    rows, batches = list(found.rows), list(found.batches)
    return Point(found.about.incarnation, found.about.position), rows, batches[0].first


def test_what_a_restore_lost_is_not_what_the_rest_builds_on(tmp_path: Path) -> None:
    archive, draw = Archive(tmp_path / "history", SMALL), random.Random(3)
    lost = Model()
    feed(archive, lost.grow(draw, 20))
    end_ms = lost.time_ms
    kept = lost.copy_to(12)
    branch = kept.batches[-1][0]
    kept.time_ms = end_ms + 1000
    feed(archive, kept.grow(draw, 5, incarnation=2))
    assert archive.position_at(end_ms) == Point(1, lost.batches[-1][2].last), "of that time the lost tail is the newest"
    assert begin_of(archive, end_ms) == branch
    begin, rows, first = exported(archive, tmp_path / "file", end_ms)
    assert (begin, rows, first) == (branch, kept.state(branch), branch.position + 1)
    archive.close()


def test_a_plane_that_was_made_anew_begins_with_nothing(tmp_path: Path) -> None:
    archive, draw = Archive(tmp_path / "history", SMALL), random.Random(4)
    before, anew = Model(), Model()
    feed(archive, before.grow(draw, 20))
    archive.write_checkpoint(archive.last(), before.time_ms, before.state(archive.last()))
    anew.time_ms = before.time_ms + 1000
    feed(archive, anew.grow(draw, 5, incarnation=2))
    close_all(archive)
    archive.trim(before.time_ms, 0, 10**9)
    for since_ms in (0, before.time_ms):
        begin, rows, first = exported(archive, tmp_path / "file", since_ms)
        assert (begin.position, rows, first) == (0, [], 1)
    archive.close()


def test_the_rest_of_a_trimmed_history_does_not_say_that_it_is_all(tmp_path: Path) -> None:
    archive, model = Archive(tmp_path / "history", SMALL), Model()
    feed(archive, model.grow(random.Random(5), 20))
    mark, mark_ms = archive.last(), model.time_ms
    archive.write_checkpoint(mark, mark_ms, model.state(mark))
    feed(archive, model.grow(random.Random(6), 20))
    close_all(archive)
    archive.trim(mark_ms, 0, 10**9)
    path = tmp_path / "file"
    about = write_export(Plane("region", "us", 15.0, str(archive.directory)), 0, path, "b")
    assert (about.position, about.time_ms) == (mark.position, mark_ms)
    assert (about.epoch, about.leader_since_ms) == (1, 0), "whoever led then had led for nobody knows how long"
    archive.close()


def test_after_a_hole_everything_from_the_next_checkpoint_on_is_there(tmp_path: Path) -> None:
    """A server that was down for longer than the journal reaches back begins anew."""
    archive, model, draw = Archive(tmp_path / "history", SMALL), Model(), random.Random(7)
    feed(archive, model.grow(draw, 10))
    old_ms = model.time_ms
    model.grow(draw, 10)  # nobody has these any more
    mark = Point(1, model.batches[-1][2].last)
    archive.write_checkpoint(mark, model.time_ms, model.state(mark))
    rest = model.grow(draw, 10)
    assert archive.append(rest[0], after_gap=True)
    feed(archive, rest[1:])
    for since_ms in (0, old_ms):
        assert exported(archive, tmp_path / "file", since_ms) == (mark, model.state(mark), mark.position + 1)
    later = max(time_ms for _, time_ms, _ in model.batches if time_ms < model.time_ms)
    assert begin_of(archive, later) == archive.position_at(later)
    archive.close()


def test_an_archive_without_anything_in_it_begins_with_nothing(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "history", SMALL)
    about = write_export(Plane("region", "us", 15.0, str(archive.directory)), 0, tmp_path / "file", "b")
    assert (about.batches, about.position, about.last) == (0, 0, 0)
    archive.close()
