"""`fairlead why` on a whole platform: it names the step a replica is stuck at, and ends with changes that were tried."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from fairlead.cli import frame
from tests.cli.talks import talk
from tests.planning.manifests import workload, written
from tests.planning.platform import WAIT_S, Platform

TRIED = "each was tried on the present state"


def told(here: Platform, name: str, says: Callable[[str], bool], tenant: str = "risk") -> str:
    """What `why` says, as soon as it says it: statuses come a moment later."""

    def now() -> str:
        ran = talk("why", f"wl/{name}", "-n", tenant)
        assert ran.code == frame.OK, ran
        return ran.out

    end = here.clock.monotonic() + WAIT_S
    while not says(said := now()):
        assert here.clock.monotonic() < end, said
        here.run(here.clock.sleep(0.05))
    return said


def applied(folder: Path, tree: dict[str, object]) -> None:
    ran = talk("apply", "-f", written(folder, tree))
    assert ran.code == frame.OK, ran


def test_no_fit_is_told_with_what_would_make_it_fit(here: Platform, tmp_path: Path) -> None:
    applied(tmp_path, workload("nofit", replicas=1, cpu="3500m", placement={"regions": {"allowed": ["east"]}, "zones": ["z"]}))
    said = told(here, "nofit", lambda text: TRIED in text)
    assert "NoMatchingCapacity" in said or "WaitingForCapacity" in said
    assert "allow zones other than z" in said
    assert said.count("\n  - ") <= 3
    got = msgspec.json.decode(talk("why", "wl/nofit", "-o", "json").out)
    (first, *_) = got["status"]["unblock"]
    assert (first["change"], first["node"].startswith("east-n")) == ("allow zones other than z", True)

    ran = talk("why", "wl/nofit", "--context", "eve")  # who may see no nodes is told of none
    assert "allow zones other than z" in ran.out
    assert "add one node" not in ran.out
    assert "it would go to" not in ran.out
    here.run(here.forget("nofit"))


def test_no_quota_is_told_with_how_much_is_missing(here: Platform, tmp_path: Path) -> None:
    here.run(here.add_tenant("poor", cpu=1000))
    here.run(here.until(lambda: here.get("grants", "east", "poor", "east") is not None))
    applied(tmp_path, workload("noquota", replicas=1, cpu="3", tenant="poor", placement={"regions": {"allowed": ["east"]}}))

    said = told(here, "noquota", lambda text: "Quota" in text and TRIED in text, tenant="poor")
    assert "of quota for tenant poor in east" in said
    here.run(here.forget("noquota", tenant="poor"))


def test_less_is_offered_as_far_as_the_quota_goes_and_where_no_single_change_helps_that_is_said(
    here: Platform, tmp_path: Path
) -> None:
    for tenant, cpu in (("modest", 1000), ("broke", 0)):
        here.run(here.add_tenant(tenant, cpu=cpu))
        applied(tmp_path, workload("huge", replicas=1, cpu="900", tenant=tenant, placement={"regions": {"allowed": ["east"]}}))
    told(here, "huge", lambda text: "ask for 0.5 CPU, 1Gi memory instead of 900 CPU" in text, tenant="modest")
    told(here, "huge", lambda text: "Quota" in text, tenant="broke")  # and no node is of that size either
    ran = talk("why", "wl/huge", "-n", "broke")
    assert TRIED not in ran.out
    assert "no single change that was tried on the present state would give huge-0 a place" in ran.err
    for tenant in ("modest", "broke"):
        here.run(here.forget("huge", tenant=tenant))


def test_bound_and_its_agent_says_nothing(here: Platform, tmp_path: Path) -> None:
    nodes = {f"east-n{number}" for number in range(3)}
    here.run(_kill(here, nodes))
    try:
        applied(tmp_path, workload("silent", replicas=1, placement={"regions": {"allowed": ["east"]}}))
        said = told(here, "silent", lambda text: "Bound" in text or "Unknown" in text)  # Unknown: on a machine that stood still
        assert "agent" in said or "silent" in said
        assert TRIED not in said
    finally:
        here.run(_kill(here, set()))
    here.run(here.forget("silent"))


async def _kill(here: Platform, nodes: set[str]) -> None:
    here.rigs["east"].agent.dead = nodes


def test_started_and_not_ready(here: Platform, tmp_path: Path) -> None:
    here.rigs["east"].agent.broken.add(1)
    try:
        applied(tmp_path, workload("slow", replicas=1, placement={"regions": {"allowed": ["east"]}}))
        said = told(here, "slow", lambda text: "Starting" in text)
        assert "agent" in said
        assert TRIED not in said
    finally:
        here.rigs["east"].agent.broken.discard(1)
    here.run(here.forget("slow"))
