"""The SQLite file itself: its tables, how a connection to it is opened, and what its errors mean.

Owns the schema and the two tables of errors (what a write answers, what a read raises). It starts no thread and holds
no connection. Called by sqlite_writer.py and sqlite_reader.py, on their threads.
"""

from __future__ import annotations

from pathlib import Path

import apsw
import msgspec

from fairlead.ports import sync_directory
from fairlead.store.contract import FORMAT, Corrupt, FormatTooNew, Head, StoreError, StoreUnreachable, Unavailable
from fairlead.store.rules import EMPTY

APPLICATION_ID = 0x464C4431  # "FLD1": tells our files from other people's databases.

# Measured for 500 B values with random keys: a rowid table takes 38k inserts/s and 1.1 GB of WAL where WITHOUT ROWID
# takes 18k and 3.0 GB (whole rows move when its pages split), scans a little faster, and counts from the index alone.
OBJECTS_COLUMNS = "(key TEXT PRIMARY KEY NOT NULL, position INTEGER NOT NULL, value BLOB NOT NULL) STRICT"

SCHEMA = (
    """CREATE TABLE head (
        id INTEGER PRIMARY KEY CHECK (id = 1), format INTEGER NOT NULL, incarnation INTEGER NOT NULL,
        epoch INTEGER NOT NULL, holder TEXT NOT NULL, renewals INTEGER NOT NULL, position INTEGER NOT NULL,
        hash BLOB NOT NULL, materialised INTEGER NOT NULL, truncated INTEGER NOT NULL, anchor BLOB NOT NULL,
        seeds INTEGER NOT NULL) STRICT""",
    # The blob comes last: the columns before it are then read without following its overflow pages.
    """CREATE TABLE journal (
        first INTEGER PRIMARY KEY, last INTEGER NOT NULL, previous BLOB NOT NULL, hash BLOB NOT NULL,
        blob BLOB NOT NULL) STRICT""",
    f"CREATE TABLE objects {OBJECTS_COLUMNS}",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
)

HEAD_FIELDS = Head.__struct_fields__
READ_HEAD = f"SELECT {', '.join(HEAD_FIELDS)} FROM head"
CREATE_HEAD = f"INSERT INTO head (id, seeds, {', '.join(HEAD_FIELDS)}) VALUES (1, 0{', ?' * len(HEAD_FIELDS)})"
REPLACE_HEAD = f"UPDATE head SET {', '.join(f'{field} = ?' for field in HEAD_FIELDS)}"


class Settings(msgspec.Struct, frozen=True):
    path: str
    vfs: str | None
    busy_timeout_s: float
    sync: bool  # False only in the power-loss rig's negative control

    @property
    def busy_timeout_ms(self) -> int:
        return int(self.busy_timeout_s * 1000)


def connect(settings: Settings, synchronous: str) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    connection = apsw.Connection(settings.path, flags=flags, vfs=settings.vfs)
    connection.set_busy_timeout(settings.busy_timeout_ms)
    for pragma in (
        f"PRAGMA synchronous = {synchronous if settings.sync else 'OFF'}",
        "PRAGMA fullfsync = 1",  # On macOS a plain fsync leaves data in the drive's cache; elsewhere without effect.
        "PRAGMA checkpoint_fullfsync = 1",
        "PRAGMA wal_autocheckpoint = 0",  # A checkpoint inside a commit would stall it; SqliteStore runs them beside.
        "PRAGMA cache_size = -32768",  # 32 MiB: the inner pages of two million objects' index.
    ):
        connection.execute(pragma)
    return connection


def create_or_check(settings: Settings) -> Head:
    """Creates the tables in a new file; refuses a file that is not ours or is too new. Says what the head is."""
    try:
        connection = connect(settings, "FULL")
        try:
            return _create_or_check(connection, settings)
        finally:
            connection.close()
    except (apsw.Error, UnicodeDecodeError) as error:
        raise read_failure(error, settings.path) from error


def _create_or_check(connection: apsw.Connection, settings: Settings) -> Head:
    if _is_blank(connection, settings.path):
        mode = connection.execute("PRAGMA journal_mode = WAL").get
        if mode != "wal":
            raise StoreError(f"{settings.path}: this file system cannot hold a WAL; put the store on a local disk")
        connection.execute("BEGIN IMMEDIATE")
        # Asked again under the lock: another process may have created the tables meanwhile.
        if _is_blank(connection, settings.path):
            for statement in SCHEMA:
                connection.execute(statement)
            connection.execute(CREATE_HEAD, _values(EMPTY))
        connection.execute("COMMIT")
        sync_directory(Path(settings.path).absolute().parent)
    newest = connection.execute("PRAGMA user_version").get
    if newest > FORMAT:
        raise too_new(settings.path, newest)
    head = read_head(connection)
    if head.format > FORMAT:
        raise too_new(settings.path, head.format)
    return head


def _is_blank(connection: apsw.Connection, path: str) -> bool:
    # In this order: another process creates both in one transaction, so whoever sees its tables sees its id after them.
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    found = connection.execute("PRAGMA application_id").get
    if found == APPLICATION_ID:
        return False
    if found or tables:
        raise StoreError(f"{path} is a database, but not a Fairlead store; it was left as it is. Name another file")
    return True


def too_new(where: str, found: int) -> FormatTooNew:
    return FormatTooNew(f"{where} has format {found}, this Fairlead reads up to {FORMAT}; start the newer version that wrote it")


def _values(head: Head) -> tuple[int | str | bytes, ...]:
    return tuple(getattr(head, field) for field in HEAD_FIELDS)


def read_head(connection: apsw.Connection) -> Head:
    row = connection.execute(READ_HEAD).fetchone()
    if row is None:
        raise Corrupt("head", "the row is missing")
    try:
        return msgspec.convert(dict(zip(HEAD_FIELDS, row, strict=True)), Head)
    except msgspec.ValidationError as error:
        raise Corrupt("head", str(error)) from error


def replace_head(connection: apsw.Connection, head: Head) -> None:
    connection.execute(REPLACE_HEAD, _values(head))


# What a failed write says to whoever has to act on it. Anything not named here is reported by its SQLite name.
_WRITE_FAULTS: tuple[tuple[type[apsw.Error], str, str], ...] = (
    (apsw.FullError, "DiskFull", "free space on the store's disk; commits go on by themselves"),
    (apsw.ReadOnlyError, "ReadOnly", "the file or its file system is read-only; remount it or fix its permissions"),
    (apsw.BusyError, "Busy", "another process holds the write lock; a stopped leader must be killed by its supervisor"),
    (apsw.IOError, "IOError", "the disk failed before anything was committed; check the disk and the kernel's log"),
    (apsw.CantOpenError, "CannotOpen", "the file or its WAL cannot be opened; check path, permissions and open files"),
    (apsw.CorruptError, "Corrupt", "the file is damaged; restore a backup with `fairlead store restore`"),
    (apsw.NotADBError, "Corrupt", "the file is no database any more; restore a backup with `fairlead store restore`"),
)


def unavailable(error: Exception) -> Unavailable:
    if isinstance(error, Corrupt | UnicodeDecodeError):
        return Unavailable("Corrupt", str(error))
    for kind, reason, advice in _WRITE_FAULTS:
        if isinstance(error, kind):
            return Unavailable(reason, f"{advice} ({error})")
    return Unavailable(type(error).__name__.removesuffix("Error"), str(error))


def read_failure(error: Exception, where: str) -> StoreError:
    # A text that is not UTF-8 was never written by us: a page is damaged in a way SQLite itself does not see.
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | UnicodeDecodeError):
        return Corrupt(where, str(error))
    return StoreUnreachable(f"{where}: {type(error).__name__}: {error}")
