"""The archive against a model that remembers everything: every question at every position must get the model's answer."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.store.archive import (
    GENESIS,
    Archive,
    ArchiveCorrupt,
    BeyondHorizon,
    Horizon,
    NotArchived,
    Point,
    Settings,
)
from tests.store.archive_model import SMALL, Effect, Model, check, close_all, feed, names


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    made = Archive(tmp_path / "archive", SMALL)
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(6))
def test_every_question_at_every_position_gets_the_models_answer(archive: Archive, seed: int) -> None:
    draw, model = random.Random(seed), Model()
    for _ in range(8):
        feed(archive, model.grow(draw, 8))
        if draw.random() < 0.5:
            archive.close_segment()
        if draw.random() < 0.5:
            point = draw.choice(model.points())
            rows = model.state(point)
            draw.shuffle(rows)
            archive.write_checkpoint(point, next(time for at, time, *_ in model.effects if at == point), rows)
    assert len(names(archive, "segment")) >= 2
    check(archive, model)
    close_all(archive)
    check(archive, model)
    assert archive.verify() == []
    archive.close()
    again = Archive(archive.directory, SMALL)
    check(again, model)
    again.close()


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(
                st.tuples(st.sampled_from(["a", "é", "e\u0301", "🚢/x", ""]), st.none() | st.binary(max_size=40)), min_size=1
            ),
            st.integers(0, 60_000),
            st.sampled_from(["", "seal", "close", "checkpoint", "reopen"]),
        ),
        min_size=1,
        max_size=25,
    )
)
def test_any_mix_of_odd_keys_seals_checkpoints_and_restarts_reads_back(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[list[Effect], int, str]]
) -> None:
    archive, model = Archive(tmp_path_factory.mktemp("archive"), SMALL), Model()
    for effects, step_ms, move in steps:
        feed(archive, [model.add(effects, step_ms)])
        if move == "seal":
            archive.seal()
        elif move == "close":
            close_all(archive)
        elif move == "checkpoint":
            archive.write_checkpoint(archive.last(), model.time_ms, model.state(archive.last()))
        elif move == "reopen":
            archive.close()
            archive = Archive(archive.directory, SMALL)
    check(archive, model)
    assert archive.verify() == []
    archive.close()


def test_a_crash_at_any_byte_of_the_open_segment_loses_only_the_torn_tail(tmp_path: Path) -> None:
    model, draw = Model(), random.Random(3)
    batches = model.grow(draw, 12)
    roomy = Settings(segment_ms=10**9)
    archive = Archive(tmp_path / "whole", roomy)
    ends = []
    for batch in batches:
        archive.append(batch)
        archive.sync()
        ends.append(archive.size_bytes())
    archive.close()
    name = names(archive, "open")[0]
    data = (archive.directory / name).read_bytes()
    assert len(data) == ends[-1]
    borders = {end + shift for end in ends for shift in (-1, 0, 1, 5, 63, 64, 65)}
    for cut in sorted({*range(0, len(data), 37), *range(70), *borders} & set(range(len(data) + 1))):
        for tail in (b"", b"\0" * 200):
            torn = tmp_path / f"cut-{cut}-{len(tail)}"
            torn.mkdir()
            (torn / name).write_bytes(data[:cut] + tail)
            survivor = Archive(torn, roomy)
            kept = sum(end <= cut for end in ends)
            assert survivor.last() == (Point(1, batches[kept - 1].last) if kept else GENESIS)
            feed(survivor, batches[kept:])
            assert list(survivor.batches(GENESIS, survivor.last())) == batches
            assert survivor.verify() == []
            survivor.close()


def test_an_append_that_fails_half_way_leaves_no_trace(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    batches = model.grow(random.Random(1), 3)

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    whole = os.writev
    for batch in batches:
        with monkeypatch.context() as patch:
            patch.setattr(os, "writev", lambda fd, parts: whole(fd, [b"".join(parts)[:7]]))
            patch.setattr(os, "write", full)
            with pytest.raises(OSError, match="No space"):
                archive.append(batch)
        assert archive.append(batch)
    check(archive, model)
    archive.close()
    again = Archive(archive.directory, SMALL)
    check(again, model)
    assert again.verify() == []
    again.close()


def test_a_crash_between_rename_and_removal_keeps_one_copy(archive: Archive) -> None:
    model = Model()
    feed(archive, model.grow(random.Random(4), 5))
    archive.seal()
    opened = archive.directory / names(archive, "open")[0]
    data = opened.read_bytes()
    archive.close_segment()
    archive.close()
    opened.write_bytes(data)
    (archive.directory / "0000001-00000000000001.segment.tmp").write_bytes(b"half")
    again = Archive(archive.directory, SMALL)
    assert not opened.exists()
    assert names(again, "tmp") == []
    check(again, model)
    again.close()


def test_a_flipped_byte_anywhere_in_a_closed_file_is_found_and_named(archive: Archive) -> None:
    model = Model()
    feed(archive, model.grow(random.Random(5), 40))
    archive.write_checkpoint(archive.last(), model.time_ms, model.state(archive.last()))
    close_all(archive)
    files = sorted([*archive.directory.glob("*.segment"), *archive.directory.glob("*.checkpoint")])
    assert len(files) >= 4
    for path in (files[1], files[-1], next(archive.directory.glob("*.checkpoint"))):
        good = path.read_bytes()
        for at in {*range(0, len(good), 19), *range(len(good) - 16, len(good))}:
            path.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
            named = {fault.where for fault in archive.verify()}
            assert path.name in named, f"byte {at} of {path.name}"
            fresh = Archive(archive.directory, SMALL, writable=False)
            assert path.name in {fault.where for fault in fresh.verify()}, f"byte {at} of {path.name}, opened afresh"
        path.write_bytes(good)
    assert archive.verify() == []


def test_history_on_either_side_of_a_damaged_segment_stays_readable(archive: Archive) -> None:
    model = Model()
    feed(archive, model.grow(random.Random(6), 60))
    close_all(archive)
    archive.close()
    second = archive.directory / names(archive, "segment")[1]
    third_first = int(names(archive, "segment")[2].split("-")[1].split(".")[0])
    second.write_bytes(second.read_bytes()[:-1] + b"?")
    again = Archive(archive.directory, SMALL)
    assert list(again.state_at(Point(1, 3))) == model.state(Point(1, 3))
    late = Point(1, third_first)
    assert list(again.history("kind/t/1", late, again.last())) == model.history("kind/t/1", late, again.last())
    with pytest.raises(ArchiveCorrupt, match=second.name):
        list(again.state_at(again.last()))
    assert second.name in {fault.where for fault in again.verify()}
    again.close()


def test_a_missing_segment_is_reported_as_a_gap_with_its_ends(archive: Archive) -> None:
    model = Model()
    feed(archive, model.grow(random.Random(6), 60))
    close_all(archive)
    gone, after = names(archive, "segment")[1:3]
    (archive.directory / gone).unlink()
    assert (gone, "is gone from the directory") in {(fault.where, fault.detail) for fault in archive.verify()}
    archive.close()
    again = Archive(archive.directory, SMALL)
    assert [fault.where for fault in again.verify()] == [after]
    assert "nothing is archived between 1:" in again.verify()[0].detail
    with pytest.raises(NotArchived):
        again.get("kind/t/never", again.last())
    again.close()


@pytest.mark.parametrize("by", ["age", "size"])
def test_trimming_keeps_everything_from_the_new_horizon_on_readable(archive: Archive, by: str) -> None:
    model, draw = Model(), random.Random(7)
    marks = []
    for _ in range(6):
        feed(archive, model.grow(draw, 15))
        archive.write_checkpoint(archive.last(), model.time_ms, model.state(archive.last()))
        marks.append((archive.last(), model.time_ms))
    close_all(archive)
    before = archive.size_bytes()
    if by == "age":
        done = archive.trim(marks[3][1] + 500, 500, 10**9)
        assert archive.horizon() == Horizon(*marks[3])
    else:
        done = archive.trim(model.time_ms, 10**9, before // 2)
        assert archive.size_bytes() <= before // 2
    horizon = archive.horizon()
    assert horizon is not None
    assert done.segments
    assert done.checkpoints
    assert done.bytes == before - archive.size_bytes() == before - sum(p.stat().st_size for p in archive.directory.glob("0*"))
    assert list(archive.state_at(horizon.point)) == model.state(horizon.point)
    check(archive, model, since=model.points().index(horizon.point) + 1)
    for call in (lambda p: archive.get("kind/t/never", p), lambda p: archive.history("k", p, archive.last())):
        with pytest.raises(BeyondHorizon, match=str(horizon.point)):
            call(Point(1, 1))
    with pytest.raises(BeyondHorizon, match=str(horizon.point)):
        archive.position_at(0)
    assert archive.verify() == []
    archive.close()
    again = Archive(archive.directory, SMALL)
    check(again, model, since=model.points().index(horizon.point) + 1)
    again.close()


def test_without_a_newer_checkpoint_nothing_goes_and_the_excess_is_told(archive: Archive) -> None:
    model = Model()
    feed(archive, model.grow(random.Random(8), 40))
    close_all(archive)
    done = archive.trim(10**12, 0, 1000)
    assert (done.segments, done.checkpoints, done.bytes) == ((), (), 0)
    assert done.over_bytes == archive.size_bytes() - 1000
    check(archive, model)


def test_a_checkpoint_shortens_the_walk(archive: Archive) -> None:
    model = Model()
    feed(archive, [model.add([("kind/t/old", b"first")], 1)])
    feed(archive, model.grow(random.Random(9), 80))
    close_all(archive)

    def misses() -> int:
        fresh = Archive(archive.directory, SMALL, writable=False)
        assert fresh.get("kind/t/old", archive.last()) == (1, b"first")
        return fresh.cache.misses

    without = misses()
    archive.write_checkpoint(
        Point(1, archive.last().position - 3), model.time_ms, model.state(Point(1, archive.last().position - 3))
    )
    assert misses() < without / 2
    check(archive, model)
