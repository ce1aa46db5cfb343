"""Devices are picked so that what fits is found, nothing is given twice, and the same question has the same answer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.decide.devices import pick_devices
from fairlead.decide.fit import DeviceNeed
from fairlead.model.resources import SHARE_WHOLE, Device, DeviceHold


def _gpu(name: str, model: str = "a100") -> Device:
    return Device(id=name, model=model)


FLEET = (_gpu("g2"), _gpu("g0"), _gpu("g1", "t4"))


def _whole(count: int, *models: str) -> DeviceNeed:
    return DeviceNeed("gpu", models, count, 0)


def _share(thousandths: int, *models: str) -> DeviceNeed:
    return DeviceNeed("gpu", models, 0, thousandths)


def _hold(name: str, thousandths: int = SHARE_WHOLE) -> DeviceHold:
    return DeviceHold(id=name, thousandths=thousandths)


def test_whole_devices_are_taken_in_order_of_their_ids() -> None:
    assert pick_devices([_whole(2)], FLEET, {}) == (_hold("g0"), _hold("g1"))


def test_a_device_in_use_however_little_is_not_given_whole() -> None:
    assert pick_devices([_whole(2)], FLEET, {"g0": 1}) == (_hold("g1"), _hold("g2"))
    assert pick_devices([_whole(3)], FLEET, {"g0": 1}) is None


def test_only_the_asked_models_are_taken() -> None:
    assert pick_devices([_whole(1, "t4")], FLEET, {}) == (_hold("g1"),)
    assert pick_devices([_whole(2, "t4", "a100")], FLEET, {"g1": 5}) == (_hold("g0"), _hold("g2"))
    assert pick_devices([_whole(1, "h100")], FLEET, {}) is None


def test_a_share_goes_where_the_least_is_left_over() -> None:
    assert pick_devices([_share(300)], FLEET, {"g1": 200, "g2": 700}) == (_hold("g2", 300),)
    assert pick_devices([_share(301)], FLEET, {"g1": 200, "g2": 700}) == (_hold("g1", 301),)


def test_a_share_of_a_full_fleet_is_refused() -> None:
    assert pick_devices([_share(1)], FLEET, {"g0": 1000, "g1": 1000, "g2": 1000}) is None


def test_another_resource_is_not_touched() -> None:
    fleet = (*FLEET, Device(id="n0", resource="npu"))
    needs = [DeviceNeed("npu", (), 1, 0), _whole(1)]
    assert pick_devices(needs, fleet, {}) == (_hold("g0"), _hold("n0"))
    assert pick_devices([DeviceNeed("npu", (), 2, 0)], fleet, {}) is None


def test_asking_for_nothing_holds_nothing() -> None:
    assert pick_devices([], FLEET, {}) == ()


fleets = st.lists(
    st.builds(Device, id=st.integers(0, 9).map(str), model=st.sampled_from(["a", "b"]), resource=st.sampled_from(["gpu", "npu"])),
    unique_by=lambda device: device.id,
    max_size=6,
)
_models = st.sampled_from([(), ("a",), ("b",), ("a", "b")])
_amounts = st.one_of(st.tuples(st.integers(1, 3), st.just(0)), st.tuples(st.just(0), st.integers(1, 999)))


@st.composite
def _one_need_per_resource(draw: st.DrawFn) -> list[DeviceNeed]:
    """As admission leaves them: a second ask for the same resource is refused there."""
    resources = draw(st.sets(st.sampled_from(["gpu", "npu"])))
    return [DeviceNeed(resource, draw(_models), *draw(_amounts)) for resource in sorted(resources)]


@settings(deadline=None)
@given(_one_need_per_resource(), fleets, st.dictionaries(st.integers(0, 9).map(str), st.integers(0, 1000)))
def test_holds_are_found_exactly_when_the_fit_gate_says_there_is_room(
    needs: list[DeviceNeed], fleet: list[Device], used: dict[str, int]
) -> None:
    picked = pick_devices(needs, fleet, used)
    fits = True
    for need in needs:
        rooms = [SHARE_WHOLE - used.get(d.id, 0) for d in _candidates(need, fleet)]
        fits = fits and need.whole <= rooms.count(SHARE_WHOLE) and need.share <= max(rooms, default=0)
    assert (picked is not None) == fits
    if picked is not None:
        assert len({hold.id for hold in picked}) == len(picked)
        assert all(used.get(hold.id, 0) + hold.thousandths <= SHARE_WHOLE for hold in picked)
        assert len(picked) == sum(need.whole or 1 for need in needs)
        assert picked == pick_devices(needs, list(reversed(fleet)), used)


def _candidates(need: DeviceNeed, fleet: list[Device]) -> list[Device]:
    return [d for d in fleet if d.resource == need.resource and (not need.models or d.model in need.models)]


@pytest.mark.parametrize("used", [{}, {"g0": 400}])
def test_the_order_of_the_fleet_does_not_matter(used: dict[str, int]) -> None:
    assert pick_devices([_share(500)], FLEET, used) == pick_devices([_share(500)], tuple(reversed(FLEET)), used)
