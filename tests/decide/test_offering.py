"""Why the quota controller makes an offer is written on the Grant it makes (granting_model.py runs the controller)."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.decide.escrow import Offer
from fairlead.decide.offering import REASON, why_offered
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.decide.granting_model import REGIONS, World, settled


def why(world: World, region: str) -> str:
    found = world.planes["global"].get("grants", "risk", region)
    return str(found.metadata.annotations.get(REASON, "")).split(":")[0]


def test_every_grant_says_why_it_is_as_it_is() -> None:
    world = World()
    settled(world, 1)
    assert all(why(world, region) for region in REGIONS), "the first one too"
    for _ in range(20):
        world.place("east", "risk", 10)
        settled(world, 1)
    assert why(world, "east") in ("demand", "floor", "transfer")
    assert why(world, "west") == "transfer", "it gave up what the other waits for"
    top = world.planes["global"]
    quota = top.get("quotas", "risk", "default")
    top.put("quotas", replace(quota, spec=replace(quota.spec, limits=Resources(quota.spec.limits.cpu // 2))))
    world.control("global", 0)
    settled(world, 2)
    assert "shrink" in {why(world, region) for region in REGIONS}


def test_the_words_follow_what_changed() -> None:
    grant = Grant(Metadata(name="east", namespace="risk"), GrantSpec("east", 1), GrantStatus(waiting=Resources(10)))
    has, limits = Offer(1, {"cpu": 40}, {"cpu": 10}), {"cpu": 100}

    def told(during: int, after: int = 10, exposed: int = 90) -> str:
        return why_offered(grant, has, Offer(2, {"cpu": during}, {"cpu": after}), limits, {"cpu": exposed})

    assert why_offered(None, Offer(0, {}, {}), has, limits, {}) == "first share of the quota"
    assert told(50) == "demand: cpu is waited for"
    assert told(30) == "transfer: cpu goes to others"
    assert told(30, exposed=110) == "shrink: the limit of cpu is lower"
    assert told(40, after=20) == "floor: what stays after the lease follows what is used"
    assert told(40) == "leased anew: the same as before"
    grant = replace(grant, status=GrantStatus())
    assert told(50) == "transfer: cpu was free"
