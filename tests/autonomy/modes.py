"""One region's plane in every degraded mode: a real authority and a real scheduler, with new work of every kind.

Time is moved by hand over a lease of a thousand seconds: asked and answered at the beginning and again after 700 s. The first
answer's lease ends at 990 s, the second's at 1690 s; at 1100 s the region counts as cut off. What a mode lacks is taken from the
second answer: the policy it leases is newer than what is installed, or the grants it leases are newer than those taken.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from fairlead.authority.authority import Authority
from fairlead.authority.judge import Settings
from fairlead.authority.local import LocalPlane
from fairlead.client.plane import Expired
from fairlead.decide.degraded import KINDS, Fate, Mode
from fairlead.decide.granting import ended_early, take
from fairlead.decide.leasing import VERSION
from fairlead.model.commands import Accepted, BindMany, Caller, Command, Outcome, Put, PutStatus, Refused
from fairlead.model.kinds.capacity import Grant, GrantSpec
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, SchedulerPolicy, SchedulerPolicySpec
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec
from fairlead.model.kinds.work import Ask
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.ports import Tasks
from fairlead.scheduler.scheduler import Scheduler, SchedulerSettings
from fairlead.store.contract import Unavailable
from fairlead.store.memory import MemoryDisk, MemoryStore, Refuse
from tests.authority.faults import HandFaults
from tests.authority.planes import GI, OPERATOR, REGION, FakeClock, PlaneForTest, bind_of, ok, request_of, running_plane

LEASE_S: Final = 1000
WAIT_S: Final = 60.0
R1: Final = SchedulerPolicy(Metadata(name="r1"), SchedulerPolicySpec(revision=1))
ASKS: Final = {"within": 1000, "above": 6000}  # of a grant of ten CPUs, of which four stay
SLOTS: Final = [(f"{kind.replace(' ', '-')}-{which}", kind, which) for kind in KINDS for which in ASKS]
# As which reason a scheduler shows a refusal.
SHOWN: Final = {
    "StoreUnavailable": "StoreUnavailable",
    "PolicyLeaseEnded": "PolicyAuthorityUnreachable",
    "CutOff": "PolicyAuthorityUnreachable",
    "GrantExceeded": "WaitingForQuota",
}
Fates = dict[tuple[str, str], Fate]


class Gated:
    """A watch that tells nothing until its gate is open. A broken one tells nothing then either: it ends."""

    def __init__(self, feed: Any, gate: Gate) -> None:
        self._feed, self._gate = feed, gate
        self._kept: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    def take_nowait(self) -> Sequence[Any]:
        self._kept += self._feed.take_nowait()
        if not self._gate.open or not self._kept:
            return ()
        if self._gate.broken:
            raise Expired("the connection broke; list again", 0)
        told, self._kept = self._kept, []
        return told


class Gate(LocalPlane):
    """The plane as a scheduler sees it in this mode; remembers of each tenant's slot why it was not placed, if it was not."""

    def __init__(self, authority: Authority, clock: FakeClock, *, broken: bool) -> None:
        super().__init__(authority, clock)
        self.open, self.broken = False, broken
        self.feeds = 0
        self.said: dict[str, str] = {}

    def follow(self, *args: Any, **fields: Any) -> Any:
        self.feeds += 1
        return Gated(super().follow(*args, **fields), self)

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        outcomes = await super().submit(commands)
        for command, outcome in zip(commands, outcomes, strict=True):
            match command.body:
                case BindMany(binds):
                    refused = dict(outcome.refused) if isinstance(outcome, Accepted) else {}
                    self.said |= {each.tenant: _said(refused.get(at, outcome)) for at, each in enumerate(binds)}
                case PutStatus(kind="SchedulingRequest", tenant=tenant, status=status) if status.reason != "BackingOff":
                    self.said[tenant] = status.reason  # not where it only waits to propose again: the refusal says why
                case _:
                    pass
        return outcomes


class Region:
    def __init__(self, plane: PlaneForTest, clock: FakeClock) -> None:
        self.plane, self.clock = plane, clock
        self.began = clock.monotonic()

    def get(self, plural: str, tenant: str, name: str) -> Any:
        rec = self.plane.authority.view().get(plural, tenant, name)
        return rec.decode() if rec is not None and rec.raw is not None else None

    async def at(self, second: float) -> None:
        """So many seconds after the beginning: those who act have new leases, and the node is heard."""
        self.clock.offset += second - (self.clock.monotonic() - self.began)
        self.mirror, self.quota = await self.plane.as_role(Role.MIRROR), await self.plane.as_role(Role.QUOTA)
        self.plane.authority.heartbeat([("n0", 1)])

    async def status(self, kind: str, tenant: str, status: Any) -> None:
        ok(await self.plane.send(self.quota, PutStatus(kind, tenant, REGION, status)))

    async def begin(self) -> None:
        await self.at(0.0)
        await self.plane.add_node("n0", cpu=200_000, memory=400 * GI)
        ok(await self.plane.send(OPERATOR, Put("SchedulerPolicy", R1)))
        meta = Metadata(name="default", annotations={VERSION: "7"})
        ok(await self.plane.send(self.mirror, Put("PolicyChannel", PolicyChannel(meta, PolicyChannelSpec(current=1)))))
        ok(await self.plane.send(self.mirror, Put("GrantTerm", GrantTerm(Metadata(name=REGION), GrantTermSpec(REGION)))))
        for tenant, _, _ in SLOTS:
            spec = GrantSpec(REGION, 1, Resources(10_000, 100 * GI), Resources(4_000, 100 * GI), lease_seconds=LEASE_S)
            ok(await self.plane.send(self.mirror, Put("Grant", Grant(Metadata(name=REGION, namespace=tenant), spec))))

    async def asked(self, **answer: Any) -> None:
        status = self.get("grantterms", "", REGION).status
        await self.status("GrantTerm", "", replace(status, incarnation=1, asked=status.asked + 1))
        term = self.get("grantterms", "", REGION)
        spec = GrantTermSpec(REGION, 1, 1, term.status.asked, LEASE_S, **answer)
        ok(await self.plane.send(self.mirror, Put("GrantTerm", replace(term, spec=spec))))
        for tenant in answer.get("floors", {}):
            await self.status("Grant", tenant, ended_early(self.get("grants", tenant, REGION), term))
        await self.status("GrantTerm", "", replace(self.get("grantterms", "", REGION).status, taken=term.status.asked))

    async def take_grants(self) -> None:
        term = self.get("grantterms", "", REGION)
        for tenant, _, _ in SLOTS:
            taken = take(self.get("grants", tenant, REGION), term, 1, {})
            assert not isinstance(taken, str), taken
            await self.status("Grant", tenant, taken)

    async def ask_for_work(self) -> None:
        assigner = await self.plane.as_role(Role.ASSIGNMENT)
        for tenant, kind, which in SLOTS:
            made = request_of(tenant, "api", 0)
            ask = Ask(requests=Resources(ASKS[which], GI), workload_class=KINDS[kind])
            made = replace(made, spec=replace(made.spec, ask=ask))
            ok(await self.plane.send(assigner, Put("SchedulingRequest", made, mode="create")))

    async def proposed(self, scheduler: Caller) -> dict[tuple[str, str], Outcome]:
        """What the authority says to a scheduler that asks nothing itself."""
        binds = [bind_of(tenant, "api-0", "n0", policy_revision=1) for tenant, _, _ in SLOTS]
        return {
            (kind, which): await self.plane.send(scheduler, bind) for bind, (_, kind, which) in zip(binds, SLOTS, strict=True)
        }

    def fate(self, tenant: str) -> Fate | None:
        binding, request = self.get("bindings", tenant, "api-0"), self.get("schedulingrequests", tenant, "api-0")
        if binding is not None:
            return Fate("Provisional" if binding.spec.provisional_until_time is not None else "Placed")
        said = request.status.reason if request is not None else ""
        return Fate("Held", said) if said and said not in ("PendingEvaluation", "Reserved") else None


async def in_mode(mode: Mode) -> tuple[Fates, dict[tuple[str, str], str]]:
    """What becomes of work that is new to a scheduler, and what the authority answers to a proposal for what was held; or for
    all, without a store."""
    clock, faults = FakeClock(), HandFaults()
    settings = Settings(region=REGION, max_observation_age_s=100_000.0)
    async with running_plane(MemoryStore(MemoryDisk(), faults), clock, settings) as plane, Tasks() as tasks:
        region = Region(plane, clock)
        await region.begin()
        await region.asked(policy=7)
        await region.take_grants()
        await region.at(700.0)
        floors = {} if mode.quota else {tenant: 2 for tenant, _, _ in SLOTS}
        await region.asked(policy=7 if mode.policy else 8, floors=floors)
        await region.at(1000.0 if mode.plane else 1150.0)
        gate = Gate(plane.authority, clock, broken=not mode.watch)
        scheduler = Scheduler(gate, clock, random.Random(1), SchedulerSettings(hear_s=0.02, renew_s=0.2))
        tasks.start(scheduler.run(), "scheduler")
        await scheduler.wait_serving()  # it has listed, and there was no work
        await region.ask_for_work()
        hasty = await plane.as_role(Role.SCHEDULER, "hasty", "hasty")
        if not mode.store:
            faults.always["commit"] = Refuse(Unavailable("Down", "the store does not answer", 0.01))
        gate.open = True
        assert scheduler.feed is not None
        scheduler.feed.poke()
        fates = await (_placed(region) if mode.store else _without_store(region, scheduler, gate))
        assert (gate.feeds == 1) is (mode.watch or not mode.store), "it listed again where it was not told, and could"
        answers = {at: _said(outcome) for at, outcome in (await region.proposed(hasty)).items()}
        assert mode.store or not [tenant for tenant, _, _ in SLOTS if region.get("bindings", tenant, "api-0") is not None]
        faults.always.clear()
        scheduler.stop()
    # Whoever lost its watch gets no lease again without a store, so nobody proposes: what is asked then is the authority alone.
    return fates or {at: Fate("Held", SHOWN[said]) for at, said in answers.items()}, answers


async def _placed(region: Region) -> Fates:
    await _until(region, lambda: all(region.fate(tenant) is not None for tenant, _, _ in SLOTS))
    fates = {(kind, which): region.fate(tenant) for tenant, kind, which in SLOTS}
    return {at: fate for at, fate in fates.items() if fate is not None}


async def _without_store(region: Region, scheduler: Scheduler, gate: Gate) -> Fates:
    """What the scheduler was told, or would have written down."""
    if gate.broken:
        await _until(region, lambda: not scheduler.serving)
        assert not gate.said
        return {}
    await _until(region, lambda: all(tenant in gate.said for tenant, _, _ in SLOTS))
    return {(kind, which): Fate("Held", SHOWN.get(gate.said[tenant], gate.said[tenant])) for tenant, kind, which in SLOTS}


async def _until(region: Region, so: Callable[[], bool]) -> None:
    end = region.clock.monotonic() + WAIT_S
    while not so():
        assert region.clock.monotonic() < end, [(tenant, region.fate(tenant)) for tenant, _, _ in SLOTS]
        await asyncio.sleep(0.002)


def _said(outcome: Outcome) -> str:
    match outcome:
        case Accepted():
            return "Accepted"
        case Refused():
            return outcome.reason
        case _:
            return type(outcome).__name__
