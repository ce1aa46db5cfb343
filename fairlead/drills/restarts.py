"""Drills in which a server stops, dies or forgets: leader-restart, watch-loss, stale-cache. Run by running.py."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from fairlead.drills.asking import Tree, workload_of
from fairlead.drills.contract import RISK, Drill, check_unhurt
from fairlead.drills.scene import TENANT, Scene

REGION: Final = "us-east"
PLACED_S: Final = 60.0  # L1 and L2 together, with room for a busy machine
MISSED_S: Final = 60.0  # L3 is 35 s; so much more for a busy machine
PAUSE_S: Final = 14.0  # longer than the leader's lease


def tokens(bindings: list[Tree]) -> dict[str, tuple[str, str]]:
    """Slot -> the node and token of its binding."""
    return {one["metadata"]["name"]: (one["spec"]["node"], str(one["spec"]["token"])) for one in bindings}


def made_before(bindings: list[Tree], wall_s: float) -> int:
    """How many were there then: planes that start on one machine take their time from its clock."""
    return sum(datetime.fromisoformat(one["metadata"]["creationTimestamp"]).timestamp() < wall_s for one in bindings)


async def runs(scene: Scene, name: str, count: int) -> bool:
    """Whether so many of the drill's own workload run, as its status says."""
    return (await scene.asking.counts(TENANT, name)).get("ready", 0) == count


def while_placing(so_far: int, first: int, asked: int) -> bool:
    """Whether a server that had bound so many when it died did so in the middle: of those asked for beyond the first, some were
    bound, and some were not."""
    return first < so_far < asked


class LeaderRestart(Drill):
    name = "leader-restart"
    does = "kills the server of us-east with SIGKILL while it places twelve replicas, starts it again, then the same with global"
    expects = (
        "when it dies, some of what is asked for in that moment is bound, and not all; else it is killed once more",
        "all twelve replicas run within 60 s, each bound once",
        "what was bound before the restart is bound to the same node under the same token afterwards",
        "no client of risk-api or billing-api sees an error",
    )
    about_s = 45
    FIRST: Final = 4  # bound beforehand
    ASKED: Final = 9  # when the server dies, in quick succession: a region places many at once faster than anybody can look
    COUNT: Final = 12
    TRIES: Final = 5  # a death in the middle cannot be arranged, only tried for

    async def run(self, scene: Scene) -> None:
        name = "drill-restart"
        await scene.sleepers(name, self.FIRST, REGION)
        told: list[int] = []
        while len(told) < self.TRIES and not any(while_placing(so_far, self.FIRST, self.ASKED) for so_far in told):
            if told:
                scene.saw(f"{told[-1]} were bound when it died, which is not in the middle: once more")
                await scene.asking.patch("workloads", TENANT, name, {"replicas": self.FIRST})
            if not await scene.until("the first are bound", lambda: self._bound(scene, name, self.FIRST), PLACED_S):
                break
            so_far = await self._killed(scene, name)
            if so_far is None:
                break
            told.append(so_far)
        scene.figures["bound_when_it_died"] = told
        passed = bool(told) and while_placing(told[-1], self.FIRST, self.ASKED)
        tries = ", then ".join(f"{so_far} of {self.ASKED}" for so_far in told) or "none"
        scene.check(
            "the server died while it placed", passed, f"{tries} were bound when it died, {self.FIRST} of them long before"
        )
        scene.saw("SIGKILL to the server of global")
        await scene.chaos.kill(["global"])
        await scene.local.bring(["global"])
        await scene.expect("the workload's status says that all run", lambda: runs(scene, name, self.COUNT), PLACED_S, "ready")
        scene.check_lowest(RISK, 6)
        check_unhurt(scene, "what serves needs no server")

    @staticmethod
    async def _bound(scene: Scene, name: str, count: int) -> bool:
        return len(await scene.asking.slots("bindings", TENANT, name, REGION)) == count

    async def _killed(self, scene: Scene, name: str) -> int | None:
        """How many were bound when it died; none where not all came to be."""
        before = tokens(await scene.asking.items("bindings", plane=REGION))
        for replicas in range(self.FIRST + 1, self.ASKED + 1):  # one by one: each is on its way while the next is asked for
            await scene.asking.patch("workloads", TENANT, name, {"replicas": replicas})
        scene.begin(f"SIGKILL to the server of {REGION}; {self.ASKED} of {self.COUNT} are asked for by then")
        await scene.chaos.kill([REGION])
        died_s = scene.clock.wall()
        await scene.asking.patch("workloads", TENANT, name, {"replicas": self.COUNT})
        await scene.local.bring([REGION])
        scene.saw("the server is ready again")
        scene.timing("detect")
        bound = f"all {self.COUNT} are bound"
        if not await scene.expect(bound, lambda: self._bound(scene, name, self.COUNT), PLACED_S, "bound"):
            return None
        found = await scene.asking.items("bindings", plane=REGION)
        after = tokens(found)
        moved = {slot for slot, place in before.items() if after.get(slot) != place}
        scene.check("what was bound stays as it was", not moved, f"{len(before)} looked at, {len(moved)} differ")
        return made_before([one for one in found if workload_of(one) == name], died_s)


class WatchLoss(Drill):
    name = "watch-loss"
    does = "closes every connection of the platform twice, and changes what is wanted at the same moment"
    expects = (
        "what was changed meanwhile is carried out: four replicas run within 60 s",
        "everybody connects and lists again: no controller stays stalled",
        "no client sees an error",
    )
    about_s = 30

    async def run(self, scene: Scene) -> None:
        name = "drill-watch"
        await scene.sleepers(name, 1, "us-west")
        await scene.until("its one replica runs", lambda: runs(scene, name, 1), PLACED_S)
        scene.begin("every connection is closed")
        closed = await scene.chaos.drop_watches("")
        await scene.asking.patch("workloads", TENANT, name, {"replicas": 4})
        closed += await scene.chaos.drop_watches("")
        scene.figures["connections_closed"] = closed
        scene.check("connections were closed", closed > 0, f"{closed} in all")
        await scene.expect("four replicas run", lambda: runs(scene, name, 4), MISSED_S, "ready")

        async def none_stalled() -> bool:
            for plane in ("global", "us-east", "us-west", "eu-central"):
                if await scene.asking.metric("controller_stalled", plane):
                    return False
            return True

        await scene.expect("no controller is stalled", none_stalled, MISSED_S)
        await scene.dwell(5.0)
        scene.check_lowest(RISK, 6)
        check_unhurt(scene, "clients do not depend on watches")


def astray(bindings: list[Tree], known: list[Tree]) -> list[str]:
    """Slots that were asked for since, and are not in their first life any more: they were bound before, to what was no more."""
    old = {one["metadata"]["name"] for one in known}
    return sorted(
        one["metadata"]["name"]
        for one in bindings
        if one["metadata"]["name"] not in old and max(int(part) for part in one["spec"]["token"][1:]) > 1
    )


class StaleCache(Drill):
    name = "stale-cache"
    does = (
        "stops the server of us-east for longer than its lease while a node of it dies and more work is asked for, then lets it "
        "go on with what it knew"
    )
    expects = (
        "it does decide on old knowledge: commands are refused as stale, or replicas are bound to the dead node",
        "what it so decided is refused or repaired: all eight replicas run, none on the dead node",
        "no living node is taken for lost, and nothing that it runs is replaced",
        "risk-api keeps the four that it must",
    )
    about_s = 90
    COUNT: Final = 8

    async def run(self, scene: Scene) -> None:
        name = "drill-stale"
        await scene.sleepers(name, 2, REGION)
        await scene.until("its first two run", lambda: runs(scene, name, 2), PLACED_S)
        bindings = await scene.asking.slots("bindings", TENANT, name, REGION)
        dead = str(bindings[0]["spec"]["node"])
        stale = await scene.asking.metric("stale_commits_rejected_total", REGION)
        before = tokens(await scene.asking.items("bindings", plane=REGION))
        scene.begin(f"the server of {REGION} stops; {dead} loses power; {self.COUNT} replicas are wanted instead of 2")
        scene.chaos.pause(REGION)
        await scene.chaos.kill([scene.chaos.node(dead)])
        await scene.asking.patch("workloads", TENANT, name, {"replicas": self.COUNT})
        await scene.clock.sleep(PAUSE_S)
        scene.chaos.resume(REGION)
        scene.saw("the server goes on")

        async def placed_elsewhere() -> bool:
            found = await scene.asking.slots("bindings", TENANT, name, REGION)
            running = [one for one in found if one["status"].get("state") in ("Ready", "Serving")]
            return len(running) == self.COUNT and all(one["spec"]["node"] != dead for one in running)

        async def detected() -> bool:
            node = await scene.asking.get("nodes", "", dead, REGION) or {}
            return (node.get("status") or {}).get("health") in ("Unknown", "Lost")

        await scene.expect(f"{dead} is known to be silent", detected, MISSED_S, "detect")
        await scene.expect(f"all {self.COUNT} run, none on {dead}", placed_elsewhere, 2 * MISSED_S, "ready")
        await self._living(scene, dead, before)
        refused = await scene.asking.metric("stale_commits_rejected_total", REGION) - stale
        moved = astray(await scene.asking.slots("bindings", TENANT, name, REGION), bindings)
        scene.figures |= {"stale_commits_rejected": refused, "bound_astray": moved}
        told = f"{refused:g} commands refused as stale; bound to {dead} and replaced: {', '.join(moved) or 'none'}"
        scene.check("it did decide on old knowledge", refused > 0 or bool(moved), told)
        scene.check_lowest(RISK, 4)

    @staticmethod
    async def _living(scene: Scene, dead: str, before: dict[str, tuple[str, str]]) -> None:
        """A living node may have been Unknown for a moment: its heartbeats waited at the door of a server that stood still."""
        health = {
            one["metadata"]["name"]: (one.get("status") or {}).get("health")
            for one in await scene.asking.items("nodes", "", REGION)
        }
        scene.figures["node_health"] = health
        lost = sorted(name for name, said in health.items() if said == "Lost" and name != dead)
        scene.check("no living node is taken for lost", not lost, ", ".join(lost) or str(health))
        after = tokens(await scene.asking.items("bindings", plane=REGION))
        moved = sorted(slot for slot, place in before.items() if place[0] != dead and after.get(slot) != place)
        scene.check("what living nodes run is not replaced", not moved, ", ".join(moved) or "as before")
