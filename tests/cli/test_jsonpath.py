"""kubectl's JSONPath: the same templates give the same words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.cli import jsonpath

TREE: dict[str, Any] = {
    "kind": "List",
    "metadata": {"labels": {"app.kubernetes.io/name": "risk", "a b": "spaced"}},
    "items": [
        {"name": "a", "n": 1, "tags": ["x", "y"], "ready": True, "none": None},
        {"name": "b", "n": 2, "tags": [], "ready": False, "deep": {"name": "c"}},
        {"name": "d", "n": 10, "tags": ["z"], "size": 1.5},
    ],
}


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{.kind}", "List"),
        ("{$.kind}", "List"),
        ("{kind}", "List"),
        ("{.items[0].name}", "a"),
        ("{.items[-1].name}", "d"),
        ("{.items[*].name}", "a b d"),
        ("{.items[0:2].name}", "a b"),
        ("{.items[1:].name}", "b d"),
        ("{.items[:-1].name}", "a b"),
        ("{.items[::2].name}", "a d"),
        ("{.items[0,2].name}", "a d"),
        ("{.items[7].name}", ""),
        ("{.items[0]['name','n']}", "a 1"),
        ("{.metadata.labels['app.kubernetes.io/name']}", "risk"),
        (r"{.metadata.labels.app\.kubernetes\.io/name}", "risk"),
        ("{.metadata.labels['a b']}", "spaced"),
        ("{..name}", "a b c d"),
        ("{.items[*]..name}", "a b c d"),
        ('{.items[?(@.name=="b")].n}', "2"),
        ("{.items[?(@.name=='b')].n}", "2"),
        ("{.items[?(@.n>1)].name}", "b d"),
        ("{.items[?(@.n >= 2)].name}", "b d"),
        ("{.items[?(@.n<=2)].name}", "a b"),
        ("{.items[?(@.n<2)].name}", "a"),
        ("{.items[?(@.name!='a')].name}", "b d"),
        ("{.items[?(@.ready==true)].name}", "a"),
        ("{.items[?(@.deep)].name}", "b"),
        ("{.items[?(@.deep.name=='c')].name}", "b"),
        ("{.items[?(@.size==1.5)].name}", "d"),
        ("{.items[?(@.name>5)].name}", ""),
        ("{.items[?(@.ready==1)].name}", ""),
        ("{.items[0].tags}", '["x","y"]'),
        ("{.items[0].tags[*]}", "x y"),
        ("{.items[0].ready}{.items[0].none}", "true"),
        ("{.nothing.at.all}", ""),
        ("{@.kind}", "List"),
        ('{range .items[*]}{.name}={.n}{"\\n"}{end}', "a=1\nb=2\nd=10\n"),
        ('{range .items[*]}{.name}:{range .tags[*]}{@}{","}{end};{end}', "a:x,y,;b:;d:z,;"),
        ('{range .items[*]}{$.kind}{" "}{end}', "List List List "),
        ("kind is {.kind}!", "kind is List!"),
        ("no braces", "no braces"),
        ('{\'single\'}{"dou\\"ble\\t"}', 'singledou"ble\t'),
        ("{ .kind }", "List"),
        ("{.items[*].*}", 'a 1 ["x","y"] true  b 2 [] false {"name":"c"} d 10 ["z"] 1.5'),
    ],
)
def test_a_template_gives_its_words(template: str, words: str) -> None:
    assert jsonpath.render(jsonpath.parse(template), TREE) == words


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{.a", "expected }, at character 4, where it ends"),
        ("{", "expected a path"),
        ("{}", "expected a path"),
        ("{.a[}", "expected a field's name"),
        ("{.a[0}", "expected ]"),
        ("{.a[?(@.b==]}", "expected @.field"),
        ("{.a[?(@.b=='c' && @.d=='e')]}", "&& and || are not part"),
        ("{.a['b}", "the ' is not closed"),
        ("{range .a}x", "this {range} has no {end}"),
        ("{.a}{end}", "{end} without {range}"),
        ("{.a[::0]}", "a step is at least 1"),
        ("{'open", "the ' is not closed"),
        ("{range .a}" * 50, "nested too deeply"),
    ],
)
def test_a_bad_template_says_where(template: str, said: str) -> None:
    with pytest.raises(jsonpath.BadPath) as raised:
        jsonpath.parse(template)
    assert said in str(raised.value)


@given(st.text(alphabet="{}[]().*?@$'\"=<>!:,\\ ab0-1&|range", max_size=40))
def test_any_text_is_a_template_or_a_told_mistake(text: str) -> None:
    try:
        nodes = jsonpath.parse(text)
    except jsonpath.BadPath:
        return
    assert isinstance(jsonpath.render(nodes, TREE), str)


trees = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=3), below, max_size=3),
    max_leaves=12,
)


def paths(tree: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    found = [(prefix, tree)]
    if isinstance(tree, dict):
        found += [pair for key, value in tree.items() for pair in paths(value, (*prefix, key))]
    if isinstance(tree, list):
        found += [pair for index, value in enumerate(tree) for pair in paths(value, (*prefix, index))]
    return found


def quoted(key: str) -> str:
    return key.replace("\\", "\\\\").replace("'", "\\'")


@given(trees.filter(lambda tree: isinstance(tree, dict | list)))
def test_every_value_is_found_by_its_own_path_and_by_descent(tree: Any) -> None:
    for path, value in paths(tree):
        steps = "".join(f"[{step}]" if isinstance(step, int) else f"['{quoted(step)}']" for step in path)
        nodes = jsonpath.parse(f"{{${steps}}}")
        assert isinstance(nodes[0], jsonpath.Path)
        assert jsonpath.find(nodes[0], tree, tree) == [value]
    descent = jsonpath.find(jsonpath.Path((jsonpath.Deep(),)), tree, tree)
    assert len(descent) == len(paths(tree))


@given(st.lists(st.integers(0, 9), max_size=8), st.none() | st.integers(-9, 9), st.none() | st.integers(-9, 9), st.integers(1, 3))
def test_slices_are_pythons(values: list[int], start: int | None, stop: int | None, step: int) -> None:
    text = f"{'' if start is None else start}:{'' if stop is None else stop}:{step}"
    node = jsonpath.parse(f"{{[{text}]}}")[0]
    assert isinstance(node, jsonpath.Path)
    assert jsonpath.find(node, values, values) == values[start:stop:step]
