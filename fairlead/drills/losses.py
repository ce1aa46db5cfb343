"""Drills in which machines are lost: zone-loss, partial-region. Run by running.py."""

from __future__ import annotations

from typing import Final

from fairlead.compose.processes import AGENT
from fairlead.compose.wiring import REGIONS
from fairlead.drills.asking import Tree
from fairlead.drills.contract import BILLING, RISK, Drill
from fairlead.drills.scene import Scene

LEAST: Final = 4  # serving replicas of a critical workload, within one region
PLACELESS_S: Final = 60.0  # without a place for so long, a service is stood in for
BACK_S: Final = 90.0  # a node's lease of 15 s, the wait for its end, placing and starting; with room for a busy machine
# The way back of what was lost: what is timed, and the states in which a slot has come so far.
STAGES: Final = (("bound", ("Bound", "Starting", "Ready", "Serving")), ("ready", ("Ready", "Serving")))


async def silent(scene: Scene, nodes: list[str], region: str) -> bool:
    found = {one["metadata"]["name"]: one for one in await scene.asking.items("nodes", "", region)}
    return all((found[name].get("status") or {}).get("health") in ("Unknown", "Lost") for name in nodes)


async def lose(scene: Scene, agents: list[str], region: str, what: str) -> list[str]:
    """Kills the machines, and waits until their region knows. Their nodes' names."""
    nodes = [agent.removeprefix(AGENT) for agent in agents]
    scene.begin(f"{what} lose power: {', '.join(nodes)}")
    await scene.chaos.kill(agents)
    await scene.expect("their silence is noticed", lambda: silent(scene, nodes, region), BACK_S, "detect")
    return nodes


async def replaced(scene: Scene, workload: tuple[str, str], region: str, nodes: list[str], states: tuple[str, ...]) -> bool:
    """Whether everything of the workload in the region is elsewhere, in one of these states."""
    found: list[Tree] = await scene.asking.slots("bindings", *workload, region)
    assignment = await scene.asking.counts(*workload)
    live = [one for one in found if one["status"].get("state") in states and one["spec"]["node"] not in nodes]
    return bool(live) and len(live) >= min(2, assignment.get("desired", 1))


async def partial(scene: Scene, region: str) -> str:
    """What is missing of a region that is heard, as the global plane says; empty: nothing."""
    status = (await scene.asking.get("regions", "", region, "global") or {}).get("status") or {}
    said = [one for one in status.get("conditions") or () if one.get("type") == "Partial" and one.get("status") == "True"]
    return str(said[0].get("reason")) if said and status.get("health") == "Healthy" else ""


class ZoneLoss(Drill):
    name = "zone-loss"
    does = "kills every machine of a zone of us-east that serves risk-api, at once and without a word"
    expects = (
        "risk-api never has fewer than four serving",
        "the region is healthy, and said to be partial: it has lost a zone",
        "it has six again within 90 s, in the zones that are left",
        "clients see errors of what is dead only until it is withdrawn",
    )
    about_s = 90

    async def run(self, scene: Scene) -> None:
        region = "us-east"
        found = await scene.asking.slots("bindings", *RISK, region)
        node = await scene.asking.get("nodes", "", found[0]["spec"]["node"], region) or {}
        zone = str(node["spec"]["zone"])
        nodes = await lose(scene, scene.chaos.nodes(zone=zone), region, f"the machines of {zone}")

        async def zone_lost() -> bool:
            return await partial(scene, region) == "ZoneLost"

        await scene.expect(f"{region} is said to have lost a zone", zone_lost, BACK_S)
        for timing, states in STAGES:
            await scene.expect(
                f"risk-api's replicas of {region} are {timing} elsewhere",
                lambda states=states: replaced(scene, RISK, region, nodes, states),  # type: ignore[misc]
                BACK_S,
                timing,
            )
        await scene.expect("six of risk-api serve, counted from outside", lambda: scene.serving(RISK, 6), BACK_S, "serving")
        scene.check_lowest(RISK, 4)
        scene.check_lowest(BILLING, 1)
        share = scene.census.probers[RISK].measures.all.sent // 2
        scene.check_errors(RISK, share, "only what is dead fails, until it is withdrawn")


class PartialRegion(Drill):
    name = "partial-region"
    does = "kills all machines of us-west that may serve, but leaves its plane"
    expects = (
        "the region is not called lost, for its plane lives, but partial: most of its nodes are gone",
        "what cannot be placed says so, with a reason and a next owner",
        "risk-api has no place there for a minute, then stand-ins are ordered: four serve in one other region",
        "it keeps four serving in the other regions, and has six again when the machines are back",
    )
    about_s = 200

    async def run(self, scene: Scene) -> None:
        region = "us-west"
        agents = [agent for agent in scene.chaos.nodes(region=region) if "-general-" in agent]
        await lose(scene, agents, region, "the general machines of us-west")

        async def explained() -> bool:
            found = await scene.asking.get("workloads", *RISK) or {}
            pending = (found.get("status") or {}).get("pending") or ()
            return any(one.get("reason") and one.get("nextOwner") for one in pending) or await scene.serving(RISK, 6)

        await scene.expect("risk-api is whole elsewhere, or says what it waits for and on whom", explained, BACK_S, "bound")

        async def most_lost() -> bool:
            return await partial(scene, region) == "NodesLost"

        await scene.expect(f"{region} is healthy, and said to have lost most of its nodes", most_lost, BACK_S)

        async def ordered() -> bool:
            order = (await scene.asking.get("recoveryorders", *RISK) or {}).get("spec") or {}
            return region in (order.get("lost") or ()) and not order.get("missing")

        async def together() -> bool:
            return any([await scene.serving(RISK, LEAST, other) for other in REGIONS if other != region])

        await scene.expect("a RecoveryOrder stands in for what has no place there", ordered, PLACELESS_S + BACK_S)
        await scene.expect(f"{LEAST} of risk-api serve within one other region", together, BACK_S, "serving")
        scene.check_lowest(RISK, 4)
