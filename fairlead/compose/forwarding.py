"""A server's own plane as its front door sees it: reads from memory, writes to whoever leads."""

from __future__ import annotations

from fairlead.authority.authority import Authority
from fairlead.authority.local import LocalPlane
from fairlead.client.remote import Dial, RemotePlane
from fairlead.model.commands import Accepted, Command, Outcome
from fairlead.ports import Clock, Random, Tasks


class ForwardingPlane(LocalPlane):
    def __init__(self, authority: Authority, clock: Clock, dial: Dial, random: Random, own_address: str) -> None:
        super().__init__(authority, clock)
        self._dial = dial
        self._random = random
        self._own_address = own_address
        self._leader: RemotePlane | None = None

    async def run(self) -> None:
        """Keeps a connection to the leader while that is somebody else."""
        while True:
            address = self._authority.leader_address
            if self._authority.leading or not address or address == self._own_address:
                self._leader = None
                await self._clock.sleep(0.2)
                continue
            async with Tasks() as tasks:
                self._leader = RemotePlane([address], self._dial, self._clock, self._random, "forward")
                tasks.start(self._leader.run(), "leader")
                while self._authority.leader_address == address and not self._authority.leading:
                    await self._clock.sleep(0.1)
                self._leader = None
                tasks.cancel()

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        if self._authority.leading or self._leader is None:
            return await self._authority.submit(commands)
        outcomes = await self._leader.submit(commands)
        newest = max((outcome.revision for outcome in outcomes if isinstance(outcome, Accepted)), default=0)
        await self._seen(newest)
        return outcomes

    async def _seen(self, revision: int) -> None:
        """Who wrote through here reads it here: waits a little for this server's memory to come as far."""
        for _ in range(40):
            if self._authority.view().revision >= revision:
                return
            await self._clock.sleep(0.025)
