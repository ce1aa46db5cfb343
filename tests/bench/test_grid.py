"""`fairlead bench grid` on a small trace of the same form: what is drawn from it, how it is counted, and one replay both ways."""

from __future__ import annotations

import asyncio
import gzip
import lzma
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench import grid
from bench.apart import measured_apart
from bench.grid_run import CHECKPOINT_S, Lost, Replayed, Settings, birth, peak, replay
from bench.grid_trace import Draw, Job, Outage, Rates, downtimes, draw, draw_jobs, draw_outages, gone, read_downs, read_jobs

REGIONS = ("site-1", "site-2", "site-3")
HOUR_S = 3600.0


def write_traces(folder: Path) -> None:
    """Two sites of LCG and two of Grid'5000: the larger one of four nodes goes twice, once for long enough, the other never."""
    jobs = [(n, 40 * n, 600, 1 + n % 2, 7 if n % 3 else 9) for n in range(30)] + [(90, 10, 50, 1, 8), (91, 20, -1, 1, 9)]
    rows = [f"{n} {at} -1 {run} 1 -1 -1 -1 100 -1 -1 1 {group} -1 -1 {site} -1 -1" for n, at, run, group, site in jobs]
    (folder / "lcg_grid_2005").mkdir()
    (folder / "lcg_grid_2005" / "LCG.swf.gz").write_bytes(gzip.compress("\n".join(["; SWF", *rows]).encode()))
    spells = [("site1", node, begin, begin + for_s) for begin, for_s in ((1000, 20), (5000, 200)) for node in range(4)]
    spells += [("site1", 0, 9000, 9900), ("site2", 0, 100, 400), ("site2", 1, 500, 600)]
    downs = [f"{n} 0 0 5 G1/{site}/c1/n{node} 0 {begin} {end} NULL" for n, (site, node, begin, end) in enumerate(spells)]
    downs.append("99 0 0 5 G1/site2/c1/n0 1 400 5000 NULL")
    (folder / "grid5000_failures").mkdir()
    event_trace = "\n".join(["# event_id component_id", *downs]).encode()
    (folder / "grid5000_failures" / "event_trace.tab.xz").write_bytes(lzma.compress(event_trace))


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_traces(tmp_path)
    monkeypatch.setenv("FAIRLEAD_TRACES", str(tmp_path))


@pytest.mark.usefixtures("traces")
def test_jobs_are_those_of_the_sites_that_were_given_most_as_they_were_recorded() -> None:
    jobs = read_jobs(2)
    assert len(jobs) == 30, "not that of a third site, nor one that never ran"
    assert jobs[1] == Job(40.0, 600.0, "vo-2", "site-1")
    chosen = draw_jobs(jobs, 10, 1000.0, Random(3))
    assert len(chosen) == 10
    assert chosen == draw_jobs(jobs, 10, 1000.0, Random(3))
    assert all(0 <= job.at_s < 1000.0 for job in chosen)
    assert chosen == sorted(chosen)
    assert len({job.name for job in chosen}) == 10


@pytest.mark.usefixtures("traces")
def test_a_site_is_gone_when_almost_all_its_nodes_are_and_a_short_spell_is_no_outage() -> None:
    downs = read_downs(2)
    assert list(downs) == ["site1", "site2"], "the largest first"
    assert list(gone(downs["site1"], 4)) == [(1000.0, 1020.0), (5000.0, 5200.0)]
    found = downtimes(downs)
    assert found.sites == {"site-1": [200.0], "site-2": []}
    assert (900.0, "site-1", 0) in found.nodes
    assert (20.0, "site-1", 0) not in found.nodes


@pytest.mark.usefixtures("traces")
def test_outages_are_as_long_as_they_were_and_the_same_for_the_same_seed() -> None:
    rates = Rates(sites=2, nodes=2, first_s=100.0, last_s=500.0, longest_s=150.0, nodes_each=2)
    out = draw_outages(downtimes(read_downs(2)), rates, Random(1))
    assert [one for one in out if one.node is None] == [Outage(100.0, 150.0, "site-1"), Outage(300.0, 150.0, "site-1")]
    assert all(100.0 <= one.at_s <= 500.0 and one.node in (0, 1) for one in out if one.node is not None)
    assert draw(5, 2, 10, 1000.0, rates) == draw(5, 2, 10, 1000.0, rates)
    assert draw(5, 2, 10, 1000.0, rates) != draw(6, 2, 10, 1000.0, rates)


def jobs_of(*moves: tuple[float, float]) -> list[Job]:
    return [Job(at_s, run_s, "vo-1", "site-1", f"j{n}") for n, (at_s, run_s) in enumerate(moves)]


def test_a_tenant_has_quota_for_its_jobs_and_for_the_room_that_is_held() -> None:
    jobs = jobs_of((0, 100), (50, 100), (120, 10))
    assert peak(jobs) == 2
    asked = Draw(tuple(jobs), (), ("vo-1",), REGIONS)
    (plain,) = birth(asked, Settings(1, False, 1, 100.0, 100)).tenants
    (held,) = birth(asked, Settings(1, True, 1, 100.0, 100)).tenants
    assert (plain.rooms, plain.quota.cpu) == (0, 2 * 250)
    assert (held.rooms, held.quota.cpu) == (2, (2 + 3 * 2) * 250)


def replayed(*lost: Lost, **fields: Any) -> Replayed:
    usual: dict[str, Any] = {
        "trace": "", "completed": 0, "work_s": 0.0, "waited_s": 0.0, "findings": [], "quota_violations": 0,
        "quota_checked": {"S4": 1, "S5": 1}, "commands": {"outage": 30}, "seconds": {"outage": 10},
        "cpu_s": {"outage": 0.0, "steady": 0.0}, "peak_queue": 0, "refused": {},
    }  # fmt: skip
    return Replayed(lost=list(lost), **(usual | fields))


def test_time_lost_is_that_in_which_it_ran_nowhere_and_the_work_done_again() -> None:
    back = Lost("j1", "site-1", True, 100.0, 7.0, back_s=120.0, elsewhere=True)
    never = Lost("j2", "site-1", True, 100.0, 0.0)
    node = Lost("j3", "site-1", False, 100.0, 0.0, back_s=125.0)
    told = grid.figures(replayed(back, never, node), 400.0, 2)
    assert told["lost_s_per_outage"] == (27.0 + 300.0) / 2
    assert (told["jobs_hit"], told["recovered"], told["recovered_elsewhere"], told["recovered_max_s"]) == (2, 1, 1, 20.0)
    assert (told["commands_per_s"], told["steady_commands_per_s"]) == (3.0, None)


def test_it_fails_when_a_promise_is_broken_when_nobody_looked_and_when_nothing_was_saved() -> None:
    quick = Lost("j1", "site-1", True, 100.0, 0.0, back_s=120.0)
    slow = Lost("j1", "site-1", True, 100.0, 0.0, back_s=300.0)
    assert grid.failures(replayed(quick), replayed(slow), HOUR_S) == []
    assert "saved nothing" in grid.failures(replayed(slow), replayed(quick), HOUR_S)[0]
    never = Lost("j1", "site-1", True, 100.0, 0.0)
    assert any("did not run again" in text for text in grid.failures(replayed(never), replayed(never), HOUR_S))
    broken = replayed(quick, findings=["S5 in all at 3 s: over"])
    assert grid.failures(broken, replayed(slow), HOUR_S) == ["with recovery: S5 in all at 3 s: over"]
    blind = replayed(quick, quota_checked={"S4": 3, "S5": 0})
    assert grid.failures(blind, replayed(slow), HOUR_S) == ["nobody looked at the quota"]
    assert "nothing was shown" in grid.failures(replayed(), replayed(), HOUR_S)[0]


def test_both_ways_replay_the_same_loss_and_recovery_brings_the_jobs_back_elsewhere() -> None:
    jobs = tuple(Job(float(n), HOUR_S, "vo-1", "site-2", f"j{n}") for n in range(4))
    asked = Draw(jobs, (Outage(20.0, 90.0, "site-2"),), ("vo-1",), REGIONS)
    orders = [grid.Order(asked, Settings(1, recovery, 1, 70.0, 100)) for recovery in (True, False)]
    ours = replay(asked, orders[0].settings)

    async def apart() -> Replayed:
        return await measured_apart("bench.grid", orders[1], Replayed)

    base = asyncio.run(apart())
    assert ours.findings == base.findings == []
    assert (ours.quota_violations, base.quota_violations) == (0, 0)
    assert min(ours.quota_checked.values()) > 0
    assert {one.job for one in ours.lost} == {one.job for one in base.lost} == {"j0", "j1", "j2", "j3"}
    assert all(one.elsewhere and one.back_s is not None and one.back_s - one.at_s < 60 for one in ours.lost)
    assert all(one.back_s is None and one.again_s < CHECKPOINT_S for one in base.lost)
    assert ours.work_s > base.work_s
    assert grid.failures(ours, base, 70.0) == []
