"""The processes of the local platform as the operating system knows them: by pid file and by what /proc says, never by memory, so
that every command sees the same. Linux only.

Owns starting, signalling and stopping them, and finding what an agent's node runs. Decides nothing. Called by local.py and
chaos.py.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

from fairlead.agent.drivers.contract import parse_instance_id
from fairlead.agent.drivers.directories import Directories
from fairlead.agent.drivers.process import MARKER, SHIM_MARKER
from fairlead.compose.agent import AgentConfig
from fairlead.compose.layout import Layout, read_config
from fairlead.compose.long_logs import set_aside
from fairlead.compose.wiring import ENDPOINTS, LINKS, PLANES
from fairlead.ports import Clock

STOP_S: Final = 10.0
POLL_S: Final = 0.05
PASSES_MAX: Final = 200  # of looking and killing
AGENT: Final = "agent-"

State = Literal["running", "paused", "gone"]


class Processes:
    def __init__(self, layout: Layout, clock: Clock) -> None:
        self._layout = layout
        self._clock = clock
        self._children: dict[str, subprocess.Popen[bytes]] = {}  # so that those that end are reaped

    def agents(self) -> list[str]:
        return sorted(path.stem for path in self._layout.path("config").glob(f"{AGENT}*.json"))

    def names(self) -> list[str]:
        """Every process there is to be, in the order of starting."""
        return [LINKS, *PLANES, ENDPOINTS, *self.agents()]

    def agent_config(self, name: str) -> AgentConfig:
        config: AgentConfig = read_config(self._layout.config_of(name), AgentConfig)
        return config

    # --- one process -----------------------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        config = str(self._layout.config_of(name))
        words = ["-m", "fairlead.compose.links", config, str(self._layout.state)]
        if name != LINKS:
            program = "server" if name in PLANES else name if name == ENDPOINTS else "agent"
            words = ["-m", "fairlead.main", program, "--config", config]
        set_aside(self.log_of(name))
        with self.log_of(name).open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                umask=0o077,  # stores hold everybody's work; an agent opens to its instances what is theirs
            )  # fmt: skip
        self._children[name] = child
        self._pid_file(name).write_text(f"{child.pid}\n")

    def log_of(self, name: str) -> Path:
        return self._layout.path("logs", f"{name}.log")

    def _pid_file(self, name: str) -> Path:
        return self._layout.path("run", f"{name}.pid")

    def pid(self, name: str) -> int | None:
        """Of the process that really runs under that name: a pid that went to a stranger since is none of ours."""
        child = self._children.get(name)
        if child is not None:
            child.poll()  # reaped, where it has ended
        try:
            pid = int(self._pid_file(name).read_text())
            words = _words(pid)
        except (OSError, ValueError):
            return None
        ours = os.fsencode(self._layout.config_of(name)) in words or (words == [b""] and _begins(pid))
        return pid if ours and _letter(pid) not in ("Z", "X", "") else None

    def state(self, name: str) -> State:
        pid = self.pid(name)
        if pid is None:
            return "gone"
        return "paused" if _letter(pid) in ("T", "t") else "running"

    def running(self) -> list[str]:
        """Paused ones too."""
        return [name for name in self.names() if self.pid(name) is not None]

    def signal(self, name: str, number: int) -> bool:
        """False: nobody runs under that name."""
        pid = self.pid(name)
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        return True

    # --- stopping --------------------------------------------------------------------------------------------------------

    async def stop_all(self) -> list[str]:
        """Agents first, with what they run; then the planes, so that they see it go; then the network. Those that ran."""
        stopped: list[str] = []
        for names in (self.agents(), [ENDPOINTS], PLANES[1:], PLANES[:1], [LINKS]):
            stopped += await self._stop(names)
        self.kill_work(self.agents())  # of agents that were killed before
        return stopped

    async def _stop(self, names: Sequence[str]) -> list[str]:
        running = [name for name in names if self.signal(name, signal.SIGTERM)]
        for name in running:
            self.signal(name, signal.SIGCONT)  # one that is paused hears nothing
        if not await self.wait_gone(running, STOP_S):
            self.kill(running)
            await self.wait_gone(running, STOP_S)
        for name in names:
            self._pid_file(name).unlink(missing_ok=True)
        return running

    async def wait_gone(self, names: Iterable[str], within_s: float) -> bool:
        until = self._clock.monotonic() + within_s
        while any(self.pid(name) is not None for name in names):
            if self._clock.monotonic() > until:
                return False
            await self._clock.sleep(POLL_S)
        return True

    def kill(self, names: Iterable[str]) -> None:
        for name in names:
            self.signal(name, signal.SIGKILL)

    # --- what nodes run --------------------------------------------------------------------------------------------------

    def work_of(self, agents: Sequence[str]) -> dict[str, dict[int, str]]:
        """By agent: the processes of its instances and their shims, each with the name of its slot."""
        marks = {}
        for agent in agents:
            state = Path(self.agent_config(agent).state)
            if state.joinpath("instances").exists():
                marks[Directories(state).marker] = agent
        found: dict[str, dict[int, str]] = {agent: {} for agent in agents}
        for pid, marker, text in _marked():
            if marker in marks:
                id = parse_instance_id(text)
                found[marks[marker]][pid] = f"{id.tenant}/{id.name}" if id is not None else text
        return found

    def kill_work(self, agents: Sequence[str]) -> int:
        """Until nothing is left of it, whatever it forks meanwhile. How many processes that were."""
        killed: set[int] = set()
        for _ in range(PASSES_MAX):
            pids = {pid for work in self.work_of(agents).values() for pid in work}
            if not pids:
                break
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed |= pids
        return len(killed)


def _words(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def _begins(pid: int) -> bool:
    """For a moment after its start /proc has no words of a process yet, whoever asks; of the kernel's own it never has. Another
    program that begins just then under a pid of ours is not told apart."""
    try:
        return Path(f"/proc/{pid}/exe").samefile(sys.executable)
    except OSError:
        return False


def _letter(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


def _marked() -> list[tuple[int, str, str]]:
    """(pid, marker, what) of every living process that bears the mark of an instance or of its shim."""
    starts = (f"{MARKER}=".encode(), f"{SHIM_MARKER}=".encode())
    out = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            environment = Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue
        for variable in environment.split(b"\0"):
            if variable.startswith(starts) and _letter(int(entry)) not in ("Z", "X", ""):
                marker, _, text = variable.partition(b"=")[2].decode(errors="replace").partition("/")
                out.append((int(entry), marker, text))
    return out
