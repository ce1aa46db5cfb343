"""A global plane that was restored, and a Region it has no books of: whom it waits for before grants grow (ADR 0016)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.controllers.contract import View
from fairlead.controllers.quota import QuotaController
from fairlead.decide.granting import first_version
from fairlead.decide.sharing import HOLDS_NOTHING
from fairlead.model.commands import Put, PutStatus
from fairlead.model.ids import Uid
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.kinds.intent import Quota, QuotaSpec, Region
from fairlead.model.meta import Condition, Metadata
from fairlead.model.registry import BY_KIND
from fairlead.model.resources import Resources
from tests.decide.granting_model import Changed

INCARNATION = 2
LIMIT, HAS = 1000, 100


class Books:
    """A restored plane that has heard of `a` and `b`, of which `a` waits for more; `c` is a Region without servers."""

    def __init__(self) -> None:
        self.controller = QuotaController()
        self.view = View(self.controller.indexes, self.controller.indexes_other)
        self.view.incarnation = INCARNATION
        self._position = 0
        version = first_version(INCARNATION) + 1
        for region, waits in (("a", 300), ("b", 0)):
            self.put("regions", Region(Metadata(name=region)))
            spec = GrantSpec(region, version, Resources(HAS), Resources(HAS), lease_seconds=600)
            says = GrantStatus(version, incarnation=1, heard=INCARNATION, used=Resources(HAS - 10), waiting=Resources(waits))
            self.put("grants", Grant(Metadata(name=region, namespace="risk"), spec, says))
        self.put("quotas", Quota(Metadata(name="default", namespace="risk"), QuotaSpec(limits=Resources(LIMIT))))
        self.put("regions", Region(Metadata(name="c", uid=Uid(f"global.{INCARNATION}.1"))))

    def put(self, plural: str, thing: Any) -> None:
        self._position += 1
        meta = thing.metadata
        self.view.cache.apply(Changed(plural, meta.namespace, meta.name, self._position, b"", thing))

    def get(self, plural: str, tenant: str, name: str) -> Any:
        return self.view.cache.get(plural, tenant, name)

    def say(self, incarnation: str) -> None:
        region: Region = self.get("regions", "", "c")
        self.put("regions", replace(region, metadata=replace(region.metadata, annotations={HOLDS_NOTHING: incarnation})))

    def look(self, times: int = 10) -> None:
        """What it writes is taken by those that are there."""
        for number in range(times):
            for body in self.controller.reconcile(("risk", ""), self.view, 10**9 + number * 1000).bodies:
                if isinstance(body, Put):
                    grant: Grant = body.object
                    old: Grant | None = self.get("grants", "risk", grant.metadata.name)
                    says = old.status if old is not None else GrantStatus()
                    if grant.metadata.name != "c":
                        says = replace(says, accepted_version=grant.spec.version)
                    self.put("grants", replace(grant, status=says))
                elif isinstance(body, PutStatus):
                    plural = BY_KIND[body.kind].plural
                    self.put(plural, replace(self.get(plural, body.tenant, body.name), status=body.status))

    def during(self, region: str) -> int:
        found: Grant = self.get("grants", "risk", region)
        return found.spec.during.cpu

    def held(self) -> Condition | None:
        quota: Quota = self.get("quotas", "risk", "default")
        return next((each for each in quota.status.conditions if each.type == "GrowthHeld"), None)


def test_a_region_that_may_be_older_than_its_region_object_is_waited_for_and_the_quota_says_so() -> None:
    """Its Region was made after the restore, perhaps by somebody who applied all manifests again."""
    books = Books()
    books.look()
    assert (books.during("a"), books.during("b"), books.during("c")) == (HAS, HAS, 0)
    held = books.held()
    assert held is not None
    assert (held.status, held.reason) == ("True", "RegionsUnheard")
    assert f'hold: c; a Region that never was given anything may say so ({HOLDS_NOTHING}: "2")' in held.message


@pytest.mark.parametrize("asked", [False, True])
def test_a_region_that_is_said_to_hold_nothing_keeps_nobody_from_growing(asked: bool) -> None:
    books = Books()
    if asked:  # it was asked before anybody said so, and did not answer
        books.look()
    books.say(str(INCARNATION))
    books.look()
    assert books.during("a") >= HAS + 300
    assert books.during("c") > 0, "it has its share, for when its servers come"
    assert sum(books.during(region) for region in "abc") <= LIMIT
    held = books.held()
    assert held is not None
    assert held.status == "False"


def test_what_was_said_to_an_earlier_incarnation_means_nothing() -> None:
    books = Books()
    books.say(str(INCARNATION - 1))
    books.look()
    assert (books.during("a"), books.during("c")) == (HAS, 0)


def test_what_a_region_tells_itself_counts_for_more() -> None:
    books = Books()
    books.look()
    asked: Grant = books.get("grants", "risk", "c")
    holds = replace(asked.status, heard=INCARNATION, told=Resources(400), told_after=Resources(400))
    books.put("grants", replace(asked, status=holds))
    books.say(str(INCARNATION))
    books.look(1)
    assert (books.during("a"), books.during("c")) == (HAS, 400), "what it told is in the books before anybody grows"
