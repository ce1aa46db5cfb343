"""Owns poison input (F19): requests that nothing sane sends, each of which must be refused and change nothing.

Too large, too deep, no text at all, of no kind there is, or under an id that was used for something else. Draws from a stream of
its own and goes past the production client, which could not send most of it. Started by people.py, where a scenario has poison.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from fairlead.model.registry import GLOBAL
from fairlead.observe.answers import AnswerChecker
from fairlead.sim.asking import Ask, Asking
from fairlead.sim.born import TENANTS
from fairlead.sim.loop import Draws, sleep
from fairlead.sim.platform import Platform
from fairlead.wire import json_codec
from fairlead.wire.limits import BODY_BYTES_MAX, DEPTH_MAX

API: Final = f"/apis/{json_codec.API_VERSION}"
DEEP: Final = 40 * DEPTH_MAX  # a parser that recursed would be at its end
LARGE: Final = 600_000  # bytes of one value: more than an object may have, less than a request may


class Dose(NamedTuple):
    path: str
    body: bytes


def _made(tenant: str, kind: str = "Workload", **spec: Any) -> Dose:
    body = {"apiVersion": json_codec.API_VERSION, "kind": kind, "metadata": {"name": "poison"}, "spec": spec}
    return Dose(f"{API}/namespaces/{tenant}/workloads", msgspec.json.encode(body))


def _with(tenant: str, text: bytes) -> Dose:
    """As the value of what may be any text."""
    dose = _made(tenant, template={"command": ["TEXT"]}, replicas=1)
    return dose._replace(body=dose.body.replace(b"TEXT", text))


DOSES: Final[Mapping[str, Callable[[str], Dose]]] = {
    "huge request": lambda tenant: _with(tenant, b"x" * BODY_BYTES_MAX),
    "huge object": lambda tenant: _with(tenant, b"x" * LARGE),
    "too deep": lambda tenant: _made(tenant)._replace(body=b'{"spec":' * DEEP + b"1" + b"}" * DEEP),
    "no UTF-8": lambda tenant: _with(tenant, b"\xff\xfe\xc3\x28"),
    "half a surrogate pair": lambda tenant: _with(tenant, b"\\ud800"),
    "cut short": lambda tenant: Dose(_made(tenant).path, _made(tenant).body[:-9]),
    "unknown kind": lambda tenant: _made(tenant, "Poison", replicas=1),
    "unknown resource": lambda tenant: Dose(f"{API}/namespaces/{tenant}/poisons", _made(tenant).body),
}
REUSED: Final = "id of something else"
KINDS: Final = (*DOSES, REUSED)


class Poison:
    def __init__(self, platform: Platform, answers: AnswerChecker, asking: Asking, stopped: Callable[[], bool]) -> None:
        self._platform = platform
        self._answers = answers
        self._asking = asking
        self._stopped = stopped
        self._per_minute = platform.scenario.work.poison

    def tasks(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """None where nobody sends any: not even a task more may run there."""
        return [self._send] * bool(self._per_minute)

    async def _send(self) -> None:
        draws, number = self._platform.loop.stream("poison"), 0
        while not self._stopped():
            await sleep(draws.expovariate(self._per_minute / 60))
            kind, tenant = draws.choice(KINDS), draws.choice(TENANTS)
            address = draws.choice(self._platform.planes[GLOBAL].addresses)
            if self._stopped():
                return
            number += 1
            self._platform.machines.tell("people", f"send poison: {kind}")
            if kind == REUSED:
                await self._reuse(address, tenant, f"poison-{number}", draws)
            else:
                await self._try(address, DOSES[kind](tenant), f"poison-{number}")

    async def _try(self, address: str, dose: Dose, key: str) -> None:
        sent = self._answers.send(key)
        answer = await self._asking.send(address, "POST", dose.path, dose.body, key)
        if answer is not None and answer.status < 500 and answer.status not in (401, 429):
            self._platform.machines.counts["F19"] += answer.status >= 400
            self._answers.refused(sent, answer.status)

    async def _reuse(self, address: str, tenant: str, key: str, draws: Draws) -> None:
        """An order that concerns nobody, and then another one under its id: done is the first, once."""
        sent, path = self._answers.send(key), f"{API}/namespaces/{tenant}/overrides"
        told = await self._asking.write(address, Ask("POST", path, _order(key)), key, draws.random)
        if told is None or told.status >= 300:
            return
        self._answers.done(sent)
        other = await self._asking.send(address, "POST", path, msgspec.json.encode(_order(f"{key}-other")), key)
        if other is not None and other.status < 500 and other.status not in (401, 429):
            self._platform.machines.counts["F19"] += other.status >= 400
            self._answers.refused(self._answers.send(f"{key}, reused"), other.status)


def _order(name: str) -> dict[str, Any]:
    spec = {"kind": "repair-approval", "reason": "drill", "ttlSeconds": 5, "scope": {"workloads": ["nobody"]}}
    return {"apiVersion": json_codec.API_VERSION, "kind": "Override", "metadata": {"name": name}, "spec": spec}
