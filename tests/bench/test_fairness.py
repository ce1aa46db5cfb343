"""`fairlead bench fairness`: how far from fair is counted, and when the figures fail."""

from __future__ import annotations

from msgspec.structs import replace

from bench.fairness import KEPT_SHARE, Measured, Moved, bound_s, failures, far, moved


def test_far_is_what_is_wanted_somewhere_while_as_much_is_idle_elsewhere() -> None:
    assert far([(90, 50), (0, 50)], 100) == 0.4
    assert far([(90, 60), (10, 40)], 100) == 0.3
    assert far([(90, 90), (0, 10)], 100) == 0.0, "nobody lacks anything"
    assert far([(90, 50), (60, 50)], 100) == 0.0, "nothing is idle: there is not enough"


def test_it_lasts_until_it_is_where_it_ends() -> None:
    assert moved([0.4, 0.4, 0.3, 0.0, 0.0]) == Moved(0.4, 0.0, 0.3, 0.367)
    assert moved([0.4, 0.1, 0.2, 0.105, 0.1]) == Moved(0.4, 0.1, 0.3, 0.233)
    assert moved([0.0, 0.0]) == Moved(0.0, 0.0, 0.0, 0.0)


def test_what_takes_longer_than_is_stated_or_stays_fails() -> None:
    good = Measured(Moved(0.6, 0.0, 1.2, 0.6), Moved(0.6, 0.05, bound_s(60), 0.5), [], "")
    assert failures(good, 60) == []
    assert len(failures(replace(good, heard=replace(good.heard, far_s=60.0)), 60)) == 1
    assert len(failures(replace(good, heard=replace(good.heard, far_end_share=0.1)), 60)) == 1
    assert len(failures(replace(good, cut=replace(good.cut, far_s=2 * bound_s(60))), 60)) == 1
    assert len(failures(replace(good, cut=replace(good.cut, far_end_share=KEPT_SHARE + 0.01)), 60)) == 1
    assert failures(replace(good, findings=["S5"]), 60) == ["S5"]
    assert bound_s(600) == 636.0
