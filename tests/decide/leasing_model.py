"""The model of granting_model.py, with a policy channel and regions' areas that change: what regions may judge by, in true time.

The reconcile functions of the controllers quota, grant and policy run, and the judge; copies of the channel and of a Region come
late, in any order, and from older pictures. `violation` asks of the true state: where the channel says of a region that it has
accepted what is ordered, or that its lease has ended, that region can place nothing by anything older.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from fairlead.authority.judge.policies import Policies
from fairlead.controllers.policy import PolicyController
from fairlead.decide.admission.policy import CHANNEL_NAME
from fairlead.decide.leasing import VERSION, Versions, installed, policy_end_ms, version_of
from fairlead.model.commands import Body, Put, PutStatus
from fairlead.model.kinds.intent import Region, RegionSpec
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec
from fairlead.model.meta import Metadata
from tests.decide import granting_model
from tests.decide.granting_model import LEASE_S, Plane, Seen

CHANNEL = ("policychannels", "", CHANNEL_NAME)


def meta_of(thing: Any) -> Metadata | None:
    found: Metadata | None = thing.metadata if thing is not None else None
    return found


class World(granting_model.World):
    def __init__(self) -> None:
        super().__init__()
        self.planes["global"].put("policychannels", PolicyChannel(Metadata(name=CHANNEL_NAME), PolicyChannelSpec(current=1)))
        self.judge = self._seen()

    def _seen(self) -> Seen:
        made = Seen(PolicyController(LEASE_S))
        made.view.since_ms = self.now("global")
        return made

    def restart(self, who: str) -> None:
        super().restart(who)
        if who == "global":
            self.judge = self._seen()

    # --- what people change ----------------------------------------------------------------------------------------------------

    def promote(self, revision: int) -> None:
        top = self.planes["global"]
        top.put("policychannels", replace(top.get(*CHANNEL), spec=PolicyChannelSpec(current=revision)))

    def move(self, region: str, area: str) -> None:
        top = self.planes["global"]
        top.put("regions", Region(Metadata(name=region), RegionSpec((area,))))

    # --- what follows ----------------------------------------------------------------------------------------------------------

    def rule(self) -> None:
        """The policy controller looks, and says what is effective."""
        self.judge.catch_up(self.planes["global"])
        for body in self.judge.controller.reconcile(("", CHANNEL_NAME), self.judge.view, self.now("global")).bodies:
            assert isinstance(body, PutStatus)
            plane = self.planes["global"]
            plane.position += 1
            plane.objects[CHANNEL] = (plane.position, replace(plane.get(*CHANNEL), status=body.status))

    def install(self, region: str, plural: str, source: Plane) -> None:
        """A copy, as the mirror makes it of the picture it has; the region's authority takes none that goes back."""
        low = self.planes[region]
        key = CHANNEL if plural == "policychannels" else ("regions", "", region)
        original, before = source.get(*key), low.get(*key)
        if original is None:
            return
        mark = str(version_of(original.metadata, source.incarnation))
        made = type(original)(Metadata(name=key[2], annotations={VERSION: mark}), original.spec)
        if Policies.refuse_older(made.metadata, meta_of(before)) is None:
            low.put(plural, made)

    def _write(self, who: str, body: Body) -> None:
        if who == "global" and isinstance(body, Put) and body.kind == "GrantTerm":
            top = self.planes["global"]
            regions = SimpleNamespace(
                channel_meta=meta_of(top.get(*CHANNEL)), _meta_of=lambda name: meta_of(top.get("regions", "", name))
            )
            old = top.get("grantterms", "", body.object.metadata.name)
            if Policies.refuse_answer(regions, body.object, old, top.incarnation) is not None:  # type: ignore[arg-type]
                return
        super()._write(who, body)

    # --- what must hold --------------------------------------------------------------------------------------------------------

    def may_judge(self, region: str) -> bool:
        plane = self.planes[region]
        if plane.get("grantterms", "", region) is None:  # a leased grant gives no room without it
            return False
        return self.now(region) < policy_end_ms(plane.get("grantterms", "", region), self.have(region), plane.incarnation)

    def have(self, region: str) -> Versions:
        plane = self.planes[region]
        return installed(meta_of(plane.get(*CHANNEL)), meta_of(plane.get("regions", "", region)))

    def effective(self) -> bool:
        conditions = self.planes["global"].get(*CHANNEL).status.conditions
        return any(each.type == "Effective" and each.status == "True" for each in conditions)

    def violation(self) -> str:
        for stand in self.planes["global"].get(*CHANNEL).status.regions:
            older = not self.have(stand.region).reach(Versions(stand.policy, stand.residency))
            if stand.state != "Pending" and older and self.may_judge(stand.region):
                return f"{stand} and yet {stand.region} may judge by {self.have(stand.region)}"
        return super().violation()

    def ask(self, region: str) -> None:
        """The region asks and is answered, and nothing new of policy comes down to it."""
        super().round(region)
        self.rule()

    def round(self, region: str) -> None:
        for plural in ("policychannels", "regions"):
            self.install(region, plural, self.planes["global"])
        self.ask(region)
