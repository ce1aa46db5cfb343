"""The decision log against a list that remembers everything, on good disks and bad ones."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.client.decisions import DecisionQuery, DecisionSink, DecisionSource
from fairlead.model import codec
from fairlead.model.decision import DecisionRecord
from fairlead.store.decisions import DecisionLog, DecisionLogError, Settings, keys
from fairlead.store.decisions.loading import file_name
from fairlead.store.decisions.open_segment import OpenSegment
from fairlead.store.decisions.records import HEAD, OPEN_MAGIC, Row
from fairlead.store.decisions.segment import ClosedSegment, write_segment
from tests.store.decisions_model import FULL_DISK, RECORDS, SMALL, Disk, Model, ask, attempt, files, lone, queries, record

ALL = DecisionQuery(limit=1_000)
NO_SHRINK = [phase for phase in Phase if phase is not Phase.shrink]  # Each example is a few restarts; shrinking takes minutes.


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DecisionLog]:
    made = DecisionLog(tmp_path / "log", SMALL)
    yield made
    made.close()


def times(log: DecisionLog, query: DecisionQuery = ALL) -> list[int]:
    return [time_ms for _, time_ms, _ in ask(log, query)[0]]


# --- against the model ---------------------------------------------------------------------------------------------------


@settings(max_examples=120, deadline=None, phases=NO_SHRINK)
@given(
    st.lists(st.tuples(st.lists(RECORDS, max_size=6), st.sampled_from(["", "", "flush", "reopen", "crash"])), max_size=14),
    st.lists(queries(), min_size=1, max_size=6),
    st.sampled_from([1, 3, 2_000]),
)
def test_any_mix_of_appends_flushes_restarts_and_crashes_answers_as_the_model_does(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[list[DecisionRecord], str]],
    asked: list[DecisionQuery],
    scan_frames_max: int,
) -> None:
    small = replace(SMALL, scan_frames_max=scan_frames_max)
    log, model = DecisionLog(tmp_path_factory.mktemp("decisions"), small), Model()
    flushed = 0
    for made, move in steps:
        log.append([model.place(one) for one in made])
        if move == "crash":
            before, copy = log, tmp_path_factory.mktemp("crashed")
            shutil.copytree(before.directory, copy, dirs_exist_ok=True)
            log = DecisionLog(copy, small)
            before.close()
            del model.records[flushed:]
        elif move == "reopen":
            log.close()
            log = DecisionLog(log.directory, small)
        elif move == "flush":
            assert log.flush()
        if move in ("flush", "reopen"):
            flushed = len(model.records)
    by_id = [DecisionQuery(id=one.id, limit=2) for one in model.records[-1:]]
    for query in [*asked, *by_id, replace(ALL, limit=3)]:
        assert ask(log, query) == (model.ask(query), ())
    log.close()


@given(st.lists(st.integers(0, 900), min_size=1, max_size=12), st.data())
@settings(max_examples=30, deadline=None)
def test_the_index_finds_every_frame_of_a_key_and_hardly_any_other(sizes: list[int], data: st.DataObject) -> None:
    draw = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    frames = [np.unique(draw.integers(0, 1 << 32, size, dtype=np.uint32)) for size in sizes]
    frames[0] = np.unique(np.append(frames[0], np.array([0, (1 << 32) - 1], np.uint32)))
    bits, words, starts = keys.build_index(frames)

    def look_up(hashed: int) -> list[int]:
        number = keys.bucket_of(hashed, bits)
        return keys.frames_in(words[starts[number] : starts[number + 1]], hashed, bits)

    for number, frame in enumerate(frames):
        assert all(number in look_up(hashed) for hashed in frame.tolist())
        assert all(keys.holds(frame, [hashed, hashed]) for hashed in frame.tolist()[:9])
    strange = [hashed for hashed in draw.integers(0, 1 << 32, 300).tolist() if not any(hashed in frame for frame in frames)]
    assert sum(map(len, map(look_up, strange))) <= 0.05 * len(strange)
    assert not any(keys.holds(frame, [hashed]) for hashed in strange for frame in frames)


# --- queries ------------------------------------------------------------------------------------------------------------


def test_a_query_for_one_slot_reads_only_the_frames_that_have_it(log: DecisionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append([lone(number, "rare-0" if number in (20, 90) else "") for number in range(400)])
    log.flush()
    read: list[str] = []
    load = ClosedSegment._load_rows

    def counted(segment: ClosedSegment, number: int) -> tuple[list[Row], int]:
        read.append(segment.path.name)
        return load(segment, number)

    monkeypatch.setattr(ClosedSegment, "_load_rows", counted)
    assert times(log, DecisionQuery(tenant="t", slot="rare-0")) == [1_900, 1_200]
    assert len(files(log.directory, "segment")) > 15
    assert len(read) == 2
    assert times(log, DecisionQuery(since_ms=1_200, until_ms=1_210)) == [1_200]
    assert len(read) <= 4


def test_each_kind_of_key_is_found_through_the_index_of_a_closed_segment(tmp_path: Path) -> None:
    odd = record(
        1_305, [attempt("one-w-7", "one-n", tenant="one-t", generation=9, reason="OneReason"), attempt("w-0")], ["OneOutcome"]
    )
    log = DecisionLog(tmp_path, SMALL)
    log.append([*(lone(number) for number in range(30)), odd, *(lone(number) for number in range(30, 90))])
    log.close()
    log = DecisionLog(tmp_path, SMALL)
    for query in (
        DecisionQuery(tenant="one-t"),
        DecisionQuery(tenant="one-t", slot="one-w-7"),
        DecisionQuery(tenant="one-t", slot="one-w-7", generation=9),
        DecisionQuery(tenant="one-t", workload="one-w"),
        DecisionQuery(tenant="one-t", workload="one-w", generation=9),
        DecisionQuery(node="one-n"),
        DecisionQuery(outcome="OneReason"),
        DecisionQuery(outcome="OneOutcome"),
        DecisionQuery(id=odd.id, node="one-n", outcome="OneReason"),
    ):
        assert [(hit.record, hit.number) for hit in log.search(query).items] == [(odd, 0)]
    assert [hit.number for hit in log.search(DecisionQuery(id=odd.id)).items] == [1, 0]
    log.close()


def test_the_newest_closed_segment_is_answered_from_memory(log: DecisionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append([lone(number) for number in range(60)])
    log.flush()
    assert len(files(log.directory, "segment")) >= 2

    def no_disk(*_: object) -> None:
        raise AssertionError("read a file")

    monkeypatch.setattr("fairlead.store.decisions.segment.read_at", no_disk)
    newest = int(files(log.directory, "segment")[-1].stem)
    looked: list[int] = []
    rows = OpenSegment.rows

    def counted(segment: OpenSegment, number: int) -> list[Row]:
        looked.append(number)
        return rows(segment, number)

    monkeypatch.setattr(OpenSegment, "rows", counted)
    page = log.search(DecisionQuery(tenant="t", slot=f"w-{newest - 1}", limit=1))
    assert [hit.record for hit in page.items] == [lone(newest - 1)]
    assert len(looked) <= 3  # its frame, and the last one of each segment, which may not be indexed yet


def test_a_continuation_goes_on_where_it_was_whatever_is_appended_trimmed_or_restarted(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, SMALL)
    log.append([lone(number) for number in range(30)])
    page = log.search(DecisionQuery(limit=10))
    assert [hit.record.decided.time_ms for hit in page.items] == [1_000 + 10 * number for number in range(29, 19, -1)]
    log.append([lone(number) for number in range(30, 90)])
    log.close()
    log = DecisionLog(tmp_path, SMALL)
    log.append([lone(90)])
    page = log.search(DecisionQuery(limit=5, after=page.next))
    assert [hit.record.decided.time_ms for hit in page.items] == [1_000 + 10 * number for number in range(19, 14, -1)]
    assert page.horizon_ms == 1_000
    log.close()


def test_the_loop_asks_through_the_two_small_interfaces(log: DecisionLog) -> None:
    sink: DecisionSink = log
    source: DecisionSource = log
    made = record(7, [attempt("w-0", "n"), attempt("w-1", reason="WaitingForQuota")], ["Bound"])
    sink.append([made])
    page = asyncio.run(source.query(DecisionQuery(tenant="t", workload="w")))
    assert [(hit.record, hit.attempt.name, hit.result.outcome) for hit in page.items] == [
        (made, "w-1", ""),
        (made, "w-0", "Bound"),
    ]
    assert (page.next, page.damaged, page.horizon_ms) == ("", (), 7)


@pytest.mark.parametrize(
    "wrong",
    [{"slot": "w-0"}, {"workload": "w"}, {"generation": 1}, {"limit": 0}, {"limit": 10_001}]
    + [{"after": after} for after in ("x", "1", "1.", ".1", "-1.0", "1.2.3", "\u0663.\u0661")],
)
def test_a_query_that_cannot_be_meant_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"tenant|name the workload|limit|does not continue"):
        DecisionQuery(**wrong)  # type: ignore[arg-type]


# --- retention ----------------------------------------------------------------------------------------------------------


def test_whole_segments_go_when_they_are_too_old(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, replace(SMALL, max_age_ms=500))
    log.append([lone(number) for number in range(300)])
    log.flush()
    kept, newest = times(log), 1_000 + 10 * 299
    horizon = log.horizon()
    assert kept == list(range(newest, min(kept) - 10, -10))
    assert newest - 1_000 <= min(kept) <= newest - 500  # all of the last 500 ms, and no more than two segments beyond
    assert (horizon.oldest_ms, horizon.newest_ms, horizon.attempts) == (min(kept), newest, len(kept))
    assert horizon.bytes == sum(path.stat().st_size for path in tmp_path.iterdir()) == log.meters.decision_log_bytes
    log.close()


def test_the_oldest_segments_go_when_there_is_too_much_and_a_smaller_bound_holds_after_a_restart(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, SMALL)
    log.append([lone(number) for number in range(300)])
    log.close()
    whole = log.meters.decision_log_bytes
    log = DecisionLog(tmp_path, replace(SMALL, max_bytes=whole // 2))
    kept = times(log)
    assert kept == list(range(3_990, min(kept) - 10, -10))
    assert whole // 2 - 1_500 < log.meters.decision_log_bytes <= whole // 2
    assert log.search(ALL).horizon_ms == min(kept) > 1_000
    log.close()


def test_a_damaged_segment_goes_with_the_older_ones_around_it(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, SMALL)
    log.append([lone(number) for number in range(100)])
    log.close()
    second = files(tmp_path, "segment")[1]
    second.write_bytes(b"not a segment")
    log = DecisionLog(tmp_path, replace(SMALL, max_age_ms=500))
    assert not second.exists()
    assert log.horizon().damaged == ()
    log.close()


# --- restarts, crashes, damage ------------------------------------------------------------------------------------------


def test_a_crash_at_any_byte_of_the_open_segment_loses_only_the_torn_tail(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "whole", replace(SMALL, segment_ms=10**9, segment_bytes=10**9))
    ends = []
    for number in range(6):
        log.append([lone(number)])
        log.flush()
        ends.append(log.meters.decision_log_bytes)
    log.close()
    [whole] = files(log.directory, "open")
    data = whole.read_bytes()
    assert len(data) == ends[-1]
    for cut in range(len(data) + 1):
        for tail in (b"", b"\xff" * 100) if cut >= 8 else (b"",):
            torn = tmp_path / f"{cut}-{len(tail)}"
            torn.mkdir()
            (torn / whole.name).write_bytes(data[:cut] + tail)
            again = DecisionLog(torn, SMALL)
            held = sum(end <= cut for end in ends)
            again.append([lone(7)])
            assert ask(again, ALL) == ([seen_of(7), *map(seen_of, reversed(range(held)))], ())
            again.close()
            assert (torn / whole.name).stat().st_size == (ends[held - 1] if held else 8) + ends[0] - 8


def seen_of(number: int) -> tuple[str, int, int]:
    made = lone(number)
    return made.id, made.decided.time_ms, 0


def test_any_damaged_byte_of_a_segment_costs_at_most_that_segment_and_is_said(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "whole", SMALL)
    log.append([lone(number) for number in range(45)])
    log.close()
    bad = files(log.directory, "segment")[1]
    first, after = int(bad.stem) - 1, int(files(log.directory, "segment")[2].stem) - 1
    data = bad.read_bytes()
    for at in range(len(data)):
        bad.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        again = DecisionLog(log.directory, SMALL)
        for query in (
            ALL,
            DecisionQuery(tenant="t", slot=f"w-{first + 1}"),
            DecisionQuery(tenant="t", workload="w", limit=1_000),
        ):
            expected = [seen_of(number) for number in reversed(range(45)) if not query.slot or number == first + 1]
            found, damaged = ask(again, query)
            lost = [one for one in expected if one not in found]
            assert [one for one in expected if one in found] == found
            assert set(lost) <= {seen_of(number) for number in range(first, after)}
            assert damaged or not lost
            assert all(words.startswith(bad.name) for words in damaged)
        again.close()
    bad.write_bytes(data)
    again = DecisionLog(log.directory, SMALL)
    assert ask(again, ALL) == ([seen_of(number) for number in reversed(range(45))], ())
    again.close()


def test_a_file_that_never_was_a_segment_is_reported_and_kept_and_strangers_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "0000000000000007.open").write_bytes(b"something else")
    (tmp_path / "0000000000000009.segment.tmp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    log = DecisionLog(tmp_path, SMALL)
    log.append([lone(1)])
    assert times(log) == [1_010]
    assert [words.split(":")[0] for words in log.search(ALL).damaged] == ["0000000000000007.open"]
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir())[0] == "0000000000000007.open"
    assert (tmp_path / "notes.txt").exists()
    assert not list(tmp_path.glob("*.tmp"))


def test_a_process_that_died_while_closing_a_segment_leaves_each_record_once(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, replace(SMALL, segment_ms=10**9, segment_bytes=10**9))
    log.append([lone(number) for number in range(9)])
    log.close()
    [opened] = files(tmp_path, "open")
    log = DecisionLog(tmp_path / "other", SMALL)
    log.append([lone(number) for number in range(40)])
    log.close()
    shutil.copy(files(log.directory, "segment")[0], tmp_path / f"{opened.stem}.segment")
    first = int(files(log.directory, "segment")[1].stem) - 1
    again = DecisionLog(tmp_path, SMALL)
    assert times(again) == [1_000 + 10 * number for number in reversed(range(first))]
    assert not opened.exists()
    again.close()


def test_two_processes_cannot_write_one_folder(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, SMALL)
    with pytest.raises(DecisionLogError, match="written by another process; give each scheduler a decision log of its own"):
        DecisionLog(tmp_path, SMALL)
    log.append([lone(1)])
    log.close()
    log.close()  # Twice is once.
    DecisionLog(tmp_path, SMALL).close()


# --- disks that refuse --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [0, 4, 8, 300, 1_000])
def test_a_full_disk_drops_the_oldest_unwritten_counts_them_and_never_fails_an_append(
    tmp_path: Path, budget: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk, size = Disk(budget), len(codec.encode(lone(10)))
    small = replace(SMALL, queue_bytes=10 * size, segment_ms=10**9, segment_bytes=10**9)
    log = DecisionLog(tmp_path, small, write=disk.write)
    with caplog.at_level(logging.WARNING):
        for number in range(10, 60):
            log.append([lone(number)])
            log.flush()
    assert len([line for line in caplog.messages if "cannot be written" in line]) == 1
    dropped = log.meters.decisions_dropped_total
    assert log.meters.decisions_total == 50
    assert 20 < dropped <= 40
    assert log.meters.decision_write_errors_total > 0
    held = [*range(10, 60 - 10 - dropped), *range(50, 60)]  # what went to the disk while there was room, and the queue
    assert times(log) == [1_000 + 10 * number for number in reversed(held)]
    disk.budget = 1 << 30
    assert log.flush()
    log.close()
    again = DecisionLog(tmp_path, small)
    assert times(again) == [1_000 + 10 * number for number in reversed(held)]
    assert log.meters.decisions_dropped_total == dropped
    again.close()


def test_a_segment_that_cannot_be_closed_waits_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise FULL_DISK

    monkeypatch.setattr("fairlead.store.decisions.log.write_segment", refuse)
    log = DecisionLog(tmp_path, SMALL)
    log.append([lone(number) for number in range(60)])
    assert not log.flush()
    assert times(log) == [1_000 + 10 * number for number in reversed(range(60))]
    monkeypatch.setattr("fairlead.store.decisions.log.write_segment", write_segment)
    assert log.flush()
    log.close()
    again = DecisionLog(tmp_path, SMALL)
    assert times(again) == [1_000 + 10 * number for number in reversed(range(60))]
    again.close()


def test_what_a_failing_disk_did_not_take_by_the_close_is_counted_as_dropped(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, SMALL, write=Disk(0).write)
    log.append([lone(1), lone(2)])
    log.close()
    log.append([lone(3)])
    assert (log.meters.decisions_total, log.meters.decisions_dropped_total) == (3, 3)


# --- the thread ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flush_s", "queue_bytes"), [(0.001, 1 << 20), (3_600.0, 1_300)])
def test_a_thread_writes_after_a_moment_and_at_once_when_the_queue_is_half_full(
    tmp_path: Path, flush_s: float, queue_bytes: int
) -> None:
    wrote = Event()

    def write(descriptor: int, data: memoryview) -> int:
        written = os.write(descriptor, data)
        if written > 8:
            wrote.set()
        return written

    log = DecisionLog(tmp_path, Settings(flush_s=flush_s, queue_bytes=queue_bytes), write=write)
    log.append([lone(number) for number in range(12)])
    assert wrote.wait(30)
    log.close()
    again = DecisionLog(tmp_path, SMALL)
    assert len(times(again)) == 12
    again.close()


def test_a_record_that_this_version_cannot_read_is_said_and_keeps_nobody_from_starting(tmp_path: Path) -> None:
    """What a newer version left, before somebody went back to this one."""
    strange = codec.encode((1, 2, 3))
    for number in (1, 2):
        head = HEAD.pack(number, 1000, 1, len(strange))
        crc = zlib.crc32(strange, zlib.crc32(head)).to_bytes(4, "little")
        (tmp_path / file_name(number, "open")).write_bytes(OPEN_MAGIC + crc + head + strange)
    log = DecisionLog(tmp_path, SMALL)
    log.append([lone(1)])
    assert log.flush()
    page = log.search(DecisionQuery())
    assert len(page.items) == 1
    assert page.damaged == ("records that cannot be read by this version are passed over",)
    log.close()
