"""`fairlead store`: look at a plane's store, back it up, restore it, compact it, verify it.

Owns the words; what is done is in fairlead/store (snapshot, backup, compact, verify). Never writes to a store that a server
leads.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click

from fairlead.cli.frame import CHECK_FAILED, CONFLICT, DENIED, NOT_FOUND, OK, LazyGroup, Told, World
from fairlead.cli.output import instant_of, json_option, note, progress, put_json, put_pairs, put_table, size_of
from fairlead.security.files import UnsafeFile
from fairlead.security.sealing import CannotOpen, Keyring
from fairlead.store import backup as backups
from fairlead.store import compact as compaction
from fairlead.store import verify as verification
from fairlead.store.contract import Corrupt, Store
from fairlead.store.snapshot import take_snapshot

SQLITE_MAGIC = b"SQLite format 3\0"
JOURNAL_BYTES_ALARM = 512 * 1024 * 1024  # Twice what a leader keeps: nobody has cut it for a long time.

URL_HELP = """
\b
URL is one of
  sqlite:PATH, or just PATH
  postgresql://USER@HOST/DATABASE[?plane=NAME]
  etcd://HOST:PORT,HOST:PORT/PREFIX[?ca=FILE&cert=FILE&key=FILE]
"""


@click.group("store", cls=LazyGroup, epilog=URL_HELP)
def command() -> None:
    """Look at a plane's store, back it up, restore, compact or verify it."""


def on_loop(work: Callable[..., Awaitable[int]]) -> Callable[..., int]:
    """A command that is a coroutine: run on a loop of its own, with the World as its first argument."""

    @click.pass_obj
    @functools.wraps(work)
    def call(world: World, /, **parameters: Any) -> int:
        code: int = world.run(work(world, **parameters))  # type: ignore[arg-type]
        return code

    return call


@asynccontextmanager
async def opened(world: World, url: str, *, create: bool = False) -> AsyncIterator[Store]:
    store = world.open_store(url, create=create)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


# --- status ----------------------------------------------------------------------------------------------------------


@command.command("status", epilog=URL_HELP)
@click.argument("url")
@json_option
@on_loop
async def status(world: World, url: str, as_json: bool) -> int:
    """Say where a store stands: who leads, how far the journal reaches, what it holds."""
    async with opened(world, url) as store:
        facts = await _facts(world, url, store)
    if as_json:
        put_json(facts)
        return OK
    head = facts["head"]
    put_pairs(
        [
            ("store", facts["store"]),
            ("engine", facts["engine"]),
            ("format", str(head["format"])),
            ("incarnation", str(head["incarnation"])),
            ("epoch", str(head["epoch"])),
            ("holder", head["holder"] or "nobody leads"),
            ("position", f"{head['position']:,}"),
            ("materialised", f"{head['materialised']:,}  ({head['position'] - head['materialised']:,} behind)"),
            ("journal", f"{facts['journal_batches']:,} batches after {head['truncated']:,}, {size_of(facts['journal_bytes'])}"),
            ("plane time", instant_of(facts["time_ms"])),
            ("on disk", size_of(facts["bytes_on_disk"])),
            *((name, value) for name, value in sorted(facts["detail"].items())),
            ("alarms", "; ".join(facts["alarms"]) or "none"),
        ]
    )
    if facts["objects"]:
        click.echo()
        put_table(["KIND", "OBJECTS"], list(facts["objects"].items()))
    return OK


async def _facts(world: World, url: str, store: Store) -> dict[str, Any]:
    head, stats = await store.head(), await store.stats()
    alarms = [stats.detail[name] for name in ("alarms", "version_warning") if stats.detail.get(name, "none") != "none"]
    if stats.journal_bytes > JOURNAL_BYTES_ALARM:
        alarms.append(f"the journal holds {size_of(stats.journal_bytes)}: no leader has cut it; see `fairlead store compact`")
    tables, time_ms = dict[str, int](), 0
    try:
        with progress("counting objects") as told:
            snapshot = await take_snapshot(store)
            async for _ in snapshot.chunks():
                told("objects", sum(snapshot.tables.values()))
        tables, time_ms = dict(sorted(snapshot.tables.items())), snapshot.time_ms
    except Corrupt as corrupt:
        alarms.append(str(corrupt))
    fields = {name: getattr(head, name) for name in head.__struct_fields__ if name not in ("hash", "anchor")}
    return {
        "store": world.shown(url),
        "engine": stats.engine,
        "head": fields | {"hash": head.hash.hex()},
        "time_ms": time_ms,
        "objects": tables,
        "journal_batches": stats.journal_batches,
        "journal_bytes": stats.journal_bytes,
        "bytes_on_disk": stats.bytes_on_disk,
        "detail": {name: value for name, value in stats.detail.items() if name not in ("alarms", "version_warning")},
        "alarms": alarms,
    }


# --- backup and restore -----------------------------------------------------------------------------------------------


@command.command("backup", epilog=URL_HELP)
@click.argument("url")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@json_option
@on_loop
async def backup(world: World, url: str, file: Path, overwrite: bool, as_json: bool) -> int:
    """Write the whole store, at its present head, into one FILE. A running server goes on undisturbed."""
    if file.exists() and not overwrite:
        raise Told(f"{file} exists", hint="choose another name, or pass --overwrite", code=CONFLICT)
    async with opened(world, url) as store:
        with progress("reading") as told:
            header = await backups.write_backup(store, file, int(world.clock().wall() * 1000), lambda rows: told("rows", rows))
    facts = _about(file, header)
    if as_json:
        put_json(facts)
    else:
        put_pairs([(name.replace("_", " "), str(value)) for name, value in facts.items() if name != "tables"])
        note(f"Check it with: fairlead store verify {file}")
    return OK


def _about(file: Path, header: backups.BackupHeader) -> dict[str, Any]:
    return {
        "file": str(file),
        "plane": header.plane,
        "incarnation": header.incarnation,
        "epoch": header.epoch,
        "position": header.position,
        "hash": header.hash.hex(),
        "plane_time": instant_of(header.time_ms),
        "created": instant_of(header.created_ms),
        "rows": header.rows,
        "bytes": file.stat().st_size,
        "tables": header.tables,
    }


@command.command("restore", epilog=URL_HELP)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("url")
@click.option(
    "--incarnation-at-least",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="The highest incarnation that anybody has seen (agents, other planes); the new one is above it and above the backup's.",
)
@json_option
@on_loop  # fmt: skip
async def restore(world: World, file: Path, url: str, incarnation_at_least: int, as_json: bool) -> int:
    """Fill an empty store from a backup FILE, and begin a new incarnation.

    The file is read and checked wholly before anything is written. What happened after the backup is lost; everything that was
    handed out then (fencing tokens, leases, receipts, resourceVersions) is refused from now on.
    """
    if not file.exists():
        raise Told(f"there is no file {file}", code=NOT_FOUND)
    with backups.BackupFile(file) as source:
        async with opened(world, url, create=True) as store:
            head = await store.head()
            if head.epoch or head.position:
                detail = f"{world.shown(url)} is not empty (epoch {head.epoch}, position {head.position}); nothing was changed"
                raise Told(detail, hint=world.how_to_make_room(url), code=CONFLICT)
            with progress("checking the file") as told:
                done = await backups.restore_backup(source, store, incarnation_at_least, lambda rows: told("rows written", rows))
    facts = _about(file, done.header) | {"store": world.shown(url)}
    facts |= {"incarnation": done.head.incarnation, "backup_incarnation": done.header.incarnation, "epoch": done.head.epoch}
    if as_json:
        put_json(facts)
    else:
        names = ("store", "file", "plane", "position", "plane_time", "rows", "incarnation", "backup_incarnation", "epoch")
        put_pairs([(name.replace("_", " "), str(facts[name])) for name in names])
        note(_WHAT_A_RESTORE_MEANS.format(old=done.header.incarnation, new=done.head.incarnation, time=facts["plane_time"]))
    return OK


_WHAT_A_RESTORE_MEANS = """
What to know now:
- Everything after {time} (plane time of the backup) is gone.
- Incarnation {new} begins. Fencing tokens, leases, sessions and receipts of incarnation {old} and before are refused.
- resourceVersions from before answer 410: clients list again and watch from there.
- If an agent or another plane has seen an incarnation above {old}, restore again with --incarnation-at-least.
- Never start a server on the old store again."""


# --- compact and verify -----------------------------------------------------------------------------------------------


def seal_key_option(words: str) -> Callable[[Any], Any]:
    return click.option("--seal-key", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help=words)


def _anchor_keys(world: World, seal_key: Path | None) -> list[bytes]:
    if seal_key is None:
        return []
    try:
        return Keyring.load(seal_key, world.ids()).anchor_keys()
    except FileNotFoundError as error:
        raise Told(f"there is no file {seal_key}", code=NOT_FOUND) from error
    except (CannotOpen, UnsafeFile, OSError) as error:
        raise Told(str(error)) from error


@command.command("compact", epilog=URL_HELP)
@click.argument("url")
@click.option("--archive", type=click.Path(file_okay=False), help="Keep what this plane's archive directory does not hold yet.")
@seal_key_option("Sign where the journal was cut, as its servers do, with their keys for secrets.")
@click.option("--silence-seconds", type=click.FloatRange(min=0), default=compaction.LEASE_SILENCE_S, show_default=True,
              help="How long a leader must have given no sign of life before it counts as gone.")  # fmt: skip
@json_option
@on_loop
async def compact(
    world: World, url: str, archive: str | None, seal_key: Path | None, silence_seconds: float, as_json: bool
) -> int:
    """Bring the objects up to the head and cut the journal behind them.

    A running server does this by itself all the time. This command is for a store that nobody leads: it acquires leadership
    like a server would, and refuses while one shows signs of life. No object, receipt or session is lost.
    """
    key = next(iter(_anchor_keys(world, seal_key)), b"")
    async with opened(world, url) as store:
        keep_after = world.archived_through(archive, (await store.head()).incarnation) if archive else None
        try:
            with progress("waiting until the store is certainly without a leader"):
                done = await compaction.compact(
                    store, world.clock(), world.ids(), anchor_key=key, keep_after=keep_after, silence_s=silence_seconds
                )
        except compaction.LeaderIsLive as live:
            raise Told(str(live), code=CONFLICT) from live
        except compaction.Deposed as deposed:
            raise Told(str(deposed), code=DENIED) from deposed
    facts = {name: getattr(done, name) for name in done.__struct_fields__}
    if as_json:
        put_json(facts)
    else:
        put_pairs([(name.replace("_", " "), f"{value:,}") for name, value in facts.items()])
    return OK


@command.command("verify", epilog=URL_HELP)
@click.argument("target", metavar="URL|FILE")
@seal_key_option("Check who cut the journal: the keys for secrets that its servers have.")
@json_option
@on_loop
async def verify(world: World, target: str, seal_key: Path | None, as_json: bool) -> int:
    """Read everything a store or a backup FILE holds and name each fault with its place. Exit code 8 if there is any.

    Computes every hash again, decodes every object and command, and compares the objects with the journal. Changes nothing.
    """
    keys = _anchor_keys(world, seal_key)
    if _is_backup(target):
        with progress("reading the backup") as told:
            report = _verify_file(Path(target), told)
    else:
        async with opened(world, target) as store:
            with progress("reading the store") as told:
                report = await verification.verify_store(store, told, keys)
    facts: dict[str, Any] = {"store": world.shown(target)} | {name: getattr(report, name) for name in report.__struct_fields__}
    if as_json:
        put_json(facts)
    else:
        put_pairs([(name.replace("_", " "), str(value)) for name, value in facts.items() if name != "faults"])
        for fault in report.faults:
            click.echo(f"FAULT {fault.where}: {fault.detail}")
        note(_verdict(report, _is_backup(target)))
    return CHECK_FAILED if report.faults else OK


def _verify_file(file: Path, told: verification.Progress) -> verification.Report:
    try:
        with backups.BackupFile(file) as source:
            return verification.verify_backup(source, told)
    except backups.BackupDamaged as damage:  # Its header already: nothing else in it can be trusted.
        fault = verification.Fault(damage.where, damage.detail)
        return verification.Report(0, 0, 0, 0, 0, 0, "none", (fault,))


def _verdict(report: verification.Report, is_file: bool) -> str:
    if not report.faults:
        return "No fault found."
    count = len(report.faults)
    more = ", and no more were looked for" if count >= verification.FAULTS_MAX else ""
    said = f"{count} fault{'s' if count > 1 else ''} found{more}."
    if is_file:
        return f"{said} Do not restore this file; use another backup."
    return f"{said} Stop the server and restore a backup with `fairlead store restore FILE URL` into an empty store."


def _is_backup(target: str) -> bool:
    """A file that is there and is no SQLite database; an empty one is what a backup's broken copy left. A store's URL
    with a scheme is never taken for a file."""
    path = Path(target)
    try:
        with path.open("rb") as file:
            start = file.read(len(SQLITE_MAGIC))
    except OSError:
        return False
    return start != SQLITE_MAGIC
