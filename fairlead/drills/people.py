"""Drills in which people order exceptions, and in which a controller could make things worse: override-expiry,
repair-during-incident, autoscaler-amplification. Run by running.py."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from fairlead.drills.contract import RISK, Drill, check_unhurt
from fairlead.drills.losses import BACK_S
from fairlead.drills.restarts import PLACED_S, tokens
from fairlead.drills.scene import TENANT, Scene

REGION: Final = "us-east"
RUNNING: Final = ("Ready", "Serving")
# What an autoscaler says that adds nothing because what was ordered does not serve.
NOT_SERVING: Final = re.compile(r"\d+ ordered before are not serving yet|\d+ of \d+ serve: their load says nothing")


class OverrideExpiry(Drill):
    name = "override-expiry"
    does = "holds back a tenant's workload by an override of 25 s, and cuts its region off from global before that time is over"
    expects = (
        "nothing of it is bound while the override is in force, and what waits says why",
        "from its end on it has no effect: the region binds by itself, cut off as it is",
        "nothing was bound a moment before the end",
    )
    about_s = 75
    TTL_S: Final = 25
    COUNT: Final = 3

    async def run(self, scene: Scene) -> None:
        name = "drill-hold"
        spec = {"kind": "hold", "reason": "drill", "ttlSeconds": self.TTL_S, "scope": {"tenants": [TENANT], "workloads": [name]}}
        await scene.make("overrides", TENANT, name, spec)
        scene.begin(f"an override holds {name} for {self.TTL_S} s")
        await scene.until(f"{REGION} knows of it", lambda: self._known(scene, name), PLACED_S)
        await scene.sleepers(name, self.COUNT, REGION)

        async def held() -> bool:
            waiting = await scene.asking.slots("schedulingrequests", TENANT, name, REGION)
            return len(waiting) == self.COUNT and all((one.get("status") or {}).get("reason") == "OnHold" for one in waiting)

        await scene.expect("all of it waits with OnHold", held, self.TTL_S - 5.0)
        await scene.chaos.cut(scene.chaos.links_between(REGION, "global"), one_way=False)
        scene.saw(f"{REGION} is cut off from global")
        made = await scene.asking.get("overrides", TENANT, name, REGION) or {}

        async def bound() -> bool:
            return len(await scene.asking.slots("bindings", TENANT, name, REGION)) == self.COUNT

        if await scene.expect("it is bound when the override has ended", bound, BACK_S, "bound"):
            copied_s = _seconds(made["metadata"]["creationTimestamp"])
            age_ms = int((made["metadata"].get("annotations") or {}).get("fairlead.dev/mirrored-age-ms", "0"))
            ends_s = copied_s - age_ms / 1000 + self.TTL_S
            found = await scene.asking.slots("bindings", TENANT, name, REGION)
            first_s = min(_seconds(one["metadata"]["creationTimestamp"]) for one in found)
            detail = f"the first {first_s - ends_s:+.2f} s from its end, by the clock of {REGION}"
            scene.check("nothing was bound before the end", first_s >= ends_s, detail)
        scene.check_lowest(RISK, 6)
        check_unhurt(scene, "an override about other work changes nothing for them")

    @staticmethod
    async def _known(scene: Scene, name: str) -> bool:
        return await scene.asking.get("overrides", TENANT, name, REGION) is not None


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


class RepairDuringIncident(Drill):
    name = "repair-during-incident"
    does = (
        "lets repairs of a workload wait for a second person, then kills a node that runs part of it; later the second person "
        "agrees"
    )
    expects = (
        "the loss is seen and told, and nothing is replaced while repairs wait",
        "whoever asks why is told that these slots wait for a second person",
        "from the approval on the slots are replaced, each once",
    )
    about_s = 90
    COUNT: Final = 6
    WAIT_S: Final = 8.0

    async def run(self, scene: Scene) -> None:
        name = "drill-repair"
        await scene.sleepers(name, self.COUNT, REGION)
        await scene.until("all of it runs", lambda: self._running(scene, name, ""), PLACED_S)
        spec = {
            "kind": "repair-approval",
            "reason": "drill",
            "ttlSeconds": 300,
            "scope": {"tenants": [TENANT], "workloads": [name]},
        }
        await scene.make("overrides", TENANT, name, spec)

        async def known() -> bool:
            return await scene.asking.get("overrides", TENANT, name, REGION) is not None

        await scene.until(f"{REGION} knows of the override", known, PLACED_S)
        before = await scene.asking.slots("bindings", TENANT, name, REGION)
        node = str(before[0]["spec"]["node"])
        there = {one["metadata"]["name"] for one in before if one["spec"]["node"] == node}
        scene.begin(f"{node} loses power with {len(there)} slots of {name}")
        await scene.chaos.kill([scene.chaos.node(node)])

        async def unknown() -> bool:
            found = {one["metadata"]["name"]: one for one in await scene.asking.slots("bindings", TENANT, name, REGION)}
            return all(slot in found and found[slot]["status"]["state"] == "Unknown" for slot in there)

        await scene.expect("its slots are called Unknown", unknown, BACK_S, "detect")
        await scene.clock.sleep(BACK_S / 6 + self.WAIT_S)  # a node is Lost after 10 s more, and repairs would have begun
        found = tokens(await scene.asking.slots("bindings", TENANT, name, REGION))
        moved = sorted(slot for slot, place in tokens(before).items() if found.get(slot) != place)
        scene.check("nothing is replaced while repairs wait", not moved, ", ".join(moved) or f"{len(there)} slots wait")
        await self._check_told(scene, name, there)
        await scene.asking.approve(TENANT, name)
        scene.saw("the second person agrees")
        await scene.expect("all of it runs, none there", lambda: self._running(scene, name, node), BACK_S, "ready")
        after = tokens(await scene.asking.slots("bindings", TENANT, name, REGION))
        untouched = [slot for slot, place in tokens(before).items() if slot not in there and after.get(slot) != place]
        scene.check("what was well was left alone", not untouched, ", ".join(untouched) or "as before")

    @staticmethod
    async def _check_told(scene: Scene, name: str, there: set[str]) -> None:
        said = await scene.asking.why(TENANT, name)
        waiting = sum(said.get(slot) == "WaitingForApproval" for slot in there)
        told = f"{waiting} of {len(there)} slots say WaitingForApproval"
        scene.check("what waits says for whom", waiting == len(there), told)

    async def _running(self, scene: Scene, name: str, but: str) -> bool:
        found = await scene.asking.slots("bindings", TENANT, name, REGION)
        well = [one for one in found if one["status"].get("state") in RUNNING and one["spec"]["node"] != but]
        return len(well) == self.COUNT


def waits_for_serving(said: str) -> bool:
    """Whether an autoscaler says that it waits for what it has ordered, and not that it waits for something else."""
    return NOT_SERVING.match(said) is not None


class AutoscalerAmplification(Drill):
    name = "autoscaler-amplification"
    does = (
        "gives a service more than four times the load it is made for, and room for one more replica: most of what an autoscaler "
        "orders cannot come"
    )
    expects = (
        "the autoscaler never orders more than the load needs and its surge",
        "one that multiplies what it ordered by the load, with the same readings, would have ordered at least twice as many, and "
        "at least twice what the load needs",
        "it says why it waits: what it has ordered does not serve",
    )
    about_s = 90
    START, SURGE, MOST, TARGET = 2, 1, 40, 700
    WORK: Final = 6000  # thousandths of one replica, in all: so much that it must wait before it has ordered what is needed
    FOR_S: Final = 50.0

    async def run(self, scene: Scene) -> None:
        name = "drill-scaled"
        alone = {"topologyKey": "hostname", "match": [{"key": "app", "operator": "In", "values": [name]}], "required": True}
        place = {"regions": {"allowed": [REGION]}, "antiAffinity": [alone]}  # one a node, and us-east has three for services
        await scene.sleepers(name, self.START, REGION, placement=place)
        await scene.until("it serves", lambda: self._serve(scene, name), PLACED_S)
        spec = {"workload": name, "minReplicas": self.START, "maxReplicas": self.MOST, "targetPercent": self.TARGET // 10,
                "surge": self.SURGE, "upWaitSeconds": 5.0}  # fmt: skip
        await scene.make("autoscalers", TENANT, name, spec)
        needed = -(-self.WORK // self.TARGET)
        scene.begin(f"a load of {self.WORK / 1000:g} replicas: {needed} are needed at {self.TARGET / 10:g} %")
        peak, naive, why = self.START, self.START, ""
        while scene.since_s() < self.FOR_S:
            serving = max(1, (await scene.asking.counts(TENANT, name)).get("serving", 0))
            busy = min(99_000, self.WORK // serving)
            now = datetime.fromtimestamp(scene.clock.wall(), tz=UTC).isoformat(timespec="seconds")
            scaler = await scene.asking.annotate("autoscalers", TENANT, name, {"fairlead.dev/busy": f"{busy}@{now}"})
            naive = min(self.MOST, max(naive, -(-naive * busy // self.TARGET)))
            conditions = (scaler.get("status") or {}).get("conditions") or ()
            why = next((str(one.get("message")) for one in conditions if one.get("message")), why)
            found = await scene.asking.get("workloads", TENANT, name) or {}
            peak = max(peak, int(found["spec"]["replicas"]))
            await scene.clock.sleep(5.0)
        scene.figures["autoscaler"] = {"needed": needed, "ordered_at_most": peak, "naive": naive, "says": why}
        scene.check(
            "never more than the load needs and its surge", peak <= needed + self.SURGE, f"{peak} at most; {needed} needed"
        )
        scene.check("a naive one would have ordered at least twice as many", naive >= 2 * peak, f"{naive} against {peak}")
        scene.check(
            "a naive one would have ordered at least twice what is needed", naive >= 2 * needed, f"{naive}; {needed} needed"
        )
        scene.check("it acted at all", peak > self.START, f"from {self.START} to {peak}")
        scene.check("it says that it waits for what does not serve", waits_for_serving(why), why or "nothing")
        scene.check_lowest(RISK, 6)

    async def _serve(self, scene: Scene, name: str) -> bool:
        return (await scene.asking.counts(TENANT, name)).get("serving", 0) >= self.START
