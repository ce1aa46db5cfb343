"""Resources are whole numbers that add up, compare by value and never change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.quantity import BadQuantity
from fairlead.model.resources import NOTHING, Resources

names = st.sampled_from(["gpu", "example.com/fpga", "licences"])
resources = st.builds(
    lambda cpu, memory, scalars: Resources(cpu, memory, scalars.items()),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 50),
    st.dictionaries(names, st.integers(0, 1 << 20)),
)


@settings(deadline=None)
@given(resources, resources)
def test_what_is_added_can_be_taken_away_again(a: Resources, b: Resources) -> None:
    assert a + b - b == a
    assert a + b == b + a
    assert a + NOTHING == a
    assert a - a == NOTHING


@settings(deadline=None)
@given(resources, st.integers(0, 50))
def test_times_is_repeated_addition(one: Resources, count: int) -> None:
    total = NOTHING
    for _ in range(count):
        total = total + one
    assert one.times(count) == total


@settings(deadline=None)
@given(resources)
def test_quantities_parse_back_to_the_same_amounts(value: Resources) -> None:
    assert Resources.parse(value.as_quantities()) == value
    assert hash(Resources.parse(value.as_quantities())) == hash(value)


@settings(deadline=None)
@given(resources, resources)
def test_exceeding_names_each_dimension_that_is_more_and_no_other(ask: Resources, limit: Resources) -> None:
    over = {name for name, asked, allowed in ask.exceeding(limit) if asked > allowed}
    for name in {*ask.amounts(), *limit.amounts()}:
        assert (name in over) == (ask.amounts().get(name, 0) > limit.amounts().get(name, 0))


def test_order_and_zeros_of_scalars_do_not_matter() -> None:
    a = Resources(1, 2, [("b", 1), ("a", 2), ("none", 0)])
    b = Resources(1, 2, [("a", 2), ("b", 1)])
    assert a == b
    assert hash(a) == hash(b)
    assert a.amounts() == {"cpu": 1, "memory": 2, "a": 2, "b": 1}


def test_resources_cannot_be_changed() -> None:
    value = Resources(1, 2)
    with pytest.raises(AttributeError):
        value.cpu = 5
    assert value == Resources(1, 2)
    assert value != "Resources(cpu=1m, memory=2)"


def test_resources_show_themselves_as_people_write_them() -> None:
    assert repr(Resources(500, 4 << 30, [("gpu", 2)])) == "Resources(cpu=500m, memory=4Gi, gpu=2)"
    assert Resources(2000, 1500).as_quantities() == {"cpu": "2", "memory": "1500"}


@pytest.mark.parametrize(
    ("quantities", "says"),
    [
        ({"cpu": "abc"}, "^cpu: 'abc' is not a quantity"),
        ({"memory": "4GB"}, "^memory: '4GB' has the unknown suffix"),
        ({"cpu": 0.5}, "^cpu: write the amount as a string"),
        ({"cpu": True}, "^cpu: write the amount as a string"),
        ({"cpu": None}, "^cpu: write the amount as a string"),
        ({"gpu": "500m"}, "^gpu: '500m' is finer than the smallest unit, 1"),
        ({"gpu": -1}, "^gpu: '-1' is negative"),
    ],
)
def test_a_bad_amount_is_refused_by_the_name_of_its_resource(quantities: dict[str, object], says: str) -> None:
    with pytest.raises(BadQuantity, match=says):
        Resources.parse(quantities)


def test_whole_numbers_may_be_written_without_quotes() -> None:
    assert Resources.parse({"cpu": 2, "memory": 1024, "gpu": 1}) == Resources(2000, 1024, [("gpu", 1)])
