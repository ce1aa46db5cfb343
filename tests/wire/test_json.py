"""Records as JSON: Kubernetes' names, quantities as text, times as RFC 3339, and back without loss."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.commands import Accepted, Fault, Refused
from fairlead.model.kinds.slot import Token
from fairlead.model.meta import Record
from fairlead.model.registry import BY_KIND, KINDS
from fairlead.model.resources import Resources
from fairlead.wire.json_codec import decode, encode, encode_object, parse_json, plain_object, to_plain
from fairlead.wire.limits import DEPTH_MAX, child
from fairlead.wire.yaml_codec import encode_yaml, parse_yaml
from tests.model.examples import filled, valid, workload
from tests.wire.manifests import as_sent

ALL = pytest.mark.parametrize("info", KINDS.values(), ids=lambda info: info.kind)


@ALL
def test_every_kind_comes_back_as_it_went(info: Any) -> None:
    for record in (as_sent(filled(info.record)), valid()[info.kind]):
        assert decode(encode(record), info.record) == record


@ALL
def test_an_object_says_what_it_is_and_which_version_was_read(info: Any) -> None:
    record = filled(info.record)
    tree = json.loads(encode_object(info, record, "1234"))
    assert tree["apiVersion"] == "fairlead.dev/v1alpha1"
    assert tree["kind"] == info.kind
    assert tree["metadata"]["resourceVersion"] == "1234"
    assert tree == plain_object(info, record, "1234")
    assert "resourceVersion" not in json.loads(encode_object(info, record))["metadata"]


@ALL
def test_names_are_camel_case_all_the_way_down(info: Any) -> None:
    def names(tree: Any) -> set[str]:
        if isinstance(tree, dict):
            return set(tree).union(*map(names, tree.values()))
        return set().union(*map(names, tree)) if isinstance(tree, list) else set()

    assert not {name for name in names(to_plain(filled(info.record))) if "_" in name}


def test_quantities_are_text_and_times_are_rfc_3339() -> None:
    tree = to_plain(filled(BY_KIND["Grant"].record, seed=1))
    assert tree["spec"]["during"] == {"cpu": "1504m", "memory": "4294967300", "gpu": "5"}
    assert tree["spec"]["leaseEndTime"].endswith("Z")
    assert json.loads(encode(workload()))["spec"]["resources"] == {"requests": {"cpu": "500m", "memory": "1Gi"}}


def test_a_token_is_a_list_and_a_wrong_one_is_told() -> None:
    assert encode(Token(1, 2, 3)) == b"[1,2,3]"
    assert decode(b"[1,2,3]", Token) == Token(1, 2, 3)
    assert decode(b"[1,2]", Token) == (Fault("", "expected a list of incarnation, epoch, attempt, got 2 values"),)
    assert decode(b'[1,2,"x"]', Token) == (Fault("[2]", "expected a whole number, got a string"),)
    assert decode(b"{}", Token) == (Fault("", "expected a list of incarnation, epoch, attempt, got an object"),)


def test_fields_of_a_newer_peer_are_skipped() -> None:
    assert decode(b'{"path":"a","message":"b","severity":3}', Fault) == Fault("a", "b")


def test_answers_can_be_sent_and_read() -> None:
    refused = Refused("Invalid", "see the faults", facts={"used": 3}, faults=(Fault("spec", "is bad"),))
    assert decode(encode(refused), Refused) == refused
    accepted = Accepted(revision=7, key="nodes//a", token=Token(1, 1, 1))
    assert decode(encode(accepted), Accepted) == accepted


def test_records_inside_plain_values_are_encoded_too() -> None:
    assert (
        encode({"used": Resources(500), "all": [Resources(memory=1 << 30)]})
        == b'{"used":{"cpu":"500m"},"all":[{"memory":"1Gi"}]}'
    )


def test_a_type_without_a_wire_form_is_a_bug_and_says_so() -> None:
    with pytest.raises(TypeError, match="complex has no wire form"):
        encode({"x": 1j})


def test_faults_are_all_told_when_a_body_is_read() -> None:
    class Body(Record, frozen=True):
        count: int
        names: tuple[str, ...] = ()

    assert decode(b'{"count":"x","names":[1]}', Body) == (
        Fault("count", "expected a whole number, got a string"),
        Fault("names[0]", "expected a string, got a whole number; put it in quotes"),
    )
    assert decode(b"{}", Body) == (Fault("count", "is required: expected a whole number"),)
    assert decode(b"nonsense", Body) == (Fault("", "is not JSON: line 1, column 1: expecting value"),)


def test_brackets_inside_strings_do_not_count_as_depth() -> None:
    text = json.dumps({"a": '[{\\"' * 1000, "b": "]" * 10})
    assert parse_json(text.encode()) == json.loads(text)


def test_depth_is_allowed_to_its_limit_and_no_further() -> None:
    assert not isinstance(parse_json(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX), Fault)
    assert isinstance(parse_json(b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1)), Fault)
    assert not isinstance(parse_yaml(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX), Fault)
    assert isinstance(parse_yaml(b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1)), Fault)


def test_paths_show_odd_keys_in_brackets_escaped_and_short() -> None:
    assert child("", "spec") == "spec"
    assert child("spec", "replicas") == "spec.replicas"
    assert child("spec", 3) == "spec[3]"
    assert child("metadata.labels", "app.io/name") == "metadata.labels[app.io/name]"
    assert child("x", "a\nb") == "x[a\\nb]"
    assert len(child("x", "y" * 1000)) == 83


json_trees = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=8),
    ),
    lambda below: st.one_of(st.lists(below, max_size=4), st.dictionaries(st.text(max_size=5), below, max_size=4)),
    max_leaves=20,
)


@settings(deadline=None)
@given(json_trees)
def test_any_json_is_read_as_the_standard_library_reads_it(tree: object) -> None:
    assert parse_json(json.dumps(tree).encode()) == tree
    assert parse_json(msgspec.json.encode(tree)) == tree


@settings(deadline=None)
@given(st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text("abc yesno~1:.-#&*!'\"{}[]\n", max_size=12)),
    lambda below: st.one_of(st.lists(below, max_size=3), st.dictionaries(st.text("ab1 :-#", max_size=5), below, max_size=3)),
    max_leaves=15,
))  # fmt: skip
def test_the_yaml_we_write_reads_back_as_what_was_written(tree: object) -> None:
    assert parse_yaml(encode_yaml(tree).encode()) == ([] if tree is None else [tree])
