"""Owns work that wants something of its node and of its neighbours, and operators who change what nodes are meanwhile.

Which rules a workload has is drawn from the number of who makes it, so that what others do moves nothing here; a platform without
such work draws nothing. The operators draw from a stream of their own. Called by people.py and trying.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from fairlead.sim.born import LICENSE, labels_of, taints_of
from fairlead.sim.loop import Draws, sleep
from fairlead.sim.platform import Platform
from fairlead.sim.scenario import Scenario, Work
from fairlead.wire import json_codec

API: Final = f"/apis/{json_codec.API_VERSION}"
BESIDE: Final = ("api", "index", "feed", "cache")  # whom rules about neighbours name
PORTS: Final = (8080, 9090)  # few, so that they are asked for by several
MIXED: Final = 0x9E3779B1  # spreads what stands in a number's lowest bits over all of it
TAINTS: Final[tuple[list[dict[str, str]], ...]] = (
    [],
    [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}],
    [{"key": "dedicated", "value": "other", "effect": "NoSchedule"}],
    [{"key": "repair", "effect": "NoExecute"}],
    [{"key": "dedicated", "value": "batch", "effect": "PreferNoSchedule"}],
)

Rule = Callable[[dict[str, Any], str, int], None]  # given a workload's spec, its name and a number
Write = Callable[[str, str, Any, str], Awaitable[Any]]
Tell = Callable[[str], None]


def _place(spec: dict[str, Any], **more: Any) -> None:
    spec["placement"] = spec.get("placement", {}) | more


def _near(kind: int, names: tuple[str, ...]) -> list[dict[str, Any]]:
    match = [{"key": "app", "operator": "In", "values": list(names)}]
    return [{"topologyKey": ("hostname", "zone")[kind % 2], "match": match}]


def _labels(spec: dict[str, Any], name: str, kind: int) -> None:
    wanted: tuple[dict[str, Any], ...] = (
        {"key": "disk", "operator": "In", "values": ["ssd"]},
        {"key": "disk", "operator": "NotIn", "values": ["ssd"]},
        {"key": "age", "operator": "Lt", "values": ["3"]},
        {"key": "disk", "operator": "Exists"},
    )
    _place(spec, nodeLabels=[wanted[kind % len(wanted)]])


def _tolerations(spec: dict[str, Any], name: str, kind: int) -> None:
    borne: tuple[dict[str, Any], ...] = (
        {"key": "dedicated", "operator": "Equal", "value": "batch"},
        {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "repair", "operator": "Exists"},
    )
    _place(spec, tolerations=[borne[kind % len(borne)]])


def _most(spec: dict[str, Any], name: str, kind: int) -> None:
    _place(spec, maxPerNode=1 + kind % 2)


def _away(spec: dict[str, Any], name: str, kind: int) -> None:
    _place(spec, antiAffinity=_near(0, (name, BESIDE[kind % len(BESIDE)])[: 1 + kind % 2]))


def _beside(spec: dict[str, Any], name: str, kind: int) -> None:
    _place(spec, affinity=_near(kind, (name, BESIDE[kind % len(BESIDE)])))


def _port(spec: dict[str, Any], name: str, kind: int) -> None:
    spec["template"] = spec["template"] | {"ports": [{"name": "http", "port": PORTS[kind % len(PORTS)]}]}


def _licenses(spec: dict[str, Any], name: str, kind: int) -> None:
    spec["resources"]["requests"][LICENSE] = str(1 + kind % 2)


def _spread(spec: dict[str, Any], name: str, kind: int) -> None:
    """Of enough slots that some node has one too many for the next."""
    if "replicas" in spec:  # no job
        spec["replicas"] = max(spec["replicas"], 4)
    _place(spec, spread=[{"topologyKey": ("hostname", "zone")[kind % 2], "maxSkew": 1}])


RULES: Final[tuple[Rule, ...]] = (_labels, _tolerations, _most, _away, _beside, _port, _licenses, _spread)


def wants(made: dict[str, Any], number: int, work: Work) -> None:
    """Gives a workload one rule or two, or none. Without a spare slot in its rollouts: there may be no place for one."""
    if not work.picky:
        return
    name, drawn = made["metadata"]["name"].partition("-")[0], number * MIXED >> 7 & 0xFFFFFF
    made["metadata"]["labels"] = {"app": name}
    if drawn % 100 >= work.picky * 100:
        return
    spec = made["spec"]
    for part in (drawn >> 7, drawn >> 14):
        RULES[part % len(RULES)](spec, name, part >> 3)
    spec["rollout"] |= {"maxSurge": 0, "maxUnavailable": 1}
    spec.pop("disruption", None)


class Relabelling:
    """Operators who give nodes other labels and taints, whatever lies there."""

    def __init__(self, platform: Platform, write: Write, tell: Tell, stopped: Callable[[], bool]) -> None:
        self._platform = platform
        self._write = write
        self._tell = tell
        self._stopped = stopped

    async def run(self) -> None:
        draws, scenario = self._platform.loop.stream("relabels"), self._platform.scenario
        while not self._stopped():
            await sleep(draws.expovariate(scenario.work.relabels / 60))
            region, number, patch = draws.choice(self._platform.regions), draws.randrange(scenario.nodes), changed(draws)
            if self._stopped():
                return
            self._tell(f"makes {region}-n{number} {patch}")
            await self._write("PATCH", f"{API}/nodes/{region}-n{number}", patch, f"{region}-n{number}")


def changed(draws: Draws) -> dict[str, Any]:
    of_labels, disk, age, taints = (
        draws.random() < 0.5,
        draws.choice(("ssd", "hdd", None)),
        draws.choice("15"),
        draws.choice(TAINTS),
    )
    return {"metadata": {"labels": {"disk": disk, "age": age}}} if of_labels else {"spec": {"taints": taints}}


def put_right(scenario: Scenario, regions: tuple[str, ...]) -> list[tuple[str, dict[str, Any]]]:
    """Every node is again what it was born as: paths and patches."""
    numbers = range(scenario.nodes if scenario.work.relabels else 0)
    return [(f"{API}/nodes/{region}-n{number}", _as_born(number)) for region in regions for number in numbers]


def _as_born(number: int) -> dict[str, Any]:
    taints = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in taints_of(number)]
    return {"metadata": {"labels": labels_of(number)}, "spec": {"taints": taints}}
