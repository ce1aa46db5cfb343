"""Owns what people do to a simulated platform: create, scale, change and delete work; operators' rightful and wrong moves.

One program in an office, through the production client of the real API (asking.py). When that cannot say what a write came to, it
is asked for again under the same key, elsewhere; some requests arrive twice. Believes nothing it was not told.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from fairlead.api.versions import component
from fairlead.model.registry import GLOBAL
from fairlead.observe.answers import AnswerChecker, Sent
from fairlead.sim.asking import Ask, Asking, Told
from fairlead.sim.born import BUDGET, TENANTS, ZONES
from fairlead.sim.loop import Draws, sleep
from fairlead.sim.machines import Running
from fairlead.sim.picky import wants
from fairlead.sim.platform import Platform
from fairlead.sim.poison import Poison
from fairlead.sim.scenario import Work
from fairlead.sim.trying import Trying, put_right
from fairlead.store.contract import Fence
from fairlead.wire import json_codec

API: Final = "/apis/fairlead.dev/v1alpha1"
TRIES_MAX: Final = 6
NAMES: Final = ("api", "index", "score", "feed", "batch", "cache", "edge", "mail")
LARGE: Final = ("700m", "1Gi")  # more than half of a small node
SMALL: Final = (("100m", "256Mi"), ("200m", "256Mi"))  # beside those
ORDERED: Final = ("hold", "freeze", "zone-avoidance", "repair-approval")
RIGHT: Final = 1  # the policy revision that is meant to be current
OPEN: Final = {"unschedulable": False, "drain": None}


class Wrong(NamedTuple):
    """An override that nobody should have ordered."""

    kind: str
    tenant: str
    ttl_s: int


class People:
    def __init__(self, platform: Platform, answers: AnswerChecker) -> None:
        self._platform = platform
        self._answers = answers
        self._work = platform.scenario.work
        self._draws: Draws = platform.loop.stream("people")
        self._counts = platform.machines.counts
        self._under_way = 0
        self._number = 0
        self._jitter = platform.loop.stream("people's pauses").random
        self.asking: Asking | None = None
        self.stopped = False
        self.done = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._ordered = 0
        self._wrong: list[str] = []  # overrides that nobody should have ordered
        self._life: dict[tuple[str, str], str] = {}  # what is added to a name whose first bearer was deleted

    async def main(self, running: Running) -> None:
        self.asking = self._platform.asking(running)
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self._users(group))
            group.create_task(self._operators())
            group.create_task(self._orders())
            if self._work.closes:
                group.create_task(self._closes())
            group.create_task(self._promotions())
            trying = Trying(self._platform, self.write, self._tell, lambda: self.stopped)
            for task in (*trying.tasks(), *Poison(self._platform, self._answers, self.asking, lambda: self.stopped).tasks()):
                group.create_task(task())
            await self.done.wait()  # its connections end with it

    # --- users -------------------------------------------------------------------------------------------------------------

    async def _users(self, group: asyncio.TaskGroup) -> None:
        draws = self._draws
        for _ in range(self._work.workloads):
            group.create_task(self._act(draws.randrange(1 << 30)))
        while not self.stopped:
            await sleep(draws.expovariate(self._work.actions / 60))
            if not self.stopped:
                group.create_task(self._act(draws.randrange(1 << 30)))

    async def _act(self, seed: int) -> None:
        """One thing somebody does; drawn from a number, so that what others do moves nothing here."""
        what, which, count, kind = seed % 10, (seed >> 4) % len(NAMES), (seed >> 10) % 6, (seed >> 16) % 100
        tenant, name = TENANTS[(seed >> 8) % len(TENANTS)], NAMES[which % max(2, self._work.workloads)]
        name += self._life.get((tenant, name), "")
        path = f"{API}/namespaces/{tenant}/workloads"
        if what < 4:
            made = workload(name, count + 1, kind, self._work)
            keeps_serving(made["spec"], seed >> 23, self._work)
            wants(made, seed, self._work)
            await self.write("POST", path, made, name)
        elif what < 7:
            count = min(count, 2) if name.startswith(NAMES[0]) else count
            await self.write("PATCH", f"{path}/{name}", {"spec": {"replicas": count}}, name)
        elif what < 9:
            change = {"spec": {"template": {"env": [{"name": "REVISION", "value": str(seed)}]}}}
            await self.write("PATCH", f"{path}/{name}", change, name)
        else:
            if not self._work.names_again:
                self._life[tenant, name.partition("-")[0]] = f"-{seed % 1000}"
            await self.write("DELETE", f"{path}/{name}", None, name)

    async def write(self, method: str, path: str, body: Any, name: str, token: str = "") -> Told | None:
        """Until there is an answer that settles it, under one key, at whichever server answers."""
        self._under_way += 1
        try:
            return await self._write(Ask(method, path, body, token), name)
        finally:
            self._under_way -= 1

    async def _write(self, ask: Ask, name: str) -> Told | None:
        self._number += 1
        sent = self._answers.send(f"people-{self._number}")
        doubtful = False  # a copy may still be under way: then no refusal of another copy settles it
        gives_up = self._draws.random() < 0.5  # when told for sure that nothing was written
        for attempt in range(TRIES_MAX):
            twice = self._draws.random() < self._work.replays
            answers = await self._both(ask, sent.id) if twice else [await self._try(ask, sent.id)]
            self._counts["F2"] += twice and None not in answers  # both arrived
            known = [told for told in answers if told is not None]
            doubtful |= len(known) < len(answers) or not all(told.sure for told in known)
            settled = [told for told in known if told.status < 500 and told.status != 429]
            if gives_up and known and not (attempt or twice or settled or doubtful):
                settled = known
            good = [told for told in settled if told.status < 400]
            doubtful |= len(settled) < len(answers)
            if good or (settled and not doubtful):
                told = (good or settled)[0]
                self._settled(sent, told, f"{ask.resource.plural}/{ask.tenant}/{name}", ask.method)
                if not good and ask.method == "POST" and twice and self._group is not None:
                    self._group.create_task(self._copy_comes_late(sent, ask))
                return told
            if settled:
                return settled[0]
            await sleep(0.2 * (attempt + 1))
            if self.stopped:
                break
        self._counts["people_unknown"] += 1
        return None

    async def _both(self, ask: Ask, key: str) -> list[Told | None]:
        return list(await asyncio.gather(self._try(ask, key), self._copy(ask, key)))

    async def _copy_comes_late(self, sent: Sent, ask: Ask) -> None:
        """Of a request that was refused for sure: a copy that was long under way must not take effect after all. Whoever leads
        anew knows of no refusals, so nobody else must have begun to lead before it was answered."""
        late_s, fence = self._draws.uniform(3.0, 20.0), self._global_fence()
        await sleep(late_s)
        if not self.stopped and self._global_fence() == fence:
            answer = await self._copy(ask, sent.id)
            self._counts["F2"] += answer is not None
            if answer is None or self._global_fence() != fence:
                self._answers.forget(sent)  # somebody who knows of no refusal may have had it, or will

    def _global_fence(self) -> Fence:
        return self._platform.planes[GLOBAL].store.disk.head.fence()

    def _settled(self, sent: Sent, told: Told, key: str, method: str) -> None:
        if told.status >= 400:
            self._counts[f"http_{told.status}"] += 1
            if told.status != 401:
                self._answers.refused(sent)
            return
        self._counts["people_accepted"] += 1
        if not told.shown:
            self._counts["people_by_receipt"] += 1
            self._answers.done(sent)
            return
        version = told.object["metadata"].get("resourceVersion", "")
        if not version:
            self._told_without_place(sent, told, key, method)
            return
        plane = self._plane_of(key)
        revision = component(version, list(self._platform.planes).index(plane))
        self._answers.accepted(sent, key, revision, changes=told.status == 201, told=told.object, plane=plane)

    def _told_without_place(self, sent: Sent, told: Told, key: str, method: str) -> None:
        """It is gone, or was made and is gone again already; or what it came to is gone by the time it was asked for anew."""
        if method == "DELETE":
            self._answers.gone(sent, key, self._plane_of(key))
        else:
            self._answers.done(sent, changes=told.status == 201)

    def _plane_of(self, key: str) -> str:
        """Whose object it is, by its key."""
        plural, _, name = key.split("/")
        return next((one for one in self._platform.regions if plural == "nodes" and name.startswith(f"{one}-")), GLOBAL)

    async def _try(self, ask: Ask, key: str) -> Told | None:
        assert self.asking is not None
        return await self.asking.write(self._some_server(), ask, key, self._jitter)

    async def _copy(self, ask: Ask, key: str) -> Told | None:
        assert self.asking is not None
        return await self.asking.copy(self._some_server(), ask, key)

    def _some_server(self) -> str:
        return self._draws.choice(self._platform.planes[GLOBAL].addresses)

    # --- operators ---------------------------------------------------------------------------------------------------------

    async def _operators(self) -> None:
        draws = self._platform.loop.stream("operators")
        while not self.stopped and self._work.operators:
            await sleep(draws.expovariate(self._work.operators / 60))
            what, region_at, node_at, revision = draws.random(), draws.random(), draws.random(), draws.randrange(1, 4)
            order = Wrong(draws.choice(("hold", "zone-avoidance")), draws.choice(TENANTS), draws.randrange(3, 20))
            region = self._platform.regions[int(region_at * len(self._platform.regions))]
            node = f"{region}-n{int(node_at * self._platform.scenario.nodes)}"
            if self.stopped:
                return
            used = self._platform.is_used(node)
            if what < 0.25:
                self._count_wrong(used, await self._cordon(node, True))
            elif what < 0.55:
                await self._cordon(node, False)
            elif what < 0.65:
                self._count_wrong(used, await self._drain(node))
            elif what < 0.8:
                self._count_wrong(revision != RIGHT, await self._promote(revision))
            elif what < 0.9:
                await self._order_wrong(order)
            else:  # with work on it: must be refused or drained
                answer = await self.write("DELETE", f"{API}/nodes/{node}", None, node)
                self._count_wrong(used, answer, or_refused=True)

    def _count_wrong(self, wrong: bool, answer: Told | None, *, or_refused: bool = False) -> None:
        """F20: of what is in use, or another policy than the right one, and done; `or_refused`: or turned down for what it is.
        Other moves are in order."""
        done = answer is not None and (answer.status < 300 or (or_refused and answer.status == 409))
        self._counts["F20"] += wrong and done

    async def _order_wrong(self, order: Wrong) -> None:
        """A hold of all that a tenant has, or all zones to be avoided."""
        self._ordered += 1
        name = f"wrong-{self._ordered}"
        scope: dict[str, Any] = {"tenants": [order.tenant]}
        if order.kind == "zone-avoidance":
            scope["zones"] = [f"{region}-{zone}" for region in self._platform.regions for zone in ZONES]
        self._tell(f"orders {order.kind} of all {order.tenant} has for {order.ttl_s} s")
        answer = await self.write("POST", *_override(name, order.tenant, order.kind, order.ttl_s, scope))
        self._count_wrong(True, answer)
        self._wrong.append(f"{API}/namespaces/{order.tenant}/overrides/{name}")

    async def _promotions(self) -> None:
        draws = self._platform.loop.stream("promotions")
        while not self.stopped and self._work.promotions:
            await sleep(draws.expovariate(self._work.promotions / 60))
            revision = draws.randrange(1, 4)
            if not self.stopped:
                await self._promote(revision)

    async def _orders(self) -> None:
        """Exceptions that end by themselves; some are taken back, some prolonged."""
        draws = self._platform.loop.stream("overrides")
        for number in range(1_000_000):
            if self.stopped or not self._work.overrides:
                return
            await sleep(draws.expovariate(self._work.overrides / 60))
            kind, tenant, name = draws.choice(ORDERED), draws.choice(TENANTS), draws.choice(NAMES[:4])
            ttl, zone, then, wide = draws.randrange(2, 15), draws.choice(ZONES), draws.random(), draws.random() < 0.3
            scope: dict[str, Any] = {"tenants": [tenant]} if wide else {"workloads": [name]}
            if kind == "zone-avoidance":
                scope["zones"] = [f"{region}-{zone}" for region in self._platform.regions]
            if self.stopped:
                return
            self._tell(f"orders {kind} o{number} of {tenant} for {ttl} s")
            path = f"{API}/namespaces/{tenant}/overrides"
            await self.write("POST", *_override(f"o{number}", tenant, kind, ttl, scope))
            if then < 0.2:
                await self.write("DELETE", f"{path}/o{number}", None, f"o{number}")
            elif then < 0.4:
                await self.write("PATCH", f"{path}/o{number}", {"spec": {"ttlSeconds": ttl + 5}}, f"o{number}")
            elif then < 0.6 and self._group is not None:
                self._group.create_task(self._prolong_late(f"{path}/o{number}", f"o{number}", ttl))

    async def _prolong_late(self, path: str, name: str, ttl_s: int) -> None:
        """Just after its end, and before it is cleared away, with some luck."""
        await sleep(ttl_s + 0.05)
        if not self.stopped:
            await self.write("PATCH", path, {"spec": {"ttlSeconds": ttl_s + 60}}, name)

    async def _closes(self) -> None:
        """Somebody closes all nodes of a region for longer than its slots wait for a place."""
        draws = self._platform.loop.stream("closes")
        while not self.stopped:
            await sleep(draws.expovariate(self._work.closes / 60))
            region, for_s = draws.choice(self._platform.regions), draws.uniform(80.0, 150.0)
            nodes = [f"{region}-n{number}" for number in range(self._platform.scenario.nodes)]
            for node in nodes if not self.stopped else ():
                await self._cordon(node, True)
            await sleep(for_s)
            for node in nodes if not self.stopped else ():
                await self._cordon(node, False)

    async def _cordon(self, node: str, yes: bool) -> Told | None:
        self._tell(f"{'cordons' if yes else 'uncordons'} {node}")
        opened = {} if yes else {"drain": None}
        return await self.write("PATCH", f"{API}/nodes/{node}", {"spec": {"unschedulable": yes, **opened}}, node)

    async def _drain(self, node: str) -> Told | None:
        self._tell(f"drains {node}")
        order = {"unschedulable": True, "drain": {"reason": "drill"}}  # a node that takes new work does not empty itself
        return await self.write("PATCH", f"{API}/nodes/{node}", {"spec": order}, node)

    async def _promote(self, revision: int) -> Told | None:
        self._tell(f"makes policy r{revision} current")
        return await self.write("PATCH", f"{API}/policychannels/default", {"spec": {"current": revision}}, "default")

    def _tell(self, what: str) -> None:
        self._platform.machines.tell("people", what)

    async def put_right(self) -> None:
        """After the faults: what operators did wrong is undone, so that all that is wanted can be had."""
        self.stopped = True
        while self._under_way:  # what somebody still asks for would come after it
            await sleep(0.1)
        for region in [one for one in self._platform.regions if one != self._platform.gone]:
            for number in range(self._platform.scenario.nodes):
                await self._insist("PATCH", f"{API}/nodes/{region}-n{number}", {"spec": OPEN})
        await self._insist("PATCH", f"{API}/policychannels/default", {"spec": {"current": RIGHT}})
        for path, patch in put_right(self._platform.scenario, self._platform.regions):
            await self._insist("PATCH", path, patch)
        for path in self._wrong:
            await self._insist("DELETE", path, None)
        self.done.set()

    async def _insist(self, method: str, path: str, body: Any) -> None:
        for number in range(30):
            self._number += 1
            answer = await self._try(Ask(method, path, body), f"right-{self._number}")
            if answer is not None and (answer.status < 300 or answer.status == 404):
                return
            await sleep(0.5 + 0.1 * number)


def _override(name: str, tenant: str, kind: str, ttl_s: int, scope: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
    spec = {"kind": kind, "reason": "drill", "ttlSeconds": ttl_s, "scope": scope}
    body = {"apiVersion": json_codec.API_VERSION, "kind": "Override", "metadata": {"name": name}, "spec": spec}
    return f"{API}/namespaces/{tenant}/overrides", body, name


def workload(name: str, replicas: int, kind: int, work: Work) -> dict[str, Any]:
    exclusive, jobs = work.exclusive, work.jobs
    cpu, memory, gpus = f"{100 * (1 + kind % 4)}m", "512Mi", kind % 3 == 0 and name.startswith(NAMES[0]) and not work.large
    large = kind % 10 < work.large * 10
    if work.large:
        (cpu, memory), replicas = (LARGE, min(replicas, 3)) if large else (SMALL[kind % 2], replicas)
    replicas = min(replicas, 2) if gpus else replicas
    spec: dict[str, Any] = {
        "replicas": replicas,
        "template": {"command": ["serve", name]},
        "rollout": {"minReadySeconds": 1},  # as without a probe, and quick: several regions in turn end within L4's bounds
        "resources": {
            "requests": {"cpu": cpu, "memory": memory},
            **({"devices": [{"resource": "gpu", "count": 1}]} if gpus else {}),
        },
    }
    if kind < jobs * 100:
        del spec["replicas"]  # a job has none, and one that names them is refused
        spec["job"] = {"completions": replicas, "parallelism": 1 + replicas // 2}
        spec["template"] = {"command": ["job", name], "restartPolicy": "OnFailure"}
    elif kind < (jobs + exclusive) * 100:
        spec["execution"] = "Exclusive"
        if kind % 10 < work.everywhere * 10:
            spec["exclusive"] = "global"
    if work.isolated and kind % 7 == 1 and not gpus and not {"job", "execution"} & spec.keys():  # where evictions are
        spec["disruption"] = {"minServing": max(0, replicas - 1)}
    if gpus:
        spec["rollout"] |= {"maxSurge": 0, "maxUnavailable": 1}
    if not gpus and "job" not in spec and kind >= 100 - work.critical * 100:
        least = replicas if "exclusive" in spec else min(replicas, 4)  # none of those is a copy of another
        spec["recovery"] = {"budgetName": BUDGET, "minServing": least}
        spec["priorityClassName"] = "critical-service"
    if kind < work.autonomous * 100:
        spec["workloadClass"] = "critical"
    if kind >= 100 - work.isolated * 100:
        spec["isolation"] = "TenantExclusive"
    if "job" not in spec and kind % 10 < work.gangs * 10:
        spec["gang"] = True
    if kind % 5 == 0 and not large:  # it would evict what could be moved
        spec["priorityClassName"] = "critical-service"
    return {"apiVersion": json_codec.API_VERSION, "kind": "Workload", "metadata": {"name": name}, "spec": spec}


def keeps_serving(spec: dict[str, Any], drawn: int, work: Work) -> None:
    """Gives it a disruption budget or not, where operators drain: of seven bits that decide nothing else. What goes without a
    spare slot, as what runs once does, has none, nor has a gang, which leaves as it came: one of all its replicas would keep them
    for ever."""
    may = work.operators and "replicas" in spec and not {"gang", "execution"} & spec.keys() and "maxSurge" not in spec["rollout"]
    if may and drawn < work.budgets * 128:
        spec["disruption"] = {"minServing": max(1, spec["replicas"] - drawn % 2)}
