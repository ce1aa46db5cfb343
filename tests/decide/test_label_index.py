"""The index answers as asking each one would."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlead.decide.label_index import Labelled, Labels, Match, Selectors, fits
from fairlead.model.kinds.intent import LabelExpression

_keys, _values = st.sampled_from(("app", "tier")), st.sampled_from(("x", "y", "1"))
_expressions = st.one_of(
    st.builds(
        lambda key, operator, values: LabelExpression(key=key, operator=operator, values=tuple(sorted(values))),
        _keys,
        st.sampled_from(("In", "NotIn")),
        st.sets(_values, min_size=1),
    ),
    st.builds(
        lambda key, operator: LabelExpression(key=key, operator=operator), _keys, st.sampled_from(("Exists", "DoesNotExist"))
    ),
)
_matches = st.lists(_expressions, min_size=1, max_size=2).map(tuple)
_labels = st.dictionaries(_keys, _values).map(lambda labels: tuple(sorted(labels.items())))


@given(st.lists(_matches, max_size=6, unique=True), _labels)
def test_selectors_find_those_that_match_the_labels(every: list[Match], labels: Labels) -> None:
    selectors: Selectors[Match] = Selectors()
    for match in every:
        selectors.add(match, match)
    assert set(selectors.matching(labels)) == {match for match in every if fits(match, labels)}
    assert len(selectors.matching(labels)) == len(set(selectors.matching(labels)))


@given(st.lists(_labels, max_size=8), st.sets(st.integers(0, 7)), _matches)
def test_a_selector_finds_the_labelled_things_that_are_still_there(every: list[Labels], gone: set[int], match: Match) -> None:
    labelled: Labelled[int] = Labelled()
    for number, labels in enumerate(every):
        labelled.add(labels, number)
    for number in gone:
        labelled.discard(number)
    left = {number: labels for number, labels in enumerate(every) if number not in gone}
    assert set(labelled) == set(left)
    assert sorted(labelled.matching(match)) == [number for number, labels in left.items() if fits(match, labels)]
