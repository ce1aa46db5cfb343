"""The quota controllers, the judge of their words and the mirrors between them, in true time (granting_model.py)."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from fairlead.decide import escrow
from fairlead.decide.granting import account_of, tell
from fairlead.decide.slots import instant
from fairlead.model.commands import Put
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.kinds.quota import GrantOffer, GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.decide.granting_model import QUOTA, REGIONS, TENANTS, World, hold, settled

KINDS = (
    ["advance"] * 6 + ["control"] * 6 + ["blindly"] * 4 + ["down"] * 6 + ["up"] * 6 + ["place"] * 10 + ["end"] * 3 + ["copy"]
    + ["restart"] + ["round"] * 8 + ["list"] * 4
)  # fmt: skip


def walk(seed: int, steps: int = 300) -> tuple[str, int]:
    """A random walk; answers with what was broken, and how much was placed."""
    rng, world, placed = random.Random(seed), World(), 0
    for clock in world.clocks.values():
        clock.rate = rng.choice((990, 1000, 1010))
    for number in range(steps):
        rare = rng.random()
        kind = "restore" if rare < 0.015 else "relet" if rare < 0.025 else rng.choice(KINDS)
        # For half of the time one region is as good as cut off.
        region = rng.choice(REGIONS) if number % 200 < 100 or rng.random() < 0.2 else REGIONS[seed % 2]
        who = rng.choice(("global", *REGIONS))
        first, second = rng.randrange(1000), rng.randrange(1000)
        match kind:
            case "advance":
                world.advance(rng.choice((1, 50, 300, 1500, 1500, 4000, 9000)))
            case "control":
                world.control(who, first)
            case "blindly":
                world.look_blindly(who, first, second)
            case "down":
                world.mirror_down(region, first)
            case "up":
                world.mirror_up(region, first)
            case "place":
                placed += world.place(region, rng.choice(TENANTS), rng.choice((5, 10, 30)))
            case "end":
                world.end(region, rng.choice(TENANTS))
            case "copy":
                world.copy(who)
            case "restart":
                world.restart(who)
            case "restore":
                world.restore(who, first)
            case "relet":
                world.relet(rng.choice((1, 3, 10, 30)))
            case "list":
                world.list(region)
            case "round":
                world.round(region)
        broken = world.violation()
        if broken:
            return f"seed {seed}, step {number}, {kind}: {broken}", placed
    return "", placed


@pytest.mark.parametrize("part", range(4))
def test_what_runs_and_what_could_be_placed_never_exceed_the_quota(part: int) -> None:
    hold(walk, part)


def test_quota_goes_where_work_waits_for_it_and_comes_back() -> None:
    world = World()
    for _ in range(8):
        for region in REGIONS:
            world.round(region)
        world.advance(300)
    assert [world.allowed(region, "risk").limit.cpu for region in REGIONS] == [QUOTA // 2] * 2
    for _ in range(30):
        world.place("east", "risk", 10)
        for region in REGIONS:
            world.round(region)
        world.advance(1100)
    assert sum(world.running["east", "risk"]) >= QUOTA * 8 // 10
    while world.running["east", "risk"]:
        world.end("east", "risk")
    for _ in range(30):
        world.place("west", "risk", 10)
        for region in REGIONS:
            world.round(region)
        world.advance(1100)
    assert sum(world.running["west", "risk"]) >= QUOTA * 8 // 10
    assert not world.violation()


def test_a_region_that_may_not_take_an_offer_says_what_it_uses_and_tries_again_when_that_is_less() -> None:
    """It had said that it uses nothing, was offered little to stay, and placed more meanwhile: its ledger refuses the offer."""
    world = World()
    settled(world)
    east = world.planes["east"]

    def says() -> Grant:
        for _ in range(3):
            for which in range(3):
                world.control("east", which)
            world.advance(1000)
        said: Grant = east.get("grants", "risk", "east")
        return said

    assert world.place("east", "risk", 30)
    settled(world)
    world.end("east", "risk")
    before = says()
    assert (before.status.used, before.status.after.cpu >= 30) == (Resources(), True)
    assert world.place("east", "risk", 30)
    east.put("grants", replace(before, spec=replace(before.spec, version=before.spec.version + 1, after=Resources(20))))
    assert (says().status.used, says().status.accepted_version) == (Resources(30), before.spec.version)
    world.end("east", "risk")
    assert says().status.accepted_version == before.spec.version + 1


# --- each guard, taken out: a directed case that needs it ---------------------------------------------------------------------


def test_an_answer_on_the_same_look_as_a_new_offer_does_not_lease_the_old_one() -> None:
    """The quota controller has sent an offer that it has not seen come back; the region's question is answered meanwhile."""
    world = World()
    settled(world)
    seen, top = world.controllers["global"], world.planes["global"]
    for _ in range(6):  # the west's demand makes the east's next offer smaller
        world.place("west", "risk", 10)
    world.advance(3000)
    for which in range(3):
        world.control("east", which)  # asks again
        world.control("west", which)
        world.mirror_up("east", which)
        world.mirror_up("west", which)
    seen.catch_up(top)
    shared = seen.controller.reconcile(("risk", ""), seen.view, world.now("global")).bodies
    offers = {b.object.spec.region: b.object.spec.version for b in shared if isinstance(b, Put) and b.kind == "Grant"}
    assert "east" in offers
    answer = seen.controller.reconcile(("region/", "east"), seen.view, world.now("global")).bodies[0]
    assert isinstance(answer, Put)
    assert answer.object.spec.floors["risk"] == offers["east"]


def test_a_region_below_the_floor_writes_down_the_end_of_its_lease_before_it_takes_the_answer() -> None:
    world = World()
    settled(world)
    before = world.allowed("east", "risk")
    top, low = world.planes["global"], world.planes["east"]
    grant = top.get("grants", "risk", "east")
    top.put("grants", replace(grant, spec=replace(grant.spec, version=grant.spec.version + 1, during=Resources(20))))
    world.advance(4000)
    for _ in range(6):  # the answer comes down, the offer does not
        for which in range(3):
            world.control("east", which)
            world.mirror_up("east", which)
            world.control("global", which)
        names = sorted(key for key in top.objects if key[0] in ("grants", "grantterms") and key[2] == "east")
        world.mirror_down("east", names.index(("grantterms", "", "east")))
    assert low.get("grantterms", "", "east").status.end_time > instant(before.end_ms), "the leases of others went on"
    assert world.allowed("east", "risk").end_ms == before.end_ms


def test_what_runs_in_a_restored_region_goes_on_however_long_nobody_is_heard_and_may_be_offered_again() -> None:
    world = World()
    settled(world)
    assert world.place("east", "risk", 40)
    settled(world)
    world.copy("east")
    world.restore("east", 0)
    world.list("east")
    for _ in range(60):
        world.advance(1000)
        assert not world.place("east", "risk", 5)
        assert not world.violation()
    assert world.running["east", "risk"] == [40]
    settled(world)
    assert world.place("east", "risk", 5)


def test_a_restored_region_asks_for_leases_when_its_nodes_have_said_what_they_run() -> None:
    """Its ledger has lost what was bound last: it would take an offer that leaves no room for that, and the west be given it."""
    world = World()
    settled(world)
    world.copy("east")
    assert world.place("east", "risk", 40)
    world.restore("east", 0)
    assert not world.planes["east"].bound["risk"], "though it runs"
    for _ in range(8):
        world.place("west", "risk", 10)
        for region in REGIONS:
            world.round(region)
        world.advance(500)
        assert not world.violation()
    settled(world)
    assert not world.running["east", "risk"], "what is bound nowhere was ended"
    assert world.place("west", "risk", 10), "there is room for it now"
    assert not world.violation()


def test_a_restored_region_uses_nothing_until_it_has_taken_an_offer_again() -> None:
    world = World()
    settled(world)
    world.copy("east")
    world.restore("east", 0)
    assert not world.place("east", "risk", 5)
    settled(world)
    assert world.place("east", "risk", 5)


def test_a_restored_global_plane_grows_nothing_while_a_region_is_silent() -> None:
    world = World()
    settled(world)
    world.copy("global")
    for _ in range(5):
        world.place("west", "risk", 10)
        settled(world, 4)
    had = world.allowed("west", "risk").limit.cpu
    assert had > QUOTA // 2
    world.restore("global", 0)
    world.advance(60_000)  # longer than any lease
    for _ in range(20):
        world.place("east", "risk", 10)
        world.round("east")
        world.advance(1000)
    assert sum(world.running["east", "risk"]) + had <= QUOTA, "what the silent one has is in nobody's books"
    settled(world, 12)
    assert world.place("west", "risk", 5)
    assert not world.violation()


def test_an_offer_made_on_the_same_look_as_an_answer_counts_the_lease_that_was_just_given() -> None:
    world = World()
    settled(world)
    seen, top = world.controllers["global"], world.planes["global"]
    for _ in range(6):
        world.place("west", "risk", 10)
    world.advance(3000)
    for which in range(3):
        for region in REGIONS:
            world.control(region, which)
            world.mirror_up(region, which)
    seen.catch_up(top)
    answer = seen.controller.reconcile(("region/", "east"), seen.view, world.now("global")).bodies[0]
    shared = seen.controller.reconcile(("risk", ""), seen.view, world.now("global")).bodies
    assert isinstance(answer, Put)
    east = next(b.object.spec for b in shared if isinstance(b, Put) and b.kind == "Grant" and b.object.spec.region == "east")
    assert east.offers[-1].until_time == answer.object.spec.until_time


def test_a_restored_region_does_not_take_an_offer_that_it_had_already_given_up() -> None:
    world = World()
    settled(world)
    world.copy("east")
    had = world.allowed("east", "risk").limit.cpu
    for _ in range(8):
        world.place("west", "risk", 10)
        settled(world, 2)
    assert world.allowed("east", "risk").limit.cpu < had
    world.restore("east", 0)
    top = world.planes["global"]
    for _ in range(12):  # it asks and is answered; its copy of the grant is still the old one
        for which in range(3):
            world.control("east", which)
        names = sorted(key for key in top.objects if key[0] in ("grants", "grantterms") and key[2] == "east")
        world.mirror_up("east", 0)
        world.mirror_up("east", 1)
        world.control("global", 0)
        world.control("global", 1)
        world.mirror_down("east", names.index(("grantterms", "", "east")))
        world.advance(500)
    assert world.planes["east"].get("grantterms", "", "east").status.taken > 0
    assert world.allowed("east", "risk").limit.cpu == 0
    settled(world)
    assert not world.violation()


def test_an_offer_is_not_taken_while_more_is_used_than_it_allows() -> None:
    world = World()
    settled(world)
    for _ in range(4):
        assert world.place("east", "risk", 10)
    grant = world.planes["global"].get("grants", "risk", "east")
    smaller = replace(grant.spec, version=grant.spec.version + 1, during=Resources(20), after=Resources(20))
    world.planes["global"].put("grants", replace(grant, spec=smaller))
    for which in range(8):
        world.mirror_down("east", which)
        world.control("east", which)
    status = world.planes["east"].get("grants", "risk", "east").status
    assert status.accepted_version == grant.spec.version
    world.end("east", "risk")
    world.end("east", "risk")
    world.advance(1100)
    for _ in range(4):
        for which in range(3):
            world.control("east", which)
        world.advance(1100)
    assert world.planes["east"].get("grants", "risk", "east").status.accepted_version == smaller.version


@pytest.mark.parametrize(("incarnation", "told", "stays"), [(1, 50, 10), (2, 40, 40)])
def test_of_what_it_uses_a_region_that_lost_what_it_stood_on_tells_that_it_stays(incarnation: int, told: int, stays: int) -> None:
    """To a plane that was restored, too: it goes on, so nobody else may be given it when a lease ends."""
    status = GrantStatus(accepted_version=3, during=Resources(50), after=Resources(10), incarnation=1)
    grant = Grant(Metadata(name="east", namespace="risk"), GrantSpec("east", 3, lease_seconds=600), status)
    leased = GrantTerm(Metadata(name="east"), GrantTermSpec("east"), GrantTermStatus(incarnation=1, end_time=instant(600_000)))
    assert tell(grant, leased, incarnation, {"cpu": 40}, 1_000) == (Resources(told), Resources(stays))


def test_nobody_counts_a_lease_as_ended_whose_time_it_has_not_watched() -> None:
    spec = GrantSpec(
        "east", 2, Resources(10), offers=(GrantOffer(1, Resources(50), Resources(5), instant(1_000)),), lease_seconds=600
    )
    grant = Grant(Metadata(name="east", namespace="risk"), spec)
    assert escrow.exposure(account_of(grant, 1, floor_ms=0), 2_000) == {"cpu": 10}
    assert escrow.exposure(account_of(grant, 1, floor_ms=3_000), 2_000) == {"cpu": 50}


def waited(world: World, region: str, cut: str = "") -> int:
    """Seconds until a region that has used up its part can place ten more, a message a second, or -1."""
    while world.place(region, "risk", 1):
        pass
    for second in range(60):
        if world.place(region, "risk", 10):
            return second
        for each in REGIONS:
            if each != cut:
                world.round(each)
        world.advance(1000)
    return -1


def test_how_long_quota_takes_to_come_to_where_work_waits() -> None:
    """Delayed fairness, measured: docs/quota.md says these figures."""
    near, far = World(), World()
    settled(near)
    settled(far)
    heard, cut = waited(near, "east"), waited(far, "east", cut="west")
    print(f"both heard: {heard} s; one cut off: {cut} s, with a lease of 10 s")
    assert 0 <= heard <= 6
    assert heard < cut <= 30, "what a silent region was offered is free once its lease has certainly ended"
    assert not far.violation()
