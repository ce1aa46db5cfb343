"""The agents that keep a channel to this server, and the questions that are put to them. Agents are never dialled: whoever wants
something of a node asks over the channel its agent opened. Called by service.py."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from fairlead.client.channel import ASKED, Channel, Closed, encode
from fairlead.client.resources import Unreachable

ASK_S: Final = 5.0  # an agent answers a question within this


class Attending:
    """Whose channel leads to which node, and the questions under way on them."""

    def __init__(self) -> None:
        self._channels: dict[str, tuple[Channel, int]] = {}  # node -> its channel, and the number it attends under
        self._questions: dict[int, tuple[Channel, asyncio.Future[Any]]] = {}
        self._number = 0

    def come(self, nodes: Iterable[str], channel: Channel, number: int) -> None:
        for node in nodes:
            self._channels[node] = (channel, number)

    def gone(self, channel: Channel) -> None:
        self._channels = {node: pair for node, pair in self._channels.items() if pair[0] is not channel}

    async def ask(self, node: str, operation: str, arguments: tuple[Any, ...]) -> Any:
        found = self._channels.get(node)
        if found is None:
            raise Unreachable(f"the agent of {node} is not connected to this server")
        channel, number = found
        self._number += 1
        question = self._number
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._questions[question] = (channel, future)
        try:
            async with asyncio.timeout(ASK_S):
                await channel.send(encode([number, ASKED, question, operation, list(arguments)]))
                return await future
        except (Closed, TimeoutError) as error:
            raise Unreachable(f"the agent of {node} does not answer") from error
        finally:
            self._questions.pop(question, None)

    def answered(self, channel: Channel, question: int, good: bool, result: Any) -> None:
        """Only whoever was asked can answer: one agent must not speak for another."""
        asked, future = self._questions.get(question, (None, None))
        if asked is channel and future is not None and not future.done():
            if good:
                future.set_result(result)
            else:
                future.set_exception(FileNotFoundError(str(result)))
