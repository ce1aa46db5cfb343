"""Where drills strike, and when: at what is at work in that moment, else nothing is shown. Nothing is killed here."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.compose.wiring import REGIONS
from fairlead.decide.autoscaling import Load, ReplicaRule, replicas
from fairlead.drills.asking import Asking
from fairlead.drills.census import Answer, Look
from fairlead.drills.commits import StoreDown90s
from fairlead.drills.contract import BILLING, RISK
from fairlead.drills.cuts import _check_processes, _check_quota
from fairlead.drills.people import RepairDuringIncident, waits_for_serving
from fairlead.drills.regions import LOST, RegionLossDuringRecovery, told_above
from fairlead.drills.restarts import LeaderRestart, while_placing
from fairlead.drills.scene import TENANT, Scene
from tests.drills.test_checks import Quick, binding

Tree = dict[str, Any]


class Census:
    """Two of risk-api serve in each region but in those that are gone, and four where they were ordered; nobody sees an error."""

    def __init__(self, clock: Quick, gone: list[str]) -> None:
        self.clock, self.gone, self.twice = clock, gone, list[str]()
        told = SimpleNamespace(sent=9, errors={}, outage_s=0.0)
        self.probers = {one: SimpleNamespace(measures=SimpleNamespace(all=told)) for one in (RISK, BILLING)}
        self.more: dict[str, int] = {}

    def last(self, workload: Any) -> Look:
        counts = {region: 2 + self.more.get(region, 0) for region in REGIONS if region not in self.gone}
        named = tuple(Answer(region, at, "n", "1.1.1", "a", 1) for region, count in counts.items() for at in range(count))
        return Look(self.clock.now_s, named, named, 0)

    def lowest(self, workload: Any, since_s: float) -> int:
        return self.last(workload).serving()


class Chaos:
    def __init__(self) -> None:
        self.killed: list[str] = []

    def nodes(self, *, region: str) -> list[str]:
        return [f"{region}-general-a"]

    async def kill(self, names: list[str]) -> None:
        self.killed += [name for name in names if name in REGIONS]

    async def stop_store(self, plane: str) -> None:
        return None

    async def heal(self, say: Any) -> None:
        return None


def stage(asking: Any, chaos: Chaos | None = None, census: Any = None, clock: Quick | None = None) -> Scene:
    nothing: Any = None
    there: Any = chaos or Chaos()
    return Scene(nothing, nothing, there, asking, census, clock or Quick(), lambda text: None, "")


def failed(scene: Scene) -> list[str]:
    return [check.name for check in scene.checks if not check.passed]


# --- a second region -------------------------------------------------------------------------------------------------------


class Recovering:
    """What is ordered for risk-api goes to this region, and when that is gone to the one that is left, if at all."""

    def __init__(self, chaos: Chaos, census: Census, first: str, moves: bool) -> None:
        self.chaos, self.census, self.first, self.moves = chaos, census, first, moves

    def _order(self) -> dict[str, int]:
        if not self.chaos.killed:
            return {}
        if self.first not in self.chaos.killed or not self.moves:
            return {self.first: 2}
        (left,) = {*REGIONS} - {*self.chaos.killed}
        return {left: 2}

    async def get(self, plural: str, tenant: str, name: str, plane: str = "") -> Tree:
        self.census.more = self._order()
        if plural == "recoveryorders":
            return {"spec": {"regions": self._order()}}
        return {"status": {"health": "Lost" if name in self.chaos.killed else "Healthy"}}

    async def slots(self, plural: str, tenant: str, workload: str, plane: str) -> list[Tree]:
        count = 2 + self._order().get(plane, 0)
        return [binding(f"api-{at}", state="Serving") for at in range(count)]


def recovering(first: str, moves: bool = True) -> tuple[Scene, Chaos]:
    clock, chaos = Quick(), Chaos()
    census = Census(clock, chaos.killed)
    return stage(Recovering(chaos, census, first, moves), chaos, census, clock), chaos


@pytest.mark.parametrize("first", [region for region in REGIONS if region != LOST])
async def test_the_region_that_is_lost_during_recovery_is_the_one_that_stands_in(first: str) -> None:
    scene, chaos = recovering(first)
    await RegionLossDuringRecovery().run(scene)
    assert chaos.killed == [LOST, first]
    assert scene.figures["lost"] == [LOST, first]
    assert failed(scene) == []


async def test_what_is_not_ordered_again_in_the_region_that_is_left_fails_the_drill() -> None:
    scene, _ = recovering("us-west", moves=False)
    await RegionLossDuringRecovery().run(scene)
    assert "what us-west stood in with is ordered in us-east alone" in failed(scene)


class Above:
    """The global plane: what it counts of risk-api, and when the cut ended of which it has us-east's merge report."""

    def __init__(self, serving: int, healed: str) -> None:
        self.serving, self.healed = serving, healed

    async def counts(self, *_: Any) -> dict[str, int]:
        return {"serving": self.serving}

    async def get(self, plural: str, tenant: str, name: str, plane: str) -> Tree:
        assert (plural, name, plane) == ("grantterms", "us-east", "global")
        return {"status": {"merge": {"healedTime": self.healed} if self.healed else {}}}


class Later(Quick):
    """Noon, and a minute of the drill is over."""

    def wall(self) -> float:
        return datetime(2026, 1, 1, 12, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("serving", "healed", "told"),
    [(6, "2026-01-01T11:59:59Z", True), (6, "", False), (6, "2026-01-01T11:58:00Z", False), (5, "2026-01-01T11:59:59Z", False)],
    ids=["it was told", "it counts what it knew before", "of another cut", "one is missing"],
)
async def test_what_global_knew_before_a_cut_does_not_show_that_it_was_told_after_it(
    serving: int, healed: str, told: bool
) -> None:
    clock = Later()
    scene = stage(Above(serving, healed), clock=clock)
    clock.now_s += 60.0
    assert await told_above(scene) is told


# --- a server that places --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("so_far", "placing"),
    [(0, False), (LeaderRestart.FIRST, False), (LeaderRestart.FIRST + 1, True), (LeaderRestart.ASKED - 1, True),
     (LeaderRestart.ASKED, False), (LeaderRestart.COUNT, False)],
    ids=["nothing", "the first alone", "one of those asked for", "all but one", "all that are asked for", "all"],
)  # fmt: skip
def test_a_server_places_while_some_of_what_is_asked_for_is_bound_and_some_is_not(so_far: int, placing: bool) -> None:
    assert while_placing(so_far, LeaderRestart.FIRST, LeaderRestart.ASKED) is placing


class Placing:
    async def create(self, *_: Any) -> None:
        return None

    patch = create

    async def slots(self, *_: Any) -> list[Tree]:
        return [binding(f"r-{at}") for at in range(LeaderRestart.FIRST)]

    async def counts(self, *_: Any) -> dict[str, int]:
        return {"ready": LeaderRestart.COUNT}


@pytest.mark.parametrize(
    ("deaths", "passed"),
    [([7], True), ([9, 4, 8], True), ([9] * LeaderRestart.TRIES, False), ([9, None], False)],
    ids=["in the middle", "in the end", "never in the middle", "not all were bound again"],
)
async def test_a_server_is_killed_again_until_it_dies_while_it_places(
    deaths: list[int | None], passed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = list(deaths)

    async def killed(self: LeaderRestart, scene: Scene, name: str) -> int | None:
        return left.pop(0)

    async def bring(names: list[str]) -> None:
        return None

    monkeypatch.setattr(LeaderRestart, "_killed", killed)
    clock = Quick()
    scene = stage(Placing(), census=Census(clock, []), clock=clock)
    scene.local = SimpleNamespace(bring=bring)  # type: ignore[assignment]
    await LeaderRestart().run(scene)
    assert left == []
    assert ("the server died while it placed" not in failed(scene)) is passed
    assert scene.figures["bound_when_it_died"] == [so_far for so_far in deaths if so_far is not None]


# --- a store that is held --------------------------------------------------------------------------------------------------


class Deaf:
    """The global plane says that nothing of it is bound; the region's own plane has so many bindings at each look."""

    def __init__(self, *looks: int) -> None:
        self.looks = list(looks)
        self.ready = 0

    async def items(self, plural: str, tenant: str = "", plane: str = "") -> list[Tree]:
        assert (plural, plane) == ("bindings", "us-east"), "who is asked is the region itself"
        return [binding(f"b-{at}") for at in range(self.looks.pop(0))]

    async def create(self, *_: Any) -> None:
        return None

    async def counts(self, *_: Any) -> dict[str, int]:
        return {"bound": 0, "ready": StoreDown90s.COUNT}

    async def get(self, plural: str, tenant: str, name: str, plane: str = "") -> Tree:
        if plural == "workloads":
            return {"status": {"pending": [{"reason": "RegionSilent", "nextOwner": "region"}]}}
        return {"status": {"health": "Healthy" if not self.looks else "Lost"}}


@pytest.mark.parametrize(("before", "after", "passed"), [(5, 5, True), (5, 6, False), (5, 4, False), (0, 0, False)])
async def test_what_is_bound_while_a_store_is_held_is_asked_of_the_region_itself(
    before: int, after: int, passed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scene, "sqlite_region", lambda self: "us-east")
    clock = Quick()
    scene = stage(Deaf(before, after), census=Census(clock, []), clock=clock)
    await StoreDown90s().run(scene)
    assert failed(scene) == ([] if passed else ["nothing was placed meanwhile"])


# --- quotas, and what people are told --------------------------------------------------------------------------------------


class Sold:
    """Each region has a binding of risk with so much CPU."""

    def __init__(self, cpu: str, quota: str) -> None:
        self.cpu, self.quota, self.asked = cpu, quota, list[tuple[str, str]]()

    async def items(self, plural: str, tenant: str, plane: str) -> list[Tree]:
        self.asked.append((plural, plane))
        if plural == "quotas":
            return [{"metadata": {"namespace": "risk"}, "spec": {"limits": {"cpu": self.quota}}}]
        return [{"metadata": {"namespace": "risk"}, "spec": {"requests": {"cpu": self.cpu}}}] if plural == "bindings" else []


@pytest.mark.parametrize(("quota", "passed"), [("3", True), ("2", False)])
async def test_the_quota_is_held_against_what_every_plane_itself_has(quota: str, passed: bool) -> None:
    sold = Sold("1", quota)
    scene = stage(sold)
    await _check_quota(scene, "while it is cut off")
    assert [check.passed for check in scene.checks] == [passed]
    assert {plane for plural, plane in sold.asked if plural == "bindings"} == {*REGIONS}


async def test_where_nothing_is_listed_no_quota_was_looked_at() -> None:
    class Nothing:
        async def items(self, *_: Any) -> list[Tree]:
            return []

    scene = stage(Nothing())
    await _check_quota(scene, "after healing")
    assert [check.passed for check in scene.checks] == [False]


@pytest.mark.parametrize(
    ("load", "waits"),
    [
        (Load(6, 3, 2000, 20.0), True),
        (Load(6, 2, 2000, 20.0), True),
        (Load(2, 2, 2000, 20.0), False),
        (Load(6, 3, 1333, 20.0), False),
        (Load(6, 3, 2000, 5.0, age_s=9.0), False),
        (Load(6, 3, 2000, 20.0, blocked=[("QuotaExceeded", 1)]), False),
    ],
    ids=["half of them serve", "too few to go by", "it adds some", "all is ordered", "just added", "it waits for something else"],
)
def test_an_autoscaler_that_waits_for_what_does_not_serve_is_told_from_one_that_says_something_else(
    load: Load, waits: bool
) -> None:
    assert waits_for_serving(replicas(ReplicaRule(2, 40, up_wait_s=5.0), load).why) is waits


@pytest.mark.parametrize(("second", "passed"), [("WaitingForApproval", True), ("NodeSilent", False), ("", False)])
async def test_slots_whose_repair_waits_for_a_person_must_say_so(
    second: str, passed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [{"name": "r-0", "reason": "WaitingForApproval"}, {"name": "r-1", "reason": second}, {"name": "r-2"}]

    async def read(path: str) -> Tree:
        assert path.endswith(f"/namespaces/{TENANT}/workloads/r/why")
        return {"status": {"slots": told if second else told[:1]}}

    async def client(self: Asking, *_: Any) -> Any:
        return SimpleNamespace(read=read)

    monkeypatch.setattr(Asking, "client", client)
    nothing: Any = None
    scene = stage(Asking(nothing, nothing, nothing))
    await RepairDuringIncident._check_told(scene, "r", {"r-0", "r-1"})
    assert [check.passed for check in scene.checks] == [passed]


@pytest.mark.parametrize(
    ("slots", "passed"),
    [({"agent-a": ["api-0"], "agent-b": ["api-1"]}, True), ({"agent-a": ["api-0"], "agent-b": ["api-0"]}, False),
     ({"agent-a": [], "agent-b": []}, False)],
    ids=["each on one", "one on two", "nothing runs that could"],
)  # fmt: skip
def test_that_no_slot_runs_twice_is_seen_where_some_run(slots: dict[str, list[str]], passed: bool) -> None:
    nothing: Any = None
    scene = stage(nothing)
    scene.chaos = SimpleNamespace(nodes=lambda: list(slots), radius=lambda names: SimpleNamespace(slots=slots))  # type: ignore[assignment]
    _check_processes(scene)
    assert [check.passed for check in scene.checks] == [passed]
