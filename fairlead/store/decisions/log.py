"""The decision log's one door: appends, flushes, trims and answers. See the package's docstring for formats and threads.

Owns the queue of unwritten rows, which segment is written and the list of segments. What it reads at opening is in loading.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread

from fairlead.client.decisions import DecisionPage, DecisionQuery
from fairlead.model import codec
from fairlead.model.decision import DecisionRecord
from fairlead.store.archive import ArchiveError
from fairlead.store.archive.cache import Cache
from fairlead.store.archive.files import DirectoryLock
from fairlead.store.decisions.loading import Damaged, file_name, load, plan_trim
from fairlead.store.decisions.open_segment import OpenSegment, Write
from fairlead.store.decisions.reader import Search, Unwritten
from fairlead.store.decisions.records import DecisionLogError, Horizon, Meters, Queued, Row, Settings
from fairlead.store.decisions.segment import ClosedSegment, write_segment

log = logging.getLogger(__name__)

READERS = 2  # one slow page leaves a thread for a quick one


class DecisionLog:
    def __init__(self, directory: Path, settings: Settings | None = None, *, write: Write = os.write) -> None:
        """Opens what is there, and makes the directory if nothing is. Blocks. `write` is os.write, or a test's bad disk."""
        self.directory = directory
        self.settings = settings or Settings()
        self.meters = Meters()
        self._write_file = write
        self._lock = Lock()  # Held for a moment: the queue and the list of segments.
        self._work = Lock()  # Held while files are written, closed or dropped.
        directory.mkdir(parents=True, exist_ok=True)
        try:
            self._directory_lock = DirectoryLock(directory)
        except ArchiveError as error:
            raise DecisionLogError(
                f"{directory} is written by another process; give each scheduler a decision log of its own"
            ) from error
        self._cache = Cache(self.settings.cache_bytes)
        loaded = load(directory, self._cache, self.settings.frame_bytes, write)
        self._segments: tuple[OpenSegment | ClosedSegment, ...] = loaded.segments
        self._damaged: tuple[Damaged, ...] = loaded.damaged
        self._number = loaded.next_number
        newest = self._segments[-1] if self._segments else None
        self._current = newest if isinstance(newest, OpenSegment) else None
        self._pending: deque[Queued] = deque()
        self._in_flight: list[Queued] = []
        self._pending_bytes = 0  # in flight included
        self._closed = False
        self._failures = self._passes_left_out = 0
        try:
            self._settle()
        except OSError as error:
            log.warning("decisions in %s could not be tidied up: %s", directory, error)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="decision-reader")
        self._wake, self._stop = Event(), Event()
        self._thread = Thread(target=self._run, name="decision-log", daemon=True)
        if self.settings.flush_s:
            self._thread.start()

    def close(self) -> None:
        """Writes what is queued. Blocks; what a failing disk does not take is dropped."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self.flush()
        with self._work, self._lock:
            if not self._closed:
                self._closed = True
                self._drop_until(0)
                for segment in self._segments:
                    if isinstance(segment, OpenSegment):
                        segment.close()
                self._directory_lock.release()
        self._readers.shutdown()

    # Appending, on the caller's thread

    def append(self, records: Sequence[DecisionRecord]) -> None:
        encoded = [codec.encode(record) for record in records]
        with self._lock:
            for record, body in zip(records, encoded, strict=True):
                attempts = len(record.decided.attempts)
                self._pending.append(Queued(Row(self._number, record.decided.time_ms, attempts, body), record))
                self._number += 1
                self._pending_bytes += len(body)
                self.meters.decisions_total += attempts
            self._drop_until(0 if self._closed else self.settings.queue_bytes)
        if self._pending_bytes > self.settings.queue_bytes // 2 and not self._failures:
            self._wake.set()

    def _drop_until(self, limit_bytes: int) -> None:
        """The oldest first: what is asked for after an outage is what happened last. Under the lock."""
        while self._pending_bytes > limit_bytes and self._pending:
            row = self._pending.popleft().row
            self._pending_bytes -= len(row.body)
            self.meters.decisions_dropped_total += row.attempts

    # Writing, on the log's own thread

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(self.settings.flush_s)
            self._wake.clear()
            if self._passes_left_out:
                self._passes_left_out -= 1
            else:
                self.flush()

    def flush(self) -> bool:
        """Hands everything queued to the operating system. False if the disk refuses; the rows stay queued. Blocks."""
        with self._work:
            if self._closed:
                return True
            try:
                while rows := self._take():
                    self._write_rows(rows)
                if self._current is not None:
                    self._current.index_full_frames()  # Also what an earlier process left; until then it is looked through.
            except OSError as error:
                self._note_failure(error)
                return False
            if self._failures:
                log.warning("decisions are written again; %d were dropped", self.meters.decisions_dropped_total)
            self._failures = 0
            return True

    def _note_failure(self, error: OSError) -> None:
        self.meters.decision_write_errors_total += 1
        if not self._failures:
            log.warning("decisions cannot be written to %s, the oldest will be dropped: %s", self.directory, error)
        # A try may compress a whole segment in vain, so each failure doubles the pause, up to half a minute.
        self._failures += 1
        self._passes_left_out = min(64, 1 << min(self._failures, 6))

    def _take(self) -> list[Queued]:
        """The next rows to write, about a frame of them."""
        with self._lock:
            size = 0
            while self._pending and size < self.settings.frame_bytes:
                queued = self._pending.popleft()
                self._in_flight.append(queued)
                size += len(queued.row.body)
            return self._in_flight

    def _write_rows(self, rows: list[Queued]) -> None:
        try:
            segment = self._segment_for(rows[0].row)
            segment.write(rows)
        except OSError:
            with self._lock:
                # Without what they hold: a queue that a bad disk fills would take several times its bytes.
                self._pending = deque([Queued(row, None) for row, _ in (*rows, *self._pending)])
                self._in_flight = []
                self._drop_until(self.settings.queue_bytes)
            raise
        segment.remember(rows)  # Before they leave the queue: a reader may meet them twice, never not at all.
        with self._lock:
            self._in_flight = []
            self._pending_bytes -= sum(len(row.body) for row, _ in rows)
        self._measure()

    def _segment_for(self, row: Row) -> OpenSegment:
        current = self._current
        if current is not None and self._is_full(current, row):
            self._close_segment(current)
            self._current = current = None
            self._settle()
        if current is None:
            path = self.directory / file_name(row.number, "open")
            current = OpenSegment(path, row.number, self.settings.frame_bytes, self._write_file)
            current.create()
            with self._lock:
                self._segments = (*self._segments, current)
            self._current = current
        return current

    def _is_full(self, segment: OpenSegment, row: Row) -> bool:
        old = row.time_ms - segment.time_min >= self.settings.segment_ms
        return not segment.empty and (old or segment.size >= self.settings.segment_bytes)

    def _close_segment(self, segment: OpenSegment) -> None:
        path = segment.path.with_suffix(".segment")
        write_segment(path, [(frame.rows, frame.index()) for frame in segment.frames], self.settings.level)
        segment.closed = ClosedSegment(path, self._cache)
        segment.close()
        segment.path.unlink()
        with self._lock:
            # The newest closed one stays in memory for readers; older ones are read from their files from now on.
            self._segments = tuple(
                one.closed if isinstance(one, OpenSegment) and one.closed and one is not segment else one
                for one in self._segments
            )
            self._damaged = tuple(one for one in self._damaged if one.path != path)  # It replaced that file.

    def _settle(self) -> None:
        """Closes what an earlier process left behind, and drops what is too old or too much."""
        for segment in self._segments:
            if isinstance(segment, OpenSegment) and segment is not self._current and not (segment.closed or segment.empty):
                self._close_segment(segment)
        newest_ms = max((segment.time_max for segment in self._segments), default=0)
        cutoff_ms = newest_ms - self.settings.max_age_ms
        closed = [segment for segment in self._segments if isinstance(segment, ClosedSegment)]
        total = self._measure()
        doomed = plan_trim(closed, self._damaged, cutoff_ms, total - self.settings.max_bytes)
        with self._lock:
            self._segments = tuple(segment for segment in self._segments if segment not in doomed)
            self._damaged = tuple(one for one in self._damaged if one not in doomed)
        for one in doomed:  # Oldest first, so that a crash in the middle leaves no hole.
            one.path.unlink(missing_ok=True)
        self._measure()

    def _measure(self) -> int:
        sizes = [(one.closed or one).size if isinstance(one, OpenSegment) else one.size for one in self._segments]
        self.meters.decision_log_bytes = sum(sizes) + sum(one.size for one in self._damaged)
        return self.meters.decision_log_bytes

    # Reading

    async def query(self, query: DecisionQuery) -> DecisionPage:
        return await asyncio.get_running_loop().run_in_executor(self._readers, partial(self.search, query))

    def search(self, query: DecisionQuery) -> DecisionPage:
        """`query`, on the calling thread. Blocks on files."""
        with self._lock:
            unwritten = Unwritten([row for row, _ in (*self._in_flight, *self._pending)], self._number)
            segments, damaged = self._segments, self._damaged
        search = Search(query, self.settings.scan_frames_max)
        oldest = _times(unwritten, segments)[:1]
        return search.run([unwritten, *reversed(segments)], [one.words for one in damaged], oldest[0] if oldest else None)

    def horizon(self) -> Horizon:
        with self._lock:
            unwritten = Unwritten([row for row, _ in (*self._in_flight, *self._pending)], self._number)
            segments, damaged = self._segments, self._damaged
            attempts = sum(row.attempts for row in unwritten.rows(0)) + sum(segment.attempts for segment in segments)
        times = _times(unwritten, segments)
        return Horizon(
            oldest_ms=times[0] if times else None,
            newest_ms=times[-1] if times else None,
            attempts=attempts,
            bytes=self.meters.decision_log_bytes,
            damaged=tuple(one.words for one in damaged),
        )


def _times(unwritten: Unwritten, segments: Sequence[OpenSegment | ClosedSegment]) -> list[int]:
    filled = [part for part in segments if part.last >= part.first]
    parts = [(part.time_min, part.time_max) for part in filled]
    if unwritten.rows(0):
        parts.append((unwritten.time_min, unwritten.time_max))
    return sorted(time for pair in parts for time in pair)
