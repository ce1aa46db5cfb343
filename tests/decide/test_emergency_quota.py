"""Emergency quotas, given and taken back, for all regions or for some: what they allow ends with them (granting_model.py)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.controllers.contract import View
from fairlead.controllers.quota import QuotaController
from fairlead.decide.granting import EMERGENCY_DRAIN_MS, account_of, first_version, in_force, must_end_ms
from fairlead.decide.lasting import staying
from fairlead.decide.sharing import Emergency, QuotaNow, wished
from fairlead.decide.slots import instant, millis
from fairlead.model.commands import Put
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.kinds.intent import Quota, QuotaSpec, Region
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.decide.granting_model import QUOTA, REGIONS, Changed, World, hold, settled


def flood(world: World, seconds: int, cpu: int, *regions: str, name: str = "flood") -> None:
    """An emergency quota of so many thousandths of a CPU from now on."""
    scope = OverrideScope(tenants=("risk",), regions=regions)
    spec = OverrideSpec("emergency-quota", "flood", seconds, "ada", "bob", scope, {"cpu": f"{cpu}m"})
    made = Metadata(name=name, namespace="risk", creation_time=instant(world.now("global")))
    world.planes["global"].put("overrides", Override(made, spec))


def taken_back(world: World, name: str = "flood") -> None:
    top = world.planes["global"]
    found = top.get("overrides", "risk", name)
    top.put("overrides", replace(found, metadata=replace(found.metadata, deletion_time=instant(world.now("global")))))


def test_an_emergency_quota_for_one_region_gives_the_others_nothing_and_takes_nothing_from_them() -> None:
    world = World()
    settled(world)
    top = world.planes["global"]
    flood(world, 60, 60, "east")
    for _ in range(20):  # both want more than there is
        for region in REGIONS:
            world.place(region, "risk", 5)
        settled(world, 1)
    used = {region: sum(world.running[region, "risk"]) for region in REGIONS}
    assert used["west"] <= QUOTA, "the quota without the emergency's is all that the other may have"
    assert used["east"] > 60, f"what was added is used where it was added: {used}"
    assert world.allowed("west", "risk").limit.cpu >= QUOTA // 2 - 5, "it has its share of what there always was"
    assert not top.get("grants", "risk", "west").spec.emergency.amounts()
    assert top.get("grants", "risk", "east").spec.emergency.cpu >= 50
    flood(world, 60, 500, "north", name="lost")
    settled(world, 3)
    assert sum(world.allowed(region, "risk").limit.cpu for region in REGIONS) <= QUOTA + 60, "a region nobody knows adds nothing"


def test_an_emergency_quota_raises_the_limits_until_its_end_and_not_a_moment_longer() -> None:
    world = World()
    settled(world)
    top = world.planes["global"]
    flood(world, 20, 60)
    for _ in range(17):
        world.place("east", "risk", 10)
        settled(world, 1)
    while not world.place("east", "risk", 1):  # there is room, and it is the emergency's
        world.end("east", "risk")
    running = sum(world.running["east", "risk"])
    assert running > QUOTA, "more than the quota has, while it is in force"
    world.advance(4_000)  # it ends; nobody has heard of it yet, and nobody has cleaned up
    assert not world.place("east", "risk", 1)
    settled(world, 3)
    condition = next(c for c in top.get("quotas", "risk", "default").status.conditions if c.type == "OverQuota")
    assert (condition.status, sum(world.running["east", "risk"])) == ("True", running), "what runs goes by its deadline"
    while sum(world.running["east", "risk"]) > 50:
        world.end("east", "risk")
    settled(world)
    condition = next(c for c in top.get("quotas", "risk", "default").status.conditions if c.type == "OverQuota")
    assert condition.status == "False"
    assert not world.violation()


def test_an_emergency_quota_ends_in_time_also_in_a_region_that_lost_count_of_the_time() -> None:
    """Its servers were away for twenty seconds, and its clock did not move: it would have counted on for as long."""
    world = World()
    settled(world)
    flood(world, 60, 60)
    for _ in range(12):
        world.place("east", "risk", 10)
        settled(world, 1)
    world.dark("east", 20_000)
    settled(world, 8)
    while not world.place("east", "risk", 1):
        world.end("east", "risk")
    assert sum(world.running["east", "risk"]) > 50, "it is in force, and there is room"
    over = next(item for item in world.planes["global"].objects.values() if isinstance(item[1], Override))[1]
    while world.now("global") < millis(over.metadata.creation_time) + 60_000:
        world.round("east")
        world.advance(500)
    assert world.allowed("east", "risk").limit.cpu <= QUOTA
    assert not world.place("east", "risk", 1)


def test_the_next_emergency_quota_takes_over_when_the_first_ends_and_nothing_is_stopped() -> None:
    """An approved override may not change, so an emergency that goes on is another override; what is offered stays the same."""
    world = World()
    settled(world)
    top, east = world.planes["global"], world.planes["east"]
    flood(world, 20, 60)
    first_end = instant(world.now("global") + 20_000)
    while sum(world.running["east", "risk"]) < 130:
        world.place("east", "risk", 10)
        settled(world, 1)
    flood(world, 2000, 60, name="second")
    second_end = instant(world.now("global") + 2_000_000)
    settled(world, 2)
    before = top.get("grants", "risk", "east").spec
    assert before.emergency_end_time == first_end, "the earliest end of those in force"
    settled(world, 10)
    after = top.get("grants", "risk", "east").spec
    assert (after.during, after.emergency_end_time) == (before.during, second_end)
    assert world.place("east", "risk", 1), "above the quota, and within what is in force"
    settled(world, EMERGENCY_DRAIN_MS // 1000)
    assert millis(east.get("grants", "risk", "east").status.emergency_end_time) > world.now("east"), "nothing is to be stopped"
    assert sum(world.running["east", "risk"]) == 131
    world.advance(2_000_000)
    assert sum(world.allowed(region, "risk").limit.cpu for region in REGIONS) <= QUOTA, "and the second ends by itself"


def after_a_flood(silent: bool = False, again: bool = False) -> GrantSpec | None:
    """What east is offered when the emergency quota is over that gave it 20 of its 60, while the other region has 40. `silent`: a
    third region has not told a restored plane what it holds. `again`: another emergency quota is in force."""
    controller = QuotaController()
    view = View(controller.indexes, controller.indexes_other)
    view.incarnation, version = 2, first_version(2) + 1
    flooded: dict[str, Any] = {"emergency": Resources(20), "emergency_end_time": instant(1000)}
    east = GrantSpec("east", version, Resources(60), Resources(60), lease_seconds=600, **flooded)
    west = GrantSpec("west", version, Resources(40), Resources(40), lease_seconds=600)
    north = GrantSpec("north", first_version(2) - 1, lease_seconds=600)
    things: list[tuple[str, Any]] = [("quotas", Quota(Metadata(name="q", namespace="risk"), QuotaSpec(limits=Resources(QUOTA))))]
    for spec in (east, west, north) if silent else (east, west):
        says = (
            GrantStatus(accepted_version=version, incarnation=1, heard=2, used=spec.during) if spec.during.cpu else GrantStatus()
        )
        things += [("regions", Region(Metadata(name=spec.region)))]
        things += [("grants", Grant(Metadata(name=spec.region, namespace="risk"), spec, says))]
    if again:
        ordered = OverrideSpec("emergency-quota", "more", 60, "ada", "bob", OverrideScope(tenants=("risk",)), {"cpu": "20m"})
        things += [("overrides", Override(Metadata(name="more", namespace="risk", creation_time=instant(1500)), ordered))]
    for plural, thing in things:
        view.cache.apply(Changed(plural, thing.metadata.namespace, thing.metadata.name, 1, b"", thing))
    bodies = controller.reconcile(("risk", ""), view, 2000).bodies
    return next((b.object.spec for b in bodies if isinstance(b, Put) and b.object.metadata.name == "east"), None)


def test_what_fits_without_the_emergency_quota_stays_when_that_is_over() -> None:
    spec = after_a_flood()
    assert spec is not None
    assert (spec.during, spec.emergency, spec.emergency_end_time) == (Resources(60), Resources(), None)


def test_nothing_stays_of_an_emergency_quota_while_a_restored_plane_has_not_heard_of_all_regions() -> None:
    spec = after_a_flood(silent=True)
    assert spec is not None
    assert (spec.during, spec.emergency) == (Resources(40), Resources())
    assert after_a_flood(silent=True, again=True) is None, "nor does another one take over before that"


def test_an_emergency_quota_that_is_taken_back_leaves_each_region_what_is_protected_for_it_before_any_lease_has_ended() -> None:
    """Each region uses more than the quota would have left beside what the others were offered: nobody waits for the others."""
    world = World()
    top = world.planes["global"]
    half = Resources(QUOTA // 2)
    quota = QuotaSpec(Resources(QUOTA), dict.fromkeys(REGIONS, half))
    top.put("quotas", replace(top.get("quotas", "risk", "default"), spec=quota))
    settled(world)
    flood(world, 3600, 80)
    settled(world)
    assert [world.allowed(region, "risk").limit.cpu for region in REGIONS] == [90, 90]
    assert all(world.place(region, "risk", 40) for region in REGIONS)
    settled(world, 2)
    taken_back(world)
    for _ in range(5):  # two seconds of the lease's ten
        for region in REGIONS:
            world.round(region)
        world.advance(400)
    for region in REGIONS:
        grant = top.get("grants", "risk", region)
        assert (grant.spec.during, grant.spec.after, grant.status.accepted_version) == (half, half, grant.spec.version)
        assert world.place(region, "risk", 10), "what is protected may be used"
    assert not world.violation()


def test_an_emergency_quota_that_is_taken_back_while_in_use_is_placed_on_no_more_and_leaves_what_is_within_the_quota() -> None:
    world = World()
    settled(world)
    flood(world, 3600, 80)
    for _ in range(18):
        world.place("east", "risk", 10)
        settled(world, 1)
    while not world.place("east", "risk", 1):
        world.end("east", "risk")
    used = sum(world.running["east", "risk"])
    assert used > QUOTA
    taken_back(world)
    world.round("west")  # the global plane has seen it
    for _ in range(3):
        world.round("east")
        world.advance(400)
    grant = world.planes["east"].get("grants", "risk", "east")
    assert grant.status.accepted_version < grant.spec.version, "it uses more than that"
    stays = grant.status.during.cpu - grant.status.emergency.cpu
    assert stays > 0
    assert world.allowed("east", "risk").limit.cpu == world.allowed("east", "risk").after.cpu == stays
    deadline_ms = must_end_ms(grant, world.allowed("east", "risk")._replace(end_ms=1 << 62))
    assert deadline_ms == millis(grant.status.emergency_end_time) + EMERGENCY_DRAIN_MS <= world.now("east") + EMERGENCY_DRAIN_MS
    assert sum(world.running["east", "risk"]) == used, "people have until the deadline"
    settled(world, 12)  # the lease has ended
    left = sum(world.running["east", "risk"])
    assert stays - 10 < left <= stays
    assert world.allowed("east", "risk").limit.cpu == QUOTA, "what is offered is taken"
    assert not world.violation()


def test_what_an_emergency_quota_gave_is_not_kept_by_whoever_uses_it_while_the_quota_lies_with_a_silent_region() -> None:
    world = World()
    settled(world)
    top = world.planes["global"]
    flood(world, 3600, 60, "east")
    for _ in range(20):
        for region, most in (("east", 100), ("west", 40)):
            if sum(world.running[region, "risk"]) < most:
                world.place(region, "risk", 5)
        settled(world, 1)
    assert sum(world.running["east", "risk"]) >= 90
    while world.running["west", "risk"]:
        world.end("west", "risk")
    taken_back(world)
    for _ in range(3):  # and nothing is heard of west
        world.round("east")
        world.advance(300)
    east, west = (top.get("grants", "risk", region) for region in REGIONS)
    assert west.status.during.cpu >= QUOTA // 2 > west.status.used.cpu
    assert east.spec.during.cpu + west.status.during.cpu <= QUOTA, "though it uses more, it is offered what there is"


def test_what_an_emergency_quota_allows_ends_with_it_also_where_the_quota_lay_with_a_silent_region_from_before() -> None:
    world = World()
    settled(world)
    flood(world, 5, 80)
    for _ in range(18):  # and nothing is heard of west, which has half of the quota and uses none of it
        world.place("east", "risk", 10)
        world.round("east")
        world.advance(250)
    assert sum(world.running["east", "risk"]) > 80
    world.advance(600)
    limits = {region: world.allowed(region, "risk").limit.cpu for region in REGIONS}
    assert limits["west"] == QUOTA // 2, "it is silent, and its lease goes on"
    assert sum(limits.values()) <= QUOTA, f"the emergency is over: {limits}"


def test_a_region_that_an_emergency_quota_does_not_reach_gets_no_more_than_there_is_without_it() -> None:
    world = World()
    settled(world)
    flood(world, 3600, 60, "west")
    for _ in range(16):  # and nothing is heard of west, which has half of the quota and uses none of it
        world.place("east", "risk", 10)
        world.round("east")
        world.advance(250)
    limits = {region: world.allowed(region, "risk").limit.cpu for region in REGIONS}
    assert limits["west"] == QUOTA // 2
    assert sum(limits.values()) <= QUOTA, f"what was added is for west alone: {limits}"


@pytest.mark.parametrize("part", [900, 1880, 1953, 2100])
def test_what_a_region_is_wished_to_have_does_not_hang_on_how_much_of_its_last_offer_an_emergency_gave(part: int) -> None:
    """East waits, and has an emergency quota for itself beside one for all. The quota controller made an offer of each wish, and
    a wish of each offer, ten within some milliseconds, each half as far from the last as that was from the one before."""
    end = instant(60_000)
    floods = (Emergency({"cpu": 1200}, frozenset(), end), Emergency({"cpu": 900}, frozenset({"east"}), end))
    quota = QuotaNow({"cpu": 5700}, {"cpu": 3600}, {}, floods)
    east = GrantSpec("east", 2, Resources(1341 + part), Resources(2975), emergency=Resources(part), emergency_end_time=end)
    west = GrantSpec("west", 2, Resources(1373), Resources(1373))
    said = {
        "east": (east, GrantStatus(used=Resources(2900), waiting=Resources(541))),
        "west": (west, GrantStatus(used=Resources(1800))),
    }
    grants = {name: Grant(Metadata(name=name, namespace="risk"), *each) for name, each in said.items()}
    accounts = {name: account_of(grant, 1) for name, grant in grants.items()}
    assert wished(quota, grants, accounts)["east"].during == {"cpu": 3671}


class Agents:
    """What agents hold for firm, and does not end when nobody leads their region (ADR 0030)."""

    def __init__(self) -> None:
        self._firm = dict.fromkeys(REGIONS, 0)

    def look(self, world: World) -> str:
        """Whether it is told, and has room beside what the other region may use when emergency quotas are over."""
        spendable: dict[str, int] = {}
        for region in REGIONS:
            plane, used = world.planes[region], sum(world.running[region, "risk"])
            grant = plane.get("grants", "risk", region)
            if grant is None:
                return ""
            stays = staying(grant, plane.incarnation).get("cpu", 0)
            self._firm[region] = used if used <= stays else min(self._firm[region], used)
            if self._firm[region] > max(stays, grant.status.firm.cpu):
                return f"{region} has {self._firm[region]} that is firm, of {stays} that stay, and does not say so"
            ended = replace(grant, status=replace(grant.status, emergency_end_time=instant(0)))
            term = plane.get("grantterms", "", region)
            spendable[region] = in_force(ended, term, plane.incarnation, world.now(region)).limit.cpu
        for one, other in (REGIONS, REGIONS[::-1]):
            if self._firm[one] + spendable[other] > QUOTA:
                return f"{self._firm[one]} run on in {one} beside {spendable[other]} that {other} may use, of {QUOTA}"
        return ""


def walk(seed: int, steps: int = 400) -> tuple[str, int]:
    """A random walk with emergency quotas, for all regions or for one, some of them taken back; what was broken, and how much
    was placed. Once they are over, regions may use no more than the quota, however late anybody hears of it."""
    rng, world, placed = random.Random(seed), World(), 0
    agents = Agents()
    floods: list[tuple[str, int, int]] = []  # name, when it ends by the global plane's clock, how much
    for clock in world.clocks.values():
        clock.rate = rng.choice((990, 1000, 1010))
    for number in range(steps):
        heard = rng.choice(REGIONS) if number % 200 < 100 or rng.random() < 0.1 else REGIONS[seed % 2]
        match rng.choice(("advance", "place", "place", "place", "end", "round", "round", "round", "blindly", "flood", "back")):
            case "advance":
                world.advance(rng.choice((50, 300, 300, 1500, 4000)))
            case "place":
                placed += world.place(rng.choice(REGIONS), "risk", rng.choice((5, 10, 30)))
            case "end":
                world.end(rng.choice(REGIONS), "risk")
            case "round":
                world.round(heard)
            case "blindly":
                world.look_blindly(rng.choice(("global", *REGIONS)), rng.randrange(1000), rng.randrange(1000))
            case "flood" if rng.random() < 0.3:
                seconds, cpu, where = rng.choice((3, 8, 20)), rng.choice((20, 80)), rng.choice(((), ("east",), ("west",)))
                floods.append((f"flood-{number}", world.now("global") + 1000 * seconds, cpu))
                flood(world, seconds, cpu, *where, name=f"flood-{number}")
            case "back" if floods and rng.random() < 0.2:
                taken_back(world, rng.choice(floods)[0])
        most = QUOTA + sum(cpu for _, end_ms, cpu in floods if world.now("global") < end_ms)
        limits = {r: found.limit.cpu for r in REGIONS if (found := world.allowed(r, "risk")) is not None}
        if sum(limits.values()) > most:
            return f"seed {seed}, step {number}: {limits}, together more than {most}", placed
        if broken := agents.look(world):
            return f"seed {seed}, step {number}: {broken}", placed
    return "", placed


@pytest.mark.parametrize("part", range(4))
def test_what_could_be_placed_never_exceeds_the_quota_with_the_emergencies_that_are_in_force(part: int) -> None:
    hold(walk, part)


@pytest.mark.parametrize("seed", [68, 193, 230, 279])
def test_walks_in_which_more_could_be_placed_once(seed: int) -> None:
    """Offers whose emergency part grew while the region stood on the one before; two emergencies, one of them for one region."""
    assert not walk(seed)[0]
