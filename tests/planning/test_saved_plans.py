"""Plans that are kept: what they foretell comes true when they are carried out, and they are refused when their base moved."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.cli import frame
from fairlead.cli.planned import moves
from tests.cli.talks import talk
from tests.planning.manifests import workload, written
from tests.planning.platform import Platform

NAMES = ("ant", "bee", "cat")


def kept(folder: Path, *words: object) -> Path:
    file = folder / "kept.plan"
    ran = talk("plan", *words, "--out", file)
    assert ran.code == frame.CHANGES, ran
    return file


def drawn(chance: random.Random) -> dict[str, Any]:
    """Some workload: few or more than fit, small or large, in one region or half in each, with rules or without."""
    half = chance.randint(0, 7)
    if chance.random() < 0.5:
        regions: dict[str, Any] = {"allowed": [chance.choice(["east", "west"])]}
    else:  # neither may give any of them to the other
        regions = {"allowed": ["east", "west"], "perRegionMinimum": half}
    placement: dict[str, Any] = {"regions": regions}
    if chance.random() < 0.4:
        placement["spread"] = [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
    if chance.random() < 0.3:
        placement["maxPerNode"] = chance.randint(1, 2)
    name, cpu = chance.choice(NAMES), chance.choice(["500m", "1", "2", "5"])
    return workload(name, replicas=2 * half, cpu=cpu, placement=placement)


def foretold(status: dict[str, Any]) -> dict[str, tuple[dict[str, int], dict[tuple[str, str], int]]]:
    """Of each workload that changes: how many are bound in which region, and how many wait where and why."""
    out = {}
    for row in status["workloads"]:
        bound = {part["region"]: part["boundAfter"] for part in row["regions"] if part["boundAfter"]}
        waits = {
            (p["region"], p["reason"]): p["count"] for p in status["pending"] if p["workload"] == row["name"] and p["region"]
        }
        out[row["name"]] = (bound, waits)
    return out


@pytest.mark.parametrize("seed", [1, 2])
def test_what_a_plan_foretells_comes_true_when_it_is_carried_out(here: Platform, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(2):
        change = drawn(chance)
        ran = talk("plan", "-f", written(tmp_path, change), "--out", tmp_path / "kept.plan")
        if ran.code == frame.OK:
            continue
        assert ran.code == frame.CHANGES, ran
        expected = foretold(msgspec.json.decode((tmp_path / "kept.plan").read_bytes())["status"])
        ran = talk("apply", "--plan", tmp_path / "kept.plan")
        assert ran.code == frame.OK, ran

        def true() -> bool:
            return all((here.bound(name), here.waits(name)) == told for name, told in expected.items())  # noqa: B023

        here.run(here.until(true, lambda: (change, expected, {n: (here.bound(n), here.waits(n)) for n in NAMES})))  # noqa: B023
        here.run(here.until(lambda: quiet(here)))
    here.run(here.forget(*NAMES))


def quiet(here: Platform) -> bool:
    """Nothing is on its way: what is bound serves."""
    states = [state.value for region in ("east", "west") for name in NAMES for state in here.rigs[region].states(name).values()]
    return set(states) <= {"Serving"}


def test_a_plan_is_refused_when_its_base_has_moved_and_says_what_did(here: Platform, tmp_path: Path) -> None:
    plan = kept(tmp_path, "-f", written(tmp_path, workload("late", replicas=1)))
    assert talk("cordon", "west-n2").code == frame.OK
    ran = talk("apply", "--plan", plan)
    assert ran.code == frame.CONFLICT, ran
    assert "nodes west-n2 of west has changed" in ran.err
    assert here.get("workloads", "late") is None
    assert talk("uncordon", "west-n2").code == frame.OK
    assert talk("apply", "--plan", plan).code == frame.OK, "it is as it was"
    here.run(here.until(lambda: sum(here.bound("late").values()) == 1))

    plan = kept(tmp_path, "-f", written(tmp_path, workload("late", replicas=2)))
    assert talk("scale", "workload/late", "--replicas", "3").code == frame.OK
    ran = talk("apply", "--plan", plan)
    assert ran.code == frame.CONFLICT
    assert "workloads risk/late of global has changed" in ran.err
    here.run(here.forget("late"))


def test_a_drain_and_a_deletion_that_were_planned_are_carried_out(here: Platform, tmp_path: Path) -> None:
    assert talk("apply", "-f", written(tmp_path, workload("gone", replicas=2))).code == frame.OK
    here.run(here.until(lambda: quiet(here) and sum(here.bound("gone").values()) == 2))
    here.run(
        here.until(lambda: all(s.value == "Serving" for r in ("east", "west") for s in here.rigs[r].states("gone").values()))
    )
    assert talk("apply", "--plan", kept(tmp_path, "delete", "workload/gone")).code == frame.OK
    here.run(here.until(lambda: here.get("workloads", "gone") is None))
    assert talk("apply", "--plan", kept(tmp_path, "drain", "east-n1")).code == frame.OK
    here.run(here.until(lambda: here.get("nodes", "east-n1", "", "east").spec.drain is not None))
    assert talk("uncordon", "east-n1").code == frame.OK


def test_a_file_that_is_no_plan_is_told_so(here: Platform, tmp_path: Path) -> None:
    assert talk("apply", "--plan", tmp_path / "none").code == frame.NOT_FOUND
    other = written(tmp_path, workload("x"))
    assert talk("apply", "--plan", other).code == frame.ERROR
    assert talk("apply", "--plan", other, "-f", other).code == frame.ERROR
    whole = msgspec.json.decode(kept(tmp_path, "-f", written(tmp_path, workload("x"))).read_bytes())
    part = tmp_path / "part.plan"
    for cut in (
        {"kind": "SavedPlan"},
        {**whole, "changes": [{}]},
        {**whole, "changes": [{"apply": {"kind": "Workload"}}]},
        {**whole, "changes": [{"apply": {"kind": "Wrkload", "metadata": {"name": "x"}}}]},
        {**whole, "changes": ["x"]},
        {**whole, "base": {}},
        {**whole, "base": {**whole["base"], "objects": [{"kind": "Workload"}]}},
        {**whole, "force": "yes"},
    ):
        part.write_bytes(msgspec.json.encode(cut))
        ran = talk("apply", "--plan", part)
        assert (ran.code, ran.out) == (frame.ERROR, ""), ran
        assert ran.err.startswith(f"error: {part}: "), ran


def test_whoever_owns_the_fields_may_be_called_by_any_name(here: Platform, tmp_path: Path) -> None:
    plan = kept(tmp_path, "-f", written(tmp_path, workload("owned", replicas=1)), "--field-manager", "my tool & me")
    assert talk("apply", "--plan", plan).code == frame.OK
    ran = talk("apply", "-f", written(tmp_path, workload("owned", replicas=2)))
    assert (ran.code, "my tool & me" in ran.err) == (frame.CONFLICT, True), ran
    here.run(here.until(lambda: sum(here.bound("owned").values()) == 1))
    here.run(here.forget("owned"))


def test_what_moved_out_of_sight_is_still_said_to_have_moved() -> None:
    then = {
        "digests": {"east": {"nodes": "1", "bindings": "2"}},
        "marks": {"east": {"bindings": {"risk/a-0": "x"}}},
        "objects": [],
    }
    now = {
        "digests": {"east": {"nodes": "9", "bindings": "3"}},
        "marks": {"east": {"bindings": {"risk/a-0": "y"}}},
        "objects": [],
    }
    assert list(moves(then, then)) == []
    assert list(moves(then, now)) == ["bindings risk/a-0 of east has changed", "nodes of east (of which you may not see more)"]
    assert list(moves(then, {**now, "digests": {}})) == ["east could not be read now"]
    touched = {"kind": "Config", "namespace": "risk", "name": "c", "resourceVersion": "5"}
    changed = {**touched, "resourceVersion": "6"}
    assert list(moves({**then, "objects": [touched]}, {**then, "objects": [changed]})) == ["config c has changed"]
