"""A driver that runs nothing: instances are entries in a table that start, end and fail when told to. For scale tests and the
simulator; a host of it carries thousands of nodes in one process. Called by fairlead/agent/host.py through contract.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from fairlead.agent.drivers.contract import Adopted, Cause, Chunk, Ended, Exit, InstanceId, Launch, Started, Stream


class World(msgspec.Struct):
    """What outlives a simulated agent: its instances."""

    running: dict[InstanceId, Launch] = {}
    starts: dict[InstanceId, int] = {}


class SimulatedDriver:
    name = "simulated"

    def __init__(self, world: World | None = None, run: Callable[[Launch], Exit | None] = lambda launch: None) -> None:
        """`run` says how a launch ends at once, or None for one that goes on."""
        self.world = world or World(running={}, starts={})
        self._run = run
        self._ended: Ended = lambda *_: None

    def in_force(self) -> Mapping[str, str]:
        return {"limits": "simulated: nothing runs"}

    async def adopt(self, ended: Ended) -> list[Adopted]:
        self._ended = ended
        return [
            Adopted(id, launch.run, launch.ports, None, launch.exclusive, launch.template)
            for id, launch in self.world.running.items()
        ]

    async def start(self, launch: Launch) -> Started | Exit:
        assert launch.id not in self.world.running, f"{launch.id.text} runs already"
        self.world.starts[launch.id] = self.world.starts.get(launch.id, 0) + 1
        end = self._run(launch)
        if end is not None:
            return end
        self.world.running[launch.id] = launch
        return Started()

    def end(self, id: InstanceId, exit: Exit) -> None:
        """The instance ends, by itself or because it was told to."""
        launch = self.world.running.pop(id, None)
        if launch is not None:
            self._ended(id, launch.run, exit)

    async def stop(self, id: InstanceId, grace_s: float) -> None:
        self.end(id, Exit(0, "stopped"))

    async def kill(self, id: InstanceId, cause: Cause) -> None:
        self.end(id, Exit(137, cause))

    async def prolong(self, id: InstanceId, lasts: float) -> None:
        pass  # nothing runs that could outlive its agent

    def status(self, id: InstanceId) -> Literal["running", "gone"]:
        return "running" if id in self.world.running else "gone"

    async def logs(self, id: InstanceId, stream: Stream, offset: int, limit: int) -> Chunk:
        return Chunk(0, b"", 0)

    async def execute(self, id: InstanceId, argv: tuple[str, ...], timeout_s: float) -> Exit:
        return Exit(0, "exited") if id in self.world.running else Exit(1, "lost")

    async def tidy(self, id: InstanceId) -> None:
        pass

    async def forget(self, id: InstanceId) -> None:
        self.world.starts.pop(id, None)

    async def close(self) -> None:
        self._ended = lambda *_: None
