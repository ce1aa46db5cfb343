"""The sample manifests: they decode, are admitted, agree with each other, and there is room for all of them."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from fairlead.decide.admission import execution_of, faults, slots_of
from fairlead.decide.admission.workload import remarks
from fairlead.decide.built_in_policy import BUILT_IN
from fairlead.model.resources import NOTHING, Resources
from fairlead.samples.manifests import manifests
from fairlead.wire.manifest import Decoded, decode_objects

FILES = manifests()


def decoded(text: bytes) -> list[Decoded]:
    got = decode_objects(text, media="yaml")
    assert isinstance(got, list), got
    return got


def every(kind: str) -> list[Any]:
    return [one.record for text in FILES.values() for one in decoded(text) if one.info.kind == kind]


WORKLOADS = {workload.metadata.name: workload for workload in every("Workload")}


def total(amounts: Iterable[Resources]) -> Resources:
    out = NOTHING
    for one in amounts:
        out = out + one
    return out


@pytest.mark.parametrize("name", FILES)
def test_every_manifest_decodes_and_is_admitted(name: str) -> None:
    for one in decoded(FILES[name]):
        assert one.warnings == ()
        assert faults(one.info, one.record, None) == ()


def test_every_workload_means_what_it_says_and_whoever_names_a_minimum_is_recovered() -> None:
    assert [(name, list(remarks(each.spec, {}))) for name, each in WORKLOADS.items() if list(remarks(each.spec, {}))] == []
    assert [name for name, each in WORKLOADS.items() if each.spec.recovery.min_serving] == ["risk-api"]


def test_the_five_workloads_of_five_tenants_are_there() -> None:
    assert {w.metadata.namespace: w.metadata.name for w in WORKLOADS.values()} == {
        "risk": "risk-api", "billing": "billing-api", "search": "search-index", "fraud": "fraud-batch", "analytics": "analytics",
    }  # fmt: skip
    assert {t.metadata.name for t in every("Tenant")} == {w.metadata.namespace for w in WORKLOADS.values()}


def test_no_object_stands_there_twice_and_what_others_need_comes_first() -> None:
    keys = [(o.info.kind, o.record.metadata.namespace, o.record.metadata.name) for t in FILES.values() for o in decoded(t)]  # type: ignore[attr-defined]
    assert [key for key, count in Counter(keys).items() if count > 1] == []
    kinds = list(dict.fromkeys(kind for kind, _, _ in keys))
    assert kinds == [
        "Region", "Tenant", "Quota", "RecoveryBudget", "SchedulerPolicy", "PolicyChannel", "NodePool", "Node", "Workload",
    ]  # fmt: skip


def test_every_command_runs_a_sample_with_the_interpreter_that_is_given() -> None:
    for text in manifests("/opt/a b/python").values():
        for one in decoded(text):
            if one.info.kind != "Workload":
                continue
            workload: Any = one.record
            python, flag, module = workload.spec.template.command
            assert (python, flag) == ("/opt/a b/python", "-m")
            assert str(importlib.import_module(module).__doc__).startswith(workload.metadata.name)
    with pytest.raises(AssertionError):
        manifests('py"thon')


def protected(tenant: str) -> dict[str, Any]:
    return next(quota.spec.protected for quota in every("Quota") if quota.metadata.namespace == tenant)


def test_no_more_is_protected_than_the_quota_has_and_every_region_of_a_workload_has_a_part() -> None:
    for quota in every("Quota"):
        assert total(quota.spec.protected.values()) == quota.spec.limits
    for workload in WORKLOADS.values():
        assert set(workload.spec.placement.regions.allowed) <= set(protected(workload.metadata.namespace))


def test_a_regions_part_has_room_for_its_workload_and_a_surge() -> None:
    for workload in WORKLOADS.values():
        spec = workload.spec
        regions = spec.placement.regions.allowed or ("eu-central",)
        share = -(-slots_of(spec) // len(regions)) + spec.rollout.max_surge
        for part in protected(workload.metadata.namespace).values():
            assert spec.resources.requests.times(share).exceeding(part) == []


def test_risk_api_could_run_with_four_replicas_in_any_one_region() -> None:
    risk = WORKLOADS["risk-api"].spec
    assert risk.recovery.min_serving == 4
    assert set(risk.placement.regions.allowed) == {region.metadata.name for region in every("Region")}
    for part in protected("risk").values():
        assert risk.resources.requests.times(6).exceeding(part) == []


def test_nodes_lie_in_zones_and_pools_that_exist_and_have_different_shapes() -> None:
    regions = {region.metadata.name: region.spec for region in every("Region")}
    pools = {pool.metadata.name: pool for pool in every("NodePool")}
    for node in every("Node"):
        assert node.spec.zone in regions[node.spec.region].zones
        pool = pools[node.spec.pool]
        assert pool.metadata.labels["region"] == node.spec.region
        assert node.metadata.name.startswith(node.spec.region)
    for name, spec in regions.items():
        assert {node.spec.zone for node in every("Node") if node.spec.region == name} == set(spec.zones)
    assert len({node.spec.allocatable for node in every("Node")}) >= 3
    assert Counter(d.model for node in every("Node") for d in node.spec.devices) == {"a100": 2, "l4": 4}
    assert Counter(node.spec.pool for node in every("Node")).keys() == pools.keys()


def test_everything_fits_the_nodes_it_may_use() -> None:
    """By sums over the nodes that suit it; the scheduler does better, this notices a manifest nobody could place."""
    pools = {pool.metadata.name: pool.spec for pool in every("NodePool")}
    for workload in WORKLOADS.values():
        spec, tenant = workload.spec, workload.metadata.namespace
        shapes = {value for expression in spec.placement.node_labels for value in expression.values}
        for region in spec.placement.regions.allowed or ("eu-central",):
            room = 0
            for node in every("Node"):
                pool = pools[node.spec.pool]
                if (
                    node.spec.region != region
                    or (shapes and node.metadata.labels["shape"] not in shapes)
                    or (pool.allowed_tenants and tenant not in pool.allowed_tenants)
                    or (pool.allowed_classes and spec.workload_class not in pool.allowed_classes)
                    or (node.spec.taints and not spec.placement.tolerations)
                ):
                    continue
                by_cpu = node.spec.allocatable.cpu // spec.resources.requests.cpu
                by_memory = node.spec.allocatable.memory // spec.resources.requests.memory
                room += min(by_cpu, by_memory, len(node.spec.devices) if spec.resources.devices else by_cpu)
            assert room >= -(-slots_of(spec) // 3), (workload.metadata.name, region)


def test_the_job_may_run_in_europe_only_by_its_own_word_and_by_policy() -> None:
    job = WORKLOADS["fraud-batch"]
    assert job.spec.job is not None
    assert execution_of(job.spec) == "Exclusive"
    assert (job.spec.placement.residency.areas, job.spec.placement.residency.enforcement) == (("eu",), "Required")
    assert [r.metadata.name for r in every("Region") if "eu" in r.spec.areas] == ["eu-central"]
    (policy,) = every("SchedulerPolicy")
    (rule,) = policy.spec.residency
    assert job.metadata.labels[rule.labels[0].key] in rule.labels[0].values
    assert rule.areas == ("eu",)
    (channel,) = every("PolicyChannel")
    assert channel.spec.current == policy.spec.revision


def test_every_class_that_is_named_is_known() -> None:
    assert {w.spec.workload_class for w in WORKLOADS.values()} == {known.name for known in BUILT_IN.workload_classes}


def test_services_have_a_port_to_probe_and_time_to_leave() -> None:
    for name in ("risk-api", "billing-api"):
        template = WORKLOADS[name].spec.template
        assert [port.name for port in template.ports] == ["http"]
        assert template.probes.readiness.http_get.path == "/ready"
        assert template.probes.liveness.http_get.path == "/health"
        linger_s = next(float(v.value) for v in template.env if v.name == "LINGER_S")
        assert 1.0 < linger_s < template.stop_grace_seconds
