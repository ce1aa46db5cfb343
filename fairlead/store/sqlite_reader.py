"""Every read of the SQLite file, as plain functions for a thread that never writes.

Owns reading connections; a WAL reader waits for nobody, so no read here stands behind a commit's fsync. It never takes
the write lock. Called by SqliteStore through its executors, one Reader object to a thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from itertools import islice
from typing import TypeVar

import apsw
import msgspec

from fairlead.store.contract import Batch, Compacted, Corrupt, Head, ObjectRow, StoreStats
from fairlead.store.sqlite_file import Settings, connect, read_failure, read_head

CHUNK_ROWS = 2000

TAIL = "SELECT first, last, previous, hash, blob FROM journal WHERE first > ? ORDER BY first"
OBJECTS = "SELECT key, position, value FROM objects"
JOURNAL_STATS = "SELECT count(*), coalesce(sum(length(blob)), 0) FROM journal WHERE first > ?"

Result = TypeVar("Result")


class Reader:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connection: apsw.Connection | None = None

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(apsw.Error):
                self._connection.close()
            self._connection = None

    def head(self) -> Head:
        return self._read("head", read_head)

    def tail(self, after: int, limit_bytes: int) -> list[Batch] | Compacted:
        def work(connection: apsw.Connection) -> list[Batch] | Compacted:
            with contextlib.closing(_snapshot(connection)):
                truncated = read_head(connection).truncated
                if after < truncated:
                    return Compacted(truncated)
                return _batches(connection, after, limit_bytes)

        return self._read("journal", work)

    def stats(self) -> StoreStats:
        def work(connection: apsw.Connection) -> StoreStats:
            with contextlib.closing(_snapshot(connection)):
                head = read_head(connection)
                batches, journal_bytes = connection.execute(JOURNAL_STATS, (head.truncated,)).get
                objects = connection.execute("SELECT count(*) FROM objects").get
            wal_bytes = _size(self._settings.path + "-wal")
            return StoreStats(
                engine="sqlite",
                objects=objects,
                journal_batches=batches,
                journal_bytes=journal_bytes,
                bytes_on_disk=_size(self._settings.path) + wal_bytes,
                detail={"path": self._settings.path, "wal_bytes": str(wal_bytes), "sqlite": apsw.sqlite_lib_version()},
            )

        return self._read("stats", work)

    def checkpoint(self) -> int:
        """Copies what it can of the log into the database while commits go on. Says how many frames the log holds."""

        def work(connection: apsw.Connection) -> int:
            return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)[0]

        return self._read("checkpoint", work)

    def _read(self, where: str, work: Callable[[apsw.Connection], Result]) -> Result:
        try:
            if self._connection is None:
                self._connection = connect(self._settings, "FULL")
            return work(self._connection)
        except (apsw.Error, UnicodeDecodeError) as error:
            self.close()  # The next read starts on a fresh connection.
            raise read_failure(error, where) from error


class ObjectCursor:
    """All objects at one snapshot, on a connection of its own that lives as long as the snapshot is read."""

    def __init__(self, settings: Settings) -> None:
        self._connection: apsw.Connection | None = None
        try:
            self._connection = connect(settings, "FULL")
            self._connection.execute("BEGIN")
            self.head = read_head(self._connection)  # The first read fixes the snapshot.
            self._rows = self._connection.execute(OBJECTS)
        except (apsw.Error, UnicodeDecodeError) as error:
            self.close()
            raise read_failure(error, "objects") from error

    def next_chunk(self) -> list[ObjectRow]:
        """Empty when all were read, and then the snapshot is given up."""
        if self._connection is None:
            return []
        try:
            # Converted, that is checked, in one call: a damaged page can give a row other types than its table has.
            chunk = msgspec.convert(list(islice(self._rows, CHUNK_ROWS)), list[ObjectRow])
        except msgspec.ValidationError as error:
            self.close()
            raise Corrupt("objects", str(error)) from error
        except (apsw.Error, UnicodeDecodeError) as error:
            self.close()
            raise read_failure(error, "objects") from error
        if not chunk:
            self.close()
        return chunk

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(apsw.Error):
                self._connection.close(True)
            self._connection = None


class _Snapshot:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def close(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def _snapshot(connection: apsw.Connection) -> _Snapshot:
    connection.execute("BEGIN")
    return _Snapshot(connection)


def _batches(connection: apsw.Connection, after: int, limit_bytes: int) -> list[Batch]:
    found: list[Batch] = []
    size = 0
    cursor = connection.execute(TAIL, (after,))
    for row in cursor:
        batch = _batch(row)
        size += len(batch.blob)
        if found and size > limit_bytes:
            break
        _check(batch, found[-1] if found else None)
        found.append(batch)
    cursor.close(True)
    return found


def _batch(row: tuple[object, ...]) -> Batch:
    try:
        return msgspec.convert(dict(zip(Batch.__struct_fields__, row, strict=True)), Batch)
    except msgspec.ValidationError as error:
        raise Corrupt(f"journal row {row[0]}", str(error)) from error


def _check(batch: Batch, before: Batch | None) -> None:
    """SQLite keeps no checksums of its own, and the chain is one: a flipped bit on the disk stops here."""
    if hashlib.sha256(batch.previous + batch.blob).digest() != batch.hash:
        raise Corrupt(f"journal row {batch.first}", "its hash does not fit its content")
    if before is not None and (batch.first != before.last + 1 or batch.previous != before.hash):
        raise Corrupt(f"journal row {batch.first}", f"it does not follow the row before it, {before.first}")


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
