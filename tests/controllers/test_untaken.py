"""An offer that its region has not taken yet is not taken back for the one before it, of which the region still speaks."""

from __future__ import annotations

from typing import Any

from fairlead.controllers.contract import View
from fairlead.controllers.quota import ANSWER_MS, QuotaController
from fairlead.decide.granting import first_version
from fairlead.model.commands import Put
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.kinds.intent import Quota, QuotaSpec, Region
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.decide.granting_model import Changed

LEASE_S = 600


class Plane:
    """A quota of 100 over two regions. Both use 30 of the 50 they have, and west wants more; what east wants is its word."""

    def __init__(self) -> None:
        self.controller = QuotaController(LEASE_S)
        self.view = View(self.controller.indexes, self.controller.indexes_other)
        self.view.incarnation = 1
        self._position = 0
        self.see("quotas", Quota(Metadata(name="q", namespace="risk"), QuotaSpec(limits=Resources(100))))
        for name, during, used, waits in (("east", 50, 30, 0), ("west", 50, 30, 40)):
            self.see("regions", Region(Metadata(name=name)))
            self.offered(GrantSpec(name, first_version(1), Resources(during), Resources(during), lease_seconds=LEASE_S))
            self.says(name, first_version(1), used, waits)

    def see(self, plural: str, thing: Any) -> None:
        self._position += 1
        self.view.cache.apply(Changed(plural, thing.metadata.namespace, thing.metadata.name, self._position, b"", thing))

    def grant(self, region: str) -> Grant:
        found: Grant = self.view.cache.get("grants", "risk", region)
        return found

    def offered(self, spec: GrantSpec) -> None:
        before = self.view.cache.get("grants", "risk", spec.region)
        self.see("grants", Grant(Metadata(name=spec.region, namespace="risk"), spec, before.status if before else GrantStatus()))

    def says(self, region: str, taken: int, used: int, waits: int) -> None:
        status = GrantStatus(
            accepted_version=taken, incarnation=1, heard=1, used=Resources(used), waiting=Resources(waits), during=Resources(50)
        )
        grant = self.grant(region)
        self.see("grants", Grant(grant.metadata, grant.spec, status))

    def looks(self, now_ms: int) -> tuple[dict[str, int], int | None]:
        """What is offered to whom, and when it looks again by itself."""
        result = self.controller.reconcile(("risk", ""), self.view, now_ms)
        made = [body.object.spec for body in result.bodies if isinstance(body, Put) and body.kind == "Grant"]
        for spec in made:
            self.offered(spec)
        return {spec.region: spec.during.cpu for spec in made}, result.wake_ms


def test_what_a_region_says_before_it_has_taken_an_offer_makes_no_other() -> None:
    plane = Plane()
    first, _ = plane.looks(1000)
    assert first["east"] < 50, "it is to give up what it does not need"
    plane.says("east", first_version(1), 30, 20)  # about the offer before: of that it could have used the rest
    made, wake_ms = plane.looks(1060)
    assert "east" not in made
    assert wake_ms is not None
    assert wake_ms <= 1000 + ANSWER_MS


def test_what_it_says_when_it_has_taken_it_counts_at_once() -> None:
    plane = Plane()
    first, _ = plane.looks(1000)
    plane.says("east", plane.grant("east").spec.version, 30, 20)
    made, _ = plane.looks(1060)
    assert made["east"] == 50 > first["east"]


def test_something_else_is_offered_at_once() -> None:
    plane = Plane()
    first, _ = plane.looks(1000)
    plane.says("east", first_version(1), 30, 5)
    made, _ = plane.looks(1060)
    assert first["east"] < made["east"] < 50


def test_one_that_takes_nothing_is_offered_anew_after_a_while() -> None:
    plane = Plane()
    first, _ = plane.looks(1000)
    plane.says("east", first_version(1), 30, 20)
    made, _ = plane.looks(1000 + ANSWER_MS)
    assert made["east"] > first["east"]
