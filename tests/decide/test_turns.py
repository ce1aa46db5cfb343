"""Regions take turns in a rollout: what `maxUnavailable` allows is missing once, not once in every region."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.decide.folding import _progressing
from fairlead.decide.turns import is_changing, kept_back, of_stand_ins
from fairlead.model.kinds.intent import StageCounts
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.meta import Condition, Metadata

OLD, NEW = 1, 2


def at(
    region: str, generation: int, *, serving: int = 2, bound: int = 2, left: tuple[int, ...] = (), heard: bool = True
) -> Assignment:
    """`left`: other generations that some slot there still has."""
    status = AssignmentStatus(
        observed_generation=1 if heard else 0,
        generation=generation,
        generations=tuple(sorted({generation, *left})),
        replicas=StageCounts(bound=bound, serving=serving),
    )
    spec = AssignmentSpec(
        workload="api", workload_uid="u", generation=generation, region=region, slots=(SlotRange(first=0, last=1),)
    )  # fmt: skip
    return Assignment(metadata=Metadata(name=f"api.{region}", namespace="risk", generation=1), spec=spec, status=status)


def stands_in(region: str, generation: int, *, serving: int = 0) -> Assignment:
    """It has nothing there but what stands in for another region."""
    found = at(region, generation, serving=serving)
    only = SlotRange(first=15_000, last=15_001)
    return replace(found, spec=replace(found.spec, slots=(only,), recovery=only))


def test_the_first_by_name_begins_and_the_others_keep_what_they_run() -> None:
    found = kept_back(NEW, [at("b", OLD), at("a", OLD), at("c", OLD)], ())
    assert found == {"b": OLD, "c": OLD}


def test_the_next_begins_when_nothing_old_is_left_and_all_that_has_a_place_serves() -> None:
    rest = [at("b", OLD), at("c", OLD)]
    both = {"b": OLD, "c": OLD}
    assert kept_back(NEW, [at("a", NEW, left=(OLD,)), *rest], ()) == both
    assert kept_back(NEW, [at("a", NEW, serving=1), *rest], ()) == both
    assert kept_back(NEW, [at("a", NEW, heard=False), *rest], ()) == both, "it has not answered to the order yet"
    assert kept_back(NEW, [at("a", NEW, serving=0, bound=0), *rest], ()) == both, "nothing of it has a place"
    assert kept_back(NEW, [at("a", NEW), *rest], ()) == {"c": OLD}
    assert kept_back(NEW, [at("a", NEW, serving=1, bound=1), *rest], ()) == {"c": OLD}, "what waits for a place keeps nobody"
    assert kept_back(NEW, [at("a", NEW), at("b", NEW), at("c", NEW)], ()) == {}


def test_a_region_that_has_done_a_moment_ago_keeps_its_turn() -> None:
    both = {"b": OLD, "c": OLD}
    assert kept_back(NEW, [at("a", NEW), at("b", OLD), at("c", OLD)], (), ("a",)) == both
    assert kept_back(NEW, [at("a", NEW), at("b", OLD), at("c", OLD)], ("a",), ("a",)) == {"c": OLD}, "unless it is silent"


def test_whoever_does_not_serve_what_it_has_is_mended_first() -> None:
    assert kept_back(3, [at("a", OLD), at("b", NEW, serving=1), at("c", OLD)], ()) == {"a": OLD, "c": OLD}


def test_where_nothing_serves_nobody_waits() -> None:
    failed = [at("a", NEW, serving=0), at("b", NEW, serving=0), at("c", OLD)]
    assert kept_back(OLD, failed, ()) == {}
    assert kept_back(3, failed, ()) == {"c": OLD}, "what serves begins when those are through"


def test_a_silent_region_waits_until_it_is_heard_and_keeps_nobody() -> None:
    assert kept_back(NEW, [at("a", OLD), at("b", OLD)], ("a",)) == {"a": OLD}
    assert kept_back(NEW, [at("a", NEW, serving=0), at("b", OLD)], ("a",)) == {}


def test_an_undo_touches_only_where_the_rollout_had_come() -> None:
    assert kept_back(OLD, [at("a", NEW, serving=0, left=(OLD,)), at("b", OLD), at("c", OLD)], ()) == {}


def test_what_only_stands_in_begins_with_what_serves_elsewhere_until_a_region_has_done_the_new_generation() -> None:
    fails, lost = at("a", NEW, serving=1, left=(OLD,)), at("c", OLD)
    assert of_stand_ins(NEW, [fails, lost], ("c",)) == OLD
    assert of_stand_ins(NEW, [at("a", NEW), lost], ("c",)) == NEW, "it serves in a"
    assert of_stand_ins(NEW, [at("a", NEW), lost], ("c",), ("a",)) == OLD, "and has for a moment only"
    assert of_stand_ins(NEW, [fails, at("c", OLD, serving=0)], ("c",)) == NEW, "nobody serves another"
    assert of_stand_ins(NEW, [lost], ("c",)) == NEW, "nobody who is heard would ever try it before"
    assert of_stand_ins(OLD, [at("b", OLD), at("c", NEW, left=(OLD,))], ("c",)) == OLD, "after an undo"


def test_what_only_stands_in_and_does_not_serve_yet_keeps_its_generation_and_holds_up_nobody() -> None:
    lost = at("c", OLD)
    fails = [at("a", NEW, serving=1, left=(OLD,)), lost, stands_in("d", OLD)]
    assert kept_back(NEW, fails, ("c",)) == {"c": OLD, "d": OLD}
    assert kept_back(NEW, [at("a", OLD), lost, stands_in("d", OLD)], ("c",)) == {"c": OLD, "d": OLD}, "a begins"
    assert kept_back(NEW, [at("a", NEW), lost, stands_in("d", OLD)], ("c",)) == {"c": OLD}, "a has done"
    assert kept_back(OLD, [lost, stands_in("d", NEW)], ("c",)) == {}, "an undo mends it at once"


def test_a_region_is_changing_while_it_runs_two_generations_or_nothing_of_the_one_it_should_serves() -> None:
    assert is_changing(at("a", NEW, left=(OLD,)))
    assert is_changing(at("a", NEW, serving=0))
    assert not is_changing(at("a", NEW, serving=1)), "one that was restarted is no rollout"
    assert not is_changing(stands_in("d", NEW)), "it has nothing of its own"


def test_a_rollout_is_not_complete_while_a_region_waits_for_its_turn() -> None:
    through = Condition(type="Progressing", status="True", reason="Complete", message="2 of 2 serve")
    done, waits = (replace(a, status=replace(a.status, conditions=(through,))) for a in (at("a", NEW), at("b", OLD)))
    said = _progressing([done, waits], f"api.g{NEW}", ())
    assert (said.reason, said.message) == ("RollingOut", f"b: keeps generation {OLD} until its turn comes")
    proving = replace(waits, status=replace(waits.status, conditions=(replace(through, reason="Proving"),)))
    assert _progressing([done, proving], f"api.g{NEW}", ()).message == said.message, "what it proves is not what is wanted"
    assert _progressing([done, replace(waits, spec=done.spec)], f"api.g{NEW}", ()).reason == "RollingOut", "it has not answered"
    assert _progressing([done], f"api.g{NEW}", ()).reason == "Complete"
