"""Real processes: each instance below a shim of its own (shim.py), which lives on when the agent does not.

Owns how a run is started, found again, stopped and cleared away. Decides nothing about restarts. Needs Linux. docs/adr/0014 says
why a shim. Called by fairlead/agent/host.py through contract.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import marshal
import math
import os
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from fairlead.agent.drivers import variables
from fairlead.agent.drivers.capabilities import lacking
from fairlead.agent.drivers.cgroups import Cgroups, Group, detect
from fairlead.agent.drivers.clearing import Clearing
from fairlead.agent.drivers.contract import Adopted, Cause, Chunk, Ended, Exit, InstanceId, Launch, Started, Stream
from fairlead.agent.drivers.directories import Directories, Kept, parse_exit, send_order
from fairlead.agent.drivers.processes import boot_id, kill_found, kill_marked, open_same
from fairlead.agent.drivers.watched import Watched, watch_child
from fairlead.ports import Clock, write_all

log = logging.getLogger(__name__)

SHIM: Final = str(Path(__file__).with_name("shim.py"))
WORKDIR_FD, READY_FD = 4, 5
MARKER: Final = "FAIRLEAD_INSTANCE"
SHIM_MARKER: Final = "FAIRLEAD_SHIM"
START_LIMIT_S: Final = 20.0  # a shim takes 50 ms; a machine that needs longer than this is lost
KILL_POLL_S: Final = 0.1  # between two looks whether what was killed is gone
PROBE_KILL_S: Final = 2.0  # for a shim to clear a probe away that nobody waits for
OVERHEAD_BYTES: Final = 256 << 20  # beside its request, where only a limit on address space is to be had
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ProcessSettings(msgspec.Struct, frozen=True):
    state_dir: Path
    fence_file: Path
    uids: tuple[int, int] | None = (200_000, 60_000)  # (first, how many) where an agent has root's rights; None: its own
    cgroups: bool = True
    segment_bytes: int = 8 << 20
    segments_max: int = 4
    python: str = sys.executable


class _Run(msgspec.Struct):
    kept: Kept
    folder: Path
    shim: Watched


class ProcessDriver:
    name = "process"

    def __init__(self, settings: ProcessSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._dirs = Directories(settings.state_dir)
        self._clearing = Clearing()
        self._marker = self._dirs.marker
        self._boot_id = boot_id()
        self._cgroups = detect(f"fairlead-{self._marker}") if settings.cgroups else Cgroups(0, {}, None)
        self._runs: dict[InstanceId, _Run] = {}
        self._kept: dict[InstanceId, Kept] = {}
        self._lacking = lacking()
        self._probes = 0
        self._uids_given = 0
        self._lock: int | None = None
        self._ended: Ended = lambda *_: None

    # --- the contract ----------------------------------------------------------------------------------------------------

    def in_force(self) -> Mapping[str, str]:
        uids = self._uids()
        own = f"the agent's own user {os.getuid()}"
        if os.getuid() == 0 and self._settings.uids is not None and self._lacking:
            own += f": a user each needs the capabilities {', '.join(self._lacking)}"
        return {
            "limits": self._cgroups.in_force,
            "user": f"a user each, {uids[0]} to {uids[0] + uids[1] - 1}" if uids else own,
            "privileges": "no_new_privs; capabilities dropped",
            "session": "own session; descriptors closed; environment clean",
        }

    async def adopt(self, ended: Ended) -> list[Adopted]:
        self._ended = ended
        state = self._settings.state_dir
        self._lock = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(error.errno, "another agent uses this directory", str(state)) from error
        found, uids = [], self._uids()
        for kept in self._dirs.all():
            self._kept[kept.id] = kept
            if uids is not None and kept.uid is not None:
                self._uids_given = max(self._uids_given, kept.uid - uids[0] + 1)
            folder = self._dirs.path(kept.id) / f"run.{kept.run}"
            running = self._find(folder)
            if running is not None:
                self._watch(kept, folder, Watched(*running, child=False))
            end = None if running is not None else await self._wait_exit(kept, folder)
            lasts = self._dirs.lasts(kept.id)
            found.append(Adopted(kept.id, kept.run, kept.ports, end, kept.exclusive, kept.template, lasts))
        for aside in self._dirs.aside():
            self._clearing.start(aside)
        return found

    async def start(self, launch: Launch) -> Started | Exit:
        assert launch.id not in self._runs, f"{launch.id.text} runs already"
        old = self._kept.get(launch.id)
        uid = old.uid if old is not None else self._free_uid()
        secrets = tuple(file.path for file in launch.files if file.secret) or (old.secrets if old is not None else ())
        try:
            kept = self._kept[launch.id] = Kept(
                launch.id, launch.run, self._environment(launch), launch.ports, launch.working_dir, launch.exclusive, uid,
                launch.cpu_milli, launch.memory_bytes, launch.template, secrets,
            )  # fmt: skip
            folder = self._dirs.prepare(kept, launch.files)
            if launch.lasts < math.inf:
                self._dirs.prolong(launch.id, launch.lasts)
            group = self._group(kept)
            shim, ready = self._spawn(kept, folder, launch.argv, group, log_dir=str(self._dirs.path(kept.id) / "logs"))
        except OSError as error:
            return Exit(127, "unstartable", str(error))
        try:
            await self._wait_closed(ready)
            if not (folder / "started").exists():  # and never will be: its shim lives only until it has said why
                async with asyncio.timeout(START_LIMIT_S):
                    await shim.gone.wait()
        except TimeoutError:
            await self._end(kept, shim)
            return Exit(127, "unstartable", f"it was not started within {START_LIMIT_S:g} s")
        if shim.look():  # it ended before anybody could look
            return await self._wait_exit(kept, folder)
        self._watch(kept, folder, shim)
        return Started(shim.pid)

    async def stop(self, id: InstanceId, grace_s: float) -> None:
        if id in self._runs:
            send_order(self._runs[id].folder, f"stop {grace_s:.3f}\n")

    async def kill(self, id: InstanceId, cause: Cause) -> None:
        if id in self._runs:
            send_order(self._runs[id].folder, f"kill {cause}\n")

    async def prolong(self, id: InstanceId, lasts: float) -> None:
        if id not in self._runs:
            return
        try:
            self._dirs.prolong(id, lasts)
        except OSError as error:  # it ends at the time written before
            log.warning("how long %s may run cannot be written: %s", id.text, error, extra=id.about)

    def status(self, id: InstanceId) -> Literal["running", "gone"]:
        return "running" if id in self._runs else "gone"

    async def logs(self, id: InstanceId, stream: Stream, offset: int, limit: int) -> Chunk:
        return self._dirs.logs(id, stream, offset, limit)

    async def execute(self, id: InstanceId, argv: tuple[str, ...], timeout_s: float) -> Exit:
        run = self._runs.get(id)
        if run is None:
            return Exit(1, "lost", "the instance is gone")
        self._probes += 1
        folder = run.folder.parent / f"probe.{os.getpid()}.{self._probes}"  # an earlier agent may have left some
        shim: Watched | None = None
        try:
            folder.mkdir(mode=0o700)
            os.mkfifo(folder / "control", 0o600)
            shim, ready = self._spawn(run.kept, folder, argv, self._group(run.kept), timeout_s=timeout_s)
            os.close(ready)
            async with asyncio.timeout(START_LIMIT_S + timeout_s):
                await shim.gone.wait()
            return parse_exit(folder) or Exit(1, "lost", "the probe left no word")
        except TimeoutError:
            return Exit(137, "timeout")
        except OSError as error:
            return Exit(127, "unstartable", str(error))
        finally:
            if shim is None or shim.gone.is_set():
                _clear_probe(folder)
            else:
                self._end_probe(folder, shim)

    async def tidy(self, id: InstanceId) -> None:
        kept = self._kept.get(id)
        if kept is not None and id not in self._runs:
            self._dirs.tidy(kept)

    async def forget(self, id: InstanceId) -> None:
        assert id not in self._runs, f"{id.text} still runs"
        self._kept.pop(id, None)
        self._cgroups.remove(id.text)
        aside = self._dirs.put_aside(id)
        if aside is not None:
            self._clearing.start(aside)

    async def close(self) -> None:
        self._clearing.close()
        for run in self._runs.values():
            run.shim.let_go()
        self._runs.clear()
        self._cgroups.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # --- starting --------------------------------------------------------------------------------------------------------

    def _environment(self, launch: Launch) -> dict[str, str]:
        """Nothing of the agent's own environment reaches an instance."""
        home = str(self._dirs.path(launch.id) / "work")
        base = {"PATH": PATH, "HOME": home, "FAIRLEAD_DIR": home, "LANG": "C.UTF-8"}
        return {**variables.environment(base, launch.env), MARKER: f"{self._marker}/{launch.id.text}"}

    def _uids(self) -> tuple[int, int] | None:
        return self._settings.uids if os.getuid() == 0 and not self._lacking else None

    def _free_uid(self) -> int | None:
        """Going round: what somebody left where all may write does not belong to whoever comes next."""
        uids = self._uids()
        if uids is None:
            return None
        taken = {kept.uid for kept in self._kept.values()}
        for _ in range(uids[1]):
            uid = uids[0] + self._uids_given % uids[1]
            self._uids_given += 1
            if uid not in taken:
                return uid
        raise AssertionError(f"all {uids[1]} users for instances are taken")

    def _group(self, kept: Kept) -> Group:
        if not self._cgroups.version:
            return Group()
        return self._cgroups.make(kept.id.text, kept.cpu_milli, kept.memory_bytes)

    def _limits(self, kept: Kept) -> dict[str, int]:
        limits = {"core": 0, "nofile": 65_536}
        if kept.uid is not None:
            limits["nproc"] = 4096
        if kept.memory_bytes and not self._cgroups.limits_memory:
            limits["data"] = kept.memory_bytes + OVERHEAD_BYTES
        return limits

    def _spawn(
        self, kept: Kept, folder: Path, argv: tuple[str, ...], group: Group, log_dir: str = "", timeout_s: float = 0.0
    ) -> tuple[Watched, int]:
        """A shim, and a descriptor that closes when its instance is started or never will be."""
        settings = self._settings
        fences = [[str(settings.fence_file), 1 if kept.exclusive == "global" else 0]] if kept.exclusive else []
        if self._dirs.lasts(kept.id) < math.inf:
            fences.append([str(self._dirs.lasts_file(kept.id)), 0])
        spec: dict[str, Any] = {
            "argv": list(variables.command(argv, kept.env)), "env": kept.env, "run_dir": str(folder), "log_dir": log_dir,
            "uid": kept.uid, "gid": kept.uid,
            "cgroups": list(group.procs), "kill_file": group.kill_file if log_dir else "", "limits": self._limits(kept),
            "fences": fences if log_dir else [],
            "segment_bytes": settings.segment_bytes, "segments_max": settings.segments_max, "timeout_s": timeout_s,
            "boot_id": self._boot_id, "workdir_fd": WORKDIR_FD, "ready_fd": READY_FD,
        }  # fmt: skip
        return self._fork(kept, folder, marshal.dumps(spec))

    def _fork(self, kept: Kept, folder: Path, spec: bytes) -> tuple[Watched, int]:
        """A spawn takes a millisecond."""
        given = os.memfd_create("fairlead-launch")
        ready, ready_end = os.pipe()
        try:
            work = self._dirs.open_work(kept)
        except BaseException:
            for fd in (given, ready, ready_end):
                os.close(fd)
            raise
        python = self._settings.python
        errors = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        try:
            write_all(given, spec)
            os.lseek(given, 0, os.SEEK_SET)
            pid = os.posix_spawn(
                python,
                [python, "-I", "-S", SHIM],
                {SHIM_MARKER: f"{self._marker}/{kept.id.text}"},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, given, 0),
                    (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, str(folder / "shim.err"), errors, 0o600),
                    (os.POSIX_SPAWN_DUP2, work, WORKDIR_FD),
                    (os.POSIX_SPAWN_DUP2, ready_end, READY_FD),
                ],
                setsid=True,
                setsigdef=[signal.SIGPIPE, signal.SIGTERM, signal.SIGINT],
            )
            shim = watch_child(pid)
        except BaseException:
            os.close(ready)
            raise
        finally:
            for fd in (given, ready_end, work):
                os.close(fd)
        return shim, ready

    async def _wait_closed(self, fd: int) -> None:
        """Until a descriptor says that its other side is gone; closes it. Raises TimeoutError."""
        loop = asyncio.get_running_loop()
        gone = loop.create_future()
        loop.add_reader(fd, lambda: None if gone.done() else gone.set_result(None))
        try:
            async with asyncio.timeout(START_LIMIT_S):
                await gone
        finally:
            loop.remove_reader(fd)
            os.close(fd)

    async def _end(self, kept: Kept, shim: Watched) -> None:
        """Returns when nothing of it is left, however long that takes: what may still run is not said to be over (S12)."""
        log.warning("%s was not started in time and is ended", kept.id.text, extra=kept.id.about)
        shim.kill()
        await shim.gone.wait()
        while kill_found(self._marks(kept), lambda: self._cgroups.pids(kept.id.text)):
            await self._clock.sleep(KILL_POLL_S)
        self._cgroups.remove(kept.id.text)

    def _end_probe(self, folder: Path, shim: Watched) -> None:
        """Its shim clears the whole tree away, if it is there already. Whoever asked does not wait for that."""
        shim.then = partial(_clear_probe, folder)  # no sooner: until it is gone, it writes there
        if send_order(folder, "kill timeout\n"):
            asyncio.get_running_loop().call_later(PROBE_KILL_S, shim.kill)
        else:
            shim.kill()

    # --- watching --------------------------------------------------------------------------------------------------------

    def _find(self, folder: Path) -> tuple[int, int] | None:
        """(pid, pidfd) of the shim of a run, if it is the very process that was started."""
        try:
            pid, started, _, _, boot, _ = (folder / "started").read_text().split()
        except (OSError, ValueError):
            return None
        if boot != self._boot_id:
            return None
        pidfd = open_same(int(pid), int(started))
        return None if pidfd is None else (int(pid), pidfd)

    def _watch(self, kept: Kept, folder: Path, shim: Watched) -> None:
        self._runs[kept.id] = _Run(kept, folder, shim)
        shim.then = partial(self._gone, kept.id)

    def _gone(self, id: InstanceId) -> None:
        run = self._runs.get(id)
        if run is None:
            return  # this agent has ended since it looked last
        exit = self._read_exit(run.kept, run.folder)
        if exit is None:
            asyncio.get_running_loop().call_later(KILL_POLL_S, self._gone, id)
        else:
            del self._runs[id]
            self._ended(id, run.kept.run, exit)

    async def _wait_exit(self, kept: Kept, folder: Path) -> Exit:
        while (found := self._read_exit(kept, folder)) is None:
            await self._clock.sleep(KILL_POLL_S)
        return found

    def _marks(self, kept: Kept) -> tuple[str, str]:
        mine = f"{self._marker}/{kept.id.text}"
        return f"{MARKER}={mine}", f"{SHIM_MARKER}={mine}"

    def _read_exit(self, kept: Kept, folder: Path) -> Exit | None:
        """What the shim wrote; without a word of it, whatever is left of the tree is killed first. None: some may still be left,
        and what may still run is not said to be over (S12)."""
        found = parse_exit(folder)
        if found is None:
            killed = kill_marked(self._marks(kept), lambda: self._cgroups.pids(kept.id.text))
            if killed is None:
                return None
            found = Exit(137, "lost", f"its shim is gone; {killed} processes were left and are killed")
        self._cgroups.remove(kept.id.text)
        return found


def _clear_probe(folder: Path) -> None:
    """What is left after all goes with the instance, in `forget`."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            (folder / name).unlink()
        folder.rmdir()
