"""The drill in which a region is cut off and goes on by itself: region-cut. Run by running.py.

What it claims it takes from outside: who answers clients (the census), which processes run on which node (/proc), what an
exclusive process wrote of itself (the witness), and sums over the bindings of all planes, against which the region's own report
is held.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

from fairlead.compose.wiring import REGIONS
from fairlead.drills.asking import Tree
from fairlead.drills.contract import RISK, Drill
from fairlead.drills.losses import BACK_S
from fairlead.drills.regions import LOST, check_once, health, is_lost, recovered
from fairlead.drills.reports import differs, report_of
from fairlead.drills.scene import Scene
from fairlead.model.lifecycle import HOLDS_CAPACITY
from fairlead.model.resources import NOTHING, Resources

JOB: Final = ("analytics", "drill-witness")
SOLE: Final = ("risk", "drill-sole")  # a service of one slot that runs once in the world, and is stood in for
WIDE: Final = ("analytics", "drill-wide")  # a service on two nodes of the region: one of them is not the node that goes
STAND_IN_S: Final = 180.0  # its slot lease is 60 s and is taken after a little more; then it is placed and started
MISSED_SHARE: Final = 0.4  # of a grant's lease: so long without an answer, a region counts as cut off
MARGIN_S: Final = 10.0
HELD: Final = frozenset(state.value for state in HOLDS_CAPACITY)

Run = tuple[str, str]  # token, node
_LITTLE: Final[Tree] = {"requests": {"cpu": "10m", "memory": "32Mi"}}


class RegionCut(Drill):
    name = "region-cut"
    does = (
        "cuts eu-central off from global and from DNS while it goes on running, and takes the power of the node that runs an "
        "exclusive job; heals when it has been recovered elsewhere and has counted as cut off"
    )
    expects = (
        "no slot is served twice: what stands in for it elsewhere are other slots",
        "exclusive work runs once at a time: the witness of its processes shows no overlap, before, meanwhile and after",
        "a service that runs once in the world runs in another region, after it has ended in the one that is cut off",
        "what runs in eu-central goes on there, and what its lost node ran is placed there again without global",
        "four of risk-api serve within one region that is not cut off",
        "after healing its merge report says what was placed apart, as it is counted here, and that nothing was sold twice",
        "no tenant uses more than its quota, added up over all regions, while it is cut off and after healing",
    )
    about_s = 480

    async def run(self, scene: Scene) -> None:
        witness, alone = Path(scene.folder, "witness"), Path(scene.folder, "alone")
        await scene.make("workloads", *JOB, exclusive_job(str(witness)))
        await scene.make("workloads", *SOLE, sole_service(str(alone)))
        await scene.make("workloads", *WIDE, wide_service())
        for what, file in (("job", witness), ("service", alone)):
            if not await scene.expect(f"the exclusive {what} runs in {LOST}", partial(_lives, file, LOST), BACK_S):
                return
        if not await scene.expect(f"a service runs on two nodes of {LOST}", lambda: _on_two_nodes(scene), BACK_S):
            return
        node = next(node for _, node in runs_of(witness.read_text()))
        lease_s = await _lease_s(scene)
        jobs = {_key(one) for one in await scene.asking.items("workloads", "", "global") if one["spec"].get("job")}
        jobs.add("/".join(SOLE))  # it ends there, too, when its slot lease does
        scene.begin(f"{LOST} is cut off; {node} loses power")
        await scene.chaos.cut(scene.chaos.links_of(LOST), one_way=False)
        before = services(scene.chaos.radius(scene.chaos.nodes(region=LOST)).slots, jobs)
        await scene.chaos.kill([scene.chaos.node(node)])
        await scene.expect(f"{LOST} is called lost", lambda: is_lost(scene, LOST), BACK_S, "detect")
        await recovered(scene, tuple(region for region in REGIONS if region != LOST))
        await self._apart(scene, scene.chaos.node(node), before)
        await scene.expect("the exclusive service runs in another region", lambda: _lives_outside(alone, LOST), STAND_IN_S)
        await scene.dwell(MISSED_SHARE * lease_s + MARGIN_S)
        _check_processes(scene)
        await _check_quota(scene, "while it is cut off")
        apart = await scene.asking.items("bindings", "", LOST)
        await scene.chaos.heal(lambda text: None)
        healed_s = scene.clock.monotonic()
        scene.saw("healed")
        await self._healed(scene, apart)
        await scene.expect("the exclusive job runs again", lambda: _testified(witness, healed_s), BACK_S)
        check_once(scene)
        _check_processes(scene)
        for what, file in (("job", witness), ("service", alone)):
            _check_disjoint(scene, what, file.read_text() if file.exists() else "")

    @staticmethod
    async def _apart(scene: Scene, lost: str, before: Mapping[str, set[str]]) -> None:
        """The job and the services that the lost node ran run on other nodes of the region, and no other service moved or ended:
        by processes."""
        mine = before[lost] | {f"{'/'.join(JOB)}-0"}

        def now() -> dict[str, set[str]]:
            return {agent: set(slots) for agent, slots in scene.chaos.radius(list(before)).slots.items()}

        async def placed() -> bool:
            return mine <= {slot for slots in now().values() for slot in slots}

        scene.saw(f"the lost node ran {', '.join(sorted(mine))}")
        await scene.expect(f"{LOST} places by itself what its lost node ran", placed, BACK_S)
        there = now()
        gone = sorted(slot for agent, slots in before.items() if agent != lost for slot in slots - there[agent])
        kept = sum(len(slots) for agent, slots in before.items() if agent != lost)
        told = ", ".join(gone) or f"{kept} slots where they were"
        scene.check(f"what ran elsewhere in {LOST} goes on", bool(kept) and not gone, told)

    @staticmethod
    async def _healed(scene: Scene, apart: list[Tree]) -> None:
        async def heard() -> bool:
            return await health(scene, LOST) == "Healthy"

        async def reported() -> bool:
            return bool(await report_of(scene, LOST))

        await scene.expect(f"{LOST} is healthy again", heard, BACK_S)
        if await scene.expect("a merge report is there", reported, BACK_S):
            report = await report_of(scene, LOST)
            # What another region stands in for is let go on healing: before the report is written, or after.
            wrong = differs(report, [one for one in apart if not is_sole(one)])
            wrong = wrong and differs(report, apart)
            told = f"{report.get('placed', 0)} placed apart, by tenant {report.get('tenants') or {}}, none sold twice"
            scene.check("the merge report says what is counted here", not wrong, "; ".join(wrong) or told)
            scene.figures["merge"] = report
        await scene.expect("six of risk-api serve", lambda: scene.serving(RISK, 6), BACK_S)
        await _check_quota(scene, "after healing")


def exclusive_job(witness: str) -> Tree:
    job = {"completions": 1, "parallelism": 1, "retries": 50}
    return {"workloadClass": "batch", "job": job, **_once_in_the_world(witness, "Never")}


def sole_service(witness: str) -> Tree:
    recovery = {"budgetName": "critical", "minServing": 1}
    alone = {"replicas": 1, "workloadClass": "critical", "execution": "Exclusive", "recovery": recovery}
    return {**alone, **_once_in_the_world(witness, "Always")}


def wide_service() -> Tree:
    spread = [{"topologyKey": "hostname", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]
    return {
        "replicas": 2, "workloadClass": "best-effort", "template": _sleeper("Always"), "resources": _LITTLE,
        "placement": {"regions": {"allowed": [LOST]}, "spread": spread},
    }  # fmt: skip


def _sleeper(restart: str, **env: str) -> Tree:
    env = {"DURATION_S": "3600", **env}
    return {
        "driver": "process", "command": [sys.executable, "-m", "fairlead.samples.fraud_batch"], "restartPolicy": restart,
        "env": [{"name": name, "value": value} for name, value in env.items()], "stopGraceSeconds": 1,
    }  # fmt: skip


def _once_in_the_world(witness: str, restart: str) -> Tree:
    """It would rather be in the region that is going to be cut off, and might be anywhere."""
    return {
        "exclusive": "global",
        "template": _sleeper(restart, WITNESS_FILE=witness),
        "resources": _LITTLE,
        "placement": {
            "regions": {"allowed": list(REGIONS)},
            "preferences": [{"weight": 100, "locality": {"regions": [LOST]}}],
        },
    }


# --- counted here ----------------------------------------------------------------------------------------------------------


def runs_of(text: str) -> dict[Run, tuple[float, float]]:
    """From when to when each run of the exclusive process testified: `TOKEN NODE SECONDS` a line."""
    runs: dict[Run, tuple[float, float]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) != 3:
            continue
        token, node, at_s = words[0], words[1], float(words[2])
        first, last = runs.get((token, node), (at_s, at_s))
        runs[token, node] = (min(first, at_s), max(last, at_s))
    return runs


def overlapping(text: str) -> list[str]:
    """Runs of one exclusive slot that a witness file shows to have been alive at the same time."""
    ordered = sorted(runs_of(text).items(), key=lambda item: item[1])
    return [
        f"{one[0]} on {one[1]} until {until:.2f} s, {other[0]} on {other[1]} from {since:.2f} s"
        for (one, (_, until)), (other, (since, _)) in pairwise(ordered)
        if since <= until
    ]


async def _lives(witness: Path, region: str) -> bool:
    return witness.exists() and any(node.startswith(f"{region}-") for _, node in runs_of(witness.read_text()))


async def _lives_outside(witness: Path, region: str) -> bool:
    return witness.exists() and any(not node.startswith(f"{region}-") for _, node in runs_of(witness.read_text()))


def _check_disjoint(scene: Scene, what: str, text: str) -> None:
    overlaps, runs = overlapping(text), len(runs_of(text))
    detail = "; ".join(overlaps) or f"no two at once of {runs} runs"
    scene.check(
        f"runs of the exclusive {what}, of which there were several, are disjoint in time", not overlaps and runs > 1, detail
    )


async def _testified(witness: Path, since_s: float) -> bool:
    """Processes and drills of one machine share its monotonic clock."""
    return any(last > since_s for _, last in runs_of(witness.read_text()).values())


def services(slots: Mapping[str, Iterable[str]], jobs: Iterable[str]) -> dict[str, set[str]]:
    """Without those of jobs, which end by themselves: `agent -> slots`."""
    ending = set(jobs)
    return {agent: {slot for slot in found if slot.rpartition("-")[0] not in ending} for agent, found in slots.items()}


def _key(one: Tree) -> str:
    return f"{one['metadata']['namespace']}/{one['metadata']['name']}"


def running_twice(slots: Mapping[str, Iterable[str]]) -> list[str]:
    """Slots that run on more than one node, as processes: `agent -> slots`."""
    counted = Counter(slot for found in slots.values() for slot in set(found))
    return sorted(slot for slot, count in counted.items() if count > 1)


async def _on_two_nodes(scene: Scene) -> bool:
    """By their processes."""
    slots = scene.chaos.radius(scene.chaos.nodes(region=LOST)).slots
    return sum(any(slot.startswith(f"{'/'.join(WIDE)}-") for slot in there) for there in slots.values()) == 2


def _check_processes(scene: Scene) -> None:
    slots = scene.chaos.radius(scene.chaos.nodes()).slots
    twice, count = running_twice(slots), sum(map(len, slots.values()))
    told = ", ".join(twice) or f"{count} run, each on one"
    scene.check("no slot runs on two nodes, by their processes", count > 0 and not twice, told)


def is_sole(binding: Tree) -> bool:
    return (binding["metadata"]["namespace"], binding["spec"]["slot"]["workload"]) == SOLE


def over_quota(quotas: Iterable[Tree], bindings: Iterable[Tree], reservations: Iterable[Tree]) -> list[str]:
    """Tenants whose bindings and reservations of all regions come to more than their quota."""
    used: dict[str, Resources] = {}
    live = [one for one in bindings if (one.get("status") or {}).get("state", "Bound") in HELD]
    for one in (*live, *reservations):
        tenant = one["metadata"]["namespace"]
        used[tenant] = used.get(tenant, NOTHING) + Resources.parse(one["spec"].get("requests") or {})
    out = []
    for quota in quotas:
        tenant, limits = quota["metadata"]["namespace"], Resources.parse(quota["spec"].get("limits") or {})
        over = used.get(tenant, NOTHING).exceeding(limits)
        if over:
            out.append(f"{tenant} uses {used[tenant]} of {limits}")
    return out


async def _check_quota(scene: Scene, when: str) -> None:
    """Each plane is asked directly, one that is cut off too."""
    bindings, reservations = list[Tree](), list[Tree]()
    for region in REGIONS:
        bindings += await scene.asking.items("bindings", "", region)
        reservations += await scene.asking.items("reservations", "", region)
    quotas = await scene.asking.items("quotas", "", "global")
    over = over_quota(quotas, bindings, reservations)
    told = f"{len(bindings)} bindings and {len(reservations)} reservations of all planes, {len(quotas)} quotas"
    asked = bool(bindings) and bool(quotas)
    scene.check(f"no tenant uses more than its quota in all regions, {when}", asked and not over, "; ".join(over) or told)


async def _lease_s(scene: Scene) -> float:
    found = await scene.asking.get("grantterms", "", LOST, LOST) or {}
    return float((found.get("spec") or {}).get("leaseSeconds") or 600)
