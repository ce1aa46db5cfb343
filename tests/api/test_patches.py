"""The two patch formats: the cases of their RFCs, and properties that hold for any tree."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api.failures import Failure
from fairlead.api.patches import json_patch, merge_patch, same

LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab/~", max_size=3)
TREES = st.recursive(LEAVES, lambda t: st.lists(t, max_size=3) | st.dictionaries(st.text("ab/~0", max_size=2), t, max_size=3))
OBJECTS = st.dictionaries(st.text("abc", max_size=2), TREES, max_size=4)


@pytest.mark.parametrize(
    ("target", "patch", "wanted"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_gives_what_rfc_7386_says(target: Any, patch: Any, wanted: Any) -> None:
    assert merge_patch(target, patch) == wanted


@pytest.mark.parametrize(
    ("target", "operations", "wanted"),
    [
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"foo": "bar", "baz": "qux"}),
        ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
        ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
        ({"foo": 1, "baz": 2}, [{"op": "remove", "path": "/baz"}], {"foo": 1}),
        ({"foo": [1, 2, 3]}, [{"op": "remove", "path": "/foo/1"}], {"foo": [1, 3]}),
        ({"foo": 1}, [{"op": "replace", "path": "/foo", "value": 2}], {"foo": 2}),
        ({"a": {"b": 1}, "c": {}}, [{"op": "move", "from": "/a/b", "path": "/c/d"}], {"a": {}, "c": {"d": 1}}),
        ({"a": [1, 2, 3]}, [{"op": "move", "from": "/a/0", "path": "/a/2"}], {"a": [2, 3, 1]}),
        ({"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": 1, "b": 1}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1.0}], {"a": 1}),
        ({"a/b": 1, "m~n": 2}, [{"op": "remove", "path": "/a~1b"}, {"op": "replace", "path": "/m~0n", "value": 3}], {"m~n": 3}),
        ({"": 1}, [{"op": "replace", "path": "/", "value": 2}], {"": 2}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": [1]}], [1]),
        ({"a": 1}, [{"op": "add", "path": "/a", "value": None}], {"a": None}),
        ({"a": 1}, [{"op": "move", "from": "/a", "path": "/a"}], {"a": 1}),
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2, "unknown": 3}], {"a": 1, "b": 2}),
        ({"~01": 10}, [{"op": "test", "path": "/~001", "value": 10}], {"~01": 10}),
    ],
)
def test_json_patch_gives_what_rfc_6902_says(target: Any, operations: Any, wanted: Any) -> None:
    before = copy.deepcopy(target)
    assert json_patch(target, operations) == wanted
    assert target == before, "the tree that came in is left alone"


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ([{"op": "add", "path": "/x/y", "value": 1}], 422),
        ([{"op": "add", "path": "/l/5", "value": 1}], 422),
        ([{"op": "add", "path": "/l/01", "value": 1}], 422),
        ([{"op": "add", "path": "/l/x", "value": 1}], 422),
        ([{"op": "add", "path": "/a/b", "value": 1}], 422),
        ([{"op": "remove", "path": "/x"}], 422),
        ([{"op": "remove", "path": "/l/-"}], 422),
        ([{"op": "replace", "path": "/x", "value": 1}], 422),
        ([{"op": "move", "from": "/o", "path": "/o/p"}], 422),
        ([{"op": "copy", "from": "/x", "path": "/y"}], 422),
        ([{"op": "test", "path": "/a", "value": True}], 422),
        ([{"op": "test", "path": "/a", "value": "1"}], 422),
        ([{"op": "test", "path": "/x", "value": None}], 422),
        ([{"op": "add", "path": "/b"}], 400),
        ([{"op": "jump", "path": "/b"}], 400),
        ([{"path": "/b"}], 400),
        ([{"op": "add", "path": "b", "value": 1}], 400),
        ([{"op": "add", "value": 1}], 400),
        ([{"op": "copy", "path": "/b"}], 400),
        ([3], 400),
        ({"op": "add"}, 400),
        ([{"op": "add", "path": "/" * 100, "value": 1}], 400),
    ],
)
def test_an_operation_that_does_not_fit_is_told_from_one_that_is_none(operations: Any, code: int) -> None:
    with pytest.raises(Failure) as failure:
        json_patch({"a": 1, "l": [1], "o": {}}, operations)
    assert failure.value.code == code


def test_copies_of_copies_are_stopped_before_they_fill_the_memory() -> None:
    bomb = [{"op": "copy", "from": "/a", "path": "/a/-"} for _ in range(60)]
    with pytest.raises(Failure) as failure:
        json_patch({"a": [1]}, bomb)
    assert failure.value.code == 413


def test_a_failed_operation_undoes_those_before_it() -> None:
    target = {"a": 1}
    with pytest.raises(Failure):
        json_patch(target, [{"op": "remove", "path": "/a"}, {"op": "test", "path": "/b", "value": 1}])
    assert target == {"a": 1}


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_applied_twice_is_applied_once(target: Any, patch: Any) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@given(TREES, TREES)
def test_a_merge_patch_leaves_no_null_of_its_own_behind(target: Any, patch: Any) -> None:
    def nulls(tree: Any) -> int:
        return sum(nulls(v) + (v is None) for v in tree.values()) if isinstance(tree, dict) else 0

    assert not isinstance(patch, dict) or nulls(merge_patch({}, patch)) == 0


def pointers(tree: Any, at: str = "") -> list[str]:
    here = [at]
    if isinstance(tree, dict):
        for key, value in tree.items():
            here += pointers(value, f"{at}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            here += pointers(value, f"{at}/{index}")
    return here


@given(TREES, st.data())
def test_what_a_pointer_names_can_be_tested_replaced_and_removed(tree: Any, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(pointers(tree)))
    replaced = json_patch(tree, [{"op": "replace", "path": path, "value": {"new": [1]}}])
    assert same(json_patch(replaced, [{"op": "test", "path": path, "value": {"new": [1]}}]), replaced)
    if path:
        moved = json_patch({"tree": tree, "spare": {}}, [{"op": "move", "from": f"/tree{path}", "path": "/spare/kept"}])
        back = [{"op": "move", "from": "/spare/kept", "path": f"/tree{path}"}]
        assert same(json_patch(moved, back)["tree"], tree)


@given(TREES, st.lists(st.fixed_dictionaries({"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
       "path": st.text("ab/~01-", max_size=6), "from": st.text("ab/~01-", max_size=6), "value": TREES}), max_size=5))  # fmt: skip
def test_any_operations_give_a_tree_or_a_failure(tree: Any, operations: Any) -> None:
    before = copy.deepcopy(tree)
    with contextlib.suppress(Failure):
        json_patch(tree, operations)
    assert same(tree, before)
