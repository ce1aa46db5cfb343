"""One drill from its beginning to its end: the platform is found well, the drill runs while others count from outside, everything
is put back whatever happened, and the history of every plane is asked for its promises.

Owns the order of these, and that putting back is never skipped: not after a failure, not on Ctrl-C. Starts and stops no platform.
Called by program.py.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from fairlead.compose.chaos import Chaos
from fairlead.compose.config import PlaneConfig
from fairlead.compose.layout import Layout, read_config
from fairlead.compose.local import Local
from fairlead.compose.wiring import PLANES
from fairlead.drills.asking import NO_ANSWER, Asking
from fairlead.drills.census import Census
from fairlead.drills.contract import Drill
from fairlead.drills.scene import Scene
from fairlead.observe.audit import CHECKED, ELSEWHERE, History, audit_of, between
from fairlead.observe.intervals import Interval
from fairlead.ports import Clock, Ids, Tasks, system_random

WELL_S: Final = 180.0  # a region must have been well for a minute before its work goes back; and machines are busy
ARCHIVED_S: Final = 2.0  # history follows its plane within half a second

Archived = Callable[[str], History]


class Running:
    def __init__(self, layout: Layout, clock: Clock, ids: Ids, archived: Archived, say: Callable[[str], None]) -> None:
        self._layout = layout
        self._clock = clock
        self._ids = ids
        self._archived = archived
        self._say = say

    async def run(self, drill: Drill) -> dict[str, Any]:
        """The `results` of docs/operations/drills.md. Raises ValueError where the platform is not well to begin with."""
        chaos, local = Chaos(self._layout, self._clock), Local(self._layout, self._clock)
        wrong = chaos.status()
        if wrong:
            said = ", ".join(f"{one.fault} {one.what}" for one in wrong)
            raise ValueError(f"something is broken already: {said}; `fairlead chaos heal` first")
        host, _, port = local.dns.rpartition(":")
        census = Census(drill.watched, (host, int(port)), self._clock, system_random())
        with tempfile.TemporaryDirectory(prefix="fairlead-drill-") as folder:
            Path(folder).chmod(0o1777)  # its work writes there, as users of its own
            async with Asking(self._layout, self._clock, self._ids) as asking:
                scene = Scene(self._layout, local, chaos, asking, census, self._clock, self._say, folder)
                await self._wait_well(drill, scene)
                await self._carried_out(drill, scene)
        await self._clock.sleep(ARCHIVED_S)
        await self._audit(scene)
        return _results(drill, scene)

    async def _carried_out(self, drill: Drill, scene: Scene) -> None:
        async with Tasks() as tasks:
            scene.census.watch(tasks)
            try:
                if await scene.until("clients are served", lambda: self._counted(drill, scene), WELL_S):
                    await drill.run(scene)
                else:
                    scene.check("clients are served to begin with", False, "the endpoints do not answer")
            except Exception as error:
                scene.check("the drill runs to its end", False, f"{type(error).__name__}: {error}")
            finally:  # a Ctrl-C comes this way too
                await self._put_back(drill, scene)
            tasks.cancel()

    # --- well before and after -------------------------------------------------------------------------------------------

    async def _wait_well(self, drill: Drill, scene: Scene) -> None:
        if not await scene.until("everything wanted is there", lambda: self._is_well(drill, scene), WELL_S):
            raise ValueError(f"the platform is not well: {', '.join(await self._missing(drill, scene))}")

    async def _is_well(self, drill: Drill, scene: Scene) -> bool:
        return not await self._missing(drill, scene)

    async def _missing(self, drill: Drill, scene: Scene) -> list[str]:
        """What is wanted and is not there, in words."""
        out = []
        for node in await scene.asking.items("nodes"):
            status = node.get("status") or {}
            if status.get("health") != "Ready" or not status.get("schedulable"):
                out.append(f"node {node['metadata']['name']} takes no work")
        for order in await scene.asking.items("recoveryorders"):
            out.append(f"{order['metadata']['name']} is still being recovered")
        for holding in await scene.asking.items("holdings"):
            shapes = (holding.get("status") or {}).get("shapes") or ()
            if not shapes or any(shape.get("waiting") or shape.get("claimed") or shape.get("silent") for shape in shapes):
                out.append(f"the room of {holding['metadata']['name']} is not held")
        for tenant, name in drill.watched:
            counts = await scene.asking.counts(tenant, name)
            if not counts.get("desired") or counts.get("serving", 0) < counts["desired"]:
                out.append(f"{tenant}/{name} has {counts.get('serving', 0)} of {counts.get('desired', 0)} serving")
        return out

    @staticmethod
    async def _counted(drill: Drill, scene: Scene) -> bool:
        for tenant, name in drill.watched:
            look, counts = scene.census.last((tenant, name)), await scene.asking.counts(tenant, name)
            if look is None or look.serving() < counts.get("desired", 1):
                return False
        return True

    async def _put_back(self, drill: Drill, scene: Scene) -> None:
        """Each step is tried whatever became of the one before."""
        left: list[str] = []
        try:
            await scene.chaos.heal(lambda text: scene.saw(f"putting back: {text}"))
        except (ValueError, LookupError) as error:
            left.append(str(error))
        for what, undo in reversed(scene.undo):
            await _tried(what, undo, left)
        for plural, tenant, name in reversed(scene.made):
            await _tried(f"{plural}/{name}", lambda p=plural, t=tenant, n=name: scene.asking.delete(p, t, n), left)  # type: ignore[misc]
        gone = await scene.until("what the drill made is gone", lambda: _gone(scene), WELL_S)
        if not await scene.until("everything wanted is there again", lambda: self._is_well(drill, scene), WELL_S):
            left.append("replicas or nodes are missing")
        wrong = [f"{one.fault} {one.what}" for one in scene.chaos.status()]
        left += wrong + ([] if gone else ["work of the drill"])
        scene.check("everything is put back", not left, ", ".join(left) or "healed, nothing left behind, all replicas serve")

    # --- the promises ----------------------------------------------------------------------------------------------------

    async def _audit(self, scene: Scene) -> None:
        figures: dict[str, Any] = {}
        runs: list[Interval] = []
        for plane in PLANES:
            config: PlaneConfig = read_config(self._layout.config_of(plane), PlaneConfig)
            directory = Path(config.data, "history")
            history = self._archived(str(directory))
            results = audit_of(history, runs)
            if results["unread"]:  # A checkpoint may be a moment before its segment.
                await self._clock.sleep(ARCHIVED_S)
                results["unread"] = history.unread()
            broken = {name: row["violations"][:3] for name, row in results["invariants"].items() if row["violations"]}
            checked = {name: row["checked"] for name, row in results["invariants"].items()}
            unread = results["unread"] or ([] if results["revisions"] else ["there is no history"])
            figures[plane] = {"revisions": results["revisions"], "checked": checked, "violations": broken, "unread": unread}
        bad = {plane: of["violations"] or of["unread"] for plane, of in figures.items() if of["violations"] or of["unread"]}
        bad |= {f"{name} between planes": row["violations"][:3] for name, row in between(runs).items() if row["violations"]}
        entries = sum(of["revisions"] for of in figures.values())
        # A promise that nothing asked of is not one that held: these histories gave no occasion, or no history can show it.
        not_asked = [name for name in CHECKED if not any(of["checked"].get(name) for of in figures.values())]
        detail = (
            f"{entries} effects of {len(PLANES)} planes; not asked: {', '.join(sorted([*not_asked, *ELSEWHERE], key=_number))}"
        )
        scene.check("audit verify finds no broken promise", not bad, str(bad) if bad else detail)
        scene.figures |= {"audit": figures, "not_asked": {"no_occasion": not_asked, "no_history_shows": list(ELSEWHERE)}}


def _number(name: str) -> int:
    return int(name[1:])


async def _tried(what: str, work: Callable[[], Any], left: list[str]) -> None:
    try:
        await work()
    except NO_ANSWER as error:
        left.append(f"{what}: {error}")


async def _gone(scene: Scene) -> bool:
    for plural, tenant, name in scene.made:
        if await scene.asking.get(plural, tenant, name) is not None:
            return False
        if plural == "workloads" and await scene.asking.slots("bindings", tenant, name):
            return False
    return True


def _results(drill: Drill, scene: Scene) -> dict[str, Any]:
    last = {name: look.serving() for name in drill.watched if (look := scene.census.last(name)) is not None}
    return {
        "drill": drill.name,
        "passed": bool(scene.checks) and all(check.passed for check in scene.checks),
        "does": drill.does,
        "expects": list(drill.expects),
        "timings_s": scene.timings_s,
        "serving": {f"{tenant}/{name}": count for (tenant, name), count in last.items()},
        "checks": [check._asdict() for check in scene.checks],
        "saw": [seen._asdict() for seen in scene.seen],
        "clients": scene.census.figures(),
        **scene.figures,
    }
