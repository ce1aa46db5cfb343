"""Drills in which regions, or the ways from all of them to global, are lost: region-loss, region-loss-during-recovery,
global-cut-90s; one that is cut off is in cuts.py. Run by running.py."""

from __future__ import annotations

from typing import Final

from fairlead.compose.links import Direction
from fairlead.compose.wiring import REGIONS
from fairlead.drills.asking import Tree
from fairlead.drills.contract import BILLING, RISK, Drill
from fairlead.drills.critical import check_recovered, critical_in
from fairlead.drills.losses import BACK_S, LEAST, STAGES
from fairlead.drills.reports import lacks, report_of
from fairlead.drills.scene import Scene

LOST: Final = "eu-central"
GOAL_S: Final = 60.0
LIMIT_S: Final = 300.0  # L5
CUT_S: Final = 90.0
SILENCE_S: Final = 5.0  # a word that was on its way when the cut came may be a little later than its beginning


async def health(scene: Scene, region: str) -> str:
    found = await scene.asking.get("regions", "", region, "global") or {}
    return str((found.get("status") or {}).get("health") or "")


async def is_lost(scene: Scene, region: str) -> bool:
    return await health(scene, region) == "Lost"


async def lose(scene: Scene, region: str, what: str, timing: str = "") -> None:
    """Kills the plane and the machines of a region, and waits until global knows."""
    scene.begin(what)
    await scene.chaos.kill([region, *scene.chaos.nodes(region=region)])
    await scene.expect(f"{region} is called lost", lambda: is_lost(scene, region), BACK_S, timing)


def check_once(scene: Scene) -> None:
    scene.check("no slot is served twice", not scene.census.twice, "; ".join(scene.census.twice[:3]) or "never seen")


async def stage(scene: Scene, region: str, states: tuple[str, ...]) -> int:
    """How many of risk-api are in one of these states in a region, as its plane says."""
    found = await scene.asking.slots("bindings", *RISK, region)
    return sum(one["status"].get("state") in states for one in found)


async def recovered(scene: Scene, healthy: tuple[str, ...]) -> None:
    """Measures the way back to four serving within one of these regions."""

    def left_s() -> float:
        return max(5.0, LIMIT_S - scene.since_s())

    async def reached(states: tuple[str, ...]) -> bool:
        return max([await stage(scene, region, states) for region in healthy]) >= LEAST

    for timing, states in STAGES:
        what = f"{LEAST} of risk-api are {timing} within one healthy region"
        await scene.expect(what, lambda states=states: reached(states), left_s(), timing)  # type: ignore[misc]

    async def served() -> bool:
        return any([await scene.serving(RISK, LEAST, region) for region in healthy])

    if await scene.expect(
        f"{LEAST} of risk-api serve within one healthy region, counted from outside", served, left_s(), "serving"
    ):
        took_s = scene.timings_s["serving"]
        scene.check(f"under {GOAL_S:g} s", took_s < GOAL_S, f"{took_s:.1f} s from the loss")


class RegionLoss(Drill):
    name = "region-loss"
    does = "kills eu-central, its plane and every machine with all that runs there, with SIGKILL"
    expects = (
        "at least four replicas of risk-api serve within one healthy region, counted from outside through the endpoints",
        "under 60 s from the loss, with the default leases",
        "every workload with a recovery minimum that had slots there has it within one healthy region, in the time it asks for",
        "risk-api never has fewer than four serving in all",
        "work that may not leave Europe waits and says why",
        "no more than a quarter of the requests of clients fail",
    )
    about_s = 150

    async def run(self, scene: Scene) -> None:
        wanted, healthy = await critical_in(scene, LOST), tuple(region for region in REGIONS if region != LOST)
        await lose(scene, LOST, f"{LOST} loses power", "detect")
        await recovered(scene, healthy)
        await check_recovered(scene, wanted, healthy)
        scene.check_lowest(RISK, 4)

        async def blocked() -> bool:
            found = await scene.asking.get("workloads", "fraud", "fraud-batch") or {}
            return any(one["reason"] == "ResidencyBlocked" for one in (found.get("status") or {}).get("pending") or ())

        await scene.expect("fraud-batch waits with ResidencyBlocked", blocked, BACK_S)
        sent = scene.census.probers[RISK].measures.all.sent
        scene.check_errors(RISK, sent // 4, "only what is dead fails, until it is withdrawn")


class RegionLossDuringRecovery(Drill):
    name = "region-loss-during-recovery"
    does = "kills eu-central, and then the region that stands in for it, as soon as it is ordered there"
    expects = (
        "what stands in for eu-central is ordered in one other region, and lost with it",
        "it is ordered again in the region that is left, and nowhere else",
        "at least four replicas of risk-api serve in that one, counted from outside",
        "under 60 s from the second loss",
        "no slot is served twice",
    )
    about_s = 200

    async def run(self, scene: Scene) -> None:
        before = scene.census.last(RISK)
        own = before.by_region() if before is not None else {}
        await lose(scene, LOST, f"{LOST} loses power")

        async def ordered() -> bool:
            return len(await stand_ins(scene)) == 1

        if not await scene.expect("one region stands in for it", ordered, BACK_S):
            return
        (second,) = await stand_ins(scene)
        (left,) = {*REGIONS} - {LOST, second}
        await lose(scene, second, f"{second}, which stands in, loses power too", "detect")
        await recovered(scene, (left,))

        async def moved() -> bool:
            return await stand_ins(scene) == {left: LEAST - own.get(left, 0)}

        await scene.expect(f"what {second} stood in with is ordered in {left} alone", moved, BACK_S)
        scene.figures["lost"] = [LOST, second]
        check_once(scene)
        scene.check_lowest(RISK, own.get(left, 0))


async def stand_ins(scene: Scene) -> dict[str, int]:
    """How many slots are ordered beyond its own for risk-api, by region."""
    order = await scene.asking.get("recoveryorders", *RISK) or {}
    regions: dict[str, int] = (order.get("spec") or {}).get("regions") or {}
    return regions


class GlobalCut90s(Drill):
    name = "global-cut-90s"
    does = "cuts every region off from the global plane for 90 s; meanwhile a node of us-east loses power"
    expects = (
        "no region is called lost: when none is heard, it is rather global that is deaf",
        "nor is anything ordered elsewhere when the first of them is heard again",
        "us-east replaces by itself what the node ran: six of risk-api serve while global is cut off",
        "nothing is missing meanwhile but what the node ran",
        "when the way is back, global knows it: it has the merge report of us-east",
        "every region then says in its merge report what it did meanwhile; that of us-east is what is counted here",
    )
    about_s = 180

    async def run(self, scene: Scene) -> None:
        links: dict[str, Direction] = {}
        for region in REGIONS:
            links |= scene.chaos.links_between(region, "global")
        found = await scene.asking.slots("bindings", *RISK, "us-east")
        node = str(found[0]["spec"]["node"])
        there = {one: await _on_node(scene, one, "us-east", node) for one in (RISK, BILLING)}
        scene.begin(f"all regions are cut off from global; {node} loses power")
        await scene.chaos.cut(links, one_way=False)
        await scene.chaos.kill([scene.chaos.node(node)])

        async def fewer() -> bool:
            look = scene.census.last(RISK)
            return look is not None and look.at_s > scene.began_s and node not in {one.node for one in look.named}

        await scene.until("what ran there answers no more", fewer, CUT_S)
        await scene.expect("six of risk-api serve without global", lambda: scene.serving(RISK, 6), CUT_S, "serving")
        called = {region: await health(scene, region) for region in REGIONS}
        scene.check("no region is called lost", "Lost" not in called.values(), str(called))
        await scene.clock.sleep(max(0.0, CUT_S - scene.since_s()))
        called = {region: await health(scene, region) for region in REGIONS}
        scene.check(f"nor after {CUT_S:g} s", "Lost" not in called.values(), str(called))
        apart = await scene.asking.items("bindings", "", "us-east")
        cut_s = scene.since_s()
        await scene.chaos.heal(lambda text: None)
        scene.saw("the way is back")

        await scene.expect("global knows of the six, and of the cut", lambda: told_above(scene), BACK_S)
        await self._reported(scene, apart, cut_s)
        called, ordered = {region: await health(scene, region) for region in REGIONS}, await stand_ins(scene)
        passed = set(called.values()) == {"Healthy"} and not ordered  # what stands in stays for a minute
        scene.check("nothing was ordered for a region that is there", passed, f"{called}; ordered: {ordered or 'nothing'}")
        scene.check_lowest(RISK, 6 - there[RISK])
        scene.check_lowest(BILLING, 3 - there[BILLING])

    @staticmethod
    async def _reported(scene: Scene, apart: list[Tree], cut_s: float) -> None:
        async def told() -> bool:
            return all([await report_of(scene, region) for region in REGIONS])

        if not await scene.expect("every region has a merge report of it", told, BACK_S):
            return
        reports = {region: await report_of(scene, region) for region in REGIONS}
        scene.figures["merge"] = reports
        wrong = lacks(reports["us-east"], apart, (RISK[0], BILLING[0]), cut_s - SILENCE_S)
        placed = f"{reports['us-east'].get('tenants') or {}} placed apart, none sold twice"
        scene.check("that of us-east says what is counted here", not wrong, "; ".join(wrong) or placed)


async def told_above(scene: Scene) -> bool:
    """Whether the global plane has heard since the way is back: it has the merge report of us-east. That it counts six says
    little: so many it knew of before."""
    counts = await scene.asking.counts(*RISK)
    return counts.get("serving", 0) == 6 and not counts.get("unknown") and bool(await report_of(scene, "us-east", "global"))


async def _on_node(scene: Scene, workload: tuple[str, str], region: str, node: str) -> int:
    """Only these may be missing when it goes."""
    return sum(one["spec"]["node"] == node for one in await scene.asking.slots("bindings", *workload, region))
