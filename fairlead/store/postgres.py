"""The PostgreSQL engine. Owns one plane's schema in a database other planes may share; never holds a transaction open
while it leads, never makes an id or a time, never retries a write on its own. Called by the composition root and the
contract suite.

Every write is one autocommit statement that carries its own guard (P1), so a leader that is stopped between two
statements blocks nobody, and a statement that lands late finds the guard changed and does nothing. The engine trusts
its server to be the only primary: a deposed primary that still answers is for the failover tool to fence. It needs
session pooling (prepared statements, session settings), so a PgBouncer in front must not run in transaction mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import asyncpg
import asyncpg.cursor

from fairlead.store.contract import (
    BATCH_BYTES_MAX,
    FORMAT,
    AcquireResult,
    AlreadyThere,
    Batch,
    Checkpoint,
    CommitResult,
    Committed,
    Compacted,
    Contended,
    Corrupt,
    Fence,
    Fenced,
    FencedWriteResult,
    FormatTooNew,
    Head,
    MaterialiseResult,
    ObjectRow,
    OutcomeUnknown,
    StoreError,
    StoreStats,
    StoreUnreachable,
    Unavailable,
)
from fairlead.store.postgres_link import FAULTS, Connection, Limits, Link, connect, unavailable
from fairlead.store.postgres_sql import DELETE_BATCHES, HEAD_FIELDS, Statements, schema_name, statements
from fairlead.store.rules import EMPTY, is_empty, may_commit, why_not_committed, why_not_materialised

CHUNK_ROWS = 2000  # A few MB of objects: large enough to stream well, small enough for one slice of the loop.
DELETE_ROUNDS_MAX = 20  # One truncation removes at most 4,000 batches; the rest is invisible and goes with the next.
SETUP_S = 60.0  # Creating tables may wait for another process that does the same.
NAME_BYTES_MAX = 63  # What PostgreSQL keeps of an application_name.


class PostgresStore:
    """See contract.Store. One connection per kind of work: a renewal never waits behind a commit or materialisation."""

    def __init__(self, dsn: str, plane: str = "default", limits: Limits | None = None) -> None:
        self._dsn = dsn
        self._schema = schema_name(plane)
        self._sql: Statements = statements(self._schema)
        self._limits = limits or Limits()
        self._commits = self._link("commit", self._limits.write_s)
        self._lease = self._link("lease", self._limits.write_s)
        self._upkeep = self._link("upkeep", self._limits.write_s)
        self._reads = self._link("read", self._limits.read_s)
        self._streams: set[Connection] = set()

    async def open(self) -> Head:
        if not (await self._read(self._sql.exists))[0][0]:
            await self._create()
        # Before the head is read: a newer format may have given it other columns.
        for row in await self._read(self._sql.format):
            _refuse_newer(f"plane schema {self._schema}", row[0])
        return await self.head()

    async def close(self) -> None:
        for link in (self._commits, self._lease, self._upkeep, self._reads):
            await link.close()
        while self._streams:
            self._streams.pop().terminate()

    async def head(self) -> Head:
        return self._head_of(await self._read(self._sql.head))

    async def acquire(self, holder: str, observed: Head) -> AcquireResult:
        wanted = Fence(observed.incarnation, observed.epoch + 1, holder)
        seen = (observed.renewals, observed.position)
        done = await self._lease.run(self._sql.acquire, *_columns(observed.fence()), holder, *seen)
        if isinstance(done, Unavailable | OutcomeUnknown):
            return done
        head = None if done else await self._head_after(self._lease)
        if isinstance(head, OutcomeUnknown):
            return head
        # A holder is unique for each acquisition: if the head names ours, an earlier attempt of this call landed.
        return wanted if head is None or head.fence() == wanted else Contended(head)

    async def renew(self, fence: Fence) -> FencedWriteResult:
        return await self._fenced(self._lease, self._sql.renew, fence)

    async def resign(self, fence: Fence) -> FencedWriteResult:
        return await self._fenced(self._lease, self._sql.resign, fence)

    async def leader_gone(self) -> bool:
        """Never proved: a session lock also dies with a network that is cut while its process lives on."""
        return False

    async def commit(self, fence: Fence, batch: Batch) -> CommitResult:
        values = (batch.first, batch.last, batch.previous, batch.hash, batch.blob)
        done = await self._commits.run(self._sql.commit, *_columns(fence), *values)
        if isinstance(done, Unavailable | OutcomeUnknown):
            return done
        if done:
            return Committed()
        # The guard did not match. Head and row are read in one snapshot, later than the refusal.
        why = await self._commits.run(self._sql.why, batch.first)
        if isinstance(why, Unavailable | OutcomeUnknown):
            # This attempt was refused, but an earlier one may have landed, and nobody could say.
            return OutcomeUnknown(f"not committed now, and the head could not be read: {why.detail}")
        head = self._head_of(why)
        if may_commit(head, fence, batch):
            # The batch before this one landed between the two statements; the same call will succeed now.
            return OutcomeUnknown("the head moved to this batch's place while it was being refused")
        found = why_not_committed(head, fence, batch, why[0]["row_hash"])
        return await self._is_kept(fence) if isinstance(found, AlreadyThere) else found

    async def _is_kept(self, fence: Fence) -> CommitResult:
        """A row that an earlier attempt left is seen before a synchronous standby has it. Whatever is written now waits until the
        standby has everything before it, too."""
        done = await self._fenced(self._commits, self._sql.touch, fence)
        match done:
            case Committed():
                return AlreadyThere()
            case Unavailable():
                return OutcomeUnknown(f"it is there, and perhaps not on every replica that must have it: {done.detail}")
            case _:
                return done

    def commit_on_the_spot(self, fence: Fence, batch: Batch) -> None:
        return None

    async def tail(self, after: int, limit_bytes: int = 4 * BATCH_BYTES_MAX) -> list[Batch] | Compacted:
        rows = await self._read(self._sql.tail, after, limit_bytes)
        if not rows:
            raise Corrupt(f"{self._schema}.head", "the head row is missing")
        if after < rows[0]["truncated"]:
            return Compacted(rows[0]["truncated"])
        return [
            Batch(row["first"], row["last"], row["previous"], row["hash"], row["blob"])
            for row in rows
            if row["first"] is not None
        ]

    async def load(self) -> Checkpoint:
        connection = await self._session("load", self._limits.read_s)
        try:
            # One snapshot for the head and all objects, however long the reader takes; it blocks no writer.
            async with asyncio.timeout(self._limits.read_s):
                await connection.transaction(isolation="repeatable_read", readonly=True).start()
                head = self._head_of(await connection.fetch(self._sql.head))
                cursor = await connection.cursor(self._sql.objects)
        except FAULTS as error:
            self._hang_up(connection)
            raise _unreachable(error) from error
        except BaseException:
            self._hang_up(connection)
            raise
        return Checkpoint(head, head.materialised, self._chunks(connection, cursor))

    async def materialise(
        self, fence: Fence, upto: int, rows: Sequence[ObjectRow], deleted: Sequence[str], as_of: int = 0
    ) -> MaterialiseResult:
        keys, positions, values = ([row[column] for row in rows] for column in range(3))
        known = max(upto, as_of)
        done = await self._fenced(self._upkeep, self._sql.materialise, fence, upto, keys, positions, values, list(deleted), known)
        return why_not_materialised(done.head, fence, known) if isinstance(done, Fenced) else done

    async def truncate(self, fence: Fence, through: int, anchor: bytes) -> FencedWriteResult:
        done = await self._fenced(self._upkeep, self._sql.truncate, fence, through, anchor)
        if isinstance(done, Committed):
            for _ in range(DELETE_ROUNDS_MAX):
                removed = await self._upkeep.run(self._sql.delete_batches)
                if isinstance(removed, Unavailable | OutcomeUnknown) or len(removed) < DELETE_BATCHES:
                    break  # The head already says truncated; rows that stayed are removed by the next truncation.
        return done

    async def set_incarnation(self, fence: Fence, incarnation: int) -> FencedWriteResult:
        assert incarnation > fence.incarnation, f"incarnation {incarnation} does not raise {fence.incarnation}"
        done = await self._fenced(self._lease, self._sql.set_incarnation, fence, incarnation)
        # A holder is unique for each acquisition: the wanted incarnation with our epoch and holder is our own work.
        if isinstance(done, Fenced) and done.head.fence() == Fence(incarnation, fence.epoch, fence.holder):
            return Committed()
        return done

    async def seed(self, head: Head, chunks: AsyncIterator[list[ObjectRow]]) -> None:
        """One transaction: whoever tries to lead meanwhile waits for the head row; an interruption leaves nothing."""
        _refuse_newer("the data to seed", head.format)
        connection = await self._session("seed", SETUP_S)
        try:
            async with connection.transaction():
                found = self._head_of(await connection.fetch(self._sql.lock_head))
                if not is_empty(found):
                    raise StoreError(
                        f"plane schema {self._schema} is not empty (epoch {found.epoch}, position {found.position}): "
                        "restore into a new plane, or drop the schema first"
                    )
                async for chunk in chunks:
                    await connection.copy_records_to_table("objects", records=chunk, schema_name=self._schema)
                await connection.execute(self._sql.seed_head, *(getattr(head, field) for field in HEAD_FIELDS))
            await connection.execute(self._sql.analyze)
        except FAULTS as error:
            raise _unreachable(error) from error
        finally:
            self._hang_up(connection)

    async def stats(self) -> StoreStats:
        row = (await self._read(self._sql.stats))[0]
        detail = {"schema": self._schema, "server": row["server"], "synchronousStandbys": row["standbys"] or "none"}
        return StoreStats("postgres", row["objects"], row["batches"], row["bytes"], row["disk"], detail)

    def _link(self, kind: str, timeout_s: float) -> Link:
        return Link(self._dsn, self._name(kind), self._limits, timeout_s)

    def _name(self, kind: str) -> str:
        """What pg_stat_activity shows."""
        return f"{kind} {self._schema}"[:NAME_BYTES_MAX]

    async def _session(self, kind: str, statement_s: float) -> Connection:
        """A connection for one piece of work, tracked so that `close` ends it whatever its user does."""
        try:
            connection = await connect(self._dsn, self._name(kind), self._limits, statement_s, bounded=False)
        except FAULTS as error:
            raise _unreachable(error) from error
        self._streams.add(connection)
        return connection

    def _hang_up(self, connection: Connection) -> None:
        self._streams.discard(connection)
        connection.terminate()

    async def _create(self) -> None:
        connection = await self._session("setup", SETUP_S)
        try:
            encoding = connection.get_settings().server_encoding
            if encoding != "UTF8":
                raise StoreError(f"the database's encoding is {encoding}: create one with ENCODING 'UTF8'")
            async with connection.transaction():
                # CREATE ... IF NOT EXISTS is not safe against itself; two processes that start together take turns.
                await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", self._schema)
                for statement in self._sql.create:
                    await connection.execute(statement)
                await connection.execute(self._sql.insert_head, *(getattr(EMPTY, field) for field in HEAD_FIELDS))
        except FAULTS as error:
            raise _unreachable(error) from error
        finally:
            self._hang_up(connection)

    async def _chunks(
        self, connection: Connection, cursor: asyncpg.cursor.Cursor[asyncpg.Record]
    ) -> AsyncIterator[list[ObjectRow]]:
        try:
            while True:
                async with asyncio.timeout(self._limits.read_s):
                    rows = await cursor.fetch(CHUNK_ROWS)
                if not rows:
                    return
                yield [(row[0], row[1], row[2]) for row in rows]
        except FAULTS as error:
            raise _unreachable(error) from error
        finally:
            self._hang_up(connection)

    async def _fenced(self, link: Link, sql: str, fence: Fence, *values: object) -> FencedWriteResult:
        done = await link.run(sql, *_columns(fence), *values)
        if isinstance(done, Unavailable | OutcomeUnknown):
            return done
        head = None if done else await self._head_after(link)
        if isinstance(head, OutcomeUnknown):
            return head
        return Committed() if head is None else Fenced(head)

    async def _head_after(self, link: Link) -> Head | OutcomeUnknown:
        """The head after a guard refused. Unknown if it cannot be read: an earlier attempt may have landed."""
        rows = await link.run(self._sql.head)
        if isinstance(rows, Unavailable | OutcomeUnknown):
            return OutcomeUnknown(f"refused, and the head could not be read: {rows.detail}")
        return self._head_of(rows)

    async def _read(self, sql: str, *values: object) -> list[asyncpg.Record]:
        rows = await self._reads.run(sql, *values)
        if isinstance(rows, Unavailable):
            if rows.reason == "Corrupt":
                raise Corrupt(self._schema, rows.detail)
            raise StoreUnreachable(rows.detail, rows.retry_after_s)
        if isinstance(rows, OutcomeUnknown):
            raise StoreUnreachable(rows.detail)
        return rows

    def _head_of(self, rows: Sequence[asyncpg.Record]) -> Head:
        if not rows:
            raise Corrupt(f"{self._schema}.head", "the head row is missing")
        return Head(*(rows[0][field] for field in HEAD_FIELDS))


def _columns(fence: Fence) -> tuple[int, int, str]:
    return fence.incarnation, fence.epoch, fence.holder


def _refuse_newer(where: str, found: int) -> None:
    if found > FORMAT:
        raise FormatTooNew(f"{where} has format {found}, this version reads up to {FORMAT}: upgrade Fairlead first")


def _unreachable(error: BaseException) -> StoreUnreachable:
    known = unavailable(error)
    return StoreUnreachable(known.detail, known.retry_after_s)
