"""Every SQL text of the PostgreSQL engine, for one plane's schema. Owns the tables' shape; never runs a statement.

A plane is a schema of its own, not a column: no statement can forget the plane, sizes and vacuum are per plane, rights
can be granted per plane and a plane is dropped in one statement. Called by `fairlead.store.postgres` only.
"""

from __future__ import annotations

import re

import msgspec

from fairlead.store.contract import Head

PLANE = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")  # Fits PostgreSQL's 63 bytes for a name, prefix included.
DELETE_BATCHES = 200  # One deletion stays far below the statement timeout even when every blob is 1 MiB.

HEAD_FIELDS = Head.__struct_fields__
OWN_FIELDS = tuple(field for field in HEAD_FIELDS if field != "materialised")
HEAD_COLUMNS = ", ".join("p.materialised" if field == "materialised" else f"h.{field}" for field in HEAD_FIELDS)
HEAD_ROWS = "{s}.head h CROSS JOIN {s}.progress p"


class Statements(msgspec.Struct, frozen=True):
    exists: str
    create: tuple[str, ...]
    insert_head: str
    format: str
    head: str
    acquire: str
    renew: str
    touch: str
    resign: str
    commit: str
    why: str
    tail: str
    objects: str
    materialise: str
    truncate: str
    delete_batches: str
    set_incarnation: str
    lock_head: str
    seed_head: str
    analyze: str
    stats: str


def schema_name(plane: str) -> str:
    if not PLANE.fullmatch(plane):
        raise ValueError(f"a plane is named with a-z, 0-9 and '-', 42 at most: {plane!r}")
    return f"fairlead_{plane}"


# `materialised` has a row of its own, so that a materialisation (20 ms for 1,000 rows) does not hold the row a commit needs.
# It only takes KEY SHARE on the head, which a commit's or a renewal's update does not conflict with. The updates it must
# conflict with are those of the fence: PostgreSQL locks a row fully when an update changes a *uniquely indexed* column, and
# that is the one purpose of UNIQUE (incarnation, epoch, holder). Without it a stale materialisation could land.
# fillfactor leaves room on the page, so that every other update of the one row is a HOT update and needs no vacuum.
# EXTERNAL: the server does not try to compress; blobs are dense and pglz cost more time than the bytes saved.
TABLES = (
    "CREATE SCHEMA IF NOT EXISTS {s}",
    """CREATE TABLE IF NOT EXISTS {s}.head (
        one boolean PRIMARY KEY DEFAULT true CHECK (one),
        format integer NOT NULL, incarnation bigint NOT NULL, epoch bigint NOT NULL, holder text NOT NULL,
        renewals bigint NOT NULL, position bigint NOT NULL, hash bytea NOT NULL,
        truncated bigint NOT NULL, anchor bytea NOT NULL,
        UNIQUE (incarnation, epoch, holder)
    ) WITH (fillfactor = 10)""",
    """CREATE TABLE IF NOT EXISTS {s}.progress (
        one boolean PRIMARY KEY DEFAULT true CHECK (one), materialised bigint NOT NULL
    ) WITH (fillfactor = 10)""",
    """CREATE TABLE IF NOT EXISTS {s}.journal (
        first bigint PRIMARY KEY, last bigint NOT NULL, previous bytea NOT NULL, hash bytea NOT NULL,
        blob bytea NOT NULL
    )""",
    "ALTER TABLE {s}.journal ALTER COLUMN blob SET STORAGE EXTERNAL",
    """CREATE TABLE IF NOT EXISTS {s}.objects (
        key text COLLATE "C" PRIMARY KEY, position bigint NOT NULL, value bytea NOT NULL
    )""",
)

FENCE = "incarnation = $1::bigint AND epoch = $2::bigint AND holder = $3::text"

# P1. One statement outside any transaction: the row lock lives only while the server works on it, so a leader that is
# stopped between two statements blocks nobody. A statement that waited for the lock compares the row as it is *then*.
COMMIT = f"""
WITH g AS (
    UPDATE {{s}}.head SET position = $5::bigint, hash = $7::bytea
    WHERE {FENCE} AND position = $4::bigint - 1 AND hash = $6::bytea
    RETURNING 1
)
INSERT INTO {{s}}.journal (first, last, previous, hash, blob)
SELECT $4::bigint, $5::bigint, $6::bytea, $7::bytea, $8::bytea FROM g RETURNING 1
"""

WHY = f"""
SELECT {HEAD_COLUMNS}, j.hash AS row_hash
FROM {HEAD_ROWS} LEFT JOIN {{s}}.journal j ON j.first = $1::bigint
"""

# `materialised <= upto`: a materialisation that was given up on may land after newer ones, and must not take rows back.
# `position`: they must be the state of a head that this store has reached; a failover may have lost the tail they came from.
# set_config: durability may lag here, and the commit record is written with this setting. A crash takes rows and
# `materialised` back together, because both are in one transaction; the next commit's flush makes them durable.
# All parts of the statement see one snapshot; that is sound because rows and deleted keys are disjoint.
MATERIALISE = f"""
WITH fence AS (
    SELECT 1 FROM {{s}}.head WHERE {FENCE} AND position >= $9::bigint FOR KEY SHARE
), g AS (
    UPDATE {{s}}.progress p SET materialised = $4::bigint
    FROM fence WHERE p.materialised <= $4::bigint
    RETURNING set_config('synchronous_commit', 'off', true)
), written AS (
    INSERT INTO {{s}}.objects (key, position, value)
    SELECT r.key, r.position, r.value
    FROM g CROSS JOIN unnest($5::text[], $6::bigint[], $7::bytea[]) AS r(key, position, value)
    ON CONFLICT (key) DO UPDATE SET position = excluded.position, value = excluded.value
), removed AS (
    DELETE FROM {{s}}.objects WHERE key = ANY ($8::text[]) AND EXISTS (SELECT FROM g)
)
SELECT 1 FROM g
"""

# `cut` is read before the lock is taken, so the update never lets `truncated` or its anchor go back.
TRUNCATE = f"""
WITH cut AS (
    SELECT j.last FROM {{s}}.journal j, {{s}}.progress p
    WHERE j.first <= $4::bigint AND j.last <= $4::bigint AND $4::bigint <= p.materialised
    ORDER BY j.first DESC LIMIT 1
), upto AS (SELECT (SELECT last FROM cut) AS last)
UPDATE {{s}}.head h SET truncated = greatest(h.truncated, upto.last),
    anchor = CASE WHEN upto.last > h.truncated THEN $5::bytea ELSE h.anchor END
FROM upto WHERE {FENCE} RETURNING 1
"""

# Needs no fence: what it removes is behind `truncated`, which only a leader moves and only forwards.
DELETE_BATCHES_SQL = f"""
DELETE FROM {{s}}.journal WHERE first IN (
    SELECT j.first FROM {{s}}.journal j, {{s}}.head h
    WHERE j.first <= h.truncated AND j.last <= h.truncated ORDER BY j.first LIMIT {DELETE_BATCHES}
) RETURNING 1
"""

# One row of head fields always comes back, so one snapshot answers both "compacted?" and "what follows?". octet_length
# does not fetch an EXTERNAL value, so measuring is cheap; the inner limit bounds it.
TAIL = """
SELECT h.truncated, t.first, t.last, t.previous, t.hash, t.blob
FROM {s}.head h LEFT JOIN LATERAL (
    SELECT m.* FROM (
        SELECT j.*, row_number() OVER w AS row, sum(octet_length(j.blob)) OVER w AS size
        FROM (SELECT * FROM {s}.journal WHERE first > $1::bigint ORDER BY first LIMIT 4096) j
        WINDOW w AS (ORDER BY j.first ROWS UNBOUNDED PRECEDING)
    ) m WHERE m.row = 1 OR m.size <= $2::bigint
) t ON h.truncated <= $1::bigint
ORDER BY t.first
"""

STATS = """
SELECT (SELECT count(*) FROM {s}.objects) AS objects, count(j.first) AS batches,
    coalesce(sum(octet_length(j.blob)), 0)::bigint AS bytes,
    (pg_total_relation_size('{s}.head') + pg_total_relation_size('{s}.progress') + pg_total_relation_size('{s}.journal')
        + pg_total_relation_size('{s}.objects'))::bigint AS disk,
    current_setting('server_version') AS server, current_setting('synchronous_standby_names') AS standbys
FROM {s}.head h LEFT JOIN {s}.journal j ON j.first > h.truncated
"""


def statements(schema: str) -> Statements:
    s = f'"{schema}"'
    columns = ", ".join(OWN_FIELDS)
    places = ", ".join(f"${HEAD_FIELDS.index(field) + 1}" for field in OWN_FIELDS)
    materialised = f"${HEAD_FIELDS.index('materialised') + 1}"
    head_rows = HEAD_ROWS.format(s=s)
    return Statements(
        exists=f"SELECT to_regclass('{s}.head') IS NOT NULL",
        create=tuple(table.format(s=s) for table in TABLES),
        insert_head=f"WITH p AS (INSERT INTO {s}.progress (materialised) VALUES ({materialised}) ON CONFLICT DO NOTHING) "
        f"INSERT INTO {s}.head ({columns}) VALUES ({places}) ON CONFLICT DO NOTHING",
        format=f"SELECT format FROM {s}.head",
        head=f"SELECT {HEAD_COLUMNS} FROM {head_rows}",
        acquire=f"UPDATE {s}.head SET epoch = $2 + 1, holder = $4::text WHERE {FENCE} "
        "AND renewals = $5::bigint AND position = $6::bigint RETURNING 1",
        renew=f"UPDATE {s}.head SET renewals = renewals + 1 WHERE {FENCE} RETURNING 1",
        touch=f"UPDATE {s}.head SET holder = holder WHERE {FENCE} RETURNING 1",
        resign=f"UPDATE {s}.head SET holder = '' WHERE {FENCE} RETURNING 1",
        commit=COMMIT.format(s=s),
        why=WHY.format(s=s),
        tail=TAIL.format(s=s),
        objects=f"SELECT key, position, value FROM {s}.objects",
        materialise=MATERIALISE.format(s=s),
        truncate=TRUNCATE.format(s=s),
        delete_batches=DELETE_BATCHES_SQL.format(s=s),
        set_incarnation=f"UPDATE {s}.head SET incarnation = $4::bigint WHERE {FENCE} RETURNING 1",
        lock_head=f"SELECT {HEAD_COLUMNS} FROM {head_rows} FOR UPDATE",
        seed_head=f"WITH p AS (UPDATE {s}.progress SET materialised = {materialised}) "
        f"UPDATE {s}.head SET ({columns}) = ROW({places})",
        analyze=f"ANALYZE {s}.objects",
        stats=STATS.format(s=s),
    )
