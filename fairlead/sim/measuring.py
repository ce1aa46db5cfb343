"""Owns whoever measures how busy a service is, in worlds that are elastic: it reports a load every few seconds, through the API,
as an adapter beside the service would, until faults have stopped.

Retries no report: the next one is soon. Started by platform.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from fairlead.client.channel import Closed
from fairlead.decide.loads import LOAD
from fairlead.sim.born import SCALED
from fairlead.sim.loop import SimLoop, sleep
from fairlead.sim.machines import Running, for_ever
from fairlead.sim.outside import SimHttp
from fairlead.wire import json_codec

EVERY_S: Final = 4.0
WRONG_S: Final = 10.0
LASTS: Final = 14  # reports of one load at most: some stay for longer than the window in which fewer replicas are thought of
LOADS: Final = (100, 650, 700, 1500)  # thousandths: idle, as it should be twice, and too much


def measuring(
    http: Callable[[Running], SimHttp], addresses: Sequence[str], token: str, loop: SimLoop, until_s: float,
    plane_s: Callable[[], float],
) -> Callable[[Running], Awaitable[Any]]:  # fmt: skip
    """`plane_s`: what the global plane's clock shows. The meter's is set by it, and is some seconds wrong: one that is a minute
    behind reports nothing that is believed."""
    path = f"/apis/{json_codec.API_VERSION}/namespaces/{SCALED[0]}/autoscalers/{SCALED[1]}"
    headers = [("authorization", f"Bearer {token}"), ("content-type", "application/merge-patch+json")]

    async def main(running: Running) -> None:
        draws, client = loop.stream("loads"), http(running)
        wrong_s, load, left = draws.uniform(-WRONG_S, WRONG_S), 0, 0

        async def reports(load: str | None) -> bool:
            body = json_codec.encode({"metadata": {"annotations": {LOAD: load}}})
            try:
                answer = await client.request(draws.choice(addresses), "PATCH", path, headers=headers, body=body)
            except (OSError, Closed, TimeoutError):
                return False  # whoever decides by the last one sees that it is old
            return answer.status < 300

        while loop.now < until_s:
            when = datetime.fromtimestamp(plane_s() + wrong_s, tz=UTC).isoformat()
            if not left:
                load, left = draws.choice(LOADS), draws.randrange(1, LASTS)
            left -= 1
            await reports(f"{load}@{when}")
            await sleep(EVERY_S)
        while not await reports(None):  # at rest nobody is told anything that somebody would have to write down
            await sleep(1.0)
        await for_ever()

    return main
