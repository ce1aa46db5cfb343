"""Every write to the SQLite file, as plain functions for the one store thread.

Owns the two writing connections and the decision which failures are definite. It never reads for anybody else and never
runs on the event loop. Called by SqliteStore through its executor of one thread, so nothing here is locked.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

import apsw
import msgspec

from fairlead.store.contract import (
    Batch,
    CommitResult,
    Committed,
    Contended,
    Corrupt,
    Fence,
    Fenced,
    FencedWriteResult,
    Head,
    MaterialiseResult,
    ObjectRow,
    OutcomeUnknown,
    StoreError,
    StoreUnreachable,
    Superseded,
    Unavailable,
)
from fairlead.store.rules import is_empty, why_not_committed, why_not_materialised
from fairlead.store.sqlite_file import OBJECTS_COLUMNS, Settings, connect, read_head, replace_head, unavailable

Result = TypeVar("Result")

_FENCED = "WHERE incarnation = ? AND epoch = ? AND holder = ?"
ACQUIRE = f"UPDATE head SET epoch = epoch + 1, holder = ? {_FENCED} AND renewals = ? AND position = ?"
RENEW = f"UPDATE head SET renewals = renewals + 1 {_FENCED}"
RESIGN = f"UPDATE head SET holder = '' {_FENCED}"
ADVANCE = f"UPDATE head SET position = ?, hash = ? {_FENCED} AND position = ? AND hash = ?"
APPEND = "INSERT INTO journal (first, last, previous, hash, blob) VALUES (?, ?, ?, ?, ?)"
MATERIALISED = f"UPDATE head SET materialised = ? {_FENCED} AND materialised <= ? AND position >= ?"
TRUNCATED = f"UPDATE head SET truncated = ?, anchor = ? {_FENCED}"
INCARNATION = f"UPDATE head SET incarnation = ? {_FENCED}"
# Many rows in one statement: a statement per row would hand the GIL over a thousand times (P2).
PUT_ROWS = """INSERT INTO {table} (key, position, value) VALUES {rows}
    ON CONFLICT (key) DO UPDATE SET position = excluded.position, value = excluded.value"""
DELETE_OBJECTS = "DELETE FROM objects WHERE key IN (SELECT value FROM json_each(?))"
# The last batch that begins at or before ?1 may reach beyond it; the one before that cannot.
LAST_THROUGH = """SELECT max(last) FROM (SELECT last FROM journal WHERE first <= ?1 ORDER BY first DESC LIMIT 2)
    WHERE last <= ?1"""
SWEEP = """DELETE FROM journal WHERE first IN
    (SELECT first FROM journal WHERE first <= ?1 AND last <= ?1 ORDER BY first LIMIT ?2)"""

FRAME_BYTES = 4096 + 24  # one page in the log, with its header
SWEEP_BATCHES = 32  # At most 32 MiB a step: other writes get the store thread in between.
STATEMENT_ROWS = 500  # Of three values each, where SQLite takes 32,766; full ones are prepared once and kept.

# A COMMIT that fails with one of these has written no commit frame: the log ran out of space inside a frame, or was
# never touched. (True while the disk is taken to be "powersafe overwrite", SQLite's default: without it SQLite pads the
# log after the commit frame, and the padding could be what does not fit.) A full disk that shows only at fsync is an
# IOError.
DEFINITE_AT_COMMIT = (apsw.FullError, apsw.BusyError, apsw.ReadOnlyError)


class Writer:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._durable: apsw.Connection | None = None
        self._lagging: apsw.Connection | None = None
        # Set by a COMMIT whose outcome is unknown, until the next successful one. Meanwhile a whole transaction may lie
        # in the log beyond its known end, and a crash would bring it to life: no failure is definite until it is
        # overwritten.
        self._unsettled = False
        self._log_suspect = False
        self._lags = False  # something was written without an fsync since the last one
        self.wal_pages = 0

    def close(self) -> None:
        for connection in (self._durable, self._lagging):
            if connection is not None:
                with contextlib.suppress(apsw.Error):
                    connection.close()
        self._durable = self._lagging = None

    @property
    def is_settled(self) -> bool:
        """Nothing comes with the next commit but itself: no log to mend, no other pages to sync, no file to open."""
        return self._durable is not None and not self._lags and not self._log_suspect

    # --- the contract's writes

    def acquire(self, holder: str, observed: Head) -> Fence | Contended | Unavailable | OutcomeUnknown:
        def work(connection: apsw.Connection) -> Fence | Contended:
            connection.execute(ACQUIRE, (holder, *_fields(observed.fence()), observed.renewals, observed.position))
            head = read_head(connection)
            return head.fence() if connection.changes() else Contended(head)

        return self._transact(work)

    def renew(self, fence: Fence) -> FencedWriteResult:
        return self._transact(lambda connection: _guarded(connection, RENEW, _fields(fence)))

    def resign(self, fence: Fence) -> FencedWriteResult:
        return self._transact(lambda connection: _guarded(connection, RESIGN, _fields(fence)))

    def commit(self, fence: Fence, batch: Batch) -> CommitResult:
        return self._transact(self._committing(fence, batch))

    def commit_unless_busy(self, fence: Fence, batch: Batch) -> CommitResult | None:
        """Without waiting for another process's write; None: there is one, and nothing was done."""
        result = self._transact(self._committing(fence, batch), patient=False)
        return None if isinstance(result, Unavailable) and result.reason == "Busy" else result

    @staticmethod
    def _committing(fence: Fence, batch: Batch) -> Callable[[apsw.Connection], CommitResult]:
        def work(connection: apsw.Connection) -> CommitResult:
            guard = (*_fields(fence), batch.first - 1, batch.previous)
            connection.execute(ADVANCE, (batch.last, batch.hash, *guard))
            if connection.changes():
                connection.execute(APPEND, (batch.first, batch.last, batch.previous, batch.hash, batch.blob))
                return Committed()
            row = connection.execute("SELECT hash FROM journal WHERE first = ?", (batch.first,)).get
            return why_not_committed(read_head(connection), fence, batch, row)

        return work

    def materialise(
        self, fence: Fence, upto: int, rows: Sequence[ObjectRow], deleted: Sequence[str], as_of: int
    ) -> MaterialiseResult:
        def work(connection: apsw.Connection) -> Committed | Superseded | Fenced:
            connection.execute(MATERIALISED, (upto, *_fields(fence), upto, max(upto, as_of)))
            if not connection.changes():
                return why_not_materialised(read_head(connection), fence, max(upto, as_of))
            _put(connection, "objects", rows)
            if deleted:
                connection.execute(DELETE_OBJECTS, (msgspec.json.encode(deleted).decode(),))
            return Committed()

        return self._transact(work, lagging=True)

    def truncate(self, fence: Fence, through: int, anchor: bytes) -> FencedWriteResult:
        """Only moves the journal's start; `sweep` removes the rows before it, piece by piece."""

        def work(connection: apsw.Connection) -> Committed | Fenced:
            head = read_head(connection)
            if head.fence() != fence:
                return Fenced(head)
            if through > head.materialised:
                return Committed()
            last = connection.execute(LAST_THROUGH, (through,)).get
            if last is None or last <= head.truncated:
                return Committed()
            return _guarded(connection, TRUNCATED, (last, anchor, *_fields(fence)))

        return self._transact(work)

    def sweep(self) -> int:
        """Removes some of the rows before the journal's start. Says how many; none also when the disk refuses, since
        the next truncation sweeps again."""

        def work(connection: apsw.Connection) -> int:
            connection.execute(SWEEP, (read_head(connection).truncated, SWEEP_BATCHES))
            return connection.changes()

        swept = self._transact(work, lagging=True)
        return swept if isinstance(swept, int) else 0

    def set_incarnation(self, fence: Fence, incarnation: int) -> FencedWriteResult:
        return self._transact(lambda connection: _guarded(connection, INCARNATION, (incarnation, *_fields(fence))))

    # --- seeding: into a table of its own, which becomes `objects` in the transaction that writes the head

    def seed_begin(self) -> int:
        def work(connection: apsw.Connection) -> int:
            _refuse_unless_empty(connection)
            connection.execute("DROP TABLE IF EXISTS seeding")
            connection.execute(f"CREATE TABLE seeding {OBJECTS_COLUMNS}")
            connection.execute("UPDATE head SET seeds = seeds + 1")
            return _seeds(connection)

        return _or_raise(self._transact(work, lagging=True))

    def seed_rows(self, run: int, rows: Sequence[ObjectRow]) -> None:
        def work(connection: apsw.Connection) -> Committed:
            _refuse_if_overtaken(connection, run)
            _put(connection, "seeding", rows)
            return Committed()

        _or_raise(self._transact(work, lagging=True))

    def seed_end(self, run: int, head: Head) -> None:
        def work(connection: apsw.Connection) -> Committed:
            _refuse_unless_empty(connection)
            _refuse_if_overtaken(connection, run)
            connection.execute("DROP TABLE objects")
            connection.execute("ALTER TABLE seeding RENAME TO objects")
            replace_head(connection, head)
            return Committed()

        _or_raise(self._transact(work))

    # --- the log

    def stretch_log(self, fence: Fence, log_bytes: int) -> None:
        """Makes the log's file as long as it will be, before anybody waits for it. A commit that makes a file longer has the file
        system's own journal synced with it: 0.35 ms where one within the file takes 0.16 (ext4). What is written is this leader's
        sign of life, again and again, without an fsync; then it is copied back, and the log begins anew in a file that keeps its
        length. Whatever goes wrong here will go wrong with the next commit too, and that has somebody to tell."""
        if self._log_bytes() >= log_bytes:
            return
        connection = self._connection(lagging=True)
        self._lags = True
        with contextlib.suppress(apsw.Error):
            for _ in range(log_bytes // FRAME_BYTES):
                connection.execute(RENEW, _fields(fence))
                if not connection.changes():
                    return
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _log_bytes(self) -> int:
        try:
            return os.stat(f"{self._settings.path}-wal").st_size
        except OSError:
            return 0

    def checkpoint(self) -> None:
        """The fallback: between two commits, so that the log's end stands still and can be reached."""
        with contextlib.suppress(apsw.Error):
            self._connection(lagging=True).wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    # --- transactions

    def _transact(
        self, work: Callable[[apsw.Connection], Result], lagging: bool = False, patient: bool = True
    ) -> Result | Unavailable | OutcomeUnknown:
        """`lagging` commits without an fsync. The log is replayed up to its first damaged frame, so a power cut takes
        such a transaction away together with everything after it, and the next durable commit's fsync covers it:
        objects and `materialised`, written in one transaction, can only go back together, and never behind a truncation
        that relied on them."""
        connection: apsw.Connection | None = None
        try:
            connection = self._connection(lagging)
            self._mend_log(connection)
            self._begin(connection, patient)
            before = connection.total_changes()
            result = work(connection)
        except (apsw.Error, Corrupt, UnicodeDecodeError) as error:
            self._abandon(connection)
            return self._failed(error)
        except BaseException:
            self._abandon(connection)
            raise
        if connection.total_changes() == before:
            self._abandon(connection)
            return result
        try:
            connection.execute("COMMIT")
        except DEFINITE_AT_COMMIT as error:
            self._abandon(connection)
            return self._failed(error)
        except apsw.Error as error:
            self.close()
            self._unsettled = self._log_suspect = True
            return OutcomeUnknown(f"COMMIT failed: {type(error).__name__}: {error}")
        self._unsettled = False
        self._lags = lagging
        return result

    def _begin(self, connection: apsw.Connection, patient: bool) -> None:
        if patient:
            connection.execute("BEGIN IMMEDIATE")
            return
        connection.set_busy_timeout(0)
        try:
            connection.execute("BEGIN IMMEDIATE")
        finally:
            connection.set_busy_timeout(self._settings.busy_timeout_ms)

    def _failed(self, error: Exception) -> Unavailable | OutcomeUnknown:
        told = unavailable(error)
        if self._unsettled:
            return OutcomeUnknown(f"an earlier COMMIT is not settled yet, and: {told.reason}: {told.detail}")
        return told

    def _connection(self, lagging: bool) -> apsw.Connection:
        found = self._lagging if lagging else self._durable
        if found is None:
            found = connect(self._settings, "NORMAL" if lagging else "FULL")
            found.set_wal_hook(self._note_wal_pages)
            if lagging:
                self._lagging = found
            else:
                self._durable = found
        return found

    def _note_wal_pages(self, connection: apsw.Connection, database: str, pages: int) -> int:
        self.wal_pages = pages
        return apsw.SQLITE_OK

    def _mend_log(self, connection: apsw.Connection) -> None:
        """After a failed fsync the kernel forgets which pages it did not write: the next fsync succeeds without them.
        Our own frames are written anew, but those of lagging transactions before them would stay holes in the log. So
        the whole log is copied into the database, which is synced by itself, before anything is acknowledged again."""
        if not self._log_suspect:
            return
        read_head(connection)  # A connection that has not read yet may not know its log, and would copy nothing.
        frames, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        if copied < frames:
            raise apsw.BusyError("after an I/O error the log must be checkpointed, and a reader still needs its old part")
        self._log_suspect = False

    def _abandon(self, connection: apsw.Connection | None) -> None:
        """Back to no transaction; without a commit frame in the log that is certain, also by closing."""
        if connection is None or not connection.in_transaction:
            return
        try:
            connection.execute("ROLLBACK")
        except apsw.Error:
            self.close()


def _fields(fence: Fence) -> tuple[int, int, str]:
    return fence.incarnation, fence.epoch, fence.holder


def _guarded(connection: apsw.Connection, statement: str, values: tuple[int | str | bytes, ...]) -> Committed | Fenced:
    connection.execute(statement, values)
    return Committed() if connection.changes() else Fenced(read_head(connection))


def _put(connection: apsw.Connection, table: str, rows: Sequence[ObjectRow]) -> None:
    for start in range(0, len(rows), STATEMENT_ROWS):
        some = rows[start : start + STATEMENT_ROWS]
        statement = PUT_ROWS.format(table=table, rows=", ".join(["(?, ?, ?)"] * len(some)))
        connection.execute(statement, [value for row in some for value in row])


def _seeds(connection: apsw.Connection) -> int:
    seeds = connection.execute("SELECT seeds FROM head").get
    assert isinstance(seeds, int)
    return seeds


def _refuse_unless_empty(connection: apsw.Connection) -> None:
    head = read_head(connection)
    if not is_empty(head):
        raise StoreError(f"the store is not empty (epoch {head.epoch}, position {head.position}); seed a new file")


def _refuse_if_overtaken(connection: apsw.Connection, run: int) -> None:
    if _seeds(connection) != run:
        raise StoreError("another seed of this store began meanwhile; this one stopped")


def _or_raise(result: Result | Unavailable | OutcomeUnknown) -> Result:
    if isinstance(result, Unavailable | OutcomeUnknown):
        raise StoreUnreachable(f"seed: {result.detail}")
    return result
