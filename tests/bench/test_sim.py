"""`fairlead bench sim`: what is counted, and how it is told."""

from __future__ import annotations

from bench.sim import COMMANDS_PER_S, SETTLED_S, WARM_S, Mark, Measured, began_s, figures, measured, scenario
from fairlead.sim.scenario import Scenario, Work


def test_the_size_is_the_one_that_speed_is_stated_for_with_and_without_faults() -> None:
    for part in ("base", "faults"):
        chosen = scenario(part, 1, 60)
        assert (chosen.regions, chosen.nodes * chosen.regions, chosen.work.actions / 60) == (3, 30, COMMANDS_PER_S)
        assert chosen.rough_s == WARM_S + 60
        assert any(getattr(chosen.faults, name) for name in chosen.faults.__struct_fields__) == (part == "faults")


def test_at_rest_it_is_counted_once_everything_serves() -> None:
    chosen = scenario("rest", 1, 60)
    assert (chosen.rough_s, began_s(chosen), began_s(scenario("base", 1, 60))) == (SETTLED_S + 60, SETTLED_S, WARM_S)


def test_figures_are_of_what_lies_between_two_marks() -> None:
    counted = Mark(5.0, 70.0, 9_000, 500, 900, 700).since(Mark(3.0, 10.0, 3_000, 100, 300, 100))
    told = figures(Measured(counted, 20.0, []))
    assert (told["times_real"], told["us_per_simulated_s"], told["us_per_commit"]) == (30.0, 33_333, 5_000)
    assert (told["steps_per_simulated_s"], told["us_per_step"], told["frames_per_simulated_s"]) == (100.0, 333.3, 10.0)
    assert told["commands_per_simulated_s"] == 10.0


def test_what_is_counted_begins_when_the_platform_has_started_and_ends_when_its_people_stop() -> None:
    small = Scenario(1, "full", 1, 1, 2, rough_s=WARM_S + 5, settle_s=1.0, quiet_s=1.0, work=Work(2, 60.0, operators=0.0))
    found = measured(small)
    assert not found.findings
    assert round(found.counted.simulated_s, 6) == 5.0
    assert 0 < found.counted.commits < found.counted.steps
    assert found.counted.commands > found.counted.commits
    assert found.counted.cpu_s > 0
