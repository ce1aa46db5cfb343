"""`fairlead plan` ends alike for whatever is planned: 2 if something would change, 0 if nothing would, 8 where asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlead.cli import frame
from tests.cli.talks import talk
from tests.planning.manifests import critical, workload, written
from tests.planning.platform import Platform
from tests.planning.test_plans import _now, _short, applied, serves

QUOTA: dict[str, Any] = {
    "kind": "Quota", "metadata": {"name": "codes", "namespace": "billing"}, "spec": {"limits": {"cpu": "900", "memory": "900Gi"}},
}  # fmt: skip
BUDGET: dict[str, Any] = {
    "kind": "RecoveryBudget", "metadata": {"name": "codes", "namespace": "risk"},
    "spec": {"shapes": [{"requests": {"cpu": "1", "memory": "1Gi"}, "count": 1}], "workloadClass": "critical"},
}  # fmt: skip
OVERRIDE: dict[str, Any] = {
    "kind": "Override", "metadata": {"name": "codes", "namespace": "risk"},
    "spec": {"kind": "hold", "reason": "try", "ttlSeconds": 3600, "scope": {"tenants": ["risk"], "workloads": ["nothing"]}},
}  # fmt: skip
POOL: dict[str, Any] = {
    "kind": "NodePool", "metadata": {"name": "east-codes"},
    "spec": {"provider": "cloud", "node": {"cpu": "4", "memory": "8Gi"}, "minNodes": 0, "maxNodes": 0},
}  # fmt: skip


def code(*words: object) -> int:
    return talk("plan", *words).code


@pytest.mark.parametrize("tree", [QUOTA, BUDGET, OVERRIDE, POOL], ids=lambda tree: str(tree["kind"]))
def test_a_manifest_that_is_new_is_a_change_and_one_that_is_there_already_is_none(
    here: Platform, tmp_path: Path, tree: dict[str, Any]
) -> None:
    assert code("-f", written(tmp_path, tree)) == frame.CHANGES
    applied(here, tmp_path, tree)
    assert code("-f", written(tmp_path, tree)) == frame.OK
    kind, name = str(tree["kind"]).lower(), f"{tree['metadata']['name']}"
    where = ("-n", tree["metadata"]["namespace"]) if "namespace" in tree["metadata"] else ()
    assert code("delete", f"{kind}/{name}", *where) == frame.CHANGES
    assert talk("delete", f"{kind}/{name}", *where, "--yes").code == frame.OK


def test_a_node_that_is_cordoned_or_drained_is_a_change_and_one_that_is_open_is_not_opened_again(here: Platform) -> None:
    assert code("cordon", "east-n0") == frame.CHANGES
    assert code("drain", "east-n0") == frame.CHANGES
    assert code("uncordon", "east-n0") == frame.OK


def test_the_loss_of_a_region_is_a_change_and_fails_only_where_readiness_is_required(here: Platform, tmp_path: Path) -> None:
    applied(here, tmp_path, critical("coded", "none"))
    serves(here, "coded", 2)
    here.run(here.until(lambda: all(_short(here, region) == 1 for region in ("east", "west"))))
    lost = talk("plan", "--lose-region", "east")
    assert (lost.code, lost.out.partition(":")[0]) == (frame.CHANGES, "NOT READY")
    assert code("--lose-region", "east", "--require-ready") == frame.CHECK_FAILED
    # Another change, after which more would be lost than today: one service more that nothing stands in for.
    more = critical("coded2", "none")
    assert code("-f", written(tmp_path, more)) == frame.CHANGES
    assert code("-f", written(tmp_path, more), "--require-ready") == frame.CHECK_FAILED
    assert code("-f", written(tmp_path, workload("plain")), "--require-ready") == frame.CHANGES
    here.run(here.forget("coded"))


def test_the_loss_of_a_region_tells_of_a_gang_that_names_a_minimum_and_would_be_lost(here: Platform, tmp_path: Path) -> None:
    gang = workload("whole", gang=True, placement={"regions": {"allowed": ["east"]}}, recovery={"minServing": 2})
    applied(here, tmp_path, gang)
    serves(here, "whole", 2)

    def told() -> bool:
        found = here.get("regionoutlooks", "east", "")
        return found is not None and [each.workload for each in found.spec.services] == ["whole"]

    here.run(here.until(told))
    lost = talk("plan", "--lose-region", "east", "--require-ready")
    assert (lost.code, lost.out.partition(":")[0]) == (frame.CHECK_FAILED, "NOT READY")
    assert "a gang is not recovered" in lost.out
    here.run(here.forget("whole"))


def test_readiness_that_is_required_and_cannot_be_seen_is_not_taken_for_granted(here: Platform, tmp_path: Path) -> None:
    file = written(tmp_path, critical("coded3", "none"))
    assert code("-f", file, "--context", "eve") == frame.CHANGES
    told = talk("plan", "-f", file, "--context", "eve", "--require-ready")
    assert told.code == frame.CHECK_FAILED
    assert "is not yours to see" in told.err
    here.run(_now(here.door.cuttable["west"].cut))
    try:
        away = talk("plan", "-f", written(tmp_path, workload("plain")), "--require-ready")
    finally:
        here.run(_now(here.door.cuttable["west"].mend))
    assert away.code == frame.CHECK_FAILED
    assert "west cannot be read" in away.err
