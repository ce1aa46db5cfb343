"""Counts who really serves: finds the endpoints of workloads by DNS as any client does, asks every one of them who it is, again
and again, and remembers what answered when.

Owns "serving" as drills mean it, whatever a plane says. An address that was named once is asked until the end, so that a copy
which goes on answering where nobody names it any more is seen too. Beside it a prober counts what a client would have suffered.
Writes nothing to the platform. Called by scene.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from fairlead.ports import Clock, Random, Tasks
from fairlead.serving.dns_client import Unresolved, find
from fairlead.serving.http_get import get
from fairlead.serving.prober import ProbeOptions, Prober, through_dns

LOOK_S: Final = 0.5
ANSWER_S: Final = 2.0
KNOWN_MAX: Final = 500  # addresses of one workload; a drill that sees more is no drill
RATE_PER_S: Final = 8.0
PORT: Final = "http"

Workload = tuple[str, str]  # tenant, name


class Answer(NamedTuple):
    """Who said to be what, at which address."""

    region: str
    slot: int
    node: str
    token: str
    address: str
    port: int


class Look(NamedTuple):
    """One moment of one workload. `named`: those of `answers` that the endpoints name now."""

    at_s: float
    named: tuple[Answer, ...]
    answers: tuple[Answer, ...]
    unanswered: int  # of those named

    def by_region(self) -> dict[str, int]:
        out: dict[str, int] = {}
        for slot in {(one.region, one.slot) for one in self.named}:
            out[slot[0]] = out.get(slot[0], 0) + 1
        return out

    def serving(self) -> int:
        return len({(one.region, one.slot) for one in self.named})

    def twice(self) -> list[tuple[Answer, Answer]]:
        """Two that say to be the same slot at one moment and are not one: tokens of two regions may read the same."""
        seen: dict[int, Answer] = {}
        out = []
        for one in self.answers:
            before = seen.setdefault(one.slot, one)
            if before[:4] != one[:4]:
                out.append((before, one))
        return out


class Census:
    def __init__(self, workloads: Sequence[Workload], dns: tuple[str, int], clock: Clock, random: Random) -> None:
        self._dns = dns
        self._clock = clock
        self._random = random
        self._known: dict[Workload, set[tuple[str, int]]] = {one: set() for one in workloads}
        self.looks: dict[Workload, list[Look]] = {one: [] for one in workloads}
        self.twice: list[str] = []
        self.probers = {one: self._prober(*one) for one in workloads}

    def _prober(self, tenant: str, name: str) -> Prober:
        options = ProbeOptions(name, tenant, RATE_PER_S, duration_s=3600.0, timeout_s=ANSWER_S)
        return Prober(options, through_dns(options, self._dns, self._random), self._clock)

    def watch(self, tasks: Tasks) -> None:
        """Runs until the tasks are cancelled."""
        for workload, prober in self.probers.items():
            tasks.start(self._keep_looking(workload), f"census of {workload[1]}")
            tasks.start(prober.run(), f"prober of {workload[1]}")

    async def _keep_looking(self, workload: Workload) -> None:
        while True:
            look = await self.look(workload)
            for one, other in look.twice():
                self._say_twice(workload, one, other)
            self.looks[workload].append(look)
            await self._clock.sleep(LOOK_S)

    def _say_twice(self, workload: Workload, one: Answer, other: Answer) -> None:
        said = f"slot {one.slot} of {workload[1]}: {one.region}/{one.node} and {other.region}/{other.node}"
        if said not in self.twice:
            self.twice.append(said)

    async def look(self, workload: Workload) -> Look:
        known = self._known[workload]
        try:
            found = await find(self._dns, *workload, PORT, self._random)
        except Unresolved:
            found = []
        named = {(one.address, one.port) for one in found}
        if len(known | named) <= KNOWN_MAX:
            known |= named
        asked = sorted(known | named)
        async with Tasks() as tasks:
            under_way = [tasks.start(self._ask(workload, *place), "who are you") for place in asked]
        answers = [task.result() for task in under_way]
        there = tuple(one for one in answers if one is not None)
        now_named = tuple(one for one in there if (one.address, one.port) in named)
        return Look(self._clock.monotonic(), now_named, there, len(named) - len(now_named))

    async def _ask(self, workload: Workload, address: str, port: int) -> Answer | None:
        """None: nobody, or somebody else: ports are used again."""
        got = await get(address, port, "/", ANSWER_S)
        if not got.success:
            return None
        said = dict(line.partition("=")[::2] for line in got.body.decode(errors="replace").splitlines())
        if (said.get("tenant"), said.get("workload")) != workload or not said.get("slot", "").isdecimal():
            return None
        return Answer(said.get("region", ""), int(said["slot"]), said.get("node", ""), said.get("token", ""), address, port)

    # --- what was seen ---------------------------------------------------------------------------------------------------

    def last(self, workload: Workload) -> Look | None:
        looks = self.looks[workload]
        return looks[-1] if looks else None

    def lowest(self, workload: Workload, since_s: float) -> int | None:
        """The fewest that served at any look since then."""
        return min((look.serving() for look in self.looks[workload] if look.at_s >= since_s), default=None)

    def figures(self) -> dict[str, Any]:
        out = {}
        for (tenant, name), prober in self.probers.items():
            told = prober.measures.results()
            kept = ("sent", "succeeded", "p50_ms", "p99_ms", "longest_outage_s", "errors", "resolve_failures")
            out[f"{tenant}/{name}"] = {field: told[field] for field in kept}
        return out
