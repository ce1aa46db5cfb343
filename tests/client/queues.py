"""A channel of two queues, which a test can break."""

from __future__ import annotations

import asyncio

from fairlead.authority.service import OPEN, Gate, PlaneService
from fairlead.client.channel import Channel, Closed
from fairlead.ports import Tasks


class QueueChannel:
    def __init__(self, incoming: asyncio.Queue[bytes | None], outgoing: asyncio.Queue[bytes | None]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self.open = True

    async def send(self, frame: bytes) -> None:
        if not self.open:
            raise Closed("broken")
        self._outgoing.put_nowait(frame)

    async def receive(self) -> bytes:
        frame = await self._incoming.get() if self.open else None
        if frame is None:
            self.open = False
            raise Closed("broken")
        return frame

    async def close(self) -> None:
        if self.open:
            self.open = False
            self._incoming.put_nowait(None)
            self._outgoing.put_nowait(None)


class Exchange:
    """Addresses, the services behind them, and the connections that stand."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self.services: dict[str, PlaneService] = {}
        self.standing: list[QueueChannel] = []
        self.gate: Gate = OPEN

    async def dial(self, address: str) -> Channel:
        service = self.services.get(address)
        if service is None:
            raise ConnectionRefusedError(address)
        there: asyncio.Queue[bytes | None] = asyncio.Queue()
        back: asyncio.Queue[bytes | None] = asyncio.Queue()
        near, far = QueueChannel(back, there), QueueChannel(there, back)
        self.standing.append(near)
        self._tasks.start(service.serve(far, self.gate), f"serve {address}")
        return near

    async def cut(self) -> None:
        for channel in self.standing:
            await channel.close()
        self.standing.clear()
