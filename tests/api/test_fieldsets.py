"""Sets of fields: leaves and their paths, the text form, merging and removing, for trees of a real kind."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairlead.api import managers
from fairlead.api.fieldsets import from_text, known, leaves, merge, node_of, pick, remove, shown, to_text
from fairlead.api.patches import same
from fairlead.model.kinds.intent import Workload

NODE = node_of(Workload)
NAMES = st.sampled_from(["A", "B", "C"])
ENV = st.lists(
    st.fixed_dictionaries({"name": NAMES, "value": st.sampled_from(["1", "2"])}), max_size=3, unique_by=lambda e: e["name"]
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(1, 3),
        "workloadClass": st.sampled_from(["batch", "standard"]),
        "template": st.fixed_dictionaries({"env": ENV}, optional={"command": st.lists(NAMES, min_size=1, max_size=2)}),
        "resources": st.fixed_dictionaries({"requests": st.dictionaries(st.sampled_from(["cpu", "memory"]), NAMES)}),
    },
)
TREES = st.fixed_dictionaries({"spec": SPECS, "metadata": st.fixed_dictionaries({"labels": st.dictionaries(NAMES, NAMES)})})


def test_paths_are_those_of_fields_v1() -> None:
    tree = {
        "metadata": {"name": "api", "labels": {"tier": "gold"}, "finalizers": ["x"]},
        "spec": {"replicas": 2, "template": {"env": [{"name": "A", "value": "1"}], "command": ["a", "b"]}, "bogus": 1},
    }
    assert leaves(tree, NODE) == {
        ("f:metadata", "f:labels", "f:tier"): "gold",
        ("f:metadata", "f:finalizers", 'v:"x"'): True,
        ("f:spec", "f:replicas"): 2,
        ("f:spec", "f:template", "f:env", 'k:{"name":"A"}', "."): True,
        ("f:spec", "f:template", "f:env", 'k:{"name":"A"}', "f:name"): "A",
        ("f:spec", "f:template", "f:env", 'k:{"name":"A"}', "f:value"): "1",
        ("f:spec", "f:template", "f:command"): ["a", "b"],
    }
    assert known(tree, NODE)["spec"].keys() == {"replicas", "template"}


def test_a_path_is_shown_as_people_write_it() -> None:
    assert shown(("f:spec", "f:template", "f:env", 'k:{"name":"A"}', "f:value")) == '.spec.template.env[name="A"].value'
    assert shown(("f:metadata", "f:finalizers", 'v:"x"')) == '.metadata.finalizers[="x"]'


def test_the_server_s_spelling_is_taken_for_what_the_client_mentions_only() -> None:
    full = {"spec": {"replicas": 2, "resources": {"requests": {"cpu": "500m"}}, "workloadClass": "standard"}}
    asked = {"spec": {"resources": {"requests": {"cpu": "0.5"}}, "suspend": False}}
    assert pick(full, asked, NODE) == {"spec": {"resources": {"requests": {"cpu": "500m"}}, "suspend": False}}


@given(TREES)
def test_a_set_of_fields_comes_back_as_it_went(tree: Any) -> None:
    paths = frozenset(leaves(tree, NODE))
    assert from_text(to_text(paths)) == paths


@given(TREES, TREES)
def test_merging_makes_every_applied_leaf_true_and_loses_none_of_the_others(live: Any, applied: Any) -> None:
    got = leaves(merge(live, applied, NODE), NODE)
    wanted = {path: value for path, value in leaves(applied, NODE).items() if value != {}}
    assert all(same(got[path], value) for path, value in wanted.items())
    assert {p for p, v in leaves(live, NODE).items() if v != {}} <= got.keys()


@given(TREES)
def test_removing_every_leaf_leaves_nothing(tree: Any) -> None:
    left = tree
    for path in sorted(leaves(tree, NODE), key=lambda p: p[-1] != "."):  # items before their fields, while they have keys
        left = remove(left, path, NODE)
    assert {path for path, value in leaves(left, NODE).items() if value != {}} == set()


@given(TREES, TREES, TREES)
def test_an_apply_makes_true_what_it_says_and_applied_again_changes_nothing(live: Any, one: Any, two: Any) -> None:
    entries = managers.created("human", "Update", live, NODE)
    first = managers.apply(live, entries, "ci", one, NODE, force=True, last_applied=None)
    again = managers.apply(first.tree, first.entries, "ci", one, NODE, force=False, last_applied=None)
    assert same(again.tree, first.tree)
    assert again.entries == first.entries
    second = managers.apply(again.tree, again.entries, "ci", two, NODE, force=True, last_applied=None)
    said = leaves(two, NODE)
    got = leaves(second.tree, NODE)
    assert all(same(got[path], value) for path, value in said.items() if value != {})


@given(TREES, TREES)
def test_after_an_update_every_changed_leaf_has_its_writer_and_nobody_else(before: Any, after: Any) -> None:
    entries = managers.created("ci", "Apply", before, NODE)
    got = managers.updated(entries, "hand", before, after, NODE)
    old, new = leaves(before, NODE), leaves(after, NODE)
    changed = {path for path, value in new.items() if path not in old or not same(old[path], value)}
    owned = {entry.manager: from_text(entry.fields_v1.text) for entry in got}
    assert changed <= owned.get("hand", frozenset())
    assert not changed & owned.get("ci", frozenset())
    assert not (old.keys() - new.keys()) & owned.get("ci", frozenset())
