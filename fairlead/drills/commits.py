"""Drills in which writes are in doubt or cannot be made: commit-timeout, store-down-90s. Run by running.py."""

from __future__ import annotations

from typing import Final

from fairlead.client.rest_errors import Conflict, OutcomeUnknown
from fairlead.client.rest_shapes import Write
from fairlead.drills.asking import kind
from fairlead.drills.contract import RISK, Drill, check_unhurt
from fairlead.drills.regions import health, is_lost
from fairlead.drills.restarts import PLACED_S, tokens
from fairlead.drills.scene import TENANT, Scene
from fairlead.wire.json_codec import API_VERSION

ASK_S: Final = 3.0  # a person's patience in this drill
HELD_S: Final = 8.0  # below the leader's lease
DOWN_S: Final = 90.0
RESUME_S: Final = 90.0
TROUBLES: Final = ("commit_unknown_total", "store_unavailable_total")  # batches


class CommitTimeout(Drill):
    name = "commit-timeout"
    does = "lets requests to global through and loses the answers, then holds the store of a region for 8 s while it places"
    expects = (
        "whoever asked is told that the outcome is unknown, never that it failed",
        "the same request again is answered from its receipt: there is one object, with the uid of the first attempt",
        "while the store of the region is held it refuses commits, or leaves them in doubt",
        "six replicas are bound once each after the store is back",
        "no client sees an error",
    )
    about_s = 45
    COUNT: Final = 6

    async def run(self, scene: Scene) -> None:
        await self._answer_lost(scene)
        await self._store_held(scene)
        scene.check_lowest(RISK, 6)
        check_unhurt(scene, "clients do not wait for commits")

    async def _answer_lost(self, scene: Scene) -> None:
        key, name = f"drill-{scene.since_s():.6f}-{scene.clock.wall():.0f}", "drill-doubt"
        body = {"apiVersion": API_VERSION, "kind": "Config", "metadata": {"name": name}, "spec": {"data": {"drill": "1"}}}
        replays = await scene.asking.metric("idempotent_replays_total", "global")
        impatient = await scene.asking.client(timeout_s=ASK_S)
        await impatient.read("/version")  # so that there is a connection for the request to go out on
        scene.made.append(("configs", TENANT, name))
        scene.begin("answers of global to people are lost; a Config is created")
        await scene.chaos.cut({"people>global": "back"}, one_way=True)
        said = "it was answered"
        try:
            await impatient.create(kind("configs"), TENANT, body, Write(key=key))
        except OutcomeUnknown as error:
            said = f"unknown, receipt {error.key}"
        scene.check("the outcome is called unknown", said.startswith("unknown"), said)
        await scene.chaos.heal(lambda text: None)
        stored = await scene.asking.get("configs", TENANT, name) or {}
        uid = (stored.get("metadata") or {}).get("uid", "")
        scene.check("it had taken effect", bool(uid), f"uid {uid}" if uid else "there is no such object")
        try:
            again = (await (await scene.asking.client()).create(kind("configs"), TENANT, body, Write(key=key))).object
            told = (again.get("metadata") or {}).get("uid", "")
            scene.check("the same again is answered with the first one's outcome", bool(uid) and told == uid, f"uid {told}")
        except Conflict as error:
            scene.check("the same again is answered with the first one's outcome", False, f"refused: {error}")
        replays = await scene.asking.metric("idempotent_replays_total", "global") - replays
        scene.figures["idempotent_replays"] = replays
        scene.check("from its receipt, and not by being carried out", replays >= 1, f"{replays:g} answered from receipts")
        scene.timing("detect")

    async def _store_held(self, scene: Scene) -> None:
        name, region = "drill-held", scene.sqlite_region()
        before = await self._troubles(scene, region)
        await scene.chaos.stop_store(region)
        scene.saw(f"the store of {region} is held; {self.COUNT} replicas are asked for")
        await scene.sleepers(name, self.COUNT, region)
        await scene.clock.sleep(HELD_S)
        await scene.chaos.heal(lambda text: None)
        scene.saw("the store is back")

        async def bound() -> bool:
            return len(tokens(await scene.asking.slots("bindings", TENANT, name, region))) == self.COUNT

        async def running() -> bool:
            return (await scene.asking.counts(TENANT, name)).get("ready", 0) == self.COUNT

        await scene.expect(f"all {self.COUNT} are bound", bound, PLACED_S, "bound")
        await scene.expect(f"all {self.COUNT} run", running, PLACED_S, "ready")
        after = await self._troubles(scene, region)
        scene.figures |= after
        doubted, refused = (after[metric] - before[metric] for metric in TROUBLES)
        detail = f"{doubted:g} in doubt, {refused:g} refused by the store"
        scene.check("commits could not be made while the store was held", doubted + refused >= 1, detail)

    @staticmethod
    async def _troubles(scene: Scene, region: str) -> dict[str, float]:
        """What the region's server has counted of such commits since it began."""
        return {metric: await scene.asking.metric(metric, region) for metric in TROUBLES}


class StoreDown90s(Drill):
    name = "store-down-90s"
    does = "holds the store of a region for 90 s: its plane can read and cannot commit; meanwhile more work is asked for there"
    expects = (
        "what serves goes on serving, in that region too: no client sees an error",
        "nothing is bound there while the store is held, as its own plane says",
        "the region is called lost though its servers are heard, and well again when it can write",
        "what was asked for there says that it waits for a region that is silent",
        "what was asked for meanwhile runs within 90 s of its return",
    )
    about_s = 200
    COUNT: Final = 4

    async def run(self, scene: Scene) -> None:
        name, region = "drill-down", scene.sqlite_region()
        scene.begin(f"the store of {region} is held")
        await scene.chaos.stop_store(region)
        before = tokens(await scene.asking.items("bindings", plane=region))
        await scene.sleepers(name, self.COUNT, region)
        await scene.expect(f"{region} is called lost", lambda: is_lost(scene, region), DOWN_S - scene.since_s(), "detect")

        async def explained() -> bool:
            found = await scene.asking.get("workloads", TENANT, name) or {}
            pending = (found.get("status") or {}).get("pending") or ()
            return any(one.get("reason") == "RegionSilent" and one.get("nextOwner") for one in pending)

        await scene.expect("what waits there says for whom", explained, DOWN_S - scene.since_s())
        await scene.dwell(DOWN_S)
        look = scene.census.last(RISK)
        here = look.by_region().get(region, 0) if look is not None else 0
        scene.check(f"risk-api serves in {region} while the store is held", here >= 2, f"{here} counted there after {DOWN_S:g} s")
        self._check_still(scene, before, tokens(await scene.asking.items("bindings", plane=region)))
        await scene.chaos.heal(lambda text: None)
        scene.saw("the store is back")

        async def running() -> bool:
            return (await scene.asking.counts(TENANT, name)).get("ready", 0) == self.COUNT

        async def well() -> bool:
            return await health(scene, region) == "Healthy"

        await scene.expect(f"{region} is well again", well, RESUME_S)
        await scene.expect(f"all {self.COUNT} run", running, RESUME_S, "ready")
        scene.check_lowest(RISK, 6)
        check_unhurt(scene, "what serves needs no store")

    @staticmethod
    def _check_still(scene: Scene, before: dict[str, tuple[str, str]], after: dict[str, tuple[str, str]]) -> None:
        """As the region's own plane has it, which reads: to the global plane it is silent."""
        changed = sorted(slot for slot in before.keys() | after.keys() if before.get(slot) != after.get(slot))
        told = ", ".join(changed) or f"{len(after)} bindings there, as when it began"
        scene.check("nothing was placed meanwhile", bool(before) and not changed, told)
