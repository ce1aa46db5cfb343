"""The archive's one door: appends, closes, checkpoints, trims and answers. See the package's docstring for formats and threads.

Owns which segment is written and the current Catalogue. Every method blocks; the caller chooses the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Lock

from msgspec.structs import replace

from fairlead.model.journal import chain_hash
from fairlead.ports import sync_directory
from fairlead.store.archive import reader, trim, verify
from fairlead.store.archive.cache import Cache
from fairlead.store.archive.catalogue import Catalogue, end_of, start_of
from fairlead.store.archive.checkpoint import CheckpointFile, checkpoint_due, write_checkpoint
from fairlead.store.archive.files import DirectoryLock
from fairlead.store.archive.loading import load
from fairlead.store.archive.open_segment import OpenSegment, contents_of
from fairlead.store.archive.records import (
    FORMAT,
    GENESIS,
    ArchiveError,
    Beginning,
    ChainBroken,
    Contents,
    Fault,
    Gap,
    Horizon,
    LaterIncarnation,
    Point,
    Settings,
    Trimmed,
    Version,
)
from fairlead.store.archive.segment import ClosedSegment, close_segment
from fairlead.store.contract import NO_HASH, Batch, ObjectRow


class Archive:
    def __init__(self, directory: Path, settings: Settings | None = None, *, writable: bool = True) -> None:
        """Opens what is there, and makes the directory if nothing is. A reader beside another process's writer opens with
        writable=False, changes nothing and sees what was there at this moment."""
        self.directory = directory
        self.settings = settings or Settings()
        self.cache = Cache(self.settings.cache_bytes)
        self._swap = Lock()  # Held for a moment, around exchanging the catalogue.
        self._work = Lock()  # Held while files are closed, synced or dropped; at most a tenth of a second.
        self._checkpointing = Lock()  # Held for as long as a whole plane takes to write.
        self._lock: DirectoryLock | None = None
        if writable:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = DirectoryLock(directory)
        self._catalogue = load(directory, self.cache, writable)
        waiting = [segment for segment in self._catalogue.segments if isinstance(segment, OpenSegment)]
        newest = self._catalogue.segments[-1] if self._catalogue.segments else None
        self._current = newest if isinstance(newest, OpenSegment) else None
        self._sealed = [segment for segment in waiting if segment is not self._current]
        self._synced = GENESIS
        if writable:
            for segment in waiting:
                segment.sync()  # A process that died may have left pages that only the kernel has.
            sync_directory(directory)
            self._synced = self.last()

    def close(self) -> None:
        with self._work:
            for segment in self._catalogue.segments:
                if isinstance(segment, OpenSegment):
                    segment.close()
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    # Writing

    def last(self) -> Point:
        """The newest archived point: feed it what the engine has after this."""
        return self._catalogue.last()

    def last_hash(self) -> bytes:
        """The chain's, right after the newest archived batch."""
        segments = self._catalogue.segments
        return segments[-1].hash if segments else NO_HASH

    def synced(self) -> Point:
        """What survives a power cut. The engine's journal must not be truncated beyond it."""
        return self._synced

    def append(
        self, batch: Batch, contents: Contents | None = None, *, after_gap: bool = False, latest: int | None = None
    ) -> bool:
        """False if it is archived already. Gap, ChainBroken or LaterIncarnation leave the archive as it was. `after_gap` accepts
        a hole for good, when the engine no longer has what is missing; states after it need a new checkpoint. `contents` come
        from whoever made this very batch in this process, and hashed it; without them it is decoded and its hash checked.
        `latest`: of a later incarnation nothing is taken in, since whoever feeds this may have missed its beginning."""
        self._require_writable()
        made_here = contents is not None
        contents = contents or contents_of(batch)
        incarnation, last = contents.incarnation, self.last()
        if latest is not None and incarnation > latest:
            raise LaterIncarnation(incarnation)
        if incarnation < last.incarnation or (incarnation == last.incarnation and batch.first <= last.position):
            self._check_duplicate(batch, incarnation)
            return False
        follows = incarnation == last.incarnation and batch.first == last.position + 1
        if incarnation == last.incarnation and not follows and not after_gap:
            raise Gap(f"the archive ends at {last} and the next batch starts at {batch.first}; feed it what lies between")
        if not made_here and chain_hash(batch.previous, batch.blob) != batch.hash:
            raise ChainBroken(f"the batch at {batch.first} does not have the hash it claims")
        if follows and batch.previous != self.last_hash():
            raise ChainBroken(f"the batch at {incarnation}:{batch.first} does not continue the chain archived up to {last}")
        current = self._current
        if current is not None and follows and not self._is_full(current, contents.time_ms):
            current.append(batch, contents)
        else:
            self._begin_segment(batch, contents, last if follows else None)
        return True

    def _is_full(self, segment: OpenSegment, time_ms: int) -> bool:
        return segment.size >= self.settings.segment_bytes or time_ms - segment.rows[0][0] >= self.settings.segment_ms

    def _begin_segment(self, batch: Batch, contents: Contents, follows: Point | None) -> None:
        """A new segment with this batch in it; readers never see one without."""
        self.seal()
        if len(self._sealed) > self.settings.sealed_max:
            self.close_segment()
        base = follows or self._base(batch)
        beginning = Beginning(FORMAT, contents.incarnation, batch.first, batch.previous, base)
        segment = OpenSegment.create(self.directory, beginning)
        try:
            segment.begin(beginning)
            segment.append(batch, contents)
        except OSError:
            segment.close()
            segment.path.unlink(missing_ok=True)
            raise
        self._exchange(lambda old: replace(old, segments=(*old.segments, segment)))
        self._current = segment

    def _base(self, batch: Batch) -> Point | None:
        """The point a new chain builds on. Its hash names the whole history before it, so any match is the right one."""
        if batch.first == 1 and batch.previous == NO_HASH:
            return GENESIS
        position = batch.first - 1
        for incarnation in sorted({segment.incarnation for segment in self._catalogue.segments}, reverse=True):
            segment = self._catalogue.find(Point(incarnation, position))
            found = next(segment.batches(position, position), None) if segment else None
            if found is not None and found[1].last == position and found[1].hash == batch.previous:
                return Point(incarnation, position)
        return None

    def _check_duplicate(self, batch: Batch, incarnation: int) -> None:
        """The same place must hold the same batch; what was trimmed cannot be compared and passes."""
        segment = self._catalogue.find(Point(incarnation, batch.first))
        found = next(segment.batches(batch.first, batch.first), None) if segment else None
        if found is not None and found[1].hash != batch.hash:
            raise ChainBroken(f"another batch than the one archived claims {incarnation}:{batch.first}")
        if found is None and Point(incarnation, batch.last) > start_of(self._catalogue.segments[0]):
            raise ChainBroken(f"the batch at {incarnation}:{batch.first} is not archived and comes after {self.last()} was")

    def seal(self) -> None:
        """Ends the current segment; `close_segment` may compress it. Synced first, so that a power cut never leaves a
        younger segment without the end of an older one."""
        self._require_writable()
        if self._current is not None:
            self.sync()
            self._sealed.append(self._current)
            self._current = None

    def sync(self) -> Point:
        """Makes everything appended so far durable and says how far that is."""
        self._require_writable()
        with self._work:
            current = self._current
            if current is not None:
                end = end_of(current)
                current.sync()
                if current.is_new:
                    sync_directory(self.directory)
                    current.is_new = False
                self._synced = end
        return self._synced

    def waiting(self) -> int:
        """Full segments that `close_segment` should compress."""
        return len(self._sealed)

    def close_segment(self) -> Path | None:
        """Compresses the oldest full segment; None if there is none. About 100 ms of CPU, most of it without the GIL."""
        self._require_writable()
        with self._work:
            if not self._sealed:
                return None
            segment = self._sealed[0]
            path = close_segment(segment, self.settings)
            closed = ClosedSegment(path, self.cache)
            self._exchange(
                lambda old: replace(
                    old,
                    segments=tuple(closed if one is segment else one for one in old.segments),
                    damaged=tuple(one for one in old.damaged if one.name != path.name),  # It replaced that file.
                )
            )
            self._sealed.pop(0)
            segment.close()
            segment.path.unlink()
            return path

    def write_checkpoint(self, point: Point, time_ms: int, rows: Iterable[ObjectRow]) -> Path:
        """`rows`: exactly the state at the point, in any order. After a restore the first one belongs at the point before
        the new incarnation's first batch."""
        self._require_writable()
        with self._checkpointing:
            known = self._catalogue.checkpoint_before(point)
            if known is not None and known.point == point:
                return known.path
            path = write_checkpoint(self.directory, point, time_ms, rows, self.settings)
            made = CheckpointFile(path, self.cache)
            self._exchange(
                lambda old: replace(old, checkpoints=tuple(sorted((*old.checkpoints, made), key=lambda one: one.point)))
            )
            return path

    def checkpoint_due(self, now_ms: int) -> bool:
        catalogue = self._catalogue
        if not catalogue.checkpoints:
            return checkpoint_due(now_ms, None, 0, 0)
        newest = catalogue.checkpoints[-1]
        since = sum(segment.raw_bytes for segment in catalogue.segments if end_of(segment) > newest.point)
        return checkpoint_due(now_ms, newest.time_ms, since, newest.raw_bytes)

    def trim(self, now_ms: int, max_age_ms: int | None = None, max_bytes: int | None = None) -> Trimmed:
        """Drops what is older than the newest checkpoint that is old enough, and more while there is too much."""
        self._require_writable()
        age_ms = self.settings.max_age_ms if max_age_ms is None else max_age_ms
        limit = self.settings.max_bytes if max_bytes is None else max_bytes
        with self._work:
            plan = trim.plan_trim(self._catalogue, now_ms - age_ms, limit)
            # Out of the catalogue before off the disk, so that no new reader starts on a file that is going.
            self._exchange(lambda old: trim.without(old, plan))
            return trim.drop(self.directory, plan)

    def _exchange(self, change: Callable[[Catalogue], Catalogue]) -> None:
        with self._swap:
            self._catalogue = change(self._catalogue)

    def _require_writable(self) -> None:
        if self._lock is None:
            raise ArchiveError(f"{self.directory} is open for reading only, or closed")

    # Reading

    def horizon(self) -> Horizon | None:
        """The oldest state that can be read; None while there is none."""
        return self._catalogue.horizon()

    def beginning(self) -> Horizon | None:
        """The oldest state after which no batch is missing up to the last one; None while there is none."""
        return self._catalogue.beginning()

    def size_bytes(self) -> int:
        return self._catalogue.size_bytes()

    def get(self, key: str, point: Point) -> tuple[int, bytes] | None:
        """(position that wrote it, value) of the object as it was right after that point; None if it was not there."""
        return reader.get(self._catalogue, key, point)

    def history(self, key: str, first: Point, last: Point) -> Iterator[Version]:
        """Every effect on the object from first to last, both included, oldest first, on the line that leads to `last`."""
        return reader.history(self._catalogue, key, first, last)

    def state_at(self, point: Point) -> Iterator[ObjectRow]:
        """Every object as it was right after that point, keys ascending."""
        return reader.state_at(self._catalogue, point)

    def batches(self, after: Point, upto: Point) -> Iterator[Batch]:
        """The batches that hold a position after `after` and up to `upto`, whole, byte for byte as they were appended."""
        return reader.batches(self._catalogue, after, upto)

    def position_at(self, time_ms: int) -> Point:
        """The newest point whose batch's plane time is not after `time_ms`."""
        return reader.point_at(self._catalogue, time_ms)

    def on_the_line(self, point: Point) -> Point:
        """The newest point, not after this one, that the last one builds on."""
        return self._catalogue.on_the_line(point)

    def verify(self, *, deep: bool = False) -> list[Fault]:
        """Reads every byte of every file. Empty if all is as it was written. `deep` also replays from each checkpoint to the
        next and compares."""
        return verify.verify(self._catalogue, deep)
