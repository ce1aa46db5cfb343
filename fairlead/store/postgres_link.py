"""One connection to PostgreSQL and what its failures mean. Owns connecting, preparing, time limits and the line between
"certainly not run" and "nobody knows"; never knows what a statement is for and never retries one that was sent.

Called by `fairlead.store.postgres`, which keeps one link per kind of work.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg
import asyncpg.connect_utils
import msgspec

from fairlead.store.contract import OutcomeUnknown, Unavailable

if TYPE_CHECKING:  # These are generic in the stubs only.
    from asyncpg.prepared_stmt import PreparedStatement

    Connection = asyncpg.Connection[asyncpg.Record]
    Statement = PreparedStatement[asyncpg.Record]
else:
    Connection = Statement = Any

# asyncpg raises its own InternalClientError (no primary among the hosts) beside errors of the server and of the socket.
FAULTS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
IDLE_IN_TRANSACTION_S = 60.0  # Only a load or a seed is ever idle in a transaction, while a chunk is worked on.
GOODBYE_S = 0.5  # Only politeness: a hang-up ends a session as well, with a line in the server's log.
TRANSACTION_TIMEOUT_SINCE = 17  # The server version that can end a transaction whose client went silent.

# What to do next, by SQLSTATE or its class. retry_after_s is long where only an operator can help.
NEXT_STEPS: dict[str, tuple[str, str, float]] = {
    "53100": ("DiskFull", "free space on the database server", 5.0),
    "53300": ("TooManyConnections", "raise max_connections or stop other clients", 2.0),
    "53": ("ServerOverloaded", "the server lacks memory or another resource", 2.0),
    "25006": ("ReadOnly", "the server is a standby or set read-only; point the DSN at the primary", 2.0),
    "57P03": ("ServerStarting", "the server is starting, stopping or recovering; wait", 1.0),
    "57P01": ("ServerStopping", "the server is shutting down; wait for it or its successor", 1.0),
    "57014": ("Slow", "the server cancelled the statement at its time limit; look at its load and locks", 0.5),
    "55P03": (
        "Locked",
        "another session holds the plane's head row; see pg_stat_activity for who (one that waits for SyncRep "
        "waits for a synchronous standby: bring that back)",
        0.5,
    ),
    "28": ("NotAuthorised", "check user, password and pg_hba.conf", 5.0),
    "3D000": ("NoDatabase", "create the database the DSN names", 5.0),
    "42501": ("NotAuthorised", "grant the user rights on the plane's schema", 5.0),
    "42P01": ("NoTables", "the plane's tables are gone; restore a backup with `fairlead store restore`", 5.0),
    "23": ("Corrupt", "the journal disagrees with the head; restore a backup with `fairlead store restore`", 5.0),
    "XX": ("Corrupt", "the server reports damage; restore a backup with `fairlead store restore`", 5.0),
}


class Limits(msgspec.Struct, frozen=True):
    """How long the engine waits. A server-side limit ends a statement before the client gives up on it, because the
    server's error is certain and the client's timeout is not."""

    connect_s: float = 3.0
    write_s: float = 5.0  # Below the leader's lease, so that a stuck store is noticed while still leading.
    read_s: float = 10.0


def is_certain(error: BaseException) -> bool:
    """True if the server itself says that the statement was rolled back.

    FATAL is not: a backend that is terminated may report it after it committed, and one that was waiting for a
    synchronous standby has committed locally. asyncpg's own errors carry no severity and prove nothing either.
    """
    return isinstance(error, asyncpg.PostgresError) and getattr(error, "severity_en", None) == "ERROR"


def unavailable(error: BaseException) -> Unavailable:
    """Words for a statement that certainly did not run."""
    state = getattr(error, "sqlstate", None) or ""
    known = NEXT_STEPS.get(state) or NEXT_STEPS.get(state[:2]) if getattr(error, "severity_en", None) else None
    what = str(error) or type(error).__name__
    if known is None:
        reason = "Refused" if is_certain(error) else "Unreachable"
        return Unavailable(reason, f"PostgreSQL: {what}" + (f" (SQLSTATE {state})" if state else ""))
    reason, next_step, retry_after_s = known
    return Unavailable(reason, f"PostgreSQL: {what} (SQLSTATE {state}): {next_step}", retry_after_s)


async def connect(dsn: str, name: str, limits: Limits, statement_s: float, *, bounded: bool) -> Connection:
    """A session with our limits set. `bounded` also limits a whole transaction, for links that only autocommit."""
    async with asyncio.timeout(limits.connect_s):
        # "primary": a hot standby answers reads with the past, and `head` must be linearizable.
        connection: Connection = await asyncpg.connect(
            dsn,
            statement_cache_size=0,
            target_session_attrs=asyncpg.connect_utils.SessionAttribute.primary,
            server_settings=_session(name, statement_s),
        )
        try:
            if bounded and connection.get_server_version().major >= TRANSACTION_TIMEOUT_SINCE:
                # A client stopped when its Execute message has arrived and its Sync has not leaves an implicit
                # transaction open, row lock and all. statement_timeout is over by then; only this ends it.
                await connection.execute(f"SET transaction_timeout = {_milliseconds(statement_s)}")
        except BaseException:
            connection.terminate()
            raise
    return connection


def _session(name: str, statement_s: float) -> dict[str, str]:
    return {
        "application_name": name,
        "statement_timeout": _milliseconds(statement_s),
        "lock_timeout": _milliseconds(statement_s / 2),
        "idle_in_transaction_session_timeout": _milliseconds(IDLE_IN_TRANSACTION_S),
        # The trap with synchronous replication: when a wait for the standby is cancelled (a timeout, a shutdown), the
        # transaction is committed here but perhaps nowhere else, and is visible. We never take an absent answer for an
        # absent write: the batch is submitted again under the same fence; a failover that lost it shows as a lost tail.
        "synchronous_commit": "on",
        "default_transaction_isolation": "read committed",  # The guards rely on re-reading the row after a lock wait.
        "jit": "off",
        "search_path": "pg_catalog",
        # A vanished client host (no FIN) is noticed within 15 s instead of two hours.
        "tcp_keepalives_idle": "5",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "2",
    }


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))


class Link:
    """A connection that is opened when needed and thrown away at the first doubt. One statement at a time."""

    def __init__(self, dsn: str, name: str, limits: Limits, timeout_s: float) -> None:
        self._dsn = dsn
        self._name = name
        self._limits = limits
        self._timeout_s = timeout_s
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._prepared: dict[str, Statement] = {}

    async def run(self, sql: str, *arguments: Any) -> list[asyncpg.Record] | Unavailable | OutcomeUnknown:
        """Unavailable: certainly not run. OutcomeUnknown: sent, and it may still be running on the server."""
        async with self._lock:
            try:
                statement = await self._ready(sql)
            except FAULTS as error:
                self.discard()
                return unavailable(error)
            except BaseException:
                self.discard()
                raise
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await statement.fetch(*arguments)
            except FAULTS as error:
                self.discard()
                if is_certain(error):
                    return unavailable(error)
                return OutcomeUnknown(f"PostgreSQL did not answer ({self._name}): {str(error) or 'timeout'}")
            except BaseException:
                # Cancelled in the middle: what is on the wire belongs to nobody, so this connection is over.
                self.discard()
                raise

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        self._prepared.clear()
        if connection is not None:
            await close(connection)

    def discard(self) -> None:
        connection, self._connection = self._connection, None
        self._prepared.clear()
        if connection is not None:
            connection.terminate()

    async def _ready(self, sql: str) -> Statement:
        """The statement, prepared. Nothing of it has run, so every failure up to here is certain. At most one attempt
        to connect: when to try again is the caller's decision, which knows how long it may lead."""
        if self._connection is None or self._connection.is_closed():
            self._prepared.clear()
            server_s = self._timeout_s * 0.8
            self._connection = await connect(self._dsn, self._name, self._limits, server_s, bounded=True)
        statement = self._prepared.get(sql)
        if statement is None:
            async with asyncio.timeout(self._limits.connect_s):
                # Named, or it would be parsed again with every execution: without a cache asyncpg gives none by itself.
                statement = await self._connection.prepare(sql, name=f"fairlead_{len(self._prepared)}")
            self._prepared[sql] = statement
        return statement


async def close(connection: Connection) -> None:
    """Says goodbye if the server listens, hangs up if it does not."""
    try:
        async with asyncio.timeout(GOODBYE_S):
            await connection.close()
    except FAULTS:
        connection.terminate()
