"""A run from its first second to its last: what is asked when, and what becomes of one that breaks off."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.decide import jobs
from fairlead.model import codec
from fairlead.model.commands import Caller, Command, Delete, PutStatus
from fairlead.model.journal import Entry, Header, encode_blob
from fairlead.model.kinds.intent import Workload, WorkloadStatus
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Condition, Metadata
from fairlead.observe.differing import Difference
from fairlead.observe.explained import ExplainedChecker
from fairlead.observe.losses import Losses
from fairlead.observe.resting import at_rest, writes
from fairlead.observe.returned import ReturnChecker
from fairlead.observe.waiting import WaitingChecker
from fairlead.sim import campaign
from fairlead.sim import loop as sim
from fairlead.sim.chaos import Chaos
from fairlead.sim.loop import SimLoop, sleep
from fairlead.sim.people import People
from fairlead.sim.platform import Platform
from fairlead.sim.profiles import PROFILES
from fairlead.sim.scenario import Faults, Scenario, Work
from fairlead.sim.strays import Strays
from fairlead.sim.walls import unheard
from fairlead.sim.world import World, run_scenario
from fairlead.store.contract import Batch

SHORT = Scenario(
    1, "calm", 1, 1, 2, rough_s=6.0, settle_s=8.0, quiet_s=5.0, work=Work(workloads=2, actions=10.0, jobs=0.0, operators=0.0)
)


# --- what is asked each second -----------------------------------------------------------------------------------------------


def test_what_is_asked_of_several_planes_is_asked_each_second_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, list[float]] = {"quota": [], "twice": []}
    worlds: list[World] = []
    quota, twice, live = World.look_at_quota, Losses.bound_twice, World.live

    async def lives(self: World) -> None:
        worlds.append(self)
        await live(self)

    def look(self: World) -> None:
        asked["quota"].append(worlds[0].loop.now)
        quota(self)

    def bound(self: Losses) -> list[str]:
        asked["twice"].append(worlds[0].loop.now)
        return twice(self)

    monkeypatch.setattr(World, "live", lives)
    monkeypatch.setattr(World, "look_at_quota", look)
    monkeypatch.setattr(Losses, "bound_twice", bound)
    verdict = run_scenario(SHORT)
    assert not verdict.findings
    for moments in asked.values():
        assert max(later - one for one, later in zip(moments, [*moments[1:], verdict.simulated_s], strict=True)) < 1.01


def test_a_slot_that_is_bound_twice_while_the_platform_rests_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def bound(self: Losses) -> list[str]:
        calls.append(1)
        return ["risk/api-0 is bound in east and in west"] if len(calls) > SHORT.rough_s + SHORT.settle_s else []

    monkeypatch.setattr(Losses, "bound_twice", bound)
    verdict = run_scenario(SHORT)
    assert {finding.invariant for finding in verdict.findings} == {"S1"}
    assert verdict.findings[0].at_s > SHORT.rough_s


def test_what_is_bounded_after_healing_is_asked_each_second_until_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, list[float]] = {"L1": [], "L12": [], "L4": []}
    kinds: list[tuple[str, type[Any]]] = [("L1", WaitingChecker), ("L12", ExplainedChecker), ("L4", ReturnChecker)]
    for name, kind in kinds:
        look = kind.look

        def told(self: Any, now_s: float, *rest: Any, look: Any = look, name: str = name) -> Any:
            asked[name].append(now_s)
            return look(self, now_s, *rest)

        monkeypatch.setattr(kind, "look", told)
    verdict = run_scenario(SHORT)
    assert not verdict.findings
    for moments in asked.values():
        assert max(later - one for one, later in zip(moments, [*moments[1:], verdict.simulated_s], strict=True)) < 1.01
        assert moments[0] < SHORT.rough_s + 5.0


def test_work_that_waits_beside_room_only_since_all_was_as_desired_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(self: WaitingChecker, now_s: float, *_: Any) -> list[str]:
        return ["risk/api-0 waits, and n has room for it"] if now_s > SHORT.rough_s + SHORT.settle_s + 2 else []

    monkeypatch.setattr(WaitingChecker, "look", look)
    verdict = run_scenario(SHORT)
    assert verdict.agreed_s is not None
    assert {finding.invariant for finding in verdict.findings} == {"L1"}


def test_a_node_that_is_there_and_not_ready_is_no_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReturnChecker, "look", lambda self, now_s, region, *_: [Difference(f"n is there, and in {region} lost")])
    verdict = run_scenario(replace(SHORT, calm_s=5.0))
    assert (verdict.agreed_s, {finding.invariant for finding in verdict.findings}) == (None, {"L4"})


# --- rest --------------------------------------------------------------------------------------------------------------------


def test_one_seed_in_eleven_must_rest_for_as_long_as_is_promised() -> None:
    rests = {seed: campaign.scenario_of(seed, "swarm", 1.0).quiet_s for seed in range(1, 41)}
    assert [seed for seed, quiet_s in rests.items() if quiet_s == 300.0] == [11, 22, 33]
    assert all(campaign.scenario_of(11, profile, 1.0).quiet_s == 300.0 for profile in PROFILES)


def test_in_a_campaign_every_profile_has_a_seed_that_rests_for_long_and_one_that_is_run_again() -> None:
    scenarios = [campaign.scenario_of(seed, campaign.MIXED, 1.0) for seed in range(1, 2001)]
    assert {one.profile for one in scenarios if one.quiet_s == 300.0} == set(campaign.MIX)
    assert {one.profile for one in scenarios[campaign.REPEAT_EVERY - 1 :: campaign.REPEAT_EVERY]} == set(campaign.MIX)


def test_where_slots_wait_for_room_in_two_regions_a_long_rest_begins_after_they_were_asked_for_again() -> None:
    assert campaign.scenario_of(22, "grants", 1.0).settle_s == campaign.scenario_of(21, "grants", 1.0).settle_s + 300.0
    assert campaign.scenario_of(22, "tight", 1.0).settle_s == campaign.scenario_of(21, "tight", 1.0).settle_s


def test_agreement_counts_from_when_people_have_undone_what_operators_did(monkeypatch: pytest.MonkeyPatch) -> None:
    right = People.put_right

    async def slowly(self: People) -> None:
        await sleep(30.0)
        await right(self)

    monkeypatch.setattr(People, "put_right", slowly)
    verdict = run_scenario(SHORT, timeline=True)
    assert not verdict.findings
    assert verdict.agreed_s is not None
    assert verdict.agreed_s < 25.0
    (agreed,) = [at_s for at_s, _, what in verdict.timeline if what.startswith("actual is desired")]
    assert agreed > SHORT.rough_s + 30.0


def test_people_who_can_undo_nothing_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: People) -> None:
        await sleep(10_000.0)

    monkeypatch.setattr(People, "put_right", never)
    verdict = run_scenario(replace(SHORT, calm_s=20.0))
    assert [finding.invariant for finding in verdict.findings] == ["L4"]


def test_what_operators_did_and_people_gave_up_on_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    async def gives_up(self: People, method: str, path: str, body: object) -> None:
        pass

    monkeypatch.setattr(People, "_insist", gives_up)
    verdict = run_scenario(replace(SHORT, rough_s=15.0, work=replace(SHORT.work, operators=120.0)))
    assert [finding.invariant for finding in verdict.findings] == ["L4"]
    assert "people could not undo what operators did: " in verdict.findings[0].detail


def test_an_entry_without_effects_is_a_write_and_one_that_tells_is_none() -> None:
    def batch(*effects: tuple[str, bytes | None]) -> Batch:
        command = Command(Caller("ada", Role.USER), Delete("Workload", "risk", "api"))
        entry = msgspec.msgpack.encode(Entry(msgspec.Raw(msgspec.msgpack.encode(command)), effects))
        return Batch(1, 1, b"", b"", encode_blob(Header(1, 1, 1, "me", 1, 0), [entry]))

    assert writes(batch())
    assert writes(batch(("workloads/risk/api", None)))
    assert not writes(batch(("events/risk/e", b"x")))
    assert writes(batch(("events/risk/e", b"x")), tidying=True)


def test_a_rollout_says_once_that_it_has_stood_still_for_too_long() -> None:
    def batch(reason: str) -> Batch:
        status = WorkloadStatus(conditions=(Condition(type="Progressing", status="False", reason=reason),))
        workload = Workload(Metadata(name="api", namespace="risk"), status=status)
        command = Command(Caller("controller", Role.WORKLOAD), PutStatus("Workload", "risk", "api", status))
        entry = codec.encode(Entry(msgspec.Raw(codec.encode(command)), (("workloads/risk/api", codec.encode(workload)),)))
        return Batch(1, 1, b"", b"", encode_blob(Header(1, 1, 1, "me", 1, 0), [entry]))

    late = batch("ProgressDeadlineExceeded")
    assert at_rest([late]) == Counter()
    assert at_rest([late, late]).total() == 1
    assert at_rest([batch("RollingOut")]).total() == 1


def test_jobs_come_to_their_ends_before_the_platform_must_rest() -> None:
    work = Work(workloads=6, actions=30.0, exclusive=0.0, jobs=1.0, operators=0.0)
    verdict = run_scenario(replace(SHORT, nodes=3, rough_s=15.0, settle_s=10.0, work=work))
    assert not verdict.findings
    assert verdict.counts["jobs_done"] > 10, "jobs of several completions are accepted, run and end"
    assert verdict.counts["jobs_failed"] > 0, "and some of their runs fail, now and then"


def test_a_job_that_is_said_to_be_complete_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "done", lambda job, so_far: job.completions if so_far.completed else 0)
    work = Work(workloads=6, actions=30.0, exclusive=0.0, jobs=1.0, operators=0.0)
    verdict = run_scenario(replace(SHORT, nodes=3, rough_s=15.0, settle_s=10.0, calm_s=40.0, work=work))
    assert "is said to be complete, and" in verdict.findings[0].detail


# --- runs that break off -----------------------------------------------------------------------------------------------------


def test_a_checker_that_fails_is_a_finding_with_a_file_that_replays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(self: World) -> None:
        raise RuntimeError("no such sum")

    monkeypatch.setattr(World, "_safe", fails)
    verdict = run_scenario(SHORT)
    (finding,) = verdict.findings
    assert finding.invariant == "X0"
    assert "RuntimeError: no such sum; in fails (test_phases.py:" in finding.detail
    assert verdict.steps > 100
    path = campaign.keep(SHORT, verdict, tmp_path)
    assert f"fairlead sim --replay {path}" in campaign.told(SHORT, verdict, path)
    assert campaign.replayed(path)["results"]["same"]


def test_a_world_in_which_nothing_can_happen_any_more_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    async def waits(self: World) -> None:
        await self.loop.create_future()

    monkeypatch.setattr(World, "live", waits)
    (finding,) = run_scenario(SHORT).findings
    assert finding.invariant == "X0"
    assert "SimDeadlock" in finding.detail


def test_a_world_that_cannot_be_made_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "__init__", lambda *_: 1 / 0)
    (finding,) = run_scenario(SHORT).findings
    assert finding.invariant == "X0"
    assert "ZeroDivisionError" in finding.detail


def test_a_process_that_dies_costs_a_campaign_one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, started = campaign._worker, list[int]()

    def dies_first(scenarios: Sequence[Scenario], environ: dict[str, str]) -> Any:
        started.append(len(scenarios))
        if len(started) > 1:
            return worker(scenarios, environ)
        return subprocess.Popen([sys.executable, "-c", "import sys; sys.exit(3)"], stdout=subprocess.PIPE)

    monkeypatch.setattr(campaign, "_worker", dies_first)
    scenarios = [replace(SHORT, seed=seed, rough_s=2.0, settle_s=5.0, quiet_s=1.0) for seed in (1, 2, 3)]
    verdicts = [verdict for _, verdict in campaign.verdicts_of(scenarios, 2)]
    assert [verdict.seed for verdict in verdicts] == [1, 2, 3]
    assert [[finding.invariant for finding in verdict.findings] for verdict in verdicts] == [["X0"], [], []]
    assert "ended with code 3" in verdicts[0].findings[0].detail
    assert started == [2, 1, 1]


def test_a_file_has_the_tape_and_a_replay_names_the_first_strike_that_is_another_one(tmp_path: Path) -> None:
    scenario = replace(SHORT, faults=Faults(crash=60.0), calm_s=1.0, agreed_s=0.0)
    verdict = run_scenario(scenario)
    assert verdict.findings
    path = campaign.keep(scenario, verdict, tmp_path)
    kept = msgspec.json.decode(path.read_bytes(), type=campaign.Failure)
    assert [what for _, what in kept.tape if what.startswith("crash:")] == verdict.strikes
    assert any(what.startswith("chaos: ") and "is killed, for" in what for _, what in kept.tape)
    assert campaign.replayed(path)["results"]["differs"] == ""

    at_s, what = kept.tape[2]
    kept.tape[2] = (at_s, "chaos: another one is killed, for 3.0 s")
    path.write_bytes(msgspec.json.encode(kept))
    results = campaign.replayed(path)["results"]
    assert not results["same"]
    assert (
        results["differs"]
        == f"strike 2: it was 'chaos: another one is killed, for 3.0 s' at {at_s} s, and is {what!r} at {at_s} s"
    )

    kept.tape = []
    path.write_bytes(msgspec.json.encode(kept))
    assert campaign.replayed(path)["results"]["same"], "a file from before there were tapes"


# --- nothing breaks after healing --------------------------------------------------------------------------------------------


def test_a_node_that_was_to_lose_power_later_keeps_it_when_everything_is_healed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(loop: SimLoop) -> bool:
        platform = Platform(loop, Scenario(seed=1, regions=2, servers=1, nodes=1, grant_lease_s=20))
        chaos = Chaos(platform, Strays(platform, lambda plane: {}))
        node = platform.agents["us-east-n0"].program.machine
        monkeypatch.setattr(chaos._aimed, "_provisional", lambda region: [node])
        platform.start()
        await chaos._aimed.strand(loop.stream("strike"))
        await sleep(10.0)
        chaos.heal()
        await sleep(15.0)
        return node.up

    with unheard():
        assert sim.run(main, 1).value
