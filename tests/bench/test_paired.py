"""Two sides measured in turn: what is said of their difference, and when nothing is."""

from __future__ import annotations

from bench.paired import paired


def test_a_machine_that_slows_down_hides_no_difference() -> None:
    slower = [100.0 * 1.5**n for n in range(8)]
    found = paired("quota", [each * 1.03 for each in slower], slower)
    assert (found["quota_cost"], found["quota_cost_half_of_pairs"], found["quota_cost_shown"]) == (0.03, [0.03, 0.03], True)


def test_noise_is_called_noise_and_one_wild_round_decides_nothing() -> None:
    found = paired("quota", [141.0, 90.0, 96.0, 104.0, 99.0, 102.0, 98.0, 101.0], [100.0] * 8)
    assert found["quota_cost"] == 0.0
    low, high = found["quota_cost_half_of_pairs"]
    assert low < 0 < high
    assert not found["quota_cost_shown"]


def test_where_the_clock_counted_nothing_there_is_no_cost() -> None:
    found = paired("quota", [0.0, 1.0], [0.0, 1.0])
    assert (found["quota_cost"], found["quota_cost_shown"], found["quota_rounds"]) == (None, False, [0.0])
