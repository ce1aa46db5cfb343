"""Closed segments of an earlier format beside those of today's: the same questions, the same answers."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.journal import decode_blob
from fairlead.store.archive import GENESIS, Archive, Point
from fairlead.store.archive.keyindex import build_index, key_hash, may_hold, offsets_of, unpack
from fairlead.store.archive.open_segment import effects_of
from fairlead.store.archive.records import FORMAT
from tests.store.archive_model import SMALL, Model, check, close_all, feed

FORMAT_1 = Path(__file__).parent / "archive_format_1"  # three segments, closed when keys counted by a blake2b
FORMATS = (1, FORMAT)


def kept(tmp_path: Path) -> tuple[Archive, Model]:
    """An archive that begins with the old files, and a model of what their frames hold."""
    shutil.copytree(FORMAT_1, tmp_path / "archive")
    archive, model = Archive(tmp_path / "archive", SMALL), Model()
    for batch in archive.batches(GENESIS, archive.last()):
        blob = decode_blob(batch.blob)
        model.time_ms = blob.header.time_ms
        model.batches.append((Point(1, batch.last), model.time_ms, batch))
        for position, (key, value) in enumerate(effects_of(blob), batch.first):
            model.effects.append((Point(1, position), model.time_ms, key, value))
    return archive, model


def test_segments_of_format_1_answer_as_they_did_and_are_continued(tmp_path: Path) -> None:
    archive, model = kept(tmp_path)
    assert archive.last() == Point(1, 80)
    check(archive, model)
    feed(archive, model.grow(random.Random(1), 20))
    close_all(archive)
    check(archive, model)
    assert archive.verify(deep=True) == []
    formats = [segment.opened().footer.format for segment in archive._catalogue.segments]  # type: ignore[union-attr]
    assert set(formats) == {1, FORMAT}
    archive.close()


def test_a_key_has_the_same_hash_in_every_process_and_format() -> None:
    assert key_hash("bindings/team/app-1", 1) == 0x19268B56C15BD6E7
    assert key_hash("bindings/team/app-1", FORMAT) == 0x409780BFF47D44FF


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.sampled_from(["a", "b", "é", "e\u0301", "🚢/x", ""]), max_size=6)), max_size=12
    ),
    st.integers(1, 1 << 40),
    st.data(),
)
def test_every_format_finds_the_same_positions_of_a_key(
    rows: list[tuple[int, list[str]]], first: int, data: st.DataObject
) -> None:
    keyed, at = [], first
    for skipped, keys in rows:
        keyed.append((at + skipped, keys))
        at += skipped + len(keys)
    low = data.draw(st.integers(first, at))
    high = data.draw(st.integers(low, at))
    for key in ("a", "b", "é", "e\u0301", "🚢/x", "", "never"):
        expected = [
            start + number - first
            for start, keys in keyed
            for number, name in enumerate(keys)
            if name == key and low <= start + number <= high
        ]
        for made_as in FORMATS:
            index, filter_bytes = build_index(keyed, first, 1, made_as)
            hashed = key_hash(key, made_as)
            assert (
                offsets_of(unpack(zstandard.ZstdDecompressor().decompress(index)), hashed, low - first, high - first) == expected
            )
            assert may_hold(filter_bytes, hashed) or not any(key in keys for _, keys in keyed)


def test_a_filter_lets_few_strange_keys_pass_in_every_format() -> None:
    keys = [f"bindings/team-{number % 40}/app-{number}" for number in range(4000)]
    for made_as in FORMATS:
        _, filter_bytes = build_index([(1, keys)], 1, 1, made_as)
        strange = [f"bindings/team-{number % 40}/app-{number}" for number in range(4000, 24_000)]
        passed = sum(may_hold(filter_bytes, key_hash(key, made_as)) for key in strange)
        assert passed < len(strange) / 150  # one in 300 is what twelve bits and six probes should give
        assert all(may_hold(filter_bytes, key_hash(key, made_as)) for key in keys)
