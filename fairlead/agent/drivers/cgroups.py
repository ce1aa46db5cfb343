"""Limits of a whole process tree by control groups: version 2 where its controllers are there, else version 1, else none.

Owns the directories it makes, below the agent's own groups so that whoever limits the agent limits its instances too. Never moves
a process: the shim's child enters by itself. Called by process.py.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path("/sys/fs/cgroup")
PERIOD_US: Final = 100_000
PIDS_MAX: Final = 4096  # a fork bomb ends here; a busy server has hundreds of threads
_WANTED: Final = ("cpu", "memory", "pids")
_ASIDE: Final = "fairlead-agent"


class Group(NamedTuple):
    """One instance's groups: the files its process writes itself into, and the one that kills them all, where there is one."""

    procs: tuple[str, ...] = ()
    kill_file: str = ""


class Cgroups:
    """`version` 2, 1 or 0; `bases` are the directories below which instances get theirs, by controller."""

    def __init__(self, version: int, bases: dict[str, Path], killer: Path | None) -> None:
        self.version = version
        self._bases = bases
        self._killer = killer

    @property
    def in_force(self) -> str:
        if not self.version:
            return "rlimits: no control group can be written here"
        names = ", ".join(sorted(self._bases))
        return f"cgroup v{self.version} ({names}){'; killed by cgroup' if self._killer else ''}"

    @property
    def limits_memory(self) -> bool:
        return "memory" in self._bases

    def make(self, name: str, cpu_milli: int, memory_bytes: int) -> Group:
        procs, kill_file = [], ""
        for controller, base in self._bases.items():
            group = base / name
            group.mkdir(exist_ok=True)
            self._limit(controller, group, cpu_milli, memory_bytes)
            if self.version == 1:
                procs.append(str(group / "cgroup.procs"))
        if self._killer is not None:
            group = self._killer / name
            group.mkdir(exist_ok=True)
            procs.append(str(group / "cgroup.procs"))
            kill_file = str(group / "cgroup.kill")
        return Group(tuple(procs), kill_file)

    def _limit(self, controller: str, group: Path, cpu_milli: int, memory_bytes: int) -> None:
        quota_us = max(1000, cpu_milli * PERIOD_US // 1000)
        values = {
            (2, "cpu"): [("cpu.max", f"{quota_us} {PERIOD_US}")] if cpu_milli else [],
            (2, "memory"): [("memory.max", str(memory_bytes)), ("memory.oom.group", "1")] if memory_bytes else [],
            (2, "pids"): [("pids.max", str(PIDS_MAX))],
            (1, "cpu"): [("cpu.cfs_period_us", str(PERIOD_US)), ("cpu.cfs_quota_us", str(quota_us))] if cpu_milli else [],
            (1, "memory"): [("memory.limit_in_bytes", str(memory_bytes))] if memory_bytes else [],
            (1, "pids"): [("pids.max", str(PIDS_MAX))],
        }
        for file, value in values[self.version, controller]:
            (group / file).write_text(value)

    def pids(self, name: str) -> list[int]:
        """Every process in an instance's groups, whoever its parent is."""
        found: set[int] = set()
        for base in self._folders():
            with contextlib.suppress(OSError):
                found |= {int(pid) for pid in (base / name / "cgroup.procs").read_text().split()}
        return sorted(found)

    def remove(self, name: str) -> None:
        for base in self._folders():
            with contextlib.suppress(OSError):
                (base / name).rmdir()

    def _folders(self) -> list[Path]:
        folders = list(self._bases.values()) if self.version == 1 else []
        return [*folders, self._killer] if self._killer is not None else folders

    def close(self) -> None:
        """Removes the agent's own directories if no instance is left in them."""
        for base in {*self._bases.values(), *([self._killer] if self._killer else [])}:
            with contextlib.suppress(OSError):
                base.rmdir()


def own_groups(text: str) -> dict[str, str]:
    """/proc/self/cgroup: controller -> path; version 2 under the empty name."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def detect(folder: str, root: Path = ROOT, own: str | None = None) -> Cgroups:
    """`folder` names this agent's part, so that two agents of one machine do not share one."""
    groups = own_groups(own if own is not None else Path("/proc/self/cgroup").read_text())
    unified = root if (root / "cgroup.controllers").exists() else root / "unified"
    mine = unified / groups.get("", "/").removesuffix(f"/{_ASIDE}").strip("/")
    killer = _made(mine / folder, "cgroup.procs")
    if killer is not None:
        _step_aside(mine)
        controllers = _enable(killer)
        if controllers:
            return Cgroups(2, dict.fromkeys(controllers, killer), killer)
    bases: dict[str, Path] = {}
    for controller in _WANTED:
        base = _made(root / controller / groups.get(controller, "/").strip("/") / folder, "cgroup.procs")
        if base is not None:
            bases[controller] = base
    if killer is not None and not (killer / "cgroup.kill").exists():
        killer = None
    return Cgroups(1 if bases else 0, bases, killer if bases else None)


def _made(path: Path, witness: str) -> Path | None:
    """The directory, made if it can be; None where this is no control group or may not be written."""
    if not (path.parent / witness).exists():
        return None
    try:
        path.mkdir(exist_ok=True)
    except OSError:
        return None
    return path if os.access(path, os.W_OK) else None


def _step_aside(base: Path) -> None:
    """Version 2 gives controllers only to the children of a group without processes: the agent moves into a child of its own."""
    with contextlib.suppress(OSError):
        if (base / "cgroup.controllers").read_text().strip() and (base / "cgroup.procs").read_text().split() == [
            str(os.getpid())
        ]:
            (base / _ASIDE).mkdir(exist_ok=True)
            (base / _ASIDE / "cgroup.procs").write_text(str(os.getpid()))


def _enable(base: Path) -> tuple[str, ...]:
    """Version 2 hands controllers down level by level, and only where no process sits. systemd's Delegate=yes makes that so."""
    enabled: list[str] = []
    for folder in (base.parent, base):
        enabled = []
        try:
            offered = (folder / "cgroup.controllers").read_text().split()
        except OSError:
            return ()
        for name in _WANTED:
            if name not in offered:
                continue
            with contextlib.suppress(OSError):
                (folder / "cgroup.subtree_control").write_text(f"+{name}")
                enabled.append(name)
    return tuple(enabled)
