"""Drills in which machines are lost: zone-loss, partial-region. Run by running.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from fairlead.compose.processes import AGENT
from fairlead.compose.wiring import REGIONS
from fairlead.drills.asking import Tree
from fairlead.drills.census import ANSWER_S, LOOK_S, RATE_PER_S, Look, Workload
from fairlead.drills.contract import BILLING, RISK, Drill
from fairlead.drills.scene import Scene
from fairlead.model.registry import SIDE_EFFECTS
from fairlead.serving.prober import RESOLVE_S

LEAST: Final = 4  # serving replicas of a critical workload, within one region
PLACELESS_S: Final = 60.0  # without a place for so long, a service is stood in for
BACK_S: Final = 90.0  # a node's lease of 15 s, the wait for its end, placing and starting; with room for a busy machine
WITHDRAWN_S: Final = next(effect.deadline_s for effect in SIDE_EFFECTS if effect.name == "endpoint")
AFTER_S: Final = 5.0  # forty requests: a dead endpoint that is named again would get several of them
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


def named_dead_s(looks: Sequence[Look], began_s: float) -> float | None:
    """For how long after the loss endpoints were named that did not answer; None: some still are."""
    seen = [look for look in looks if look.at_s >= began_s]
    last = max((number for number, look in enumerate(seen) if look.unanswered), default=-1)
    if last + 1 >= len(seen):
        return None
    return seen[last + 1].at_s - began_s if last >= 0 else 0.0


def share_of_dead(dead: int, of: int, until_s: float) -> int:
    """How many requests of the prober, which asks each endpoint in turn, go to dead ones until they are withdrawn. It asks for
    the endpoints once a second, and the census looks twice a second: both may be so late."""
    return math.ceil(RATE_PER_S * (until_s + RESOLVE_S + LOOK_S) * dead / of)


async def check_withdrawn(scene: Scene, dead: dict[Workload, int], before: dict[Workload, int]) -> None:
    """Of the requests of clients, no more fail than go to what is dead until it is withdrawn, and none after that. Called when
    all is well again. `dead`: how many of each; `before`: how many served."""

    def failed() -> int:
        return sum(sum(scene.census.probers[workload].measures.all.errors.values()) for workload in dead)

    until_s = 0.0
    for workload, count in dead.items():
        named_s = named_dead_s(scene.census.looks[workload], scene.began_s)
        shown = "some are named still" if named_s is None else f"named for {named_s:.1f} s"
        in_time = named_s is not None and named_s <= WITHDRAWN_S
        scene.check(f"{workload[1]}: what is dead is withdrawn within {WITHDRAWN_S:g} s", in_time, shown)
        until_s = max(until_s, named_s if named_s is not None else scene.since_s())
        most = share_of_dead(count, before[workload], until_s)
        scene.check_errors(workload, most, f"of {before[workload]} endpoints {count} were dead, and {shown}")
    await scene.dwell(until_s + RESOLVE_S + ANSWER_S)  # by then the last that was sent to the dead is answered
    then = failed()
    await scene.clock.sleep(AFTER_S)
    since = failed() - then
    scene.check("no request of clients fails once what is dead is withdrawn", not since, f"{since} failed in {AFTER_S:g} s")


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
        "what is dead is withdrawn from the endpoints within 35 s",
        "of the requests of clients, no more fail than go to what is dead until it is withdrawn, and none after that",
    )
    about_s = 90

    async def run(self, scene: Scene) -> None:
        region = "us-east"
        found = await scene.asking.slots("bindings", *RISK, region)
        node = await scene.asking.get("nodes", "", found[0]["spec"]["node"], region) or {}
        zone = str(node["spec"]["zone"])
        bound = {workload: await scene.asking.slots("bindings", *workload, region) for workload in (RISK, BILLING)}
        looks = {workload: scene.census.last(workload) for workload in bound}
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
        dead = {workload: sum(one["spec"]["node"] in nodes for one in slots) for workload, slots in bound.items()}
        served = {workload: look.serving() for workload, look in looks.items() if look is not None}
        await check_withdrawn(scene, dead, served)


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

        await scene.expect("risk-api is whole elsewhere, or says what it waits for and on whom", explained, BACK_S)

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
