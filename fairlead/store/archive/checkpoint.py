"""Checkpoints: every object of a plane at one point, sorted, and the rule that says when the next one is due.

Owns the format of `.checkpoint` files. It does not know how the rows came about: the caller gives exactly the state at the
point. Called by archive.py and reader.py.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import zstandard

from fairlead.store.archive.cache import Cache
from fairlead.store.archive.files import CHECKPOINT_MAGIC, Output, decompress, file_name, read_footer, writing
from fairlead.store.archive.records import (
    DAY_MS,
    FORMAT,
    HOUR_MS,
    MIB,
    ArchiveCorrupt,
    CheckpointFooter,
    CheckpointFrame,
    Point,
    Settings,
    too_new,
)
from fairlead.store.contract import ObjectRow

RUN_BYTES = 64 * MIB  # Rows sorted in memory at once; more than that goes through sorted runs on disk.
_ROW_OVERHEAD_BYTES = 200  # A tuple, an integer and two headers weigh that much beside key and value.

_rows_decoder = msgspec.msgpack.Decoder(list[tuple[str, int, bytes]])


def checkpoint_due(now_ms: int, last_ms: int | None, journal_bytes: int, state_bytes: int) -> bool:
    """A checkpoint costs about the state's size and saves walking the journal since the last one, so a busy plane pays
    every hour and a quiet one once a day, which also lets old segments go."""
    if last_ms is None:
        return True
    age_ms = now_ms - last_ms
    return age_ms >= DAY_MS or (age_ms >= HOUR_MS and journal_bytes * 4 >= state_bytes)


def write_checkpoint(
    directory: Path, point: Point, time_ms: int, rows: Iterable[ObjectRow], settings: Settings, run_bytes: int = RUN_BYTES
) -> Path:
    """Rows in any order, each key once. Durable when this returns."""
    path = directory / file_name(point, "checkpoint")
    runs: list[Path] = []
    try:
        ordered = _sorted(rows, path, runs, run_bytes)
        with writing(path) as output:
            output.write(CHECKPOINT_MAGIC)
            count, raw_bytes, frames = _write_rows(ordered, output, point, settings)
            footer = CheckpointFooter(FORMAT, point, time_ms, count, raw_bytes, frames, output.sha256())
            output.finish(footer, CHECKPOINT_MAGIC)
    finally:
        for run in runs:
            run.unlink(missing_ok=True)
    return path


def _sorted(rows: Iterable[ObjectRow], path: Path, runs: list[Path], run_bytes: int) -> Iterator[ObjectRow]:
    held: list[ObjectRow] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row[0]) + len(row[2]) + _ROW_OVERHEAD_BYTES
        if size >= run_bytes:
            runs.append(path.with_name(f"{path.name}.{len(runs)}.tmp"))
            _spill(sorted(held), runs[-1])
            held, size = [], 0
    return heapq.merge(*map(_read_spill, runs), sorted(held))


def _spill(rows: list[ObjectRow], run: Path) -> None:
    """Pieces of a thousand rows, each with its length. Not synced: a crash makes it rubbish anyway."""
    with run.open("wb") as file:
        for begin in range(0, len(rows), 1000):
            piece = msgspec.msgpack.encode(rows[begin : begin + 1000])
            file.write(len(piece).to_bytes(4, "little") + piece)


def _read_spill(run: Path) -> Iterator[ObjectRow]:
    with run.open("rb") as file:
        while length := file.read(4):
            yield from _rows_decoder.decode(file.read(int.from_bytes(length, "little")))


def _write_rows(
    rows: Iterator[ObjectRow], output: Output, point: Point, settings: Settings
) -> tuple[int, int, tuple[CheckpointFrame, ...]]:
    compressor = zstandard.ZstdCompressor(level=settings.level, write_checksum=True)
    frames: list[CheckpointFrame] = []
    held: list[ObjectRow] = []
    size = count = raw_bytes = 0
    last_key: str | None = None

    def flush() -> None:
        data = compressor.compress(msgspec.msgpack.encode(held))
        frames.append(CheckpointFrame(output.write(data), len(data), held[0][0]))
        held.clear()

    for row in rows:
        if row[0] == last_key:
            raise ValueError(f"{row[0]} is twice in the rows of a checkpoint")
        if row[1] > point.position:
            raise ValueError(f"{row[0]} was written at {row[1]}, after the checkpoint at {point}: not its state")
        last_key = row[0]
        held.append(row)
        count += 1
        size += len(row[0]) + len(row[2])
        if size >= settings.frame_bytes:
            raw_bytes += size
            size = 0
            flush()
    if held:
        flush()
    return count, raw_bytes + size, tuple(frames)


class CheckpointFile:
    def __init__(self, path: Path, cache: Cache) -> None:
        """Raises ArchiveCorrupt if the footer does not hold."""
        self.path = path
        self._cache = cache
        footer = self._load()[0][0]
        self.point, self.time_ms, self.rows, self.raw_bytes = footer.point, footer.time_ms, footer.rows, footer.raw_bytes
        self.size = path.stat().st_size

    def _load(self) -> tuple[tuple[CheckpointFooter, list[str]], int]:
        footer, tail, _ = read_footer(self.path, CHECKPOINT_MAGIC, CheckpointFooter)
        if footer.format > FORMAT:
            raise too_new(self.path.name, footer.format)
        keys = [frame.first_key for frame in footer.frames]
        return (footer, keys), 4 * len(tail)  # Decoded, a footer takes about four times its bytes.

    def opened(self) -> tuple[CheckpointFooter, list[str]]:
        return self._cache.get((self.path.name, "footer", 0), self._load)

    def get(self, key: str) -> tuple[int, bytes] | None:
        number = bisect_right(self.opened()[1], key) - 1
        if number < 0:
            return None
        for name, position, value in self._frame_rows(number, keep=True):
            if name == key:
                return position, value
        return None

    def all_rows(self) -> Iterator[ObjectRow]:
        """Every row, keys ascending. Passes by the cache: a whole plane would push out everything in it."""
        for number in range(len(self.opened()[0].frames)):
            yield from self._frame_rows(number, keep=False)

    def _frame_rows(self, number: int, keep: bool) -> list[ObjectRow]:
        def load() -> tuple[bytes, int]:
            frame = self.opened()[0].frames[number]
            data = decompress(self.path, frame.offset, frame.size, f"frame {number}")
            return data, len(data)

        data = self._cache.get((self.path.name, "frame", number), load) if keep else load()[0]
        try:
            return _rows_decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise ArchiveCorrupt(self.path.name, f"frame {number} cannot be read: {error}") from error
