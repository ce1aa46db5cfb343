"""Drills in which people change how decisions are made: policy-rollback. Run by running.py."""

from __future__ import annotations

from typing import Any, Final

from fairlead.drills.asking import Tree
from fairlead.drills.contract import BILLING, RISK, Drill, check_unhurt
from fairlead.drills.restarts import PLACED_S, tokens
from fairlead.drills.scene import TENANT, Scene

REGION: Final = "us-east"
# Ready only after a while, so that there is something to roll back into.
SLOW: Final[Tree] = {
    "driver": "process",
    "command": ["/bin/sleep", "86400"],
    "probes": {"readiness": {"exec": {"command": ["/bin/true"]}, "initialDelaySeconds": 5, "periodSeconds": 0.5}},
    "stopGraceSeconds": 1,
}


class PolicyRollback(Drill):
    name = "policy-rollback"
    does = "puts another scheduler policy in force, asks for eight replicas, and goes back to the old policy while they start"
    expects = (
        "nothing that runs or starts is restarted: bindings of risk-api, of billing-api and of the eight stay as they are",
        "the eight run, and each says under which revision it was decided: some under the one that was taken back",
        "no client sees an error",
    )
    about_s = 40
    COUNT: Final = 8

    async def run(self, scene: Scene) -> None:
        channel = await scene.asking.get("policychannels", "", "default") or {}
        current = int(channel["spec"]["current"])
        old = next(one for one in await scene.asking.items("schedulerpolicies") if one["spec"]["revision"] == current)
        number = max(int(one["spec"]["revision"]) for one in await scene.asking.items("schedulerpolicies")) + 1
        before = await self._bindings(scene)
        scene.undo.append(("the policy in force", lambda: self._force(scene, current)))
        other = {**old["spec"], "revision": number, "packing": "Balance" if old["spec"].get("packing") != "Balance" else "Pack"}
        await scene.asking.create("schedulerpolicies", "", f"r{number}", other)
        await self._force(scene, number)
        await scene.until(f"{REGION} has got it", lambda: self._in_force(scene, number), PLACED_S, poll_s=0.05)
        await scene.sleepers("drill-policy", self.COUNT, REGION, template=SLOW)

        async def some() -> bool:
            return bool(await scene.asking.slots("bindings", TENANT, "drill-policy", REGION))

        await scene.until("the first are bound", some, PLACED_S, poll_s=0.05)
        starting = await scene.asking.slots("bindings", TENANT, "drill-policy", REGION)
        scene.begin(f"back from policy revision {number} to {current}")
        await self._force(scene, current)

        async def running() -> bool:
            return (await scene.asking.counts(TENANT, "drill-policy")).get("ready", 0) == self.COUNT

        await scene.expect(f"all {self.COUNT} run", running, PLACED_S, "ready")
        made = await scene.asking.slots("bindings", TENANT, "drill-policy", REGION)
        revisions = sorted({int(one["spec"].get("policyRevision", 0)) for one in made})
        scene.figures["policy_revisions"] = revisions
        as_decided = number in revisions and set(revisions) <= {current, number}
        scene.check("each binding names the revision it was decided under", as_decided, f"revisions {revisions}, {number} tried")
        self._check_started(scene, starting, made)
        after = await self._bindings(scene)
        changed = sorted(slot for slot, place in before.items() if after.get(slot) != place)
        scene.check(
            "nothing that ran was restarted",
            bool(before) and not changed,
            ", ".join(changed) or f"{len(before)} bindings as before",
        )
        await scene.dwell(8.0)
        scene.check_lowest(RISK, 6)
        check_unhurt(scene, "a policy decides on what is placed, not on what runs")

    @staticmethod
    def _check_started(scene: Scene, starting: list[Tree], made: list[Tree]) -> None:
        """Those that were on their way when the policy was taken back: still that life of theirs, and then not ready yet."""
        early = sorted(one["metadata"]["name"] for one in starting if one["status"].get("state") not in ("Ready", "Serving"))
        after = tokens(made)
        moved = sorted(slot for slot, place in tokens(starting).items() if after.get(slot) != place)
        told = ", ".join(moved) or f"{len(early)} of {len(starting)} were starting"
        scene.check("nothing that was starting began anew", bool(early) and not moved, told)

    @staticmethod
    async def _in_force(scene: Scene, revision: int) -> bool:
        found = await scene.asking.get("policychannels", "", "default", REGION) or {}
        return int((found.get("spec") or {}).get("current", 0)) == revision

    @staticmethod
    async def _bindings(scene: Scene) -> dict[str, Any]:
        found: list[Tree] = []
        for workload in (RISK, BILLING):
            found += await scene.asking.slots("bindings", *workload)
        return tokens(found)

    @staticmethod
    async def _force(scene: Scene, revision: int) -> None:
        await scene.asking.patch("policychannels", "", "default", {"current": revision})
