"""A grant has room or it does not, dimension by dimension, and the words say how much."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.decide.grants import limits_of, shortage
from fairlead.model.resources import Resources

LIMIT = limits_of(Resources(cpu=2000, memory=4 << 30, scalars=[("gpu", 2)]))


def test_a_scalar_limit_also_bounds_devices_of_that_name_in_thousandths() -> None:
    assert LIMIT == {"cpu": 2000, "memory": 4 << 30, "gpu": 2, "device:gpu": 2000}


def test_an_ask_up_to_the_last_unit_has_room() -> None:
    assert shortage({"cpu": 1500}, {"cpu": 500, "memory": 4 << 30}, LIMIT) == {}


def test_each_dimension_that_is_short_is_told_with_what_is_left() -> None:
    used = {"cpu": 1500, "memory": 3 << 30, "device:gpu": 1800}
    ask = {"cpu": 501, "memory": 2 << 30, "device:gpu": 300, "gpu": 1}
    assert shortage(used, ask, LIMIT) == {
        "cpu": "asks 501m, 500m left of 2",
        "memory": "asks 2Gi, 1Gi left of 4Gi",
        "device:gpu": "asks 300/1000, 200/1000 left of 2000/1000",
    }


def test_what_the_grant_does_not_name_is_not_granted() -> None:
    assert shortage({}, {"fpga": 1}, LIMIT) == {"fpga": "asks 1, 0 left of 0"}
    assert shortage({}, {"cpu": 1}, {}) == {"cpu": "asks 1m, 0 left of 0"}


def test_asking_for_nothing_has_room_even_where_use_is_above_the_limit() -> None:
    assert shortage({"cpu": 9000}, {"cpu": 0}, LIMIT) == {}


def test_use_above_a_limit_that_shrank_leaves_nothing_rather_than_less_than_nothing() -> None:
    assert shortage({"cpu": 9000}, {"cpu": 1}, LIMIT) == {"cpu": "asks 1m, 0 left of 2"}


_dimensions = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu", "device:gpu"]), st.integers(0, 100))


@settings(deadline=None)
@given(_dimensions, _dimensions, _dimensions)
def test_room_means_that_use_and_ask_together_stay_within_every_limit(
    used: dict[str, int], ask: dict[str, int], limits: dict[str, int]
) -> None:
    over = {name for name, amount in ask.items() if amount and used.get(name, 0) + amount > limits.get(name, 0)}
    assert set(shortage(used, ask, limits)) == over
