"""Two regions and a global plane that share a quota, on the objects and with the controllers and judges that run.

As escrow_model.py, one step nearer to production: reconcile functions of both quota controllers, the judge of both statuses, and
mirrors that copy one object at a time, late and in any order. Clocks run wrong by at most one per cent; either plane may be
restored from an older copy. What runs goes on over the restore of its region: nodes end what has no lease any more, and the
region's ledger knows some of the rest, and some that ended, until they have listed. `violation` asks of the true state: what
runs, or could be placed without asking, never exceeds the quota.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec.structs import replace

from fairlead.authority.judge.granting import judged_status
from fairlead.controllers.cache import Deletion
from fairlead.controllers.contract import View
from fairlead.controllers.grant import GrantController
from fairlead.controllers.mirror import GENERATION, UID, MirrorUp
from fairlead.controllers.quota import QuotaController
from fairlead.decide.admission.policy import CHANNEL_NAME
from fairlead.decide.granting import in_force
from fairlead.decide.lapsing import lapsed_grant, lapsed_term
from fairlead.decide.slots import instant
from fairlead.model.commands import Body, Caller, Delete, Put, PutStatus, Refused
from fairlead.model.ids import revision
from fairlead.model.kinds.capacity import Grant
from fairlead.model.kinds.intent import PendingReason, Quota, QuotaSpec, Region, StageCounts
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.registry import BY_KIND
from fairlead.model.resources import Resources
from tests.decide.escrow_model import Clock

QUOTA = 100
LEASE_S = 10
FENCE_S = 5
REGIONS = ("east", "west")
TENANTS = ("risk",)
_MIRRORED = ("grants", "grantterms")
Key = tuple[str, str, str]


class Changed(msgspec.Struct):
    plural: str
    tenant: str
    name: str
    position: int
    raw: bytes | None
    hot: Any


def _meta(thing: Any) -> Metadata | None:
    found: Metadata | None = thing.metadata if thing is not None else None
    return found


class Slot(int):
    """So much that runs; two of a size are two."""


class Plane:
    """The objects of one plane, and its journal's position."""

    def __init__(self) -> None:
        self.incarnation = 1
        self.position = 0
        self.objects: dict[Key, tuple[int, Any]] = {}
        self.bound: dict[str, list[Slot]] = {tenant: [] for tenant in TENANTS}  # the ledger of a region

    def put(self, plural: str, thing: Any) -> None:
        meta = thing.metadata
        key = (plural, meta.namespace, meta.name)
        old = self.objects.get(key)
        self.position += 1
        if old is None:
            meta = replace(meta, uid=f"{self.incarnation}.{self.position}", generation=1)
            thing = replace(thing, metadata=meta)
        else:
            before = old[1]
            meta = replace(
                thing.metadata, uid=before.metadata.uid, generation=before.metadata.generation + (before.spec != thing.spec)
            )
            thing = replace(thing, metadata=meta, status=before.status)
        self.objects[key] = (self.position, thing)

    def copied(self) -> Plane:
        made = Plane()
        made.incarnation, made.position, made.objects = self.incarnation, self.position, dict(self.objects)
        made.bound = {tenant: list(slots) for tenant, slots in self.bound.items()}
        return made

    def get(self, plural: str, tenant: str, name: str) -> Any:
        found = self.objects.get((plural, tenant, name))
        return found[1] if found is not None else None


class Seen:
    """What a controller has seen of its plane: a view that follows late."""

    def __init__(self, controller: Any) -> None:
        self.controller = controller
        self.view = View(controller.indexes, controller.indexes_other)

    def catch_up(self, plane: Plane) -> None:
        self.view.incarnation = plane.incarnation
        for (plural, tenant, name), (position, thing) in plane.objects.items():
            self.view.cache.apply(Changed(plural, tenant, name, position, b"", thing))
        for plural in self.controller.follows:
            for item in list(self.view.cache.all(plural)):
                if (plural, item.tenant, item.name) not in plane.objects:
                    self.view.cache.apply(Deletion(item, plane.position))


class World:
    def __init__(self) -> None:
        self.clocks = {name: Clock() for name in ("global", *REGIONS)}
        self.planes = {name: Plane() for name in ("global", *REGIONS)}
        self.running: dict[tuple[str, str], list[Slot]] = {(r, t): [] for r in REGIONS for t in TENANTS}
        self.told: dict[tuple[str, str], Any] = {}  # what nodes of a restored region were told last: it has no word for them yet
        self.unlisted: dict[str, int] = {}  # restored regions whose nodes have not said what they run, and since when
        self.copies: dict[str, list[Plane]] = {name: [] for name in self.planes}
        self.incarnations = 1
        self.lease_s = LEASE_S
        self.controllers = {name: self._controller(name) for name in self.planes}
        top = self.planes["global"]
        for region in REGIONS:
            top.put("regions", Region(Metadata(name=region)))
        for tenant in TENANTS:
            top.put("quotas", Quota(Metadata(name="default", namespace=tenant), QuotaSpec(limits=Resources(QUOTA))))

    def _controller(self, name: str) -> Seen:
        made = Seen(QuotaController(self.lease_s) if name == "global" else GrantController(name))
        made.view.since_ms = self.now(name) if hasattr(self, "clocks") else 0
        return made

    def now(self, who: str) -> int:
        return self.clocks[who].ms

    def advance(self, true_ms: int) -> None:
        for clock in self.clocks.values():
            clock.advance(true_ms)
        for region in REGIONS:
            for tenant in TENANTS:
                self._stop(region, tenant)
            if region in self.unlisted and self.now(region) >= self.unlisted[region] + FENCE_S * 1000:
                self.list(region)  # nodes that are silent for so long are given up, and what they may run counts no more

    def _stop(self, region: str, tenant: str) -> None:
        """What is above `after` is gone before the lease ends: here its nodes do it, in an instant, by the last word they had."""
        allowed, placed = self.allowed(region, tenant), self.running[region, tenant]
        if not self._stands(region, tenant):
            allowed = self.told.get((region, tenant))
        if allowed is None:
            return
        while placed and self.now(region) >= allowed.end_ms and sum(placed) > allowed.after.cpu:
            self._gone(region, tenant, placed.pop())

    def _gone(self, region: str, tenant: str, slot: Slot) -> None:
        bound = self.planes[region].bound
        bound[tenant] = [each for each in bound[tenant] if each is not slot]

    def _stands(self, region: str, tenant: str) -> bool:
        """On an offer that it has taken in the history that it is in."""
        plane = self.planes[region]
        grant: Grant | None = plane.get("grants", tenant, region)
        return grant is not None and grant.status.accepted_version > 0 and grant.status.incarnation == plane.incarnation

    def list(self, region: str) -> None:
        """Its nodes say what they run: what is not bound is ended, and what is bound and does not run is not begun."""
        self.unlisted.pop(region, None)
        bound = self.planes[region].bound
        for tenant in TENANTS:
            known = {id(slot) for slot in bound[tenant]}
            self.running[region, tenant] = [slot for slot in self.running[region, tenant] if id(slot) in known]
            there = {id(slot) for slot in self.running[region, tenant]}
            bound[tenant] = [slot for slot in bound[tenant] if id(slot) in there]

    def allowed(self, region: str, tenant: str) -> Any:
        plane = self.planes[region]
        grant: Grant | None = plane.get("grants", tenant, region)
        if grant is None:
            return None
        return in_force(grant, plane.get("grantterms", "", region), plane.incarnation, self.now(region))

    # --- what runs -----------------------------------------------------------------------------------------------------------

    def place(self, region: str, tenant: str, amount: int) -> bool:
        allowed = self.allowed(region, tenant)
        bound = self.planes[region].bound[tenant]
        fits = allowed is not None and sum(bound) + amount <= allowed.limit.cpu
        if fits:
            bound.append(Slot(amount))
            self.running[region, tenant].append(bound[-1])
        self._count(region, tenant, 0 if fits else amount)
        return fits

    def end(self, region: str, tenant: str) -> None:
        if self.running[region, tenant]:
            self._gone(region, tenant, self.running[region, tenant].pop(0))
        self._count(region, tenant, 0)

    def _count(self, region: str, tenant: str, waits: int) -> None:
        """As the assignment controller says it: how many run, and how many wait for quota."""
        plane = self.planes[region]
        pending = (PendingReason("WaitingForQuota", waits),) if waits else ()
        counts = StageCounts(bound=sum(plane.bound[tenant]))
        spec = AssignmentSpec("api", "u", 1, region, requests=Resources(1))
        made = Assignment(
            Metadata(name=f"api.{region}", namespace=tenant), spec, AssignmentStatus(replicas=counts, pending=pending)
        )
        plane.position += 1
        plane.objects["assignments", tenant, f"api.{region}"] = (plane.position, made)

    # --- controllers and mirrors -----------------------------------------------------------------------------------------------

    def control(self, who: str, which: int) -> None:
        """One look at one key; what follows is written at once, or refused."""
        seen, plane = self.controllers[who], self.planes[who]
        seen.catch_up(plane)
        keys = sorted(seen.controller.resync(seen.view))
        result = seen.controller.reconcile(keys[which % len(keys)], seen.view, self.now(who))
        for body in result.bodies:
            self._write(who, body)

    def look_blindly(self, who: str, first: int, second: int) -> None:
        """Two keys looked at on one picture: the second does not see what followed from the first."""
        seen, plane = self.controllers[who], self.planes[who]
        seen.catch_up(plane)
        keys = sorted(seen.controller.resync(seen.view))
        one, two = keys[first % len(keys)], keys[second % len(keys)]
        bodies = list(seen.controller.reconcile(one, seen.view, self.now(who)).bodies)
        if two != one:
            bodies += seen.controller.reconcile(two, seen.view, self.now(who)).bodies
        for body in bodies:
            self._write(who, body)

    def restart(self, who: str) -> None:
        self.controllers[who] = self._controller(who)

    def dark(self, region: str, true_ms: int) -> None:
        """A region has no server for so long, and starts cold behind a clock that has not moved (ADR 0034)."""
        before = self.clocks[region].reading
        self.advance(true_ms)
        self.clocks[region].reading = before
        plane, now = self.planes[region], instant(self.now(region))
        for key, (_, thing) in sorted(plane.objects.items()):
            if key[0] in _MIRRORED:
                plane.position += 1
                plane.objects[key] = (plane.position, lapsed_term(thing, now) if key[0] == "grantterms" else lapsed_grant(thing))
        self.restart(region)

    def relet(self, lease_s: int) -> None:
        """The global plane's servers are started anew, configured with another lease."""
        self.lease_s = lease_s
        self.restart("global")

    def _write(self, who: str, body: Body) -> None:
        plane = self.planes[who]
        match body:
            case Put():
                plural = BY_KIND[body.kind].plural
                old = plane.get(plural, body.object.metadata.namespace, body.object.metadata.name)
                assert plural != "grants" or old is None or body.object.spec.version > old.spec.version
                plane.put(plural, body.object)
            case PutStatus():
                self._status(who, body)
            case Delete():
                plane.objects.pop((BY_KIND[body.kind].plural, body.tenant, body.name), None)

    def _status(self, who: str, body: PutStatus) -> None:
        plane, info = self.planes[who], BY_KIND[body.kind]
        found = plane.objects.get((info.plural, body.tenant, body.name))
        if found is None or (body.expected_revision and body.expected_revision != revision(plane.incarnation, found[0])):
            return
        status = judged_status(self._context(who), Caller("c", Role.QUOTA), info, found[1], body.status)
        if isinstance(status, Refused) or status == found[1].status:
            return
        plane.position += 1
        plane.objects[info.plural, body.tenant, body.name] = (plane.position, replace(found[1], status=status))

    def _context(self, who: str) -> Any:
        plane = self.planes[who]
        now: datetime = instant(self.now(who))
        used = {tenant: sum(plane.bound[tenant]) for tenant in TENANTS}
        return SimpleNamespace(
            settings=SimpleNamespace(plane="global" if who == "global" else "region", region=who, fence_s=FENCE_S),
            incarnation=plane.incarnation,
            now=now,
            now_ms=self.now(who),
            leader_since_ms=self.unlisted.get(who, 0),
            unlisted=SimpleNamespace(any_well=lambda incarnation: "n1" if who in self.unlisted else ""),
            state=SimpleNamespace(hot=plane.get),
            policies=SimpleNamespace(
                channel_meta=_meta(plane.get("policychannels", "", CHANNEL_NAME)),
                region_meta=_meta(plane.get("regions", "", who)),
            ),
            ledger=SimpleNamespace(tenant=lambda tenant: SimpleNamespace(used={"cpu": used[tenant]})),
        )

    def mirror_down(self, region: str, which: int) -> None:
        top, low = self.planes["global"], self.planes[region]
        names = sorted({key for plane in (top, low) for key in plane.objects if key[0] in _MIRRORED and key[2] == region})
        if not names:
            return
        key = names[which % len(names)]
        found = top.objects.get(key)
        copy = low.get(*key)
        if found is None or (copy is not None and copy.metadata.annotations[UID] != found[1].metadata.uid):
            low.objects.pop(key, None)
            return
        source = found[1]
        if copy is not None and key[0] == "grants" and source.spec.version <= copy.spec.version:
            return  # admission: a version grows with every change
        marks = {UID: source.metadata.uid, GENERATION: str(source.metadata.generation)}
        if copy is None or copy.spec != source.spec or copy.metadata.annotations != marks:
            low.put(key[0], type(source)(Metadata(name=key[2], namespace=key[1], annotations=marks), source.spec))

    def mirror_up(self, region: str, which: int) -> None:
        seen = View({}, {})
        for plane, cache in ((self.planes["global"], seen.cache), (self.planes[region], seen.other)):
            for (plural, tenant, name), (position, thing) in plane.objects.items():
                if plural in _MIRRORED:
                    cache.apply(Changed(plural, tenant, name, position, b"", thing))
        controller = MirrorUp(region)
        keys = sorted(controller.resync(seen))
        if not keys:
            return
        for body in controller.reconcile(keys[which % len(keys)], seen, 0).bodies:
            assert isinstance(body, PutStatus)
            key = (BY_KIND[body.kind].plural, body.tenant, body.name)
            top = self.planes["global"]
            top.position += 1
            top.objects[key] = (top.position, replace(top.objects[key][1], status=body.status))

    # --- restores --------------------------------------------------------------------------------------------------------------

    def copy(self, who: str) -> None:
        self.copies[who] = [*self.copies[who][-2:], self.planes[who].copied()]

    def restore(self, who: str, which: int) -> None:
        if not self.copies[who]:
            return
        self.incarnations += 1
        older = self.copies[who][which % len(self.copies[who])].copied()
        older.incarnation = self.incarnations
        older.position += 1000
        if who != "global":
            self.told |= {(who, t): self.allowed(who, t) for t in TENANTS if self._stands(who, t)}
            self.unlisted[who] = self.now(who)
        self.planes[who] = older
        self.restart(who)

    # --- what must hold --------------------------------------------------------------------------------------------------------

    def violation(self) -> str:
        for tenant in TENANTS:
            sums = {}
            for region in REGIONS:
                allowed = self.allowed(region, tenant)
                spendable = allowed.limit.cpu if allowed is not None else 0
                sums[region] = max(sum(self.running[region, tenant]), spendable)
            if sum(sums.values()) > QUOTA:
                return f"running and spendable of {tenant} are {sums}, together more than {QUOTA}"
        return ""

    def round(self, region: str) -> None:
        """One region and the global plane hear each other, once."""
        for which in range(2 * len(TENANTS) + 1):
            self.mirror_down(region, which)
            self.control(region, which)
            self.mirror_up(region, which)
        for which in range(len(TENANTS) + len(REGIONS)):
            self.control("global", which)


def settled(world: World, seconds: int = 6) -> None:
    for _ in range(seconds):
        for region in REGIONS:
            world.list(region)
            world.round(region)
        world.advance(1000)


def hold(walk: Callable[[int], tuple[str, int]], part: int) -> None:
    """Eight random walks, each of which says what was broken and how much was placed."""
    total = 0
    for seed in range(part * 8, part * 8 + 8):
        broken, placed = walk(seed)
        assert not broken
        total += placed
    assert total > 40, "a walk in which nothing is placed shows nothing"
