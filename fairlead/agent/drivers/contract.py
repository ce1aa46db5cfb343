"""What every driver does: start, adopt, stop, kill, say how it stands, hand out output. One run is one start of one instance.

Owns the shapes. A driver decides nothing: not whether to start again, not what to report. It tells the end of a run once, and
only when nothing of it is left. Called by fairlead/agent/host.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import msgspec

from fairlead.model.kinds.slot import Token

Cause = Literal["exited", "signalled", "stopped", "fenced", "timeout", "unhealthy", "unstartable", "lost"]
# Beside each stream lies another one that says when what was written; shim.py has its form.
Stream = Literal["stdout", "stderr", "times.stdout", "times.stderr"]


class InstanceId(msgspec.Struct, frozen=True, order=True, gc=False, array_like=True):
    """One life of one slot on this node."""

    tenant: str
    name: str
    token: Token

    @property
    def text(self) -> str:
        """A name for directories and control groups. Object names have no underscore, so it reads back unambiguously."""
        token = self.token
        return f"{self.tenant}_{self.name}_{token.incarnation}-{token.epoch}-{token.attempt}"

    @property
    def about(self) -> dict[str, str]:
        """What a log record about it carries."""
        token = self.token
        return {"tenant": self.tenant, "slot": self.name, "token": f"{token.incarnation}.{token.epoch}.{token.attempt}"}


def parse_instance_id(text: str) -> InstanceId | None:
    try:
        tenant, name, token = text.split("_")
        incarnation, epoch, attempt = (int(part) for part in token.split("-"))
    except ValueError:
        return None
    return InstanceId(tenant, name, Token(incarnation, epoch, attempt))


class MountedFile(msgspec.Struct, frozen=True, gc=False):
    """A file an instance finds in its directory. Secret ones are not shown by repr."""

    path: str
    data: bytes
    secret: bool = False

    def __repr__(self) -> str:
        return f"MountedFile({self.path!r}, {'secret' if self.secret else len(self.data)})"


class Launch(msgspec.Struct, frozen=True, gc=False):
    """Everything a driver needs for one run."""

    id: InstanceId
    argv: tuple[str, ...]
    env: dict[str, str]
    run: int = 1
    working_dir: str = ""
    files: tuple[MountedFile, ...] = ()
    cpu_milli: int = 0
    memory_bytes: int = 0
    exclusive: Literal["", "region", "global"] = ""  # set: ends by itself when the fence time has come
    ports: dict[str, int] = {}
    template: bytes = b""  # the agent's own, kept for the one that adopts this run
    uid: str = ""  # of the workload
    supersedes: str = ""  # the slots that this one stands in for, the nearest first (P11)
    lasts: float = math.inf  # on the agent's clock: ends by itself then (P13), unless `prolong` says another time


class Exit(msgspec.Struct, frozen=True, gc=False):
    code: int
    cause: Cause
    message: str = ""


class Started(msgspec.Struct, frozen=True, gc=False):
    pid: int = 0


class Adopted(msgspec.Struct, frozen=True, gc=False):
    """A run found from an earlier agent: still there, or ended meanwhile (`exit` set)."""

    id: InstanceId
    run: int
    ports: dict[str, int]
    exit: Exit | None = None
    exclusive: Literal["", "region", "global"] = ""
    template: bytes = b""
    lasts: float = math.inf


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Output from `offset` on; what was before it may be gone. `next` is where to go on."""

    offset: int
    data: bytes
    next: int


Ended = Callable[[InstanceId, int, Exit], None]


class Driver(Protocol):
    name: str

    def in_force(self) -> Mapping[str, str]:
        """What isolates and limits instances here, in words, for the node's conditions."""

    async def adopt(self, ended: Ended) -> list[Adopted]:
        """Called once, before anything else: what an earlier agent left, and where to tell the end of runs from now on."""

    async def start(self, launch: Launch) -> Started | Exit:
        """An Exit means that it never ran."""

    async def stop(self, id: InstanceId, grace_s: float) -> None:
        """Asks it to end, and ends all of it after the grace. Its end is told through `ended`; so is a second stop's."""

    async def kill(self, id: InstanceId, cause: Cause) -> None: ...

    async def prolong(self, id: InstanceId, lasts: float) -> None:
        """Of one that was started with a time at which it ends: that time, anew."""

    def status(self, id: InstanceId) -> Literal["running", "gone"]: ...

    async def logs(self, id: InstanceId, stream: Stream, offset: int, limit: int) -> Chunk:
        """A negative offset counts from the end. Raises FileNotFoundError where nothing of the instance is kept."""

    async def execute(self, id: InstanceId, argv: tuple[str, ...], timeout_s: float) -> Exit:
        """A short program in the instance's surroundings: for probes."""

    async def tidy(self, id: InstanceId) -> None:
        """Removes the secrets of an instance that is over; its output stays."""

    async def forget(self, id: InstanceId) -> None:
        """Removes what is kept of an instance that is gone."""

    async def close(self) -> None:
        """The agent ends; instances go on."""
