"""Admission of Workloads: every field that can be wrong, and the ones that contradict each other."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.decide.admission import faults
from fairlead.model.kinds.intent import (
    AffinityRule,
    DisruptionRule,
    EnvVar,
    Exec,
    Freshness,
    HttpGet,
    JobRule,
    LabelExpression,
    Locality,
    Placement,
    Port,
    Preference,
    Probe,
    Probes,
    RecoveryRule,
    RegionRule,
    Residency,
    ResourceSpec,
    RolloutRule,
    SpreadRule,
    TcpSocket,
    Template,
    Toleration,
    Workload,
)
from fairlead.model.registry import BY_KIND
from fairlead.model.resources import NOTHING, DeviceAsk, Resources
from tests.model.examples import SMALL, workload


def told(new: Workload, old: Workload | None = None) -> dict[str, str]:
    return {fault.path: fault.message for fault in faults(BY_KIND["Workload"], new, old)}


def template(**parts: Any) -> dict[str, Any]:
    return {"template": replace(workload().spec.template, **parts)}


def probe(**parts: Any) -> dict[str, Any]:
    ports = (Port(name="http", port=8080),)
    return template(ports=ports, probes=Probes(readiness=Probe(**parts)))


def asks(*devices: DeviceAsk, requests: Resources = SMALL) -> dict[str, Any]:
    return {"resources": ResourceSpec(requests=requests, devices=devices)}


def placed(**parts: Any) -> dict[str, Any]:
    return {"placement": Placement(**parts)}


def expression(**parts: Any) -> dict[str, Any]:
    return placed(node_labels=(LabelExpression(**parts),))


_GOOD = LabelExpression(key="app", values=("x",))
_PROBE = "spec.template.probes.readiness"

CASES: list[tuple[str, dict[str, Any], str, str]] = [
    # counts
    ("negative replicas", {"replicas": -1}, "spec.replicas", "must be 0 to 10000, got -1"),
    ("too many replicas", {"replicas": 10_001}, "spec.replicas", "must be 0 to 10000, got 10001"),
    ("disruption above replicas", {"disruption": DisruptionRule(min_serving=4)}, "spec.disruption.minServing",
     "may be at most replicas, which is 3, got 4"),
    ("recovery above replicas", {"recovery": RecoveryRule(min_serving=4)}, "spec.recovery.minServing",
     "may be at most replicas, which is 3, got 4"),
    ("recovery without time", {"recovery": RecoveryRule(deadline_seconds=0)}, "spec.recovery.deadlineSeconds", "must be 1 to"),
    ("a bad budget name", {"recovery": RecoveryRule(budget_name="No")}, "spec.recovery.budgetName", "got 'No'"),
    ("a rollout that cannot move", {"rollout": RolloutRule(max_surge=0)}, "spec.rollout", "may not both be 0"),
    ("a negative surge", {"rollout": RolloutRule(max_surge=-1)}, "spec.rollout.maxSurge", "must be 0 to 5000, got -1"),
    ("a bad class", {"workload_class": ""}, "spec.workloadClass", "must be 1 to 63"),
    ("a target that is no number", {"start_target_seconds": float("nan")}, "spec.startTargetSeconds", "got nan"),
    ("a negative age", {"freshness": Freshness(max_observation_age_seconds=-1)},
     "spec.freshness.maxObservationAgeSeconds", "must be 0 to"),
    ("global but replicated", {"exclusive": "global"}, "spec.exclusive", "global needs execution: Exclusive"),
    # jobs
    ("no completions", {"replicas": 1, "job": JobRule(completions=0, parallelism=0)}, "spec.job.completions", "must be 1 to"),
    ("no parallelism", {"replicas": 1, "job": JobRule(parallelism=0)}, "spec.job.parallelism", "must be 1 to 10000, got 0"),
    ("more at once than in all", {"replicas": 1, "job": JobRule(completions=2, parallelism=3)}, "spec.job.parallelism",
     "may be at most completions, which is 2, got 3"),
    ("a job with replicas", {"job": JobRule()}, "spec.replicas", "must be left out for a job"),
    ("a job without an end", {"replicas": 1, "job": JobRule(), **template(restart_policy="Always")},
     "spec.template.restartPolicy", "must be OnFailure or Never for a job"),
    ("negative retries", {"replicas": 1, "job": JobRule(retries=-1)}, "spec.job.retries", "must be 0 to"),
    # resources
    ("asks for nothing", asks(requests=NOTHING), "spec.resources.requests", "must ask for cpu or memory"),
    ("only a scalar", asks(requests=Resources(scalars=[("gpu", 1)])), "spec.resources.requests", "must ask for cpu or memory"),
    ("negative", asks(requests=Resources(cpu=-1, memory=1)), "spec.resources.requests.cpu", "must be 0 or more, is negative"),
    ("too much in all", {"replicas": 10_000, **asks(requests=Resources(memory=1 << 53))}, "spec.resources.requests.memory",
     "times 10000 slots is too large; the sum must stay below 2^62"),
    ("a device twice", asks(DeviceAsk(), DeviceAsk(models=("a100",))), "spec.resources.devices[1].resource",
     "repeats spec.resources.devices[0]"),
    ("no share", asks(DeviceAsk(share_thousandths=0)), "spec.resources.devices[0].shareThousandths", "must be 1 to 1000, got 0"),
    ("more than a whole", asks(DeviceAsk(share_thousandths=1001)), "spec.resources.devices[0].shareThousandths", "got 1001"),
    ("two shares", asks(DeviceAsk(share_thousandths=500, count=2)), "spec.resources.devices[0].count",
     "must be 1 where a device is shared, got 2"),
    ("no device", asks(DeviceAsk(count=0)), "spec.resources.devices[0].count", "must be 1 to 1024, got 0"),
    ("a nameless model", asks(DeviceAsk(models=("",))), "spec.resources.devices[0].models[0]", "is empty; name a model"),
    # the template
    ("no command", template(command=()), "spec.template.command", "is required for driver process"),
    ("an empty program", template(command=("",)), "spec.template.command", "is required for driver process"),
    ("NUL in the command", template(command=("a", "b\0")), "spec.template.command[1]", "may not hold a NUL"),
    ("a bad driver", template(driver="no driver"), "spec.template.driver", "got 'no driver'"),
    ("a bad variable", template(env=(EnvVar(name="1A"),)), "spec.template.env[0].name", "not starting with a digit, got '1A'"),
    ("a variable twice", template(env=(EnvVar(name="A"), EnvVar(name="A"))), "spec.template.env[1].name", "repeats"),
    ("NUL in a variable", template(env=(EnvVar(name="A", value="\0"),)), "spec.template.env[0].value", "may not hold a NUL"),
    ("a port too high", template(ports=(Port(port=65_536),)), "spec.template.ports[0].port", "must be 0 to 65535, got 65536"),
    ("a port twice", template(ports=(Port(name="a", port=80), Port(name="b", port=80))), "spec.template.ports[1].port",
     "repeats spec.template.ports[0]"),
    ("a port name twice", template(ports=(Port(name="a"), Port(name="a"))), "spec.template.ports[1].name", "repeats"),
    ("a bad port name", template(ports=(Port(name="http_port"),)), "spec.template.ports[0].name", "must be 1 to 15 of a-z"),
    ("a nameless second port", template(ports=(Port(name="a"), Port())), "spec.template.ports[1].name",
     "is required where there is more than one port"),
    ("negative restarts", template(max_restarts=-1), "spec.template.maxRestarts", "must be 0 to"),
    ("negative grace", template(stop_grace_seconds=-1.0), "spec.template.stopGraceSeconds", "must be 0 to"),
    # probes
    ("no action", probe(), _PROBE, "needs exactly one of httpGet, tcpSocket and exec, has none"),
    ("two actions", probe(http_get=HttpGet(), tcp_socket=TcpSocket()), _PROBE, "tcpSocket and exec, has 2"),
    ("a relative path", probe(http_get=HttpGet(path="x")), f"{_PROBE}.httpGet.path", "must start with '/', got 'x'"),
    ("a foreign port", probe(tcp_socket=TcpSocket(port="22")), f"{_PROBE}.tcpSocket.port",
     "must be the name or number of a port of the template (8080, http), got '22'"),
    ("nothing to run", probe(exec=Exec()), f"{_PROBE}.exec.command", "is required"),
    ("no period", probe(http_get=HttpGet(), period_seconds=0), f"{_PROBE}.periodSeconds", "must be 0.1 to"),
    ("no threshold", probe(http_get=HttpGet(), failure_threshold=0), f"{_PROBE}.failureThreshold", "must be 1 to"),
    ("no port to probe", template(probes=Probes(liveness=Probe(http_get=HttpGet()))),
     "spec.template.probes.liveness.httpGet.port", "has nothing to probe: the template has no ports"),
    # placement
    ("a region twice", placed(regions=RegionRule(allowed=("eu", "eu"))), "spec.placement.regions.allowed[1]", "repeats"),
    ("a minimum nowhere", placed(regions=RegionRule(per_region_minimum=1)), "spec.placement.regions.perRegionMinimum",
     "needs regions.allowed"),
    ("a minimum too high", placed(regions=RegionRule(allowed=("eu", "us"), per_region_minimum=2)),
     "spec.placement.regions.perRegionMinimum", "times 2 regions is 4, more than the 3 slots there are"),
    ("a negative minimum", placed(regions=RegionRule(allowed=("eu",), per_region_minimum=-1)),
     "spec.placement.regions.perRegionMinimum", "must be 0 or more, got -1"),
    ("a bad area", placed(residency=Residency(areas=("E U",))), "spec.placement.residency.areas[0]", "got 'E U'"),
    ("no skew", placed(spread=(SpreadRule(max_skew=0),)), "spec.placement.spread[0].maxSkew", "must be 1 to 10000, got 0"),
    ("an unknown topology", placed(spread=(SpreadRule(topology_key="rack"),)), "spec.placement.spread[0].topologyKey",
     "must be one of hostname, zone, region, got 'rack'"),
    ("a topology twice", placed(spread=(SpreadRule(), SpreadRule())), "spec.placement.spread[1].topologyKey", "repeats"),
    ("affinity to nothing", placed(affinity=(AffinityRule(),)), "spec.placement.affinity[0].match", "needs at least one"),
    ("a weight on a must", placed(anti_affinity=(AffinityRule(match=(_GOOD,), weight=3),)),
     "spec.placement.antiAffinity[0].weight", "must be left out where required is true"),
    ("a wish without weight", placed(affinity=(AffinityRule(match=(_GOOD,), required=False),)),
     "spec.placement.affinity[0].weight", "must be 1 to 100, got 0"),
    ("a weight too high", placed(preferences=(Preference(weight=101, labels=(_GOOD,)),)),
     "spec.placement.preferences[0].weight", "must be 1 to 100, got 101"),
    ("a preference for nothing", placed(preferences=(Preference(weight=1),)), "spec.placement.preferences[0]",
     "needs locality or labels"),
    ("a locality nowhere", placed(preferences=(Preference(weight=1, locality=Locality()),)),
     "spec.placement.preferences[0].locality", "needs regions or zones"),
    ("In without values", expression(key="a"), "spec.placement.nodeLabels[0].values", "needs at least one value for operator In"),
    ("Exists with values", expression(key="a", operator="Exists", values=("x",)), "spec.placement.nodeLabels[0].values",
     "must be left out for operator Exists"),
    ("Gt a word", expression(key="a", operator="Gt", values=("x",)), "spec.placement.nodeLabels[0].values",
     "needs exactly one whole number for operator Gt"),
    ("a bad key", expression(key="a b", operator="Exists"), "spec.placement.nodeLabels[0].key", "the name in 'a b'"),
    ("tolerates no key", placed(tolerations=(Toleration(value="x"),)), "spec.placement.tolerations[0].operator",
     "must be Exists where the key is empty"),
    ("Exists a value", placed(tolerations=(Toleration(key="a", operator="Exists", value="x"),)),
     "spec.placement.tolerations[0].value", "must be left out for operator Exists"),
    ("too many per node", placed(max_per_node=-1), "spec.placement.maxPerNode", "must be 0 to"),
    ("too many rules", placed(tolerations=(Toleration(key="a"),) * 65), "spec.placement.tolerations",
     "may have 64 entries, has 65"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "spec", "path", "says"), CASES, ids=[case[0] for case in CASES])
def test_what_is_wrong_with_a_workload_is_told(name: str, spec: dict[str, Any], path: str, says: str) -> None:
    found = told(workload(**spec))
    assert says in found.get(path, ""), found


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("none at all", {"replicas": 0}),
        ("the most replicas", {"replicas": 10_000}),
        ("a driver of another sort without a command", template(driver="sim", command=())),
        ("a job", {"replicas": 1, "job": JobRule(completions=10, parallelism=3)}),
        ("a job that is run once", {"replicas": 1, "job": JobRule(), **template(restart_policy="Never")}),
        ("a global job", {"replicas": 1, "job": JobRule(), "exclusive": "global"}),
        ("a service that runs once, without a surge", {"execution": "Exclusive", "rollout": RolloutRule(max_surge=0)}),
        ("a global service that says so", {"exclusive": "global", "execution": "Exclusive"}),
        ("a job whose serving counts by parallelism",
         {"replicas": 1, "job": JobRule(completions=9, parallelism=5), "disruption": DisruptionRule(min_serving=5)}),
        ("a share of a device", asks(DeviceAsk(share_thousandths=1))),
        ("whole devices of two sorts", asks(DeviceAsk(count=8), DeviceAsk(resource="example.com/npu", models=("x",)))),
        ("ports to pick", template(ports=(Port(name="a"), Port(name="b")))),
        ("one number in two protocols", template(ports=(Port(name="a", port=53), Port(name="b", port=53, protocol="UDP")))),
        ("a probe by number", probe(tcp_socket=TcpSocket(port="8080"))),
        ("a probe by name", probe(http_get=HttpGet(path="/ready", port="http"))),
        ("a probe of the first port", probe(http_get=HttpGet())),
        ("a probe by command", probe(exec=Exec(command=("true",)))),
        ("every taint tolerated", placed(tolerations=(Toleration(operator="Exists"),))),
        ("a number to compare with", expression(key="a", operator="Lt", values=("-5",))),
        ("spread over all keys", placed(spread=tuple(SpreadRule(topology_key=k) for k in ("zone", "hostname", "region")))),
        ("a minimum that fits", placed(regions=RegionRule(allowed=("eu", "us"), per_region_minimum=1))),
    ],
)  # fmt: skip
def test_what_is_right_is_admitted(name: str, spec: dict[str, Any]) -> None:
    assert told(workload(**spec)) == {}


def test_all_faults_are_told_at_once() -> None:
    bad = workload(
        replicas=-1,
        template=Template(ports=(Port(port=-1),)),
        resources=ResourceSpec(),
        placement=Placement(spread=(SpreadRule(max_skew=0, topology_key="rack"),)),
    )
    assert set(told(bad)) == {
        "spec.replicas",
        "spec.template.command",
        "spec.template.ports[0].port",
        "spec.resources.requests",
        "spec.placement.spread[0].maxSkew",
        "spec.placement.spread[0].topologyKey",
    }


@pytest.mark.parametrize(
    ("before", "after", "path", "says"),
    [
        ({}, {"execution": "Exclusive"}, "spec.execution", "may not change; it is 'Replicated'"),
        ({"execution": "Exclusive"}, {}, "spec.execution", "may not change; it is 'Exclusive'"),
        ({"execution": "Exclusive"}, {"execution": "Exclusive", "exclusive": "global"}, "spec.exclusive", "it is 'region'"),
        ({"replicas": 1, "execution": "Exclusive"}, {"replicas": 1, "job": JobRule()}, "spec.job", "this workload is a service"),
        ({"replicas": 1, "job": JobRule()}, {"replicas": 1, "execution": "Exclusive"}, "spec.job", "this workload is a job"),
    ],
)
def test_what_a_workload_is_may_not_change(before: dict[str, Any], after: dict[str, Any], path: str, says: str) -> None:
    found = told(workload(**after), workload(**before))
    assert set(found) == {path}
    assert says in found[path]


def test_naming_the_execution_that_was_meant_all_along_is_no_change() -> None:
    assert told(workload(execution="Replicated"), workload()) == {}
    assert told(workload(replicas=5), workload()) == {}
