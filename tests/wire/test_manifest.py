"""A manifest gives objects or faults: all of them, where they are, in words for whoever wrote it. Never an exception."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.decide.admission import faults as admission_faults
from fairlead.model import codec
from fairlead.model.commands import Fault
from fairlead.model.kinds.intent import Workload
from fairlead.model.registry import BY_KIND, KINDS
from fairlead.model.resources import Resources
from fairlead.wire.json_codec import encode_object, plain_object
from fairlead.wire.limits import child
from fairlead.wire.manifest import Decoded, Media, decode_object, decode_objects, decode_plain
from tests.model.examples import filled, valid
from tests.wire.manifests import HEAD, as_sent, decoded, plain, told

# The shape that people write.
MANIFEST = b"""
apiVersion: fairlead.dev/v1alpha1
kind: Workload
metadata: {name: risk-api, namespace: risk, labels: {tier: critical}, creationTimestamp: null}
spec:
  replicas: 6
  execution: Replicated                # or Exclusive
  startTargetSeconds: 10
  isolation: Shared
  workloadClass: critical
  priorityClassName: critical-service
  template:
    driver: process
    command: [/bin/api, --port, "8080"]
    env: [{name: MODE, value: "on"}]
    ports: [{name: http, port: 8080}]
    probes: {readiness: {httpGet: {path: /ready}}}
  resources: {requests: {cpu: "2", memory: 4Gi}}
  placement:
    regions: {allowed: [eu-central, eu-west], perRegionMinimum: 2}
    residency: {areas: [eu], enforcement: Required}
    spread: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, afterFailure: Repair}]
    preferences: [{weight: 20, locality: {regions: [eu-central]}}]
  recovery: {budgetName: eu-critical, minServing: 4, deadlineSeconds: 300}
  disruption: {minServing: 4, drainTimeoutSeconds: 600}
  rollout: {maxSurge: 1, maxUnavailable: 0, progressDeadlineSeconds: 300}
  freshness: {maxObservationAgeSeconds: 10}
"""


def test_the_manifest_of_the_conventions_is_read_and_admitted() -> None:
    got = decoded(decode_object(MANIFEST, media="yaml"))
    assert isinstance(got.record, Workload)
    assert got.record.spec.resources.requests == Resources(2000, 4 << 30)
    assert got.record.spec.template.env[0].value == "on"
    assert got.record.spec.placement.spread[0].after_failure == "Repair"
    assert got.warnings == ()
    assert admission_faults(got.info, got.record, None) == ()


@pytest.mark.parametrize("info", KINDS.values(), ids=lambda info: info.kind)
def test_every_kind_is_read_as_it_was_written_in_json_and_in_yaml(info: Any) -> None:
    for record in (as_sent(filled(info.record)), valid()[info.kind]):
        tree = plain_object(info, record, "42")
        for text, media in ((json.dumps(tree), "json"), (yaml.safe_dump(tree), "yaml")):
            got = decoded(decode_object(text.encode(), media=media))  # type: ignore[arg-type]
            assert got == Decoded(info=info, record=record, resource_version="42")


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        ({"replicas": "3"}, "spec.replicas", "expected a whole number, got a string"),
        ({"replicas": 2.5}, "spec.replicas", "expected a whole number, got a number with a fraction"),
        ({"replicas": True}, "spec.replicas", "expected a whole number, got true or false"),
        ({"replicas": [1]}, "spec.replicas", "expected a whole number, got a list"),
        ({"replicas": {}}, "spec.replicas", "expected a whole number, got an object"),
        ({"replicas": 2**63}, "spec.replicas", "is too large; a whole number may be -2^63 to 2^63 - 1"),
        ({"replica": 3}, "spec.replica", "unknown field; did you mean replicas?"),
        ({"xyz": 3}, "spec.xyz", "unknown field"),
        ({"class": "batch"}, "spec.class", "unknown field; did you mean workloadClass?"),
        ({"name": "a"}, "spec.name", "unknown field"),  # there are many, so none is meant
        ({"Template": {}}, "spec.Template", "unknown field; did you mean template?"),
        ({"template": {"resources": {}}}, "spec.template.resources", "unknown field; did you mean spec.resources?"),
        ({"requests": {"cpu": "1"}}, "spec.requests", "unknown field; did you mean spec.resources.requests?"),
        ({"k" * 65: 1}, f"spec.{'k' * 65}", "unknown field"),
        ({"suspend": "yes"}, "spec.suspend", "expected true or false, got a string"),
        ({"execution": "Once"}, "spec.execution", "expected one of Exclusive, Replicated, got 'Once'"),
        ({"execution": 1}, "spec.execution", "expected one of Exclusive, Replicated, got a whole number"),
        ({"startTargetSeconds": "10s"}, "spec.startTargetSeconds", "expected a number, got a string"),
        ({"template": []}, "spec.template", "expected an object, got a list"),
        ({"template": {"command": "run me"}}, "spec.template.command", "expected a list, got a string"),
        ({"template": {"command": ["a", 1]}}, "spec.template.command[1]",
         "expected a string, got a whole number; put it in quotes"),
        ({"template": {"env": [{"value": "x"}]}}, "spec.template.env[0].name", "is required: expected a string"),
        ({"template": {"env": [None]}}, "spec.template.env[0]", "expected an object, got null"),
        ({"job": {"deadlineTime": "soon"}}, "spec.job.deadlineTime", "expected a time such as 2026-01-31T12:00:00Z, got 'soon'"),
        ({"job": {"deadlineTime": "2026-01-31T12:00:00"}}, "spec.job.deadlineTime",
         "expected a time such as 2026-01-31T12:00:00Z, got '2026-01-31T12:00:00'"),
        ({"job": {"deadlineTime": "0001-01-01T00:00:00+10:00"}}, "spec.job.deadlineTime",
         "expected a time such as 2026-01-31T12:00:00Z, got '0001-01-01T00:00:00+10:00'"),
        ({"job": {"deadlineTime": 5}}, "spec.job.deadlineTime",
         "expected a time such as 2026-01-31T12:00:00Z, got a whole number"),
        ({"resources": {"requests": {"cpu": 0.5}}}, "spec.resources.requests.cpu",
         "write the amount as a string such as '500m', '2' or '4Gi'"),
        ({"resources": {"requests": {"memory": "4GB"}}}, "spec.resources.requests.memory",
         "'4GB' has the unknown suffix 'GB'; use one of m k M G T P E Ki Mi Gi Ti Pi Ei"),
        ({"resources": {"requests": {"example.com/npu": "-1"}}}, "spec.resources.requests[example.com/npu]",
         "'-1' is negative; an amount is 0 or more"),
        ({"resources": {"requests": "2"}}, "spec.resources.requests", "expected an object, got a string"),
        ({"placement": {"spread": [{}, {"maxSkew": "x"}]}}, "spec.placement.spread[1].maxSkew",
         "expected a whole number, got a string"),
        ({"placement": {"preferences": [{}]}}, "spec.placement.preferences[0].weight", "is required: expected a whole number"),
    ],
)  # fmt: skip
def test_typical_mistakes_are_told_where_they_are(change: dict[str, Any], path: str, message: str) -> None:
    assert told(decode_plain(plain(**change))) == {path: message}
    assert told(decode_object(json.dumps(plain(**change)).encode(), media="json")) == {path: message}


@pytest.mark.parametrize(
    ("tree", "path", "message"),
    [
        ([], "", "expected an object, got a list"),
        ("x", "", "expected an object, got a string"),
        (None, "", "expected an object, got null"),
        ({**HEAD}, "metadata", "is required: expected an object"),
        ({**HEAD, "metadata": {}}, "metadata.name", "is required: expected a string"),
        ({**HEAD, "metadata": {"name": None}}, "metadata.name", "is required: expected a string"),
        ({**HEAD, "metadata": {"name": "a", "labels": {"v": 1.0}}}, "metadata.labels.v",
         "expected a string, got a number with a fraction; put it in quotes"),
        ({**HEAD, "metadata": {"name": "a", "labels": {"a.b/c": None}}}, "metadata.labels[a.b/c]", "expected a string, got null"),
        ({**HEAD, "metadata": {"name": "a", "resourceVersion": 7}}, "metadata.resourceVersion",
         "expected a string, got a whole number"),
        ({**HEAD, "metadata": {"name": "a"}, "Spec": {}}, "Spec", "unknown field; did you mean spec?"),
        ({**HEAD, "kind": "Wrkload"}, "kind", f"expected one of {', '.join(sorted(BY_KIND))}, got 'Wrkload'"),
        ({**HEAD, "kind": ["Workload"]}, "kind", f"expected one of {', '.join(sorted(BY_KIND))}, got a list"),
        ({"apiVersion": HEAD["apiVersion"]}, "kind", f"is required: one of {', '.join(sorted(BY_KIND))}"),
        ({"kind": "Workload", "metadata": {"name": "a"}}, "apiVersion", "is required: fairlead.dev/v1alpha1"),
        ({**HEAD, "apiVersion": "apps/v1", "metadata": {"name": "a"}}, "apiVersion",
         "expected fairlead.dev/v1alpha1, got 'apps/v1'"),
        (dict([*HEAD.items(), (5, 6)]), "", "has the key 5, which is not a string; put it in quotes"),
        ({**HEAD, "metadata": {"name": "a\ud800"}}, "metadata.name", "holds half a surrogate pair, which is not text"),
        ({**HEAD, "metadata": {"name": "a"}, "spec": {"replicas": float("nan")}}, "spec.replicas",
         "must be a number; NaN and Infinity are none"),
        ({**HEAD, "metadata": {"name": b"a"}}, "metadata.name", "is of the type bytes, which no manifest can hold"),
    ],
)  # fmt: skip
def test_objects_of_the_wrong_shape_are_told(tree: object, path: str, message: str) -> None:
    assert told(decode_plain(tree))[path] == message


def test_all_faults_are_told_at_once() -> None:
    tree = {
        **HEAD,
        "metadata": {"labels": []},
        "spec": {
            "replicas": "three",
            "colour": "red",
            "template": {"env": [{}, {"name": 1}], "ports": [{"port": "http"}]},
            "resources": {"requests": {"cpu": "much", "memory": "4Gb"}},
        },
    }
    assert set(told(decode_plain(tree))) == {
        "metadata.labels",
        "metadata.name",
        "spec.replicas",
        "spec.colour",
        "spec.template.env[0].name",
        "spec.template.env[1].name",
        "spec.template.ports[0].port",
        "spec.resources.requests.cpu",
        "spec.resources.requests.memory",
    }


def test_unknown_fields_are_faults_warnings_or_nothing_as_the_caller_says() -> None:
    tree = plain(replica=3, template={"comand": []})
    expected = {
        "spec.replica": "unknown field; did you mean replicas?",
        "spec.template.comand": "unknown field; did you mean command?",
    }
    assert told(decode_plain(tree, field_validation="strict")) == expected
    assert told(decoded(decode_plain(tree, field_validation="warn")).warnings) == expected
    assert decoded(decode_plain(tree, field_validation="ignore")).warnings == ()


def test_wrong_types_are_faults_however_unknown_fields_are_treated() -> None:
    for mode in ("strict", "warn", "ignore"):
        assert told(decode_plain(plain(replicas="x"), field_validation=mode)) == {
            "spec.replicas": "expected a whole number, got a string"
        }


def test_what_the_server_adds_is_taken_back_without_a_word() -> None:
    tree = plain()
    tree["metadata"] |= {"resourceVersion": "17", "managedFields": [{"manager": "x"}], "selfLink": "", "creationTimestamp": None}
    tree["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Tenant", "name": "risk", "uid": "u"}]
    got = decoded(decode_plain(tree))
    assert got.resource_version == "17"
    assert got.record.metadata.owner_references[0].name == "risk"  # type: ignore[attr-defined]


def test_null_means_not_said() -> None:
    assert decoded(decode_plain(plain(replicas=None, template=None))).record == decoded(decode_plain(plain())).record


def test_one_instant_is_one_time_however_its_zone_is_written() -> None:
    here = decoded(decode_plain(plain(job={"deadlineTime": "2026-01-31T12:00:00Z"})))
    there = decoded(decode_plain(plain(job={"deadlineTime": "2026-01-31T14:00:00+02:00"})))
    assert here == there


def test_decoding_does_not_change_what_it_is_given() -> None:
    tree = plain(replicas=None, xyz=1, template={"command": ["a"]})
    before = copy.deepcopy(tree)
    decode_plain(tree, field_validation="ignore")
    assert tree == before


# --- anything at all --------------------------------------------------------------------------------------------------------

leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(["500m", "4Gi", "zone", "True"])
)
FIELD_NAMES = sorted({name for info in KINDS.values() for part in (info.spec_fields, info.status_fields) for name in part})
keys = st.one_of(st.sampled_from([*FIELD_NAMES, "metadata", "spec", "status", "name", "labels", "cpu"]), st.text(max_size=5))
trees = st.recursive(
    leaves, lambda below: st.one_of(st.lists(below, max_size=4), st.dictionaries(keys, below, max_size=4)), max_leaves=20
)
objects = st.fixed_dictionaries(
    {"apiVersion": st.just("fairlead.dev/v1alpha1"), "kind": st.sampled_from(sorted(BY_KIND))},
    optional={
        "metadata": st.one_of(trees, st.fixed_dictionaries({"name": leaves}, optional={"labels": trees, "finalizers": trees})),
        "spec": trees,
        "status": trees,
    },
)
quiet = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def is_answer(got: object) -> bool:
    if isinstance(got, Decoded):
        return True
    if isinstance(got, list):
        return all(isinstance(item, Decoded) for item in got)
    return isinstance(got, tuple) and bool(got) and all(isinstance(fault, Fault) and fault.message for fault in got)


@quiet
@given(st.binary(max_size=200), st.sampled_from(["json", "yaml"]))
def test_any_bytes_give_objects_or_faults(text: bytes, media: Media) -> None:
    assert is_answer(decode_object(text, media=media))
    assert is_answer(decode_objects(text, media=media))


@quiet
@given(st.text(alphabet="{}[]:,-?&*!|>'\"%@`#~ \n\ta1.e\\u", max_size=60), st.sampled_from(["json", "yaml"]))
def test_any_text_that_looks_like_syntax_gives_objects_or_faults(text: str, media: Media) -> None:
    assert is_answer(decode_objects(text.encode(), media=media))


@quiet
@given(st.one_of(trees, objects), st.sampled_from(["strict", "warn", "ignore"]))
def test_any_tree_gives_an_object_or_faults_and_what_is_read_can_be_judged_stored_and_sent(tree: object, mode: Any) -> None:
    got = decode_plain(tree, field_validation=mode)
    assert is_answer(got)
    if isinstance(got, Decoded):
        assert isinstance(admission_faults(got.info, got.record, None), tuple)
        assert codec.decoder(got.info.record).decode(codec.encode(got.record)) == got.record
        assert decode_object(encode_object(got.info, got.record), media="json") == Decoded(info=got.info, record=got.record)


@quiet
@given(st.one_of(trees, objects))
def test_a_tree_means_the_same_as_its_text(tree: object) -> None:
    text = json.dumps(tree).encode()
    from_tree, from_text = decode_plain(tree), decode_object(text, media="json")
    assert isinstance(from_tree, Decoded) == isinstance(from_text, Decoded)
    if isinstance(from_tree, Decoded):
        assert from_tree == from_text


@quiet
@given(st.data())
def test_breaking_any_one_field_of_an_object_is_told_at_that_field(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(BY_KIND)))
    tree = plain_object(BY_KIND[kind], valid()[kind])
    spots: list[tuple[str, Any, Any]] = []

    def visit(path: str, node: Any) -> None:
        members = node.items() if isinstance(node, dict) else enumerate(node)
        for key, item in members:
            here = child(path, key)
            spots.append((here, node, key))
            if isinstance(item, dict | list):
                visit(here, item)

    visit("", tree)
    path, parent, member = data.draw(st.sampled_from(spots))
    parent[member] = object()
    assert path in {fault.path for fault in decode_plain(tree)}  # type: ignore[union-attr]


def test_a_cycle_is_only_too_deep() -> None:
    tree: dict[str, Any] = plain()
    tree["spec"]["self"] = tree
    (message,) = told(decode_plain(tree)).values()
    assert "is nested too deeply" in message or "too many values" in message
