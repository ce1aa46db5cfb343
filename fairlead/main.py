"""The composition root: the one place that picks implementations. Owns the meaning of a store's URL and the process's settings.

It decides nothing else and holds no state. Engines and their drivers are imported when a URL asks for one, so that a command
which needs none starts at once. Called as the console script `fairlead`, and by whoever composes a plane (benches, rigs).
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode

if TYPE_CHECKING:
    from fairlead.cli.chaos import Chaos
    from fairlead.cli.drill import Drills
    from fairlead.observe.audit import History
    from fairlead.observe.evidence import Evidence
    from fairlead.plugins import Loaded
    from fairlead.ports import Clock, Ids
    from fairlead.store.contract import Store, StoreError
    from fairlead.store.etcd_client import Tls
    from fairlead.store.export import Plane

T = TypeVar("T")

FORMS = (
    "sqlite:PATH or a plain path",
    "postgresql://USER@HOST/DATABASE[?plane=NAME]",
    "etcd://HOST:PORT,HOST:PORT/PREFIX[?ca=FILE&cert=FILE&key=FILE]",
    "memory:",
)
SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):")  # Two letters at least: C:\plane.db is a path.
ETCD_PREFIX = "/fairlead"


def open_store(url: str, *, create: bool = True) -> Store:
    """The store a URL names, not yet opened: `await store.open()` connects, and creates it where there is none.

    `create=False` is for commands that only look: a file that is not there is not made (FileNotFoundError). A URL that names no
    store, and an engine whose driver is not installed, are StoreErrors that say what to do.
    """
    scheme = SCHEME.match(url)
    match scheme[1].lower() if scheme else "sqlite":
        case "sqlite":
            return _sqlite(url, create)
        case "postgresql" | "postgres":
            return _postgres(url)
        case "etcd":
            return _etcd(url)
        case "memory":
            from fairlead.store.memory import MemoryDisk, MemoryStore

            return MemoryStore(MemoryDisk())
        case unknown:
            raise _bad_url(url, f"there is no engine {unknown!r}")


def _sqlite(url: str, create: bool) -> Store:
    path = _sqlite_path(url)
    if not path:
        raise _bad_url(url, "the path is missing")
    if os.path.isdir(path):
        raise _bad_url(url, "this is a directory; name a file in it")
    if not create and not os.path.exists(path):
        raise FileNotFoundError(f"there is no store at {path}")
    if not create and os.path.getsize(path) == 0 and not os.path.exists(f"{path}-wal"):
        raise _bad_url(url, "this file is empty; it is no store yet")
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise _bad_url(url, "its directory does not exist; create it first")
    from fairlead.store.sqlite import LOG_BYTES, SqliteStore

    return SqliteStore(path, log_bytes=LOG_BYTES)


def _sqlite_path(url: str) -> str:
    path = re.sub(r"(?i)\Asqlite:", "", url)
    # sqlite:///srv/plane.db, as other tools write an absolute path.
    return path[2:] if path.startswith("///") else path


def _postgres(url: str) -> Store:
    parts = _split(url)
    query = parse_qsl(parts.query)
    planes = [value for name, value in query if name == "plane"]
    rest = urlencode([(name, value) for name, value in query if name != "plane"])
    dsn = parts._replace(scheme="postgresql", query=rest).geturl()
    try:
        from fairlead.store.postgres import PostgresStore
    except ImportError as error:
        raise _missing_extra("PostgreSQL", "postgres", error) from error
    try:
        return PostgresStore(dsn, planes[-1]) if planes else PostgresStore(dsn)
    except ValueError as error:
        raise _bad_url(url, str(error)) from error


def _etcd(url: str) -> Store:
    parts = _split(url)
    endpoints = [endpoint for endpoint in parts.netloc.split(",") if endpoint]
    bad = next((endpoint for endpoint in endpoints if not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[^:@/]+):\d+", endpoint)), None)
    if not endpoints or bad is not None:
        raise _bad_url(url, f"{bad or 'the list of members'} is not HOST:PORT")
    files = dict(parse_qsl(parts.query))
    unknown = sorted(set(files) - {"ca", "cert", "key"})
    if unknown or ("cert" in files) != ("key" in files) or (files and "ca" not in files):
        raise _bad_url(url, f"unknown setting {unknown[0]!r}" if unknown else "TLS needs ca, and cert and key together")
    try:
        from fairlead.store.etcd import EtcdStore
    except ImportError as error:
        raise _missing_extra("etcd", "etcd", error) from error
    return EtcdStore(endpoints, unquote(parts.path).rstrip("/") or ETCD_PREFIX, _tls(url, files) if files else None)


def _tls(url: str, files: dict[str, str]) -> Tls:
    from fairlead.store.etcd_client import Tls

    texts: dict[str, bytes] = {}
    for name, path in files.items():
        try:
            texts[name] = Path(path).read_bytes()
        except OSError as error:
            raise _bad_url(url, f"{name}={path} cannot be read: {error.strerror}") from error
    return Tls(**texts)


_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#(.*))?")


def _parts(url: str) -> SplitResult:
    """As urlsplit's, which in some patch releases of Python takes no list of hosts where one is [::1]."""
    found = _URL.fullmatch(url)
    scheme, netloc, path, query, fragment = found.groups(default="") if found is not None else ("", "", url, "", "")
    return SplitResult(scheme.lower(), netloc, path, query, fragment)


def _split(url: str) -> SplitResult:
    parts = _parts(url)
    if not parts.netloc:
        raise _bad_url(url, "the host is missing")
    for host in parts.netloc.rpartition("@")[2].split(","):
        port = re.fullmatch(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::(\d+))?", host)
        if port is None or int(port[1] or 0) > 65535:
            raise _bad_url(url, f"{host} is not HOST or HOST:PORT")
    return parts


def _bad_url(url: str, detail: str) -> StoreError:
    from fairlead.store.contract import StoreError

    return StoreError(f"{without_password(url)}: {detail}. A store is named by one of: {'; '.join(FORMS)}")


def _missing_extra(engine: str, extra: str, error: ImportError) -> StoreError:
    from fairlead.store.contract import StoreError

    return StoreError(f"the {engine} engine needs {error.name or 'its driver'}: pip install 'fairlead[{extra}]'")


def without_password(url: str) -> str:
    """For people to read: a URL in a message or a log must not give its password away."""
    hidden = re.sub(r"(//[^/:@]*):[^/@]*@", r"\1:***@", url)
    return re.sub(r"(?i)([?&](?:password|passfile)=)[^&]*", r"\1***", hidden)


def how_to_make_room(url: str) -> str:
    """What an operator does when a restore finds the store in use. Never done for them: it may be the only copy."""
    scheme = SCHEME.match(url)
    match scheme[1].lower() if scheme else "sqlite":
        case "postgresql" | "postgres":
            plane = dict(parse_qsl(_parts(url).query)).get("plane", "default")
            return (
                f"Restore into another plane (?plane=NAME), or take a backup and run: "
                f'ALTER SCHEMA "fairlead_{plane}" RENAME TO "old_{plane}"'
            )
        case "etcd":
            prefix = unquote(_parts(url).path).rstrip("/") or ETCD_PREFIX
            return f"Restore under another prefix, or take a backup and run: etcdctl del --prefix {prefix}/"
        case _:
            path = _sqlite_path(url)
            return f"Move the old file and its log away first: mv {path} {path}.old; mv {path}-wal {path}.old-wal"


def archived_through(directory: str, incarnation: int) -> int:
    """How far an archive surely reaches in this incarnation; the journal after that must stay in the engine (P8)."""
    from fairlead.store.archive import Archive, ArchiveError
    from fairlead.store.contract import StoreError

    if not os.path.isdir(directory):
        raise FileNotFoundError(f"there is no archive at {directory}")
    try:
        archive = Archive(Path(directory))
    except ArchiveError as error:
        raise StoreError(str(error)) from error
    synced = archive.synced()
    archive.close()
    return synced.position if synced.incarnation == incarnation else 0


def archived_batches(directory: str) -> History:
    """Everything an archive has, in order."""
    from fairlead.store.archive.whole import Whole

    return Whole(Path(directory))


def decided_again(path: Path, fork: str, plugins: Loaded | None = None) -> dict[str, Any]:
    from fairlead.compose import replaying

    return replaying.decided_again(path, fork, plugins)


def plugins() -> Loaded:
    from fairlead.plugins import load_plugins

    return load_plugins()


def run(work: Coroutine[Any, Any, T]) -> T:
    """One event loop for one piece of work; uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        import asyncio

        return asyncio.run(work)
    return uvloop.run(work)


def run_plane(work: Coroutine[Any, Any, T]) -> T:
    """`run` for a process in which a plane runs."""
    tune_process()
    return run(work)


def tune_process() -> None:
    """Settings of the interpreter that a plane wants; benchmarks use the same."""
    # A store thread that has its answer waits for the GIL until the loop's thread gives it up. By default that is after 5 ms,
    # which every single commit would then cost; a batch's two hand-offs at 0.5 ms are below what its fsync takes (P2).
    sys.setswitchinterval(0.0005)
    # Records are not tracked by the collector (P17); what is left makes little garbage in cycles. By default it looks after
    # every 700 new containers, which costs several per cent of the CPU per command and finds nothing. A look at 50,000 took 12
    # to 20 ms, in which the loop does nothing else; one at 10,000 takes a fifth of that, and all of them together as long.
    gc.set_threshold(10_000, 20, 100)


def _clock() -> Clock:
    from fairlead.ports import SystemClock

    return SystemClock()


def _ids() -> Ids:
    from fairlead.ports import SystemIds

    return SystemIds()


def _evidence() -> Evidence:
    import shlex

    from fairlead.observe.build import build
    from fairlead.observe.evidence import Evidence, default_folder

    command = without_password(shlex.join(["fairlead", *sys.argv[1:]]))
    return Evidence(default_folder(), command, _clock().wall, build)


class LocalPrograms:
    """The programs of fairlead/compose, imported when one is started."""

    def server(self, config: str, seal_keys: str = "") -> Coroutine[Any, Any, None]:
        from fairlead.compose.plane import serve

        return serve(Path(config), open_store, _clock(), _ids(), seal_keys)

    def agent(self, config: str) -> Coroutine[Any, Any, None]:
        from fairlead.compose.agent import run_agent

        return run_agent(Path(config), _clock())

    async def join(self, state: str, token: str, servers: Sequence[str], authorities: str) -> str:
        from fairlead.compose.enrol import enrol
        from fairlead.security.hidden import Hidden

        return str(await enrol(Path(state), Hidden(token), servers, Path(authorities)))

    def endpoints(self, config: str) -> Coroutine[Any, Any, None]:
        from fairlead.compose.endpoints import run_endpoints

        return run_endpoints(Path(config), _clock())

    def up(
        self, state: str, stores: dict[str, str], node_lease_s: float, detach: bool, say: Callable[[str], None]
    ) -> Coroutine[Any, Any, bool]:
        from fairlead.compose.up import up

        for url in stores.values():
            open_store(url)  # not opened: says what is wrong with it before anything is written
        return up(Path(state), stores, node_lease_s, _clock(), _ids(), detach, say)

    def down(self, state: str, say: Callable[[str], None]) -> Coroutine[Any, Any, bool]:
        from fairlead.compose.up import down

        return down(Path(state), _clock(), say)

    def chaos(self, state: str) -> Chaos:
        from fairlead.compose.up import chaos

        return chaos(Path(state), _clock())

    def drills(self) -> Drills:
        from fairlead.drills.program import Drills

        return Drills(_clock(), _ids(), archived_batches)

    def history(self, config: str) -> Plane:
        from fairlead.compose.config import PlaneConfig, read_config
        from fairlead.model.registry import GLOBAL
        from fairlead.store.export import Plane

        found: PlaneConfig = read_config(Path(config), PlaneConfig)
        return Plane(found.plane, found.region or GLOBAL, found.node_lease_s, os.path.join(found.data, "history"))


class LocalSimulator:
    """fairlead/sim, imported when it is asked for."""

    def names(self, of: str) -> Sequence[str]:
        from fairlead.sim import campaign

        return campaign.NAMES[of]

    def run(
        self, seeds: list[int], profile: str, minutes: float, jobs: int, out: Path, say: Callable[[str], None],
        advanced: Callable[[int, int], None], kept: Path | None,
    ) -> dict[str, Any]:  # fmt: skip
        from fairlead.sim import campaign

        return campaign.run(seeds, profile, minutes, jobs, out, _clock(), say, advanced, kept)

    def replay(self, path: Path) -> dict[str, Any]:
        from fairlead.sim import campaign

        return campaign.replayed(path)

    def shrink(self, path: Path, budget: int, say: Callable[[str], None]) -> dict[str, Any]:
        from fairlead.sim import campaign

        return campaign.shrunk(path, budget, say)

    def sieve(
        self, names: Sequence[str], patterns: Sequence[str], points: int, jobs: int, out: Path, say: Callable[[str], None]
    ) -> dict[str, Any]:
        from fairlead.sim import sieve

        return sieve.sifted(names, patterns, points, out, say, jobs)

    def mutants(
        self, names: Sequence[str], seeds: int, quick: bool, jobs: int, density: int, say: Callable[[str], None]
    ) -> dict[str, Any]:
        from fairlead.sim import campaign

        return campaign.mutants(names, seeds, quick, jobs, density, say)

    def determinism(self, seeds: list[int], profile: str, minutes: float, say: Callable[[str], None]) -> dict[str, Any]:
        from fairlead.sim import campaign

        return campaign.determinism(seeds, profile, minutes, say)


def main() -> None:
    from fairlead.cli.frame import World, start

    start(
        World(
            open_store=open_store,
            shown=without_password,
            how_to_make_room=how_to_make_room,
            archived_through=archived_through,
            clock=_clock,
            ids=_ids,
            run=run,
            run_plane=run_plane,
            programs=LocalPrograms(),
            simulator=LocalSimulator(),
            archived=archived_batches,
            decided_again=decided_again,
            plugins=plugins,
            evidence=_evidence,
        )
    )


if __name__ == "__main__":
    main()
