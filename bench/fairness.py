"""`fairlead bench fairness`: how far a tenant's quota lies from where it is wanted after demand shifts, and for how long, in
simulated time.

Production code on the simulator's platform (fairlead/sim): a global plane, three regions, two tenants that each use most of
their quota in one region and then want it in another. `far` is the share of a tenant's quota that is wanted in some regions
while as much lies idle in others: nought is the fair split, in which no region has quota idle that another waits for. It is
looked at ten times a second, over all planes at one true moment. Twice: with every region heard, and with the region that has
the quota idle cut off just before. It fails if a promise is found broken, or quota does not come where it is wanted within the
bound that docs/quota.md states. Same seed, same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from bench.apart import answer_apart, measured_apart
from bench.planes import result
from bench.registry import Option
from fairlead.model.registry import GLOBAL
from fairlead.model.resources import Resources
from fairlead.observe.escrow import in_use, spendable
from fairlead.sim import loop as sim
from fairlead.sim.born import Birth, TenantBorn
from fairlead.sim.hearing import hearing, quiet
from fairlead.sim.loop import SimLoop, sleep
from fairlead.sim.people import API
from fairlead.sim.scenario import Scenario, Work
from fairlead.sim.walls import unheard, walls
from fairlead.sim.world import World
from fairlead.wire import json_codec

OPTIONS = (
    Option("seed", 1, "of the simulated platform"),
    Option("lease_seconds", 600, "of grants: what bounds the time of a region that is cut off"),
    Option("slots", 40, "that each tenant's quota has room for"),
    Option("wanted_percent", 90, "of its quota that a tenant wants in one region"),
)
REGIONS: Final = ("us-east", "us-west", "eu-central")
TENANTS: Final = ("risk", "search")
ASK: Final = Resources(200, 128 << 20)
LOOK_S: Final = 0.1
READY_S: Final = 120.0  # within which the platform must be up and at rest; no figure depends on it
HEARD_S: Final = 10.0  # quota moves within this where all are heard
KEPT_SHARE: Final = 0.25  # of what a region was offered, so much above what it uses may stay with it when its lease has ended
STEPS_MAX: Final = 1_000_000_000


class Settings(msgspec.Struct, frozen=True):
    seed: int
    lease_seconds: int
    slots: int
    wanted: int  # slots in one region


class Moved(msgspec.Struct):
    """What became of one shift. Shares are of a tenant's quota, the larger of both tenants."""

    far_max_share: float  # at the most
    far_end_share: float  # at the end
    far_s: float  # until it was within a hundredth of that for good
    far_mean_share: float  # over that time


class Measured(msgspec.Struct):
    heard: Moved
    cut: Moved
    findings: list[str]
    trace: str


class Bench:
    def __init__(self, world: World, settings: Settings) -> None:
        self._world = world
        self._settings = settings
        self._wanted: dict[tuple[str, str], int] = {}  # (tenant, region) -> slots

    async def run(self) -> tuple[Moved, Moved]:
        east, west, _ = REGIONS
        few = max(1, self._settings.slots // 20)
        await self._want({(tenant, region): few for tenant in TENANTS for region in REGIONS}, create=True)
        await self._want({(tenant, east): self._settings.wanted for tenant in TENANTS})
        await self._rest()
        await self._want({(tenant, east): few for tenant in TENANTS})
        await self._rest()
        await self._want({(tenant, west): self._settings.wanted for tenant in TENANTS})
        heard = await self._watched(READY_S)
        await self._want({(tenant, west): few for tenant in TENANTS})
        await self._rest()
        await self._want({(tenant, east): self._settings.wanted // 2 for tenant in TENANTS})
        await self._rest()
        await self._want({(tenant, east): few for tenant in TENANTS})
        await self._rest()
        self._cut(east)  # which may use much and uses little
        await self._want({(tenant, west): self._settings.wanted for tenant in TENANTS})
        return heard, await self._watched(bound_s(self._settings.lease_seconds) + READY_S)

    async def _want(self, slots: dict[tuple[str, str], int], *, create: bool = False) -> None:
        for (tenant, region), count in slots.items():
            name, path = f"work-{region}", f"{API}/namespaces/{tenant}/workloads"
            spec = {
                "replicas": count,
                "template": {"command": ["work"]},
                "resources": {"requests": {"cpu": f"{ASK.cpu}m", "memory": str(ASK.memory)}},
                "placement": {"regions": {"allowed": [region]}},
            }
            made = {"apiVersion": json_codec.API_VERSION, "kind": "Workload", "metadata": {"name": name}, "spec": spec}
            body, url = (made, path) if create else ({"spec": {"replicas": count}}, f"{path}/{name}")
            for _ in range(60):
                answer = await self._world.people.write("POST" if create else "PATCH", url, body, name)
                if answer is not None and answer.status < 300:
                    break
                await sleep(1.0)
            self._wanted[tenant, region] = count

    def _far(self) -> float:
        """The larger of both tenants' shares."""
        return max(far(self._parts(tenant), self._settings.slots * ASK.cpu) for tenant in TENANTS)

    def _parts(self, tenant: str) -> list[tuple[int, int]]:
        """What is wanted in each region, and what may be used there."""
        out = []
        for region in REGIONS:
            plane, watch = self._world.platform.planes[region], self._world.watches[region]
            grant = watch.objects.get("grants", {}).get((tenant, region))
            now_ms = max((server.authority.plane_ms() for server in plane.leaders()), default=0)
            term = watch.objects.get("grantterms", {}).get(("", region))
            may = spendable(grant, term, watch.checker.incarnation, now_ms).cpu if grant is not None else 0
            out.append((max(self._wanted[tenant, region] * ASK.cpu, in_use(watch.objects, tenant).cpu), may))
        return out

    async def _watched(self, for_s: float) -> Moved:
        """Every tenth of a second, until it has been fair for ten seconds."""
        seen: list[float] = []
        while len(seen) * LOOK_S < for_s and not (len(seen) > 100 and max(seen[-100:]) < 0.01):
            seen.append(self._far())
            if len(seen) % 10 == 0:
                self._world.look_at_quota()
            await sleep(LOOK_S)
        return moved(seen)

    async def _rest(self) -> None:
        """Until every slot that is wanted serves, and is told to; then a little more, for reports to come in."""
        for _ in range(int(READY_S)):
            await sleep(1.0)
            found = self._world.watches[GLOBAL].objects.get("workloads", {})
            if all(self._serves(found.get((tenant, f"work-{region}")), n) for (tenant, region), n in self._wanted.items()):
                break
        await sleep(10.0)

    @staticmethod
    def _serves(workload: Any, count: int) -> bool:
        return workload is not None and workload.status.replicas.serving == workload.status.replicas.desired == count

    def _cut(self, region: str) -> None:
        machines, network = self._world.platform.machines.all, self._world.platform.network
        own = [machine for name, machine in machines.items() if name.startswith(f"{region}/")]
        for one in own:
            for other in machines.values():
                if other not in own:
                    network.block(one, other)
                    network.block(other, one)


def far(parts: Sequence[tuple[int, int]], quota: int) -> float:
    """`parts`: for each region what is wanted there and what may be used there."""
    lacks, idle = sum(max(0, wants - may) for wants, may in parts), sum(max(0, may - wants) for wants, may in parts)
    return min(lacks, idle) / quota


def moved(seen: Sequence[float]) -> Moved:
    last = max((number for number, share in enumerate(seen) if share > seen[-1] + 0.01), default=-1) + 1
    mean = sum(seen[:last]) / last if last else 0.0
    return Moved(round(max(seen), 3), round(seen[-1], 3), round(last * LOOK_S, 1), round(mean, 3))


def failures(found: Measured, lease_s: int) -> list[str]:
    out = list(found.findings)
    if found.heard.far_s > HEARD_S or found.heard.far_end_share > 0.01:
        out.append(f"with all heard, {found.heard.far_end_share} of a quota was idle elsewhere after {found.heard.far_s} s")
    if found.cut.far_s > bound_s(lease_s) + HEARD_S or found.cut.far_end_share > KEPT_SHARE:
        out.append(f"{found.cut.far_end_share} of a quota was idle {found.cut.far_s} s after its region was cut off")
    return out


def bound_s(lease_s: int) -> float:
    """After the last answer a region may use its lease; it is honoured a hundredth longer, and 30 s or a tenth of it."""
    return lease_s * 1.01 + min(30.0, lease_s / 10)


def measured(settings: Settings) -> Measured:
    quota = ASK.times(settings.slots)
    birth = Birth(REGIONS, tuple(TenantBorn(name, quota) for name in TENANTS))
    work = Work(workloads=0, actions=0.001, operators=0.0, replays=0.0)
    scenario = Scenario(settings.seed, "fairness", len(REGIONS), 1, 3, grant_lease_s=settings.lease_seconds, work=work)

    async def main(loop: SimLoop) -> Measured:
        world = World(loop, scenario, birth)
        world.platform.start()
        with hearing(loop, world.found):
            heard, cut = await Bench(world, settings).run()
        found = [f"{one.invariant} in {one.plane or 'all'} at {one.at_s} s: {one.detail}" for one in world.findings]
        return Measured(heard, cut, found, "")

    with quiet(), unheard(), walls():
        outcome = sim.run(main, settings.seed, STEPS_MAX)
    return msgspec.structs.replace(outcome.value, trace=outcome.trace)


async def main(**options: Any) -> dict[str, Any]:
    wanted = options["slots"] * options["wanted_percent"] // 100
    settings = Settings(options["seed"], options["lease_seconds"], options["slots"], wanted)
    found = await measured_apart("bench.fairness", settings, Measured)
    told = {**msgspec.to_builtins(found), "bound_s": bound_s(settings.lease_seconds)}
    return result("fairness", options, {**told, "failures": failures(found, settings.lease_seconds)})


if __name__ == "__main__":
    answer_apart(Settings, measured)
